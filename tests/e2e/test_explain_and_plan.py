"""`farflung explain placement` and `farflung plan` as users have them: a real hub, its scheduler, a command line."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from asked_hub import custom, placement
from hub_process import FARFLUNG, PATIENCE, HubProcess, eventually

from farflung.client.resource import Collection
from farflung.controllers.edge_scheduler.controller import LOCATIONS, SYNC_TARGETS
from farflung.controllers.edge_scheduler.decide import PLACEMENTS

BINDINGS = Collection("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
WORKSPACES = Collection("tenancy.kcp.io", "v1alpha1", "workspaces", "Workspace")
RESOURCE = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
PROD = {"matchLabels": {"env": "prod"}}


class Terminal:
    def __init__(self, kubeconfig: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        ended = subprocess.run(
            [FARFLUNG, *arguments], input=stdin, capture_output=True, env=self._environment, timeout=PATIENCE
        )
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """With an inventory in root:compute and the API of placements in root:web."""
    hub = HubProcess(tmp_path_factory.mktemp("asked") / "hub", command="start")
    try:
        with hub.client() as client:
            make = lambda where, kind, obj: client.create(f"/clusters/{where}{kind.path()}", obj)  # noqa: E731
            universal = {"name": "universal", "path": "root"}
            make("root", WORKSPACES, custom(WORKSPACES, "web", type=universal))
            export = {"export": {"path": "root:espw", "name": "edge.kcp.io"}}
            make("root:web", BINDINGS, custom(BINDINGS, "edge", reference=export))
            for env in ("dev", "prod"):
                selector = {"matchLabels": {"env": env}}
                location = custom(LOCATIONS, env, {"env": env}, resource=RESOURCE, instanceSelector=selector)
                make("root:compute", LOCATIONS, location)
                make("root:compute", SYNC_TARGETS, custom(SYNC_TARGETS, env, {"env": env}))
        yield hub
        hub.stop()
    finally:
        hub.kill()


def test_a_placement_is_planned_made_and_explained(hub: HubProcess, tmp_path: Path) -> None:
    terminal = Terminal(hub.kubeconfig)
    here = ("--workspace", "root:web")
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(placement("p", PROD)))

    code, said, _ = terminal.run("plan", "-f", str(file), *here, "--detailed-exitcode")
    head, line, summary, _, where, told, *_ = said.splitlines()
    assert (code, head, summary) == (2, "EdgePlacement p (new)", "1 added, 0 removed, 0 unchanged")
    assert line.split()[::3] == ["+", "prod"]
    assert (where, told) == ("1 destination: prod/prod", "~ syncerconfigs.edge.kcp.io the-one")

    with hub.client() as client:
        client.create(f"/clusters/root:web{PLACEMENTS.path()}", placement("p", PROD))
    explained: dict[str, Any] = {}

    def current() -> bool:
        code, said, wrong = terminal.run("explain", "placement", "p", *here, "-o", "json")
        assert code == 0, wrong
        explained.update(orjson.loads(said))
        return bool(explained["now"]["slicesAreCurrent"] and explained["now"]["statusIsCurrent"])

    eventually(current, "the scheduler's work")
    assert [one["name"] for one in explained["locations"] if one["chosen"]] == ["prod"]
    assert terminal.run("plan", "-f", "-", *here, "--detailed-exitcode", stdin=file.read_bytes())[0] == 0

    both = yaml.safe_dump(placement("p", PROD, {"matchLabels": {"env": "dev"}})).encode()
    code, said, _ = terminal.run("plan", "-f", "-", *here, stdin=both)
    assert code == 0
    assert "1 added, 0 removed, 1 unchanged" in said.splitlines()
    code, said, _ = terminal.run("explain", "placement", "p", *here, "--location", "dev")
    assert code == 0
    assert 'no: spec.locationSelectors[0]: the label env of the Location is "dev", not "prod"' in said


def test_what_goes_wrong_is_a_sentence_and_exit_code_1(hub: HubProcess, tmp_path: Path) -> None:
    terminal = Terminal(hub.kubeconfig)
    unbound = terminal.run("explain", "placement", "p")
    assert unbound == (
        1,
        "",
        "Error: the workspace root does not have the API of placements: in that workspace, `kubectl kcp bind apiexport "
        "root:espw:edge.kcp.io` binds it\n",
    )
    nowhere = terminal.run("explain", "placement", "p", "--context", "base")
    assert (nowhere[0], nowhere[2].count("\n")) == (1, 1)
    assert "is the address of no workspace: give one with --workspace" in nowhere[2]
    wrong = yaml.safe_dump(placement("p", {"matchExpressions": [{"key": "env", "operator": "Is"}]})).encode()
    code, said, complaint = terminal.run("plan", "-f", "-", "--workspace", "root:web", stdin=wrong)
    assert (code, complaint) == (1, "Error: not everything can be planned\n")
    assert said.startswith("EdgePlacement p: error: spec.locationSelectors[0].matchExpressions[0].operator: ")
    assert terminal.run("plan", "--what")[0] == 1
    assert "there is no " in Terminal(tmp_path / "none").run("explain", "placement", "p")[2]


def test_a_hub_that_is_away_is_a_sentence(hub: HubProcess, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        stale = tmp_path / "stale.kubeconfig"
        stale.write_text(hub.kubeconfig.read_text().replace(f":{hub.port}", f":{taken.getsockname()[1]}"))
        code, said, complaint = Terminal(stale).run("explain", "placement", "p")
    assert (code, said, complaint.count("\n")) == (1, "", 1)
    assert complaint.startswith("Error: cannot reach the server: ")
