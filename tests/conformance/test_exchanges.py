"""The recordings of a real kube-apiserver, replayed on a hub, and in a workspace of a hub."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import prefixed
import pytest
import recorder
import replay
from exchanges import Outcome, Replay, Scenario
from recorded import name_of, recordings
from servers import Request, Server
from threaded_hub import ThreadedHub

from farflung.cli.credentials import ADMIN

EXCHANGES = {name_of(path).removesuffix(".jsonl"): path for path in recordings("kubernetes")}
WAITING = {"namespace-lifecycle", "watch"}  #: recordings that wait for seconds
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in WAITING else ()) for name in EXCHANGES]


@pytest.fixture
def hub() -> Iterator[Server]:
    hub = ThreadedHub.without_workspaces()
    with hub.client(ADMIN) as client:
        yield client
    hub.close()


@pytest.fixture
def workspaces() -> Iterator[Server]:
    hub = ThreadedHub.with_workspaces()
    with hub.client(prefixed.ADMINISTRATOR) as client:
        yield client
    hub.close()


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_known_exchanges_differ(hub: Server, name: str) -> None:
    outcome = replay.replay_http(hub, [EXCHANGES[name]], keeps=True)
    known = replay.of_recordings(replay.Known.read().of_http(), [EXCHANGES[name]])
    assert outcome.differing == known, outcome.text(outcome.differing - known)


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_known_exchanges_differ_in_a_workspace(workspaces: Server, name: str) -> None:
    outcome = prefixed.replay_in_workspace(workspaces, [name])
    known = prefixed.known_differences([name], outcome.left_out)
    assert outcome.differing == known, outcome.text(outcome.differing - known)


@pytest.mark.long
@pytest.mark.parametrize("script", ["replay.py", "prefixed.py", "kcp.py"])
def test_exactly_the_known_steps_differ_at_hub_processes(script: str) -> None:
    """With their TLS, their stores on disk and every representative kubectl."""
    command = [sys.executable, str(Path(__file__).with_name(script))]
    replayed = subprocess.run(command, capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


# --- the tools ------------------------------------------------------------------------------------


def replayed(server: Server, scenario: Scenario) -> Outcome:
    run = Replay(server, keeps=True)
    run.play(scenario)
    return run.outcome


def test_a_replay_notices_another_status_and_a_field_with_another_value(hub: Server) -> None:
    scenario = Scenario.read(EXCHANGES["dry-run"])
    assert replayed(hub, scenario).passed == len(scenario.steps)
    scenario.steps[0]["status"] += 1
    scenario.steps[3]["response"] = {**scenario.steps[3]["response"], "kind": "Other"}
    assert replayed(hub, scenario).differing == {"dry-run.jsonl:1", "dry-run.jsonl:4"}


def test_a_replay_leaves_nothing_behind(hub: Server) -> None:
    def namespaces() -> list[str]:
        listed = json.loads(hub.call(Request("GET", "/api/v1/namespaces", {})).body)
        return [item["metadata"]["name"] for item in listed["items"]]

    before = namespaces()
    replay.replay_http(hub, [EXCHANGES["crd-cel"]])
    assert namespaces() == before


@pytest.mark.parametrize("name", ["list", "metadata", "managed-fields", "tables-native"])
def test_a_server_answers_as_it_was_recorded(hub: Server, tmp_path: Path, name: str) -> None:
    scenario = Scenario.read(EXCHANGES[name])
    recording = recorder.Recorder(hub, keeps=True)
    recording.play(scenario)
    assert recording.outcome.passed == len(scenario.steps)
    written = tmp_path / EXCHANGES[name].name
    recorder.write(scenario, written)
    outcome = replayed(hub, Scenario.read(written))
    assert outcome.differing == set(), outcome.text(outcome.differing)


def test_nothing_but_the_cluster_of_the_workspace_is_left_out_of_a_comparison() -> None:
    annotation = {"kcp.io/cluster": "abc"}
    quoted = r"{\"name\":\"a\",\"annotations\":{\"kcp.io/cluster\":\"abc\"},\"labels\":{}}"
    answer = {
        "items": [
            {"metadata": {"name": "a", "annotations": annotation}},
            {"metadata": {"annotations": {**annotation, "b": "c"}}},
            {"metadata": {"annotations": {"kcp.io/cluster": "another"}}},
            {"metadata": {"annotations": {}}},
        ],
        "message": quoted,
    }
    assert prefixed.without_cluster(answer, "abc") == {
        "items": [
            {"metadata": {"name": "a"}},
            {"metadata": {"annotations": {"b": "c"}}},
            {"metadata": {"annotations": {"kcp.io/cluster": "another"}}},
            {"metadata": {"annotations": {}}},
        ],
        "message": r"{\"name\":\"a\",\"labels\":{}}",
    }


@pytest.mark.parametrize(
    ("path", "elsewhere"),
    [
        ("/api/v1/namespaces/x-${run}/configmaps/a", False),
        ("/apis/things-${run}.example.com/v1/namespaces/x/things", False),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", False),
        ("/api/v1", False),
        ("/apis/nosuch.io/v1", False),
        ("/api/v1/namespaces/x/pods", True),
        ("/apis/apps/v1/namespaces/x/deployments/a/status", True),
        ("/apis/apps", True),
        ("/apis/batch/v1", True),
    ],
)
def test_what_a_workspace_does_not_serve_is_known_by_its_path(path: str, elsewhere: bool) -> None:
    assert prefixed.is_elsewhere(path) == elsewhere
