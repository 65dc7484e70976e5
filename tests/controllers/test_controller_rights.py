"""Every right in a controller's role is used in one of these histories, or there is a reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fleet import EDGE, WORKLOAD, SentRequest
from house import House, SilentNodes
from hub_harness import MERGE_PATCH
from machine_edges import linked_machines, of_type
from platform_harness import MASTER
from summarized import DEPLOYMENTS, Reported, ready, reported
from translated import CONFIRM, DEFINITIONS, MAPS, PROD, WORKSPACES, config_map, definition, furnished, hold, widget

from farflung.apis.edge.copied_kinds import is_copied
from farflung.hub.auth.default_roles import rules_of
from farflung.hub.tenancy.controller_access import RESTRICTED
from farflung.hub.tenancy.controller_roles import COPIED_KINDS, EVERYWHERE, MAILBOXES, RULES, user_of
from farflung.hub.tenancy.paths import PROVIDER, ROOT
from farflung.placement.guard import WithdrawalLimits
from machines import ALLOCATIONS, Machines, allocation

WIDGETS: Final = "/apis/example.org/v1/widgets"
LEASES: Final = "leases.coordination.k8s.io"
MAILBOX: Final = f"{ROOT}:{PROVIDER}:"  #: how the paths of mailboxes begin


#: no request has these verbs: the hub asks for them when it …
OF_THE_HUB: Final[Mapping[str, str]] = {
    "access": "lets a user enter a workspace",
    "bind": "admits an APIBinding or a role binding",
    "escalate": "admits a role",
    "place": "admits a slice, or resolves an EdgePlacement of the global scheduler",
}
#: controller (empty: each of them), verb and object → why it is not in these histories
ELSEWHERE: Final[Mapping[tuple[str, str, str], str]] = {
    ("", "get", "apiexports.apis.kcp.io"): "at the start of a process, tests/e2e",
    ("", "create", LEASES): "leader election, tests/e2e",
    ("", "get", LEASES): "leader election, tests/e2e",
    ("", "update", LEASES): "leader election, tests/e2e",
    ("", "patch", "events"): "an Event that occurs again",
    ("edge-scheduler", "list", "apibindings.apis.kcp.io"): "at the start of a process, tests/e2e",
    ("edge-scheduler", "delete", "singleplacementslices.edge.kcp.io"): "more than 5,000 destinations become fewer",
    ("mailbox-controller", "delete", "apibindings.apis.kcp.io"): "another client bound another export in a mailbox",
    ("mailbox-controller", "get", "apibindings.apis.kcp.io"): "another client bound another export in a mailbox",
    ("placement-translator", "get", "*.*"): "an object in another version than the one of the watch",
    ("status-summarizer", "create", "events"): "the hub refuses the returned status",
    ("status-summarizer", "create", "pods/binding"): "the hub asks for it when the status of a machine ends",
    ("global-scheduler", "get", "allocations.globalscheduler.com"): "the result of a write is unknown",
    ("global-scheduler", "patch", "edgeplacements.edge.kcp.io"): "another client changed one of its EdgePlacements",
}


class Right(NamedTuple):
    controller: str
    place: str
    verb: str
    object: str  #: a path, or `resource.group`


def rights() -> Iterator[Right]:
    for controller, places in RULES.items():
        for place, lines in places.items():
            for rule in rules_of(lines):
                groups = [f".{group}" if group else "" for group in rule.get("apiGroups", ())]
                kinds = [f"{resource}{group}" for group in groups for resource in rule.get("resources", ())]
                for verb in rule["verbs"]:
                    for one in (*rule.get("nonResourceURLs", ()), *kinds):
                        yield Right(controller, place, verb, one)


def used_rights(requests: Iterable[SentRequest]) -> Iterator[Right]:
    """The rights that would allow the requests."""
    controllers = {user_of(controller): controller for controller in RULES}
    for user, path, asked in requests:
        places = {EVERYWHERE, MAILBOXES} if path.startswith(MAILBOX) else {EVERYWHERE, path}
        if asked.path is None and is_copied(asked.group, asked.resource.partition(":")[0]):
            places.add(COPIED_KINDS)
        kind, group = asked.resource.partition(":")[0], f".{asked.group}" if asked.group else ""
        objects = {asked.path} if asked.path is not None else {f"{kind}{group}", "*.*"}
        if asked.subresource:
            objects = {f"{kind}/{asked.subresource}{group}", f"*/{asked.subresource}.*"}
        verbs = {asked.verb, *(RESTRICTED if asked.verb == "patch" and not asked.subresource else ())}
        for place in places:
            yield from (Right(controllers[user], place, verb, one) for verb in verbs for one in objects if one)


async def test_every_right_is_used(tmp_path: Path) -> None:
    sent: set[SentRequest] = set()
    async with reported("florin", wantSingletonReportedState=True) as one:
        one.world.fleet.sent = sent
        await status_returns(one)
        await copies_are_withdrawn(one)
        await a_mailbox_ends(one)
    async with House(nodes=SilentNodes()) as edge, linked_machines(tmp_path, edge) as (far, _):
        far.fleet.sent = sent
        await machines_are_refused(far)
    unused = set(rights()) - set(used_rights(sent))
    known = {(one.controller if named else "", one.verb, one.object) for one in unused for named in (True, False)}
    assert sorted(one for one in unused if not is_elsewhere(one)) == []
    assert ELSEWHERE.keys() <= known, "used here, or no right at all"


def is_elsewhere(right: Right) -> bool:
    _, _, verb, obj = right
    return verb in OF_THE_HUB or not ELSEWHERE.keys().isdisjoint({(right.controller, verb, obj), ("", verb, obj)})


async def status_returns(one: Reported) -> None:
    """Each controller has its own watches, and the summarizer is first in a process of its own."""
    fleet = one.world.fleet
    fleet.shares_watches = False
    await fleet.crash()
    await fleet.start(scheduler=False, summarizer=True)
    await one.ask("invalid", select=[{"name": "x", "def": "nobody.knows("}])
    await one.report("florin", ready(1))

    async def is_returned() -> bool:
        return ((await one.source()).get("status") or {}).get("readyReplicas") == 1

    await fleet.eventually(is_returned, "the returned status")
    fleet.limits = WithdrawalLimits(0, 0)
    await one.world.restart()


async def copies_are_withdrawn(one: Reported) -> None:
    world = one.world
    cluster_scoped = definition("v1")
    cluster_scoped["spec"] |= {"scope": "Cluster"}
    cluster_scoped["spec"]["versions"][0] |= {"subresources": {"status": {}}}
    await world.must_put(one.cluster, DEFINITIONS, cluster_scoped)
    await world.must_put(one.cluster, WIDGETS, widget("gear", 1))
    gears = [{"apiGroup": "example.org", "resources": ["widgets"], "resourceNames": ["gear"]}]
    for number in (1, 2):
        annotations = {"edge.kcp.io/customizer": f"none-{number}"}
        await world.must_put(one.cluster, MAPS, config_map("broken", {"a": "1"}, annotations=annotations))
        await world.fleet.eventually(lambda number=number: world.says("CustomizationFailed", f"none-{number}"))
    await world.placement(0, "p", namespaceSelector=PROD, nonNamespacedObjects=gears)
    await world.fleet.eventually(
        lambda: world.has(["florin"], f"{WIDGETS}/gear"), "the copy of a cluster-scoped object"
    )
    await one.report("florin", {"phase": "Turning"}, f"{WIDGETS}/gear")

    async def is_summed_up() -> bool:
        return bool(await world.items(one.cluster, f"{EDGE}/namespaces/edge-status/statussummaries"))

    await world.fleet.eventually(is_summed_up, "a summary of a cluster-scoped object")
    nowhere = {"matchLabels": {"is": "nowhere"}}
    await world.placement(0, "p", nowhere, namespaceSelector=PROD)
    await world.fleet.eventually(lambda: world.says("WithdrawalHeld"), "the withdrawal is held")
    [confirmation] = re.findall(rf'{CONFIRM}: "([^"]*)"', (await world.condition())["message"])
    path = f"{EDGE}/edgeplacements/p"
    await world.patch(one.cluster, path, {"metadata": {"annotations": {CONFIRM: confirmation}}})

    async def is_used_up() -> bool:
        found = await world.get(one.cluster, path)
        return found is not None and CONFIRM not in found["metadata"].get("annotations", {})

    await world.fleet.eventually(is_used_up, "the end of the confirmation")
    await world.fleet.eventually(lambda: world.lacks(["florin"], f"{DEPLOYMENTS}/web"), "the end of the copy")
    await one.gone()


async def a_mailbox_ends(one: Reported) -> None:
    world, fleet = one.world, one.world.fleet
    await fleet.target(world.inventory, "guilder", {})
    await fleet.eventually(lambda: furnished(world, 2), "another mailbox")
    await world.placement(0, "p", namespaceSelector=PROD)
    await fleet.eventually(lambda: world.has(["florin"], f"{DEPLOYMENTS}/web"), "another copy")
    await hold(world, path=f"{DEPLOYMENTS}/web")
    path, name = f"{WORKSPACES}/{world.names['florin']}", "edge.kcp.io/sync-target-name"
    unmarked = {"metadata": {"annotations": {name: None}}}
    await fleet.do("PATCH", path, unmarked, by=MASTER, content_type=MERGE_PATCH)

    async def is_marked() -> bool:
        found = await fleet.do("GET", path)
        return found is not None and name in found["metadata"]["annotations"]

    await fleet.eventually(is_marked, "the mark of the mailbox")
    await fleet.do("DELETE", f"/clusters/{world.inventory}{WORKLOAD}/synctargets/florin")

    async def is_gone() -> bool:
        return await fleet.do("GET", path) is None

    await fleet.eventually(is_gone, "the end of the mailbox")


async def machines_are_refused(one: Machines) -> None:
    """The global scheduler is first in a process of its own."""
    one.fleet.shares_watches = False
    others = {"mailboxes": True, "translator": True, "summarizer": True, "globals": True}
    await one.fleet.crash()
    await one.fleet.start(scheduler=False, **others)
    await one.machine("a")
    assert await one.bound("a") == "az1"
    await one.fleet.crash()
    await one.fleet.start(scheduler=True, **others)

    async def is_refused() -> bool:
        return "1 refused it" in of_type(await one.pod("a"), "PodScheduled").get("message", "")

    await one.fleet.eventually(is_refused, "the machine is refused")
    target = {"workspace": "root:imw", "name": "edge1"}
    await one.cluster("az2", {"small": 1}, zone="az2", synctarget=target)
    await one.of_shop("POST", ALLOCATIONS, allocation("stack", {"small": 1}))
    assert await one.allocated("stack")
    await one.at_rest()
