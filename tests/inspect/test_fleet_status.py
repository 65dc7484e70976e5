"""`farflung status` at a hub: what is seen of it by whom, what it costs, and what is printed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml
from asked_fleet import NAMESPACES, NOW, SUMMARIES, AskedFleet, report
from asked_hub import custom, placement
from click.testing import CliRunner
from examples import examples
from hub_harness import USER_TOKEN
from hypothesis import given, settings
from hypothesis import strategies as st
from local_transport import LocalTransport
from msgspec.structs import replace

from farflung.cli.main import main
from farflung.cli.status_output import printed
from farflung.client.rest import Client
from farflung.controllers.placement_translator.decide import PlacementProblem, condition
from farflung.inspect.fleet_status import Fleet, FleetStatus, status, summarize, with_paths
from farflung.inspect.hub import HubClient, hub_client
from farflung.inspect.results import InspectError, as_document
from farflung.machinery.errors import Obj
from farflung.placement.guard import Withdrawal
from farflung.placement.names import NAMESPACE_IN_USE, WITHDRAWAL_HELD

SERVER = "https://hub:6443"
READY = {"type": "Ready", "status": "True", "reason": "Resolved"}
PROJECTED = {"type": "WorkloadProjected", "status": "True", "reason": "Projected"}
NONE = dict.fromkeys(("reporting", "broken", "missing", "stale"), 0)
HELD = condition([PlacementProblem(WITHDRAWAL_HELD, Withdrawal(12, 14, {"a": {"x"}}).message(1))])


def asked(hub: AskedFleet, workspace: str = "root", token: str = "") -> HubClient:
    transport = LocalTransport(hub.transport.function, token) if token else hub.transport
    return hub_client(Client(transport, f"/clusters/{workspace}", "farflung"), server=SERVER)


async def shown(hub: HubClient, **how: Any) -> list[str]:
    answer = await status(hub, NOW, **how)
    return printed(answer, "table", NOW, everything=how.get("everything", False)).splitlines()


async def summarized(hub: AskedFleet, name: str, **destinations: int) -> None:
    broken = {
        "cluster": hub.cluster,
        "locationName": "florin",
        "syncTargetName": "florin",
        "reason": "Unavailable",
        "message": "0 of 1",
        "since": "2024-05-01T11:48:00Z",
    }
    summary = custom(SUMMARIES, f"p.{name}", {"edge.kcp.io/summary-placement": "p"})
    del summary["spec"]
    subject = {"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments"}
    subject |= {"namespace": "shop", "name": name}
    body = {**summary, "subject": subject, "destinations": {**NONE, "expected": 2, **destinations}}
    await hub.client.create(SUMMARIES, {**body, "broken": [broken] if destinations.get("broken") else []}, "shop")


async def furnished() -> AskedFleet:
    hub = await AskedFleet.started()
    florin, guilder = await hub.edge("florin"), await hub.edge("guilder")
    await hub.judge("florin", Ready="True", HeartbeatHealthy="True")
    await hub.judge("guilder", "2024-05-01T11:46:00Z", Ready="False", HeartbeatHealthy="False")
    await report(florin, objects={"synced": 7})
    await report(guilder, objects={"synced": 11, "failing": 1})
    await hub.place(placement("p", {}))
    await hub.told("p", READY, PROJECTED)
    return hub


async def test_what_is_not_well_is_listed_and_the_rest_counted() -> None:
    hub = await furnished()
    assert await shown(asked(hub)) == [
        f"Hub {SERVER}",
        "2 edges: 1 ready, 1 stale",
        "  NAME      WORKSPACE     LOCATIONS   STATE   HEARD   OBJECTS   PROBLEMS",
        "  guilder   root:places   guilder     stale   14m     11/12     1 object failing",
        "1 placement: none with problems",
    ]
    assert hub.transport.writes == []
    every = await shown(asked(hub), everything=True)
    assert every[3:] == [
        "  guilder   root:places   guilder     stale   14m     11/12     1 object failing",
        "  florin    root:places   florin      ready   10s     7/7       <none>",
        "1 placement: none with problems",
        "  NAME   WORKSPACE   OBJECTS   PROBLEM   MESSAGE",
        "  p      root:web    ?         <none>",
    ]


async def test_placements_without_permission_are_listed_and_those_with_less_than_matches_counted() -> None:
    hub = await furnished()
    why = 'matching Locations are left out, because the author of the spec, "ann", may not place there'
    await hub.told("p", {**READY, "message": why}, PROJECTED)
    assert (await shown(asked(hub)))[4:] == ["1 placement: none with problems, 1 without some matching Locations"]
    assert (await shown(asked(hub), everything=True))[-1] == f"  p      root:web    ?         <none>    {why}"
    in_use = condition([PlacementProblem(NAMESPACE_IN_USE, "namespaces shop in x: the namespace is used")])
    denied = {"type": "Ready", "status": "False", "severity": "Warning", "reason": "PlacingNotAllowed", "message": why}
    await hub.told("p", denied, in_use)
    assert [line.split() for line in (await shown(asked(hub)))[-2:]] == [
        ["p", "root:web", "?", "PlacingNotAllowed", *why.split()],
        ["p", "root:web", "?", "NamespaceInUse", *["namespaces", "shop", "in", "x:", "the", "namespace", "is", "used"]],
    ]


async def test_a_withdrawal_that_is_held_comes_with_the_command_that_confirms_it() -> None:
    hub = await furnished()
    await hub.told("p", READY, HELD)
    lines = await shown(asked(hub))
    at = lines.index("1 placement: 1 with problems, 1 withdrawal held")
    assert lines[at + 2].split(maxsplit=4)[:4] == ["p", "root:web", "?", "WithdrawalHeld"]
    assert lines[at + 3] == (
        f"  To confirm the withdrawal of p: kubectl --server={SERVER}/clusters/root:web annotate --overwrite "
        "edgeplacement p edge.kcp.io/confirm-withdrawal=1/12"
    )


async def test_broken_copies_are_told_with_the_first_of_them() -> None:
    hub = await furnished()
    await hub.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await summarized(hub, "fine", reporting=2)
    await summarized(hub, "web", reporting=2, broken=1)
    await summarized(hub, "new", reporting=2, progressing=2)
    lines = [" ".join(line.split()) for line in (await shown(asked(hub)))[-4:]]
    assert lines == [
        "3 StatusSummaries: 1 with broken, missing or stale copies, 1 with copies that are being rolled out "
        "(kubectl get ssum -A)",
        "OBJECT WORKSPACE PLACEMENT COPIES BROKEN MISSING STALE PROGRESSING FIRST",
        "Deployment shop/web root:web p 2 1 0 0 0 florin: Unavailable: 0 of 1 (since 12m)",
        "Deployment shop/new root:web p 2 0 0 0 2 <none>",
    ]


async def test_the_number_of_requests_does_not_depend_on_how_many_edges_there_are() -> None:
    hub = await furnished()
    await shown(asked(hub), everything=True)
    few = len(hub.transport.requests)
    for number in range(5):
        await hub.edge(f"more-{number}", mailbox=False)
    hub.transport.requests.clear()
    lines = await shown(asked(hub), everything=True)
    assert sum("no syncer has reported yet; it has no mailbox yet" in line for line in lines) == 5
    assert len(hub.transport.requests) == few


async def test_a_hub_without_edges_says_what_to_do() -> None:
    hub = await AskedFleet.started()
    assert [line.partition(":")[0] for line in await shown(asked(hub))] == [
        "Hub https",
        "No edges",
        "No placements",
    ]


async def test_one_workspace_alone_is_shown_on_request() -> None:
    hub = await furnished()
    await hub.place(placement("q", {}))
    places = await shown(asked(hub, "root:places"), only=True)
    assert places[0] == f"Hub {SERVER}, workspace root:places"
    assert places[1] == "2 edges: 1 ready, 1 stale"
    assert places[-1] == "No placements in this workspace."
    web = await shown(asked(hub, "root:web"), only=True)
    assert web[1:3] == ["No edges in this workspace.", "2 placements: 1 with problems"]
    assert web[-1].split(maxsplit=4) == [
        "q",
        "root:web",
        "?",
        "NotLookedAt",
        "the scheduler has not processed it yet; is it running?",
    ]


async def test_who_may_see_little_sees_that_and_is_told_what_is_missing() -> None:
    hub = await furnished()
    with pytest.raises(
        InspectError, match=r"no access to any part of the fleet at https://hub:6443; `--workspace PATH`"
    ):
        await shown(asked(hub, "root:web", USER_TOKEN))
    enter = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    read = {"apiGroups": ["edge.kcp.io"], "resources": ["edgeplacements"], "verbs": ["list"]}
    await hub.grant("root:web", "read", enter, read)
    lines = await shown(asked(hub, "root:web", USER_TOKEN))
    assert lines[1:3] == ["Edges: no access.", "1 placement: none with problems"]
    remarks = [line for line in lines if line.startswith("remark: ")]
    assert any("you may not list the SyncTargets of all workspaces" in line for line in remarks)
    here = "locations, statussummaries, synctargets in the workspace root:web, if there is one"
    assert f"remark: you may not list {here}" in remarks
    assert "remark: you may not list the workspaces in root:espw, which are mailboxes" in remarks
    assert len(remarks) == 5


async def test_programs_get_the_same_in_json_and_yaml() -> None:
    hub = await furnished()
    answer = await status(asked(hub), NOW)
    assert (
        orjson.loads(printed(answer, "json", NOW))
        == yaml.safe_load(printed(answer, "yaml", NOW))
        == as_document(answer)
    )
    assert (answer.well, [one.name for one in answer.edges or ()]) == (False, ["guilder"])
    assert as_document(answer)["counts"]["edges"]["states"]["stale"] == 1
    await hub.judge("guilder", Ready="True")
    [edge] = answer.edges or []
    await report(hub.client.workspace(f"root:espw:{edge.mailbox}"), objects={"failing": None})
    assert (await status(asked(hub), NOW)).well


# --- many -----------------------------------------------------------------------------------------


def target(number: int) -> Obj:
    return {"metadata": {"name": f"edge-{number:04}", "uid": str(number), "annotations": {"kcp.io/cluster": "c"}}}


def located(found: FleetStatus) -> FleetStatus:
    """With what a hub adds."""
    return replace(with_paths(found, {}), server=SERVER)


def test_of_many_the_first_are_shown() -> None:
    placements = [{"metadata": {"name": f"p-{number:04}"}} for number in range(30)]
    summaries = [{"metadata": {"name": f"s-{number:04}"}, "destinations": {"broken": number}} for number in range(50)]
    fleet = Fleet(list(map(target, range(1_000))), [], placements, summaries, {}, {})
    lines = printed(located(summarize(fleet, NOW)), "table", NOW).splitlines()
    assert [line for line in lines if line.startswith("  …")] == [
        "  … and 980 more; --all lists them",
        "  … and 10 more; --all lists them",
        "  … and 39 more; --all lists them",
    ]
    every = located(summarize(fleet, NOW, everything=True))
    assert len(printed(every, "table", NOW, everything=True).splitlines()) == 1_087


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "status": st.fixed_dictionaries({}, optional={"conditions": st.lists(ANYTHING), "objects": ANYTHING})
            | ANYTHING,
            "metadata": st.fixed_dictionaries({}, optional={"annotations": ANYTHING, "labels": ANYTHING}),
            "spec": ANYTHING,
            "destinations": ANYTHING,
            "broken": st.lists(ANYTHING),
            "subject": ANYTHING,
        },
    ),
    max_size=3,
)


@settings(max_examples=examples(40))
@given(targets=DOCUMENTS, placements=DOCUMENTS, summaries=DOCUMENTS)
def test_whatever_objects_say_there_is_an_answer(targets: Any, placements: Any, summaries: Any) -> None:
    fleet = Fleet(targets, placements, placements, summaries, {"-mb-": "box"}, {"box": {"status": targets}})
    for everything in (False, True):
        answer = located(summarize(fleet, NOW, everything=everything))
        assert printed(answer, "table", NOW, everything=everything).startswith("Hub ")
        assert orjson.loads(printed(answer, "json", NOW)) == as_document(answer)


# --- the command ----------------------------------------------------------------------------------


def test_without_a_hub_there_is_one_sentence(tmp_path: Any) -> None:
    said = CliRunner().invoke(main, ["status", "--kubeconfig", str(tmp_path / "none")])
    assert said.exit_code == 1
    assert said.output.startswith("Error: there is no ")
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "x", "user": ""}}
    (tmp_path / "k").write_text(
        yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "current-context": "x"}
        )
    )
    away = CliRunner().invoke(main, ["status", "--kubeconfig", str(tmp_path / "k")])
    assert away.exit_code == 1
    assert away.output.startswith("Error: cannot reach the server: ")
