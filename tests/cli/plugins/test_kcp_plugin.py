"""`kubectl kcp`: binding, claims, and schemas of CustomResourceDefinitions."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml
from fake_workspaces import FakeHub
from plugin_runner import Outcome, Plugin

from farflung.cli.plugins import session

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.io
spec:
  group: example.io
  names:
    kind: Widget
    plural: widgets
    shortNames:
    - wd
  scope: Cluster
  versions:
  - name: v1alpha1
    additionalPrinterColumns:
    - jsonPath: .spec.size
      name: Size
      type: integer
    schema:
      openAPIV3Schema:
        type: object
        description: A widget is what an example is made of,
          and whoever reads this line sees it wrapped at the eightieth column.
        properties:
          spec:
            type: object
            required:
            - size
            properties:
              size:
                type: integer
                description: 'How big: in metres.'
              yes:
                type: string
                default: "1"
                pattern: ^<a>$
    served: true
    storage: true
    subresources:
      status: {}
"""

SCHEMA = """\
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata:
  creationTimestamp: null
  name: v1.widgets.example.io
spec:
  group: example.io
  names:
    kind: Widget
    listKind: WidgetList
    plural: widgets
    shortNames:
    - wd
    singular: widget
  scope: Cluster
  versions:
  - additionalPrinterColumns:
    - jsonPath: .spec.size
      name: Size
      type: integer
    name: v1alpha1
    schema:
      description: A widget is what an example is made of, and whoever reads this
        line sees it wrapped at the eightieth column.
      properties:
        spec:
          properties:
            size:
              description: 'How big: in metres.'
              type: integer
            "yes":
              default: "1"
              pattern: ^<a>$
              type: string
          required:
          - size
          type: object
      type: object
    served: true
    storage: true
    subresources:
      status: {}

---
"""


def refused(text: str, out: str = "") -> Outcome:
    return Outcome(1, out, f"error: {text}\n")


def printed(text: str) -> Outcome:
    return Outcome(0, text, "")


@pytest.fixture
def crd(tmp_path: Path) -> Path:
    path = tmp_path / "crd.yaml"
    path.write_text(CRD.replace("              yes:", '              "yes":'))
    return path


def test_workspaces_are_a_part_of_it_and_complain_in_small_letters(kubectl_kcp: Plugin, kubeconfig: Path) -> None:
    for name in ("ws", "workspace", "workspaces"):
        assert kubectl_kcp(name, ".") == printed('Current workspace is "root".\n')
    assert kubectl_kcp("ws", "root:nosuch") == refused('workspace "root:nosuch" not found')
    assert kubectl_kcp("ws", "create", "z1").out.endswith('Workspace "z1" (type root:organization) is ready to use.\n')


def test_an_export_is_bound(kubectl_kcp: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    hub.exports.add(("root:esp", "edge.kcp.io"))
    assert kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io") == printed(
        "apibinding edge.kcp.io created. Waiting to successfully bind ...\nedge.kcp.io created and bound.\n"
    )
    assert kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io") == refused(
        'apibindings.apis.kcp.io "edge.kcp.io" already exists'
    )
    assert hub.bindings["root"]["edge.kcp.io"]["spec"] == {
        "reference": {"export": {"path": "root:esp", "name": "edge.kcp.io"}}
    }


def test_a_binding_that_does_not_succeed_is_told_after_the_timeout(
    kubectl_kcp: Plugin, kubeconfig: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POLL_INTERVAL", 0.001)
    hub.exports.add(("root:esp", "edge.kcp.io"))
    kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io")
    assert kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io", "--name", "second", "--timeout", "10ms") == refused(
        "could not bind second: timed out waiting for the condition",
        "apibinding second created. Waiting to successfully bind ...\n",
    )


def test_what_the_server_has_against_a_binding_is_told_each_once(
    kubectl_kcp: Plugin, kubeconfig: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POLL_INTERVAL", 0.001)
    hub.exports.add(("root:esp", "edge.kcp.io"))
    hub.obstacles = [
        {"type": "Ready", "status": "False", "severity": "Info", "message": "Waiting"},
        {"type": "BindingUpToDate", "status": "False", "severity": "Error", "message": "a name is taken"},
        {"type": "InitialBindingCompleted", "status": "False", "severity": "Error", "message": "a name is taken"},
        {"type": "PermissionClaimsValid", "status": "True"},
    ]
    kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io")
    assert kubectl_kcp("bind", "apiexport", "root:esp:edge.kcp.io", "--name", "second", "--timeout", "10ms") == refused(
        "could not bind second: timed out waiting for the condition: a name is taken",
        "apibinding second created. Waiting to successfully bind ...\n",
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "`root:ws:apiexport_object` reference to bind is required as an argument"),
        (
            ("edge.kcp.io",),
            "fully qualified reference to workspace where APIExport exists is required. The format is "
            "`<logical-cluster-name>:<apiexport>` or `<full>:<path>:<to>:<apiexport>`",
        ),
        (
            ("root:nosuch:x",),
            'apibindings.apis.kcp.io "x" is forbidden: unable to create APIBinding: '
            "no permission to bind to export root:nosuch:x",
        ),
        (
            ("root:x", "--timeout", "soon"),
            'invalid argument "soon" for "--timeout" flag: time: invalid duration "soon"',
        ),
    ],
)
def test_what_cannot_be_bound_is_refused(
    words: tuple[str, ...], complaint: str, kubectl_kcp: Plugin, kubeconfig: Path
) -> None:
    assert kubectl_kcp("bind", "apiexport", *words) == refused(complaint)


def test_claims_are_shown_and_accepted(kubectl_kcp: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    empty = "APIBINDING   RESOURCE GROUP-VERSION   STATUS\n"
    assert kubectl_kcp("claims", "get", "apibinding") == printed(empty)
    assert kubectl_kcp("claims", "get", "apibinding", "nosuch") == refused(
        'error finding apibinding: apibindings.apis.kcp.io "nosuch" not found', empty
    )
    hub.bindings["root"] = {
        "edge.kcp.io": {
            "metadata": {"name": "edge.kcp.io", "resourceVersion": "7"},
            "spec": {"permissionClaims": [{"resource": "pods", "state": "Rejected"}]},
            "status": {
                "exportPermissionClaims": [
                    {"resource": "configmaps", "all": True},
                    {"group": "apps", "resource": "deployments"},
                ]
            },
        }
    }
    assert kubectl_kcp("claims", "accept", "apibinding", "edge.kcp.io") == printed(
        "claim for configmaps on APIBinding edge.kcp.io accepted.\n"
        "claim for deployments.apps on APIBinding edge.kcp.io accepted.\n"
    )
    assert kubectl_kcp("claims", "get", "apibinding", "edge.kcp.io") == printed(
        "APIBINDING    RESOURCE GROUP-VERSION   STATUS\n"
        "edge.kcp.io   -pods                    Rejected\n"
        "edge.kcp.io   -configmaps              Accepted\n"
        "edge.kcp.io   apps-deployments         Accepted\n"
    )
    assert kubectl_kcp("claims", "accept", "apibinding", "edge.kcp.io") == printed(
        "APIBinding edge.kcp.io has no open claims.\n"
    )
    assert kubectl_kcp("claims", "accept", "apibinding").code == 1


def test_a_definition_becomes_a_schema(kubectl_kcp: Plugin, crd: Path) -> None:
    assert kubectl_kcp("crd", "snapshot", "-f", str(crd), "--prefix", "v1") == printed(SCHEMA)


def test_a_schema_as_json_has_the_fields_in_the_order_of_go(kubectl_kcp: Plugin, crd: Path) -> None:
    out = kubectl_kcp("crd", "snapshot", "-f", str(crd), "--prefix=v1", "-o", "json").out
    assert out.startswith('{"kind":"APIResourceSchema","apiVersion":"apis.kcp.io/v1alpha1","metadata":{"name":"v1.')
    assert '"pattern":"^\\u003ca\\u003e$"' in out
    assert json.loads(out.split("\n")[0]) == yaml.safe_load(SCHEMA.removesuffix("---\n"))


def test_several_definitions_are_read_from_standard_input(
    kubectl_kcp: Plugin, crd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("---\n" + crd.read_text() + "---\n---\n" + crd.read_text()))
    assert kubectl_kcp("crd", "snapshot", "-f", "-", "--prefix", "v1") == printed(SCHEMA * 2)


def test_what_is_no_definition_cannot_be_converted(kubectl_kcp: Plugin, crd: Path, tmp_path: Path) -> None:
    assert kubectl_kcp("crd", "snapshot", "--prefix", "v1") == refused("--filename is required")
    assert kubectl_kcp("crd", "snapshot") == refused("[--filename is required, --prefix is required]")
    assert kubectl_kcp("crd", "snapshot", "-f", "nosuch.yaml", "--prefix", "v1") == refused(
        "error opening nosuch.yaml: open nosuch.yaml: no such file or directory"
    )
    assert "must consist of lower case" in kubectl_kcp("crd", "snapshot", "-f", str(crd), "--prefix", "V_1").err
    for number, text in enumerate(
        [CRD + CRD, "kind: Location\napiVersion: v1\n", "- 1\n", "a: [\n", CRD.replace("spec:", "x:", 1)]
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        outcome = kubectl_kcp("crd", "snapshot", "-f", str(path), "--prefix", "v1")
        assert outcome.code == 1 and outcome.err.startswith("error: ")


def test_groups_of_commands_show_what_there_is(kubectl_kcp: Plugin) -> None:
    assert "  claims      Operations related to viewing or updating permission claims\n" in kubectl_kcp().out
    assert kubectl_kcp("bind").out.startswith(
        "Bind different types into current workspace.\n\nUsage:\n  kcp bind [flags]"
    )
    assert kubectl_kcp("--version").out.startswith("kcp version ")
    assert kubectl_kcp("nosuch") == refused('unknown command "nosuch" for "kcp"')
