"""What summaries say and what comes back, whatever happens to copies, syncers, placements, questions and the line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from examples import examples
from fleet import EDGE, FAULTS
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from platform_harness import APIS
from summarized import DEPLOYMENTS as COPIES
from summarized import KUBE, ready, reported
from summary_twin import DEPLOYMENTS, SUMMARIZE, WIDGETS, Twin
from translated import (
    DEFINITIONS,
    NAMESPACES,
    PROD,
    PROJECTED,
    World,
    binding,
    definition,
    deployment,
    inside,
    namespace,
    widget,
    world,
)

from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource

BOXES = ["florin", "guilder", "krone"]
SPACES = ["one", "two"]
THE_ONE = f"{EDGE}/syncerconfigs/the-one"
SYNCER = "edge.kcp.io/syncer"  #: the finalizer
CONTROLLERS = {"scheduler": True, "mailboxes": True, "translator": True, "summarizer": True}

WHATS: list[Obj] = [
    {"namespaceSelector": PROD},
    {
        "downsync": [
            {"apiGroup": "apps", "resources": ["deployments"], "objectNames": ["web"], "statusCollectors": ["rows"]}
        ]
    },
    {
        "namespaceSelector": PROD,
        "downsync": [
            {"apiGroup": "apps", "resources": ["deployments"], "labelSelectors": [PROD], "statusCollectors": ["sums"]},
            {
                "apiGroup": "example.org",
                "resources": ["widgets"],
                "objectNames": ["*"],
                "statusCollectors": ["rows", "lost"],
            },
        ],
    },
]
STATUSES: dict[GroupResource, list[Obj | None]] = {
    DEPLOYMENTS: [
        None,
        ready(1),
        ready(0),
        ready(2, of=3),
        {"replicas": 2, "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "Full"}]},
    ],
    WIDGETS: [
        None,
        {"phase": "Ready", "units": 4, "deep": {"er": 1.5}},
        {"phase": "odd one", "units": "four", "replicas": -1, "conditions": "none"},
        {"phase": "Ready", "replicas": 7, "conditions": [{"type": "Ready", "status": "False"}]},
    ],
}
QUESTIONS: list[Obj] = [
    {
        "select": [
            {"name": "where", "def": "inventory.name"},
            {"name": "tier", "def": "'tier' in inventory.labels ? inventory.labels.tier : 'none'"},
            {"name": "stale", "def": "propagation.stale"},
        ]
    },
    {
        "filter": "has(returned.status) && has(returned.status.replicas)",
        "combinedFields": [
            {"name": "n", "type": "COUNT"},
            {"name": "all", "type": "SUM", "subject": "returned.status.replicas"},
        ],
        "groupBy": [{"name": "env", "def": "has(obj.metadata.labels) ? obj.metadata.labels.env : 'none'"}],
    },
    {"select": [{"name": "replicas", "def": "returned.status.replicas"}], "limit": 2},
    {"select": [{"name": "x", "def": "nobody.knows("}]},
]
REACHED: list[Obj] = [
    {
        "type": "EdgeReachable",
        "status": status,
        "reason": "Unreachable",
        "message": "no route",
        "lastTransitionTime": "2024-05-01T11:00:00Z",
    }
    for status in ("False", "True")
]


def problem(resource: GroupResource, space: str, direction: str, reason: str) -> Obj:
    """Without a namespace: of all objects of the kind."""
    name = NAMES[resource] if space else "*"
    about = {"group": resource.group, "resource": resource.resource, "namespace": space, "name": name}
    return {**about, "direction": direction, "reason": reason, "message": "no", "tries": 3}


NAMES = {DEPLOYMENTS: "web", WIDGETS: "w"}
EDITS: list[Obj] = [
    {"destinations": {"expected": 9}, "metadata": {"labels": {"theirs": "1"}}},
    {"metadata": {"labels": {"edge.kcp.io/summary-name": "other"}}},
    {"metadata": {"ownerReferences": None}},
    {"subject": {"name": "other"}},
    {"broken": None, "collected": None, "values": {"phase": {"Odd": 1}}},
]


def defined() -> Obj:
    """Widgets with a status of their own."""
    found = definition("v1")
    found["spec"]["versions"][0]["subresources"] = {"status": {}}
    return found


class History:
    def __init__(self, world: World) -> None:
        self.world = world

    async def wrong(self) -> str:
        return (await Twin(self.world).read()).wrong()

    async def right(self) -> bool:
        twin = await Twin(self.world).read()
        return not twin.is_ending() and not twin.wrong()

    async def settle(self) -> None:
        await self.passes(0)
        await self.world.at_rest()
        try:
            await self.world.fleet.eventually(self.right)
        except AssertionError as error:
            raise AssertionError(f"{await self.wrong()}\n{error}") from None
        await self.world.at_rest()

    # --- what happens -----------------------------------------------------------------------------

    async def perform(self, what: str, how: Any) -> None:
        step = getattr(self, what.replace(" ", "_"), None)
        if step is None:
            await self.world.fleet.suffer(what, how, **CONTROLLERS)
        else:
            await (step() if how is None else step(how) if not isinstance(how, tuple) else step(*how))

    async def namespace(self, workload: int, space: str, labels: dict[str, str]) -> None:
        await self.world.put(self.world.workloads[workload], NAMESPACES, namespace(space, **labels))

    async def no_namespace(self, workload: int, space: str) -> None:
        await self.world.delete(self.world.workloads[workload], f"{NAMESPACES}/{space}")

    async def definition(self, workload: int, wanted: bool) -> None:
        cluster = self.world.workloads[workload]
        if wanted:
            await self.world.put(cluster, DEFINITIONS, defined())
        else:
            await self.world.delete(cluster, f"{DEFINITIONS}/widgets.example.org")

    async def object(
        self, workload: int, resource: GroupResource, space: str, version: int, labels: dict[str, str]
    ) -> None:
        made = deployment("web", f"image:{version}") if resource == DEPLOYMENTS else widget("w", version)
        if labels:
            made["metadata"]["labels"] = labels
        path = f"{collection(resource, space)}/{NAMES[resource]}"
        cluster = self.world.workloads[workload]
        if await self.world.get(cluster, path) is None:
            await self.world.put(cluster, collection(resource, space), made)
            return
        await self.world.patch(cluster, path, {"spec": made["spec"], "metadata": {"labels": {"env": None, **labels}}})

    async def no_object(self, workload: int, resource: GroupResource, space: str) -> None:
        await self.world.delete(self.world.workloads[workload], f"{collection(resource, space)}/{NAMES[resource]}")

    async def placement(
        self, workload: int, name: str, what: int, where: dict[str, str], singleton: bool, wish: str | None
    ) -> None:
        metadata: Obj = {"name": name, **({"annotations": {SUMMARIZE: wish}} if wish else {})}
        selectors = [{"matchLabels": where}]
        spec = {"locationSelectors": selectors, "nonNamespacedObjects": KUBE, **WHATS[what]}
        if singleton:
            spec["wantSingletonReportedState"] = True
        head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": metadata}
        await self.world.put(self.world.workloads[workload], f"{EDGE}/edgeplacements", {**head, "spec": spec})

    async def no_placement(self, workload: int, name: str) -> None:
        await self.world.delete(self.world.workloads[workload], f"{EDGE}/edgeplacements/{name}")

    async def location(self, box: str, env: str, tier: str) -> None:
        await self.world.location(box, env=env, **({"tier": tier} if tier else {}))

    async def alias(self, box: str, env: str) -> None:
        """Another Location that leads to the same SyncTarget."""
        fleet, selector = self.world.fleet, {"matchLabels": {"id": box}}
        await fleet.location(self.world.inventory, "alias", {"env": env, "tier": "alias"}, selector)

    async def no_alias(self) -> None:
        path = "/apis/scheduling.kcp.io/v1alpha1/locations/alias"
        await self.world.delete(self.world.inventory, path)

    async def collector(self, workload: int, name: str, question: int) -> None:
        head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "StatusCollector", "metadata": {"name": name}}
        spec = {"spec": QUESTIONS[question]}
        await self.world.put(self.world.workloads[workload], f"{EDGE}/statuscollectors", {**head, **spec})

    async def no_collector(self, workload: int, name: str) -> None:
        await self.world.delete(self.world.workloads[workload], f"{EDGE}/statuscollectors/{name}")

    # --- at the edges

    async def report(self, box: str, resource: GroupResource, space: str, number: int) -> None:
        path = f"{collection(resource, space)}/{NAMES[resource]}/status"
        status = STATUSES[resource][number % len(STATUSES[resource])]
        await self.world.patch(self.world.boxes[box], path, {"status": None})
        if status is not None:
            await self.world.patch(self.world.boxes[box], path, {"status": status})

    async def say(self, box: str, status: Obj) -> None:
        assert await self.world.patch(self.world.boxes[box], f"{THE_ONE}/status", {"status": status}) is not None

    async def beat(self, box: str) -> None:
        await self.say(box, {"lastSyncerHeartbeatTime": f"{self.world.fleet.hub.now:%Y-%m-%dT%H:%M:%SZ}"})

    async def passes(self, seconds: int) -> None:
        """And somebody looks at the clock."""
        now = self.world.fleet.hub.now = self.world.fleet.hub.now + timedelta(seconds=seconds)
        for cluster in self.world.boxes.values():
            await self.world.patch(cluster, THE_ONE, {"metadata": {"annotations": {"poke": str(now)}}})

    async def disturb(self, what: str, box: str, resource: GroupResource, space: str) -> None:
        """Somebody deletes a copy, holds it, lets it go, or makes it theirs."""
        cluster, path = self.world.boxes[box], f"{collection(resource, space)}/{NAMES[resource]}"
        match what:
            case "delete":
                await self.world.delete(cluster, path)
            case "hold":
                await self.world.patch(cluster, path, {"metadata": {"finalizers": [SYNCER]}})
            case "let go":
                await self.world.patch(cluster, path, {"metadata": {"finalizers": []}})
            case "take":
                await self.world.patch(cluster, path, {"metadata": {"labels": {PROJECTED: None}}})

    # --- where it is described

    async def edit(self, workload: int, number: int, how: int) -> None:
        """A summary; beyond the edits it is deleted."""
        cluster = self.world.workloads[workload]
        found = await self.world.items(cluster, f"{EDGE}/statussummaries")
        if not found:
            return
        metadata = found[number % len(found)]["metadata"]
        path = f"{EDGE}/namespaces/{metadata['namespace']}/statussummaries/{metadata['name']}"
        if how < len(EDITS):
            await self.world.patch(cluster, path, EDITS[how])
        else:
            await self.world.delete(cluster, path)

    async def meddle(self, workload: int, resource: GroupResource, space: str) -> None:
        """With what came back, if anything did."""
        cluster, path = self.world.workloads[workload], f"{collection(resource, space)}/{NAMES[resource]}"
        found = await self.world.get(cluster, path)
        if found is not None and "edge.kcp.io/status-returned-from" in (found["metadata"].get("annotations") or {}):
            await self.world.patch(cluster, f"{path}/status", {"status": {"replicas": 99}})


def collection(resource: GroupResource, space: str) -> str:
    return inside(space, resource.resource, f"{resource.group}/v1")


# --- histories ------------------------------------------------------------------------------------

WHICH = st.integers(0, 1)
KIND = st.sampled_from([DEPLOYMENTS, DEPLOYMENTS, WIDGETS])
SPACE = st.sampled_from(SPACES)
BOX = st.sampled_from(BOXES)
ENV = st.sampled_from(["prod", "dev"])
LABELS = st.dictionaries(st.just("env"), ENV)
PLACEMENT = st.sampled_from(["p", "q"])
COLLECTOR = st.sampled_from(["rows", "sums"])
WISH = st.sampled_from([None, None, None, "false", "deployments.apps", "widgets.example.org"])
WHERE = st.sampled_from([{}, {"env": "prod"}, {"env": "dev"}, {"id": "krone"}])


def problems() -> st.SearchStrategy[Obj]:
    spaces = st.sampled_from([*SPACES, ""])
    one = st.builds(
        problem, KIND, spaces, st.sampled_from(["down", "status", "up"]), st.sampled_from(["NotManaged", "Odd"])
    )
    return st.lists(one, max_size=2).map(lambda some: {"problems": some})


def step(name: str, *how: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(name), how[0] if len(how) == 1 else st.tuples(*how))


REPORT = step("report", BOX, KIND, SPACE, st.integers(0, 4))
PLACE = step("placement", WHICH, PLACEMENT, st.integers(0, len(WHATS) - 1), WHERE, st.booleans(), WISH)
OBJECT = step("object", WHICH, KIND, SPACE, st.integers(0, 3), LABELS)
DISTURBED = st.sampled_from(["delete", "delete", "hold", "let go", "take"])
SAID = st.one_of(problems(), st.sampled_from([{"conditions": [one]} for one in REACHED]))
STEPS = st.one_of(
    *(REPORT, REPORT, REPORT, PLACE, PLACE, OBJECT, OBJECT, FAULTS, FAULTS),
    step("namespace", WHICH, SPACE, LABELS),
    step("no namespace", WHICH, SPACE),
    step("no object", WHICH, KIND, SPACE),
    step("definition", WHICH, st.booleans()),
    step("alias", BOX, ENV),
    step("no alias", st.none()),
    step("no placement", WHICH, PLACEMENT),
    step("location", BOX, ENV, st.sampled_from(["", "gold"])),
    step("collector", WHICH, COLLECTOR, st.integers(0, len(QUESTIONS) - 1)),
    step("no collector", WHICH, COLLECTOR),
    step("say", BOX, SAID),
    step("beat", BOX),
    step("passes", st.sampled_from([1, 30, 60])),
    step("disturb", DISTURBED, BOX, KIND, SPACE),
    step("edit", WHICH, st.integers(0, 5), st.integers(0, len(EDITS))),
    step("meddle", WHICH, KIND, SPACE),
)
Step = tuple[str, Any]

#: something of everything, so that the steps after it have something to change
BEGINNING: list[Step] = [
    *(("namespace", (workload, space, {"env": "prod"})) for workload in (0, 1) for space in SPACES),
    *(("object", (0, resource, space, 1, {"env": "prod"})) for resource in (DEPLOYMENTS, WIDGETS) for space in SPACES),
    ("object", (1, DEPLOYMENTS, "one", 1, {})),
    *(("location", (box, env, "")) for box, env in zip(BOXES, ("prod", "dev", "prod"), strict=True)),
    ("collector", (0, "rows", 0)),
    ("collector", (0, "sums", 1)),
    ("placement", (0, "p", 2, {"env": "prod"}, False, None)),
    ("placement", (0, "q", 1, {"env": "dev"}, True, None)),
    ("placement", (1, "p", 0, {}, True, None)),
]
REPORTS: list[Step] = [
    *(("beat", box) for box in BOXES),
    *(("report", (box, resource, "one", 1)) for resource in (DEPLOYMENTS, WIDGETS) for box in BOXES),
]


@pytest.mark.slow
@settings(max_examples=examples(6), phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to shrink takes too long
@given(st.lists(STEPS, max_size=40))
async def test_after_any_history_summaries_are_what_nested_loops_say_and_nothing_more_is_written(
    steps: list[Step],
) -> None:
    await compare(steps)


async def compare(steps: list[Step]) -> None:
    async with world(*BOXES, summarizes=True) as one:
        for cluster in one.workloads:
            await one.must_put(cluster, DEFINITIONS, defined())
        await one.put(one.workloads[1], f"{APIS}/apibindings", binding("kube"))
        history = History(one)
        for what, how in BEGINNING:
            await history.perform(what, how)
        await history.settle()
        for what, how in [*REPORTS, *steps]:
            await history.perform(what, how)
        await history.settle()
        with one.fleet.hub.writes_nothing():
            await one.fleet.crash()
            await one.fleet.start(**{**CONTROLLERS, "mailboxes": False})
            await one.at_rest()
        assert await history.wrong() == ""


async def test_a_status_report_of_a_copy_does_not_enqueue_the_copy() -> None:
    async with reported("florin") as one:
        await one.report("florin", ready(1))
        await one.eventually(reporting=1)
        await one.world.at_rest()
        translator = one.world.fleet.translator
        assert translator is not None
        before = translator.controller.tally.successes
        await one.report("florin", ready(0))
        await one.eventually(broken=1)
        await one.world.at_rest()
        assert translator.controller.tally.successes == before
        theirs = {"spec": deployment("web", "theirs")["spec"]}
        await one.world.patch(one.world.boxes["florin"], f"{COPIES}/web", theirs)
        await one.world.at_rest()
        assert translator.controller.tally.successes > before
        copy = await one.world.copy("florin", f"{COPIES}/web")
        assert copy is not None and "theirs" not in str(copy["spec"])
