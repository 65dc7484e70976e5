"""`kubectl ws` and `kubectl kcp` as people type them, on a real hub."""

from __future__ import annotations

import re
import sys
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
