"""`kubectl ws` and `kubectl kcp` as people type them, on a real hub."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml
from hub_process import HubProcess
from kubectl_runner import Kubectl, kubectls

NUMBERS = count(1)
SCHEMA = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.io
spec:
  group: example.io
  names: {kind: Widget, plural: widgets}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
"""
EXPORT = """\
apiVersion: apis.kcp.io/v1alpha1
kind: APIExport
metadata: {name: example.io}
spec:
  latestResourceSchemas: [today.widgets.example.io]
  permissionClaims: [{group: "", resource: configmaps, all: true}]
"""


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path_factory.mktemp("workspaces") / "data", command="start", arguments=["--bare"])
    try:
        yield hub
        hub.stop()
        assert hub.trouble() == []
    finally:
        hub.kill()


@pytest.fixture
def shell(workspaces: HubProcess, tmp_path: Path) -> Kubectl:
    """A kubectl with a kubeconfig of its own that has just come to root."""
    found = kubectls()
    if not found:
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    kubectl = Kubectl(found[-1], workspaces, tmp_path, "default")
    kubectl.environment["PATH"] = f"{Path(sys.executable).parent}:{kubectl.environment['PATH']}"
    return kubectl


@pytest.fixture
def organization(shell: Kubectl) -> str:
    """A new workspace that the shell is in."""
    name = f"org-{next(NUMBERS)}"
    shell("ws root")
    assert shell(f"ws create {name} --enter") == (
        f'Workspace "{name}" (type root:organization) created. Waiting for it to be ready...\n'
        f'Workspace "{name}" (type root:organization) is ready to use.\n'
        f'Current workspace is "root:{name}" (type root:organization).\n'
    )
    return name


def test_one_goes_through_workspaces_as_through_directories(shell: Kubectl, organization: str) -> None:
    assert shell("ws create wmw-c") == (
        'Workspace "wmw-c" (type root:universal) created. Waiting for it to be ready...\n'
        'Workspace "wmw-c" (type root:universal) is ready to use.\n'
    )
    assert shell("ws wmw-c") == f'Current workspace is "root:{organization}:wmw-c" (type root:universal).\n'
    assert shell("ws ..") == f'Current workspace is "root:{organization}".\n'
    assert shell("ws -") == f'Current workspace is "root:{organization}:wmw-c".\n'
    assert shell("workspace . --short") == f"root:{organization}:wmw-c\n"
    assert shell(f"kcp ws root:{organization}") == f'Current workspace is "root:{organization}".\n'
    assert shell("ws tree") == f".\n└── {organization}\n    └── wmw-c\n\n"
    assert shell("ws '~'") == 'Current workspace is "kvdk2spgmbix".\n'
    assert shell.fails("ws root:nosuch") == 'Error: workspace "root:nosuch" not found'


def test_kubectl_works_in_the_workspace_one_is_in(shell: Kubectl, organization: str) -> None:
    shell("create configmap here")
    shell("ws create other --enter")
    assert not shell.exists("configmap here")
    shell("ws -")
    assert shell.exists("configmap here")
    assert [row[:3] for row in shell.table("get ws")][1:] == [["other", "universal", "Ready"]]


def test_a_kubeconfig_that_kubectl_changed_is_only_added_to(shell: Kubectl, organization: str) -> None:
    shell("config set-cluster mine --server https://elsewhere.example:6443 --tls-server-name me")
    shell("config set-context mine --cluster mine --user someone --namespace shop")
    shell("config set-credentials someone --token secret")
    shell("config set-context --current --namespace foo")
    before = yaml.safe_load(shell("config view --raw"))
    shell("ws root")
    after = yaml.safe_load(shell("config view --raw"))
    for section in ("clusters", "contexts", "users"):
        kept = {item["name"]: item for item in after[section]}
        assert all(kept[item["name"]] == item for item in before[section] if "workspace.kcp.io" not in item["name"])
    assert shell("config view --minify -o jsonpath='{.contexts[0].context.namespace}'") == "foo"
    text = shell.kubeconfig.read_text()
    shell("config set-context --current --namespace foo")
    assert shell.kubeconfig.read_text() == text, "kubectl writes it in the same form"


def test_an_api_is_made_exported_bound_and_its_claims_accepted(shell: Kubectl, organization: str) -> None:
    schema = shell("kcp crd snapshot -f - --prefix today", stdin=SCHEMA)
    shell("apply -f -", stdin=schema)
    shell("apply -f -", stdin=EXPORT)
    shell("ws create consumer --enter")
    assert shell(f"kcp bind apiexport root:{organization}:example.io") == (
        "apibinding example.io created. Waiting to successfully bind ...\nexample.io created and bound.\n"
    )
    assert shell("api-resources --api-group example.io -o name") == "widgets.example.io\n"
    assert "Warning: claim for configmaps exported but not specified" in shell(f"ws root:{organization}:consumer")
    assert shell("kcp claims accept apibinding example.io") == (
        "claim for configmaps on APIBinding example.io accepted.\n"
    )
    assert re.search(r"^example\.io +-configmaps +Accepted$", shell("kcp claims get apibinding"), re.MULTILINE)
    assert "Warning" not in shell(f"ws root:{organization}:consumer")


def test_what_exists_already_may_be_ignored(shell: Kubectl, organization: str) -> None:
    shell("ws root")
    assert shell.fails(f"ws create {organization}") == (
        f'Error: workspaces.tenancy.kcp.io "{organization}" already exists'
    )
    assert shell(f"ws create {organization} --ignore-existing").startswith(
        f'Workspace "{organization}" (type root:organization) already exists.\n'
    )


def test_one_leaves_a_workspace_that_was_deleted_while_one_was_in_it(shell: Kubectl, organization: str) -> None:
    shell("ws create gone --enter")
    elsewhere = shell.kubeconfig.with_name("elsewhere")
    elsewhere.write_bytes(shell.kubeconfig.read_bytes())
    shell(f"ws .. --kubeconfig {elsewhere}")
    assert shell(f"delete ws gone --kubeconfig {elsewhere}") == 'workspace.tenancy.kcp.io "gone" deleted\n'
    assert "Forbidden" in shell.fails("get configmaps")
    assert shell.fails("ws create below") == (
        'Error: workspaces.tenancy.kcp.io is forbidden: User "kcp-admin" cannot create resource "workspaces" in API '
        'group "tenancy.kcp.io" at the cluster scope: access denied'
    )
    assert shell("ws ..") == f'Current workspace is "root:{organization}".\n'
    assert shell.fails("ws gone") == 'Error: workspaces.tenancy.kcp.io "gone" not found'
