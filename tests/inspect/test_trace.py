"""`farflung trace`: one object followed through a hub, in good and bad times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import click
import orjson
import pytest
import yaml
from asked_hub import BINDINGS, AskedHub, custom, placement
from asked_machines import MachineHub, allocation, machine
from click.testing import CliRunner
from fleet import EDGE
from hub_harness import MERGE_PATCH
from hypothesis import given
from hypothesis import strategies as st
from local_transport import LocalTransport
from platform_harness import OPERATOR
from translated import MAPS, NAMESPACES, PROD, World, config_map, deployment, inside, namespace, secret, world

from farflung.apis.edge.names import EDGE_PLACEMENTS
from farflung.apis.names import PODS, Collection
from farflung.cli.inspect_commands import split_reference
from farflung.cli.main import main
from farflung.cli.trace_output import printed
from farflung.client.rest import Client
from farflung.inspect.hub import HubClient, hub_client
from farflung.inspect.results import InspectError, as_document
from farflung.inspect.trace import Trace, TraceRequest, trace
from farflung.inspect.trace_source import machine_conclusion
from farflung.machinery.errors import Obj
from farflung.machinery.times import parse

DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
BINDING = {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}
CONFIG_MAPS = Collection("", "v1", "configmaps", "ConfigMap")
HIDDEN = "dontshowthis"
SCALARS = st.one_of(st.none(), st.integers(), st.text(), st.just("False"), st.just("Delivered"))
NAMES = st.sampled_from(["conditions", "type", "status", "message", "cluster_names"])
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=12)
EARLY = "2024-05-01T12:00:00Z"  #: when everything was written


@asynccontextmanager
async def shop(*targets: str) -> AsyncIterator[World]:
    """A Deployment `web` and a ConfigMap `prices` that a placement `p` brings everywhere."""
    async with world(*targets) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "httpd"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", namespaceSelector=PROD, nonNamespacedObjects=[BINDING])
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{DEPLOYMENTS}/web"), "the first copies")
        await one.at_rest()
        yield one


def asked(one: World) -> HubClient:
    transport = LocalTransport(one.fleet.hub.function, OPERATOR)
    return hub_client(Client(transport, f"/clusters/{one.workloads[0]}", "farflung"))


async def traced(one: World, what: str = "deploy/web", *, later: float = 5.0, **request: Any) -> Trace:
    """Nothing is written."""
    hub, now = asked(one), one.fleet.hub.now + timedelta(seconds=later)
    answer = await trace(hub, TraceRequest(*split_reference([what]), **{"namespace": "shop", **request}), now)
    assert isinstance(hub.workspace.transport, LocalTransport)
    assert hub.workspace.transport.writes == []
    return answer


async def told(one: World, what: str = "deploy/web", *, later: float = 5.0, **request: Any) -> list[str]:
    answer = await traced(one, what, later=later, **request)
    return printed(answer, "table", one.fleet.hub.now + timedelta(seconds=later)).splitlines()


async def report(one: World, target: str, **status: Any) -> None:
    """What a syncer would."""
    kinds = (("apps", "deployments"), ("", "configmaps"), ("", "namespaces"))
    through = [{"group": group, "resource": resource, "resourceVersion": "9" * 9} for group, resource in kinds]
    said = {"lastSyncerHeartbeatTime": EARLY, "syncedThrough": through, "objects": {"pending": 0}, **status}
    path = f"{EDGE}/syncerconfigs/the-one/status"
    assert await one.ask("PATCH", one.boxes[target], path, {"status": said}, content_type=MERGE_PATCH)
    await one.at_rest()


async def say(one: World, target: str, **status: Any) -> None:
    """What a cluster would, of its Deployment."""
    path = f"{DEPLOYMENTS}/web/status"
    assert await one.ask("PATCH", one.boxes[target], path, {"status": status}, content_type=MERGE_PATCH)


def available(ready: int = 1) -> Obj:
    condition = {"type": "Available", "status": "True", "reason": "Enough", "lastTransitionTime": EARLY}
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), ready)
    return {**counts, "observedGeneration": 1, "conditions": [condition]}


async def version(one: World, target: str) -> str:
    copy = await one.get(one.boxes[target], f"{DEPLOYMENTS}/web")
    assert copy is not None
    return str(copy["metadata"]["resourceVersion"])


async def test_an_object_is_followed_until_it_is_well_everywhere() -> None:
    async with shop("florin", "guilder") as one:
        assert await told(one) == [
            "Deployment shop/web, generation 1, changed 5s ago",
            "EdgePlacement p selects it by spec.namespaceSelector, with 2 destinations",
            "  florin / florin",
            "    placed      5s  slice p",
            f"    copied      5s  current, resourceVersion {await version(one, 'florin')}",
            "    edge            stuck: no syncer has ever reported",
            "  guilder / guilder",
            "    placed      5s  slice p",
            f"    copied      5s  current, resourceVersion {await version(one, 'guilder')}",
            "    edge            stuck: no syncer has ever reported",
            "Stuck at florin / florin: no syncer has ever reported. 2 of 2 destinations are stuck.",
            f"What to do: `farflung syncer-gen florin --workspace {one.inventory}` prints its manifest.",
        ]
        await report(one, "florin")
        await report(one, "guilder")
        assert (await told(one))[-1] == (
            "Under way to florin / florin: no status yet. 2 of 2 destinations are waiting."
        )
        assert not (await traced(one)).is_stuck
        assert (await told(one, "cm/prices"))[-2:] == [
            "    edge        5s  applied; heartbeat 5s ago",
            "All 2 destinations are up to date.",
        ]
        await say(one, "florin", **available())
        await say(one, "guilder", **available())
        lines = await told(one, "deployments.apps/web")
        assert lines[2:6] == [
            "  florin / florin",
            "    placed      5s  slice p",
            f"    copied      5s  current, resourceVersion {await version(one, 'florin')}",
            "    edge        5s  applied; heartbeat 5s ago",
        ]
        assert lines[6] == "    status      5s  Available; readyReplicas 1, availableReplicas 1"
        assert lines[-1] == "All 2 destinations are up to date."
        await _programs_get_the_same(one)
        await _the_worst_comes_first(one)
        await _silence_is_noticed(one)


async def _programs_get_the_same(one: World) -> None:
    found = await traced(one)
    now, answer = one.fleet.hub.now, as_document(found)
    assert orjson.loads(printed(found, "json", now)) == yaml.safe_load(printed(found, "yaml", now)) == answer
    assert [*answer] == ["object", "placements", "destinations", "leftOut", "summary", "remarks", "conclusion"]
    assert answer["object"]["changed"] == EARLY
    assert answer["summary"] == {"destinations": 2, "stuck": 0, "unknown": 0, "waiting": 0, "done": 2}
    assert answer["conclusion"] == {"state": "done", "message": "All 2 destinations are up to date.", "advice": ""}
    florin = answer["destinations"][0]
    assert florin["mailbox"] == one.names["florin"] == f"{florin['cluster']}-mb-{florin['syncTargetUID']}"
    assert [step["step"] for step in florin["steps"]] == ["placed", "mailbox", "copied", "edge", "status"]
    assert all(step["time"] == EARLY and step["state"] == "done" for step in florin["steps"])


async def _the_worst_comes_first(one: World) -> None:
    (group, resource), name = ("apps", "deployments"), "web"
    which = {"group": group, "resource": resource, "namespace": "shop", "name": name, "direction": "down"}
    problem = {**which, "reason": "NotManaged", "message": "it is at the edge already", "lastTry": EARLY, "tries": 4}
    await report(one, "guilder", problems=[problem])
    lines = await told(one, limit=1)
    assert lines[2] == "  guilder / guilder"
    assert lines[-4:] == [
        "    status      5s  Available; readyReplicas 1, availableReplicas 1",
        "  … and 1 more, without problems",
        "Stuck at guilder / guilder: NotManaged, tried 4 times: it is at the edge already; heartbeat 5s ago. "
        "1 of 2 destinations is stuck.",
        "What to do: delete or rename one of the two, or let the syncer adopt existing objects (--adopt).",
    ]
    assert (await traced(one, destination="guilder")).is_stuck
    assert not (await traced(one, destination="florin")).is_stuck
    with pytest.raises(InspectError, match="destination nowhere not found"):
        await traced(one, destination="nowhere")
    await report(one, "guilder", problems=[])


async def _silence_is_noticed(one: World) -> None:
    one.fleet.hub.now += timedelta(minutes=10)
    for target in one.boxes:
        path = f"/apis/workload.kcp.io/v1alpha1/synctargets/{target}"
        assert await one.patch(one.inventory, path, {"metadata": {"annotations": {"look": "again"}}})
    assert (await told(one, later=0.0))[-2:] == [
        "Stuck at florin / florin: the last heartbeat of the syncer was 10m ago. 2 of 2 destinations are stuck.",
        "What to do: is the syncer of florin running and connected to the hub?",
    ]


async def test_a_namespace_goes_along_with_what_is_in_it_and_several_workspaces_bring_the_same() -> None:
    async with world("florin") as one:
        for workload in (0, 1):
            await one.must_put(one.workloads[workload], NAMESPACES, namespace("shop", env="prod"))
            await one.must_put(one.workloads[workload], MAPS, config_map("prices", {"tea": "3"}))
            await one.placement(workload, f"p{workload}", downsync=[{"objectNames": ["prices"]}])
        await one.fleet.eventually(lambda: one.has(one.boxes, f"{MAPS}/prices"), "the copy")
        await one.at_rest()
        await report(one, "florin")
        assert (await told(one, "cm/prices"))[-1] == "The only destination is up to date."
        lines = await told(one, "namespace/shop")
        assert lines[3].startswith("    copied      5s  copied for other objects, resourceVersion ")
        assert lines[-1] == "The only destination is up to date."


async def test_without_controllers_nothing_goes_on_and_that_is_said_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop("florin") as one:
        await report(one, "florin")
        one_by_one = await traced(one)
        monkeypatch.setattr("farflung.inspect.trace.MANY", 1)
        assert await traced(one) == one_by_one
        await one.fleet.crash()
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
        lines = await told(one, "configmap/prices", later=60.0)
        assert lines[4].startswith("    copied     60s  stuck: outdated, resourceVersion ")
        assert lines[-1] == "What to do: is the placement translator running?"
        assert not (await traced(one, "configmap/prices")).is_stuck
        await one.must_put(one.workloads[0], MAPS, config_map("new", {}))
        assert (await told(one, "configmap/new", later=60.0))[-2:] == [
            "Stuck at florin / florin: no copy yet.",
            "What to do: is the placement translator running?",
        ]
        await one.must_put(one.workloads[0], NAMESPACES, namespace("lab", env="dev"))
        await one.placement(0, "q", namespaceSelector={"matchLabels": {"env": "dev"}})
        await one.must_put(one.workloads[0], inside("lab", "secrets"), secret("pin", {"code": HIDDEN}))
        lines = await told(one, "secret/pin", later=60.0, namespace="lab")
        assert lines[-4:] == [
            "  florin / florin",
            "    placed     60s  stuck: the edge scheduler has not placed it here yet",
            "Stuck at florin / florin: the edge scheduler has not placed it here yet.",
            "What to do: is the scheduler running? `farflung explain placement q` shows its pending changes.",
        ]
        assert HIDDEN not in "".join(lines)


async def test_what_is_being_withdrawn_is_followed_until_it_is_gone() -> None:
    async with shop("florin", "guilder") as one:
        for target in one.boxes:
            await report(one, target)
        held = {"metadata": {"finalizers": ["edge.kcp.io/syncer"]}}
        assert await one.patch(one.boxes["florin"], f"{MAPS}/prices", held)
        assert await one.delete(one.workloads[0], f"{MAPS}/prices")
        await one.fleet.eventually(lambda: one.lacks(["guilder"], f"{MAPS}/prices"), "the end of the other copy")
        await one.at_rest()
        assert await told(one, "cm/prices") == [
            "ConfigMap shop/prices not found",
            "  florin",
            "    placed          no EdgePlacement selects this destination any more",
            "    copied      5s  waiting: being withdrawn",
            "    edge        5s  waiting: the syncer has not deleted it yet; heartbeat 5s ago",
            "Under way to florin: being withdrawn.",
        ]
        assert (await told(one, "cm/prices", later=45.0))[-2:] == [
            "Stuck at florin: the syncer has not deleted it yet; heartbeat 45s ago.",
            "What to do: see the syncer's log.",
        ]
        assert await one.patch(one.boxes["florin"], f"{MAPS}/prices", {"metadata": {"finalizers": None}})
        with pytest.raises(InspectError, match="configmaps shop/prices not found in the workspace "):
            await traced(one, "cm/prices")


# --- without mailboxes ------------------------------------------------------------------------------


async def asked_of(hub: AskedHub, what: str, *, by: HubClient | None = None, **request: Any) -> list[str]:
    now = parse(EARLY)
    answer = await trace(by or hub.asked, TraceRequest(*split_reference([what]), **request), now)
    return printed(answer, "table", now).splitlines()


async def test_what_goes_nowhere_is_told_why() -> None:
    hub = await AskedHub.started()
    await hub.client.create(CONFIG_MAPS, config_map("prices", {}), "default")
    assert (await asked_of(hub, "cm/prices"))[1:] == [
        "Not placed: its workspace has no EdgePlacement.",
        "What to do: create one that selects it; `farflung plan` shows the effect.",
    ]
    await hub.place(placement("p", downsync=[{"resources": ["secrets"]}]))
    assert (await asked_of(hub, "cm/prices"))[1:] == [
        "Not placed: the only EdgePlacement does not select it.",
        "What to do: compare the spec with the labels of the object and of its Namespace.",
    ]
    await hub.place(placement("q", {}, downsync=[{"resources": ["pods"]}, {"objectNames": ["prices"]}]))
    assert (await asked_of(hub, "cm/prices"))[1:] == [
        "EdgePlacement q selects it by spec.downsync[1], with 0 destinations",
        "Not placed: EdgePlacement q has no destination.",
        "What to do: `farflung explain placement q` explains why.",
    ]
    assert (await asked_of(hub, "edgeplacement/p"))[-2:] == [
        "Not placed: objects of the kind edgeplacements.edge.kcp.io are never placed.",
        "What to do: trace one of the objects that are placed.",
    ]
    assert (await asked_of(hub, "sa/default"))[-2:] == [
        "Not placed: every cluster has its own.",
        "What to do: create an object of another name if the clusters need this one.",
    ]
    await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": {"downsync": [{}]}})
    assert (await asked_of(hub, "cm/prices"))[1].startswith("EdgePlacement p is invalid: spec.downsync[0]: ")
    assert hub.transport.writes == []


async def test_a_copy_that_is_refused_is_stuck_also_if_the_condition_lists_only_other_problems() -> None:
    reserved = ("farflung-syncer", "farflung-syncer-x", "kube-node-lease", "kube-public", "kube-system")
    async with world("florin") as one:
        for name in reserved:
            await one.must_put(one.workloads[0], NAMESPACES, namespace(name, env="prod"))
        await one.placement(0, "p", namespaceSelector=PROD)
        await one.fleet.eventually(lambda: one.says("NamespaceReserved", "and 2 more"))
        await one.at_rest()
        listed = (await traced(one, f"namespaces/{reserved[0]}", later=60.0)).conclusion
        assert "is reserved for the cluster itself" in listed.message
        unlisted = (await traced(one, f"namespaces/{reserved[-1]}", later=60.0)).conclusion
        assert (unlisted.state, unlisted.step) == ("stuck", "copied")
        assert "no copy yet, and EdgePlacement p has more problems than its condition lists" in unlisted.message
        assert unlisted.advice == "`kubectl get events --field-selector involvedObject.name=p` lists them"


async def test_a_machine_is_bound_without_placements_and_without_their_api() -> None:
    hub = await MachineHub.started()
    pod = await hub.make(machine())
    assert (await asked_of(hub.hub, "pod/demovm"))[-2:] == [
        "Not bound to a Cluster.",
        "What to do: `farflung explain pod demovm` explains why.",
    ]
    await hub.bind(pod, "az1")
    await hub.bind_allocation(await hub.make(allocation()), "az1", "az2")
    assert (await asked_of(hub.hub, "pod/demovm"))[1:] == ["Bound to az1; `farflung explain pod demovm` explains why."]
    assert (await asked_of(hub.hub, "allocation/shop"))[1:] == [
        "Bound to az1, az2; `farflung explain allocation shop` explains why."
    ]
    there = hub.hub.inventory
    reference = {"export": {"path": "root:compute", "name": "kubernetes"}}
    await there.create(BINDINGS, custom(BINDINGS, "kubernetes", reference=reference))
    await there.create(PODS, machine(), "default")
    hub.hub.client = there
    assert (await asked_of(hub.hub, "pod/demovm"))[1] == "Not bound to a Cluster."


def test_a_machine_of_another_namespace_is_asked_about_there() -> None:
    elsewhere = {"metadata": {"name": "demovm", "namespace": "shop"}}
    concluded = machine_conclusion({**machine(), **elsewhere})
    assert concluded is not None
    assert concluded.advice == "`farflung explain pod demovm -n shop` explains why"


@given(ANYTHING)
def test_a_machine_of_any_shape_is_concluded_about(status: Any) -> None:
    assert machine_conclusion({**machine(), "status": status}) is not None


async def test_what_is_asked_wrongly_is_a_sentence() -> None:
    hub = await AskedHub.started()
    with pytest.raises(InspectError, match="configmaps default/prices not found in the workspace root:web"):
        await asked_of(hub, "cm/prices")
    with pytest.raises(InspectError, match="the workspace root:web does not serve sprockets"):
        await asked_of(hub, "sprockets/one")
    hub.client = hub.inventory
    with pytest.raises(InspectError, match=r"`kubectl kcp bind apiexport root:espw:edge.kcp.io` in that workspace"):
        await asked_of(hub, "cm/prices")


@pytest.mark.parametrize("words", [["web"], ["a/b/c"], ["deploy/"], ["/web"], ["deploy", "a/b"], ["a", "b", "c"]])
def test_an_object_is_named_in_one_of_two_ways(words: list[str]) -> None:
    assert split_reference(["deploy/web"]) == split_reference(["deploy", "web"]) == ("deploy", "web")
    with pytest.raises(click.UsageError, match="TYPE/NAME or TYPE NAME"):
        split_reference(words)


def test_an_option_that_is_wrong_is_not_taken_for_something_that_is_stuck() -> None:
    for words in (["web"], ["deploy/web", "--limit", "-1"], []):
        assert CliRunner().invoke(main, ["trace", *words]).exit_code == 2


async def test_a_user_that_may_not_list_mailboxes_learns_what_is_unknown() -> None:
    hub = await AskedHub.started()
    await hub.target("florin")
    await hub.location("north", {})
    await hub.client.create(CONFIG_MAPS, config_map("prices", {}), "default")
    await hub.place(placement("p", {}, downsync=[{"resources": ["configmaps"]}]))
    await hub.schedule()
    enter = {"nonResourceURLs": ["/", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["access", "get"]}
    await hub.grant("root:web", "read", enter, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]})
    lines = await asked_of(hub, "cm/prices", by=hub.asked_by_somebody)
    assert lines[2:4] == ["  north / florin", "    placed      0s  slice p"]
    assert lines[4].startswith("    mailbox         unknown: mailboxes are not visible: ")
    assert len(lines) == 8
    assert lines[-1] == "What to do: ask an administrator of that workspace for permission to read it."
    assert lines[-3].startswith("remark: pending work of the scheduler is unknown: you may not list the Locations")
    assert lines[-2].startswith("Partly unknown at north / florin: mailboxes are not visible: ")
    assert (await asked_of(hub, "cm/prices"))[-1] == "Under way to north / florin: no mailbox yet."
