"""`farflung syncer-gen` as operators have it: a real hub with its controllers, and a cluster for the manifest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from asked_hub import custom
from hub_process import FARFLUNG, PATIENCE, HubProcess
from kubectl_runner import Kubectl

from farflung.controllers.mailbox.controller import SYNC_TARGETS


class Operator:
    def __init__(self, hub: HubProcess, directory: Path) -> None:
        self.hub = hub
        self.directory = directory
        self._environment = {**os.environ, "KUBECONFIG": str(hub.kubeconfig)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FARFLUNG, *arguments],
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=PATIENCE,
            cwd=self.directory,
        )

    def __call__(self, *arguments: str) -> str:
        """What it prints on standard output."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path_factory.mktemp("registering") / "hub", command="start")
    try:
        with hub.client() as client:
            client.create(f"/clusters/root:compute{SYNC_TARGETS.path()}", custom(SYNC_TARGETS, "florin"))
        yield hub
        hub.stop()
        assert hub.trouble() == []
    finally:
        hub.kill()


@pytest.fixture
def operator(workspaces: HubProcess, tmp_path: Path) -> Operator:
    return Operator(workspaces, tmp_path)


def test_applying_the_manifest_twice_creates_everything_once(operator: Operator, kubectl: Kubectl) -> None:
    options = ["syncer-gen", "florin", "--workspace", "root:compute", "--labels", f"for={kubectl.namespace}"]
    ended = operator.run(*options, "--server", "https://hub.example.com:6443", "-o", "florin.yaml")
    assert ended.returncode == 0, ended.stderr
    file = operator.directory / "florin.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1].endswith("in the cluster, run `kubectl apply -f florin.yaml`")
    name = yaml.safe_load(file.read_text().partition("---")[0])["metadata"]["name"]
    kinds = (
        "namespace",
        "serviceaccount",
        "clusterrole.rbac.authorization.k8s.io",
        "clusterrolebinding.rbac.authorization.k8s.io",
        "secret",
        "deployment.apps",
    )
    assert kubectl(f"apply -f {file}").splitlines() == [f"{kind}/{name} created" for kind in kinds]
    before = file.read_bytes()
    operator(*options, "--server", "https://hub.example.com:6443", "-o", "florin.yaml")
    assert file.read_bytes() == before
    assert kubectl(f"apply -f {file}").splitlines() == [f"{kind}/{name} unchanged" for kind in kinds]
    printed = operator(*options, "--server", "https://hub.example.com:6443")
    assert without_token(printed) == without_token(before.decode())
    allowed = f"auth can-i --as=system:serviceaccount:{name}:{name}"
    assert kubectl(f"{allowed} patch deployments.apps -A") == "yes\n"
    assert kubectl.run(f"{allowed} escalate roles.rbac.authorization.k8s.io -A").stdout == "no\n"
    kubectl(f"delete -f {file}")  # and wait until the namespace is gone, in which the next kubectl makes the same


def without_token(manifest: str) -> list[str]:
    return [line for line in manifest.splitlines() if not line.startswith("  token: ")]


def test_a_kubeconfig_alone_leads_to_the_mailbox_until_it_is_revoked(operator: Operator, kubectl: Kubectl) -> None:
    ended = operator.run(
        "syncer-gen", "florin", "--workspace", "root:compute", "--syncer-kubeconfig", "mailbox.kubeconfig"
    )
    assert ended.returncode == 0, ended.stderr
    assert "farflung syncer --from-kubeconfig mailbox.kubeconfig" in ended.stderr
    file = operator.directory / "mailbox.kubeconfig"
    assert file.stat().st_mode & 0o777 == 0o600
    configs = f"--kubeconfig {file} get syncerconfigs -o name"
    assert kubectl(configs) == "syncerconfig.edge.kcp.io/the-one\n"
    assert "forbidden" in kubectl.fails(f"--kubeconfig {file} get clusterroles")
    token = yaml.safe_load(file.read_text())["users"][0]["user"]["token"]
    assert token not in operator.hub.log()
    assert len(operator("syncer-revoke", "florin", "--workspace", "root:compute").splitlines()) == 3
    assert "logged in" in kubectl.fails(configs)
    assert "is not registered" in operator.run("syncer-revoke", "florin", "--workspace", "root:compute").stderr


def test_what_is_wrong_is_one_sentence(operator: Operator) -> None:
    ended = operator.run("syncer-gen", "nobody", "--workspace", "root:compute")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "Error: the workspace root:compute has no SyncTarget nobody; --workspace names another one\n"
    for wrong in (
        ["--replicas", "2"],
        ["--lifetime", "1m"],
        ["--allow", "*"],
        ["--namespace", "A B"],
        ["--labels", "x"],
    ):
        assert operator.run("syncer-gen", "florin", "--workspace", "root:compute", *wrong).returncode == 2, wrong
    ended = operator.run("syncer-gen", "florin", "--workspace", "root:compute", "-o", "not/there.yaml")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        1,
        "Error: cannot write not/there.yaml: no such file or directory",
    )


def test_an_address_of_this_machine_alone_is_warned_of(operator: Operator) -> None:
    ended = operator.run("syncer-gen", "florin", "--workspace", "root:compute")
    assert ended.returncode == 0
    assert "is an address of this machine alone; --server names one that the cluster can reach" in ended.stderr


def test_a_syncer_says_in_one_sentence_why_it_does_not_start(operator: Operator) -> None:
    options = ["syncer", "--from-kubeconfig", str(operator.hub.kubeconfig), "--sync-target-name", "florin"]
    options += ["--to-kubeconfig", str(operator.hub.kubeconfig), "--sync-target-uid", "4711"]
    ended = operator.run(*options)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"farflung syncer: {operator.hub.kubeconfig} leads to root, and not to the mailbox of a SyncTarget with the "
        "uid 4711; `farflung syncer-gen florin --syncer-kubeconfig FILE` writes one that does\n"
    )
    ended = operator.run(*options, "--state-directory", "/proc/nowhere")
    assert (ended.returncode, ended.stderr) == (
        1,
        "farflung syncer: cannot use /proc/nowhere: no such file or directory\n",
    )
    assert operator.run(*options, "--token-secret", "florin").returncode == 2
