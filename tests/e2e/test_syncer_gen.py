"""`farflung syncer-gen` as operators have it: a real hub with its controllers, and a cluster for the manifest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from asked_hub import custom
from click.testing import CliRunner, Result
from hub_process import FARFLUNG, PATIENCE, HubProcess
from kubectl_runner import Kubectl

from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.cli.main import main


class Operator:
    """Runs commands in this process, in a directory of their own, with the kubeconfig of the hub."""

    def __init__(self, hub: HubProcess, workspace: str, directory: Path) -> None:
        self.hub = hub
        self.directory = directory
        self.florin = ("florin", "--workspace", workspace)
        with hub.client() as client:
            client.create(f"/clusters/{workspace}{SYNC_TARGETS.path()}", custom(SYNC_TARGETS, "florin"))

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"KUBECONFIG": str(self.hub.kubeconfig)})

    def __call__(self, *arguments: str) -> str:
        """What it prints on standard output."""
        ended = self.run(*arguments)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def operator(workspaces: HubProcess, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(workspaces, workspace, tmp_path)


def test_applying_the_manifest_twice_creates_everything_once(operator: Operator, kubectl: Kubectl) -> None:
    options = ["syncer-gen", *operator.florin, "--labels", f"for={kubectl.namespace}"]
    ended = operator.run(*options, "--server", "https://hub.example.com:6443", "-o", "florin.yaml")
    assert ended.exit_code == 0, ended.stderr
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
    kubectl(f"delete -f {file} --wait=false")


def without_token(manifest: str) -> list[str]:
    return [line for line in manifest.splitlines() if not line.startswith("  token: ")]


def test_a_kubeconfig_alone_leads_to_the_mailbox_until_it_is_revoked(operator: Operator, kubectl: Kubectl) -> None:
    ended = operator.run("syncer-gen", *operator.florin, "--syncer-kubeconfig", "mailbox.kubeconfig")
    assert ended.exit_code == 0, ended.stderr
    assert "farflung syncer --from-kubeconfig mailbox.kubeconfig" in ended.stderr
    file = operator.directory / "mailbox.kubeconfig"
    assert file.stat().st_mode & 0o777 == 0o600
    configs = f"--kubeconfig {file} get syncerconfigs -o name"
    assert kubectl(configs) == "syncerconfig.edge.kcp.io/the-one\n"
    assert "forbidden" in kubectl.fails(f"--kubeconfig {file} get clusterroles")
    token = yaml.safe_load(file.read_text())["users"][0]["user"]["token"]
    assert token not in operator.hub.log()
    assert len(operator("syncer-revoke", *operator.florin).splitlines()) == 3
    assert "logged in" in kubectl.fails(configs)
    assert "is not registered" in operator.run("syncer-revoke", *operator.florin).stderr


def test_a_revoked_syncer_says_how_it_is_registered_again(operator: Operator) -> None:
    file, state = str(operator.directory / "revoked.kubeconfig"), str(operator.directory / "state")
    words = operator.run("syncer-gen", *operator.florin, "--syncer-kubeconfig", file).stderr.split()
    operator("syncer-revoke", *operator.florin)
    named = [
        "--sync-target-name",
        "florin",
        "--sync-target-uid",
        words[words.index("--sync-target-uid") + 1].strip("`."),
    ]
    sides = ["--from-kubeconfig", file, "--to-kubeconfig", str(operator.hub.kubeconfig)]
    command = [FARFLUNG, "syncer", *sides, *named, "--state-directory", state]
    lines = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as syncer:
        assert syncer.stderr is not None
        for line in syncer.stderr:
            lines.append(line)
            if "the hub refuses this syncer" in line:
                break
        syncer.terminate()
    assert "which has expired or was revoked; run `farflung syncer-gen` again" in lines[-1], lines


def test_what_is_wrong_is_one_sentence(operator: Operator) -> None:
    ended = operator.run("syncer-gen", "nobody", *operator.florin[1:])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert (
        ended.stderr
        == f"Error: the workspace {operator.florin[-1]} has no SyncTarget nobody; select another one with --workspace\n"
    )
    for wrong in (
        ["--replicas", "2"],
        ["--lifetime", "1m"],
        ["--allow", "*"],
        ["--namespace", "A B"],
        ["--labels", "x"],
    ):
        assert operator.run("syncer-gen", *operator.florin, *wrong).exit_code == 2, wrong
    ended = operator.run("syncer-gen", *operator.florin, "-o", "not/there.yaml")
    assert (ended.exit_code, ended.stderr.splitlines()[-1]) == (
        1,
        "Error: cannot write not/there.yaml: no such file or directory",
    )


def test_an_address_of_this_machine_alone_is_warned_of(operator: Operator) -> None:
    ended = operator.run("syncer-gen", *operator.florin)
    assert ended.exit_code == 0
    assert "is only reachable from this machine; select another URL with --server" in ended.stderr


def test_a_syncer_says_in_one_sentence_why_it_does_not_start(operator: Operator) -> None:
    kubeconfig = str(operator.hub.kubeconfig)
    options = ["syncer", "--from-kubeconfig", kubeconfig, "--sync-target-name", "florin"]
    options += ["--to-kubeconfig", kubeconfig, "--sync-target-uid", "4711"]
    ended = subprocess.run([FARFLUNG, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"farflung syncer: {kubeconfig} is for root, which is not the mailbox of the SyncTarget with UID 4711; "
        "`farflung syncer-gen florin --syncer-kubeconfig FILE` writes the right one\n"
    )
    refused = operator.run(*options, "--state-directory", "/proc/nowhere")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "farflung syncer: cannot use /proc/nowhere: no such file or directory\n",
    )
    assert operator.run(*options, "--token-secret", "florin").exit_code == 2
