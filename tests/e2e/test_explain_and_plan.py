"""`farflung explain placement` and `farflung plan` as users have them: a real hub, its scheduler, a command line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from asked_hub import custom, placement
from click.testing import CliRunner
from hub_process import HubProcess, eventually

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.kcp.names import LOCATIONS, SYNC_TARGETS
from farflung.apis.names import Collection
from farflung.cli.main import main
from farflung.controllers.edge_scheduler.decide import NOTHING_SELECTED

BINDINGS = Collection("apis.kcp.io", "v1alpha1", "apibindings", "APIBinding")
RESOURCE = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
PROD = {"matchLabels": {"env": "prod"}}


def run(kubeconfig: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """(exit code, standard output, standard error)"""
    ended = CliRunner().invoke(main, arguments, input=stdin, env={"KUBECONFIG": str(kubeconfig)})
    return ended.exit_code, ended.stdout, ended.stderr


@pytest.fixture
def web(workspaces: HubProcess, workspace: str) -> str:
    """A workspace with the API of placements and an inventory."""
    with workspaces.client() as client:
        make = lambda kind, obj: client.create(f"/clusters/{workspace}{kind.path()}", obj)  # noqa: E731
        export = {"export": {"path": "root:espw", "name": "edge.kcp.io"}}
        make(BINDINGS, custom(BINDINGS, "edge", reference=export))
        for env in ("dev", "prod"):
            selector = {"matchLabels": {"env": env}}
            make(LOCATIONS, custom(LOCATIONS, env, {"env": env}, resource=RESOURCE, instanceSelector=selector))
            make(SYNC_TARGETS, custom(SYNC_TARGETS, env, {"env": env}))
    return workspace


def test_a_placement_is_planned_made_and_explained(workspaces: HubProcess, web: str, tmp_path: Path) -> None:
    kubeconfig = workspaces.kubeconfig
    here = ("--workspace", web)
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(placement("p", PROD)))

    code, output, _ = run(kubeconfig, "plan", "-f", str(file), *here, "--detailed-exitcode")
    head, line, warning, summary, _, where, told, *_ = output.splitlines()
    assert warning == f"warning: {NOTHING_SELECTED}"
    assert (code, head, summary) == (2, "EdgePlacement p (new)", "1 added, 0 removed, 0 unchanged; 0 objects selected")
    assert line.split()[::3] == ["+", "prod"]
    assert (where, told) == ("1 destination: prod/prod", "~ syncerconfigs.edge.kcp.io the-one")

    with workspaces.client() as client:
        client.create(f"/clusters/{web}{EDGE_PLACEMENTS.path()}", placement("p", PROD))
    explained: dict[str, Any] = {}

    def current() -> bool:
        code, output, wrong = run(kubeconfig, "explain", "placement", "p", *here, "-o", "json")
        assert code == 0, wrong
        explained.update(orjson.loads(output))
        return bool(explained["now"]["slicesAreCurrent"] and explained["now"]["statusIsCurrent"])

    eventually(current, "the scheduler's work")
    assert [one["name"] for one in explained["locations"] if one["chosen"]] == ["prod"]
    assert run(kubeconfig, "plan", "-f", "-", *here, "--detailed-exitcode", stdin=file.read_bytes())[0] == 0

    both = yaml.safe_dump(placement("p", PROD, {"matchLabels": {"env": "dev"}})).encode()
    code, output, _ = run(kubeconfig, "plan", "-f", "-", *here, stdin=both)
    assert code == 0
    assert "1 added, 0 removed, 1 unchanged; 0 objects selected" in output.splitlines()
    code, output, _ = run(kubeconfig, "explain", "placement", "p", *here, "--location", "dev")
    assert code == 0
    assert 'no: spec.locationSelectors[0]: the label env of the Location is "dev", not "prod"' in output


def test_what_goes_wrong_is_a_sentence_and_exit_code_1(workspaces: HubProcess, web: str, tmp_path: Path) -> None:
    kubeconfig = workspaces.kubeconfig
    unbound = run(kubeconfig, "explain", "placement", "p")
    assert unbound == (
        1,
        "",
        "Error: the workspace root has no edge API: bind it with `kubectl kcp bind apiexport root:espw:edge.kcp.io` in "
        "that workspace\n",
    )
    nowhere = run(kubeconfig, "explain", "placement", "p", "--context", "base")
    assert (nowhere[0], nowhere[2].count("\n")) == (1, 1)
    assert "is not the URL of a workspace: select one with --workspace" in nowhere[2]
    assert "if the hub has no workspaces (`farflung hub`), `kubectl describe` shows Events instead" in nowhere[2]
    wrong = yaml.safe_dump(placement("p", {"matchExpressions": [{"key": "env", "operator": "Is"}]})).encode()
    code, output, complaint = run(kubeconfig, "plan", "-f", "-", "--workspace", web, stdin=wrong)
    assert (code, complaint) == (1, "Error: some objects cannot be planned; see the errors above\n")
    refusal = 'EdgePlacement.edge.kcp.io "p" is invalid: spec.locationSelectors[0].matchExpressions[0].operator: '
    assert output.startswith(f"EdgePlacement p: error: {refusal}")
    assert run(kubeconfig, "plan", "--what")[0] == 1
    assert "there is no " in run(tmp_path / "none", "explain", "placement", "p")[2]


def test_a_hub_that_is_away_is_a_sentence(workspaces: HubProcess, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        stale = tmp_path / "stale.kubeconfig"
        stale.write_text(workspaces.kubeconfig.read_text().replace(f":{workspaces.port}", f":{taken.getsockname()[1]}"))
        code, output, complaint = run(stale, "explain", "placement", "p")
    assert (code, output, complaint.count("\n")) == (1, "", 1)
    assert complaint.startswith("Error: cannot reach the server: ")
