"""An engine in which any one call fails ends in the same state as an engine without failures."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from failing_engines import LONG, SERVER, InjectedError, SilentTransport, deliver, failing, trusting
from fleet import EDGE
from simulated_time import monotonic, simulated_environment
from translated import MAPS, config_map, shop

from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.controllers.edge_scheduler import controller as edge_scheduler
from farflung.controllers.edge_scheduler.triggers import Triggers
from farflung.controllers.mailbox import controller as mailbox
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.controllers.placement_translator.controller import PlacementTranslator
from farflung.controllers.status_summarizer.controller import StatusSummarizer
from farflung.controllers.status_summarizer.decide import Summaries
from farflung.controllers.status_summarizer.health import SummarySubject
from farflung.controllers.status_summarizer.status_return import StatusReturner
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.feeds import FeedViews, PlacementFeed
from farflung.placement.guard import WithdrawalLimits, Withdrawals
from farflung.placement.index import CopyIndex, CopyKey, ObjectIndex, PlacementIndex, ServedKinds
from farflung.placement.name_owners import NameOwners
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    NAMESPACES,
    GroupResource,
    ObjectKey,
    ObjectRef,
    PlacementKey,
    WatchedCollection,
)
from farflung.placement.resolve import Resolver
from farflung.placement.state import Dependencies, PlacementState, StatusKey
from farflung.runtime.cache import Cache, CacheChange, CachedObject, Key
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.rebuilder import Rebuilder
from farflung.runtime.recorder import Recorder

DEPLOYMENTS = GroupResource("apps", "deployments")
UID = "00000000-0000-4000-8000-0000000000{:02}"
Step = tuple[str, Obj, bool]  #: the informer, the object, and whether it is deleted
Outcome = tuple[int, int, Any]  #: calls, rebuilds, final state


def at(cluster: str, name: str, namespace: str = "", **more: Any) -> Obj:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, **more.pop("metadata", {})}
    metadata["annotations"] = {"kcp.io/cluster": cluster, **metadata.get("annotations", {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata, **more}


def location(name: str, **labels: str) -> Obj:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    spec = {"resource": resource, "instanceSelector": {"matchLabels": {"id": name}}}
    return at("inv", name, metadata={"labels": labels}, spec=spec)


def target(name: str, number: int) -> Obj:
    return at("inv", name, metadata={"labels": {"id": name}, "uid": UID.format(number)}, spec={})


def workspace(number: int, phase: str = "Ready") -> Obj:
    annotations = {"edge.kcp.io/sync-target-name": f"t{number}"}
    name = f"inv-mb-{UID.format(number)}"
    spec, status = {"cluster": f"box{number}"}, {"phase": phase}
    return at("root", name, metadata={"annotations": annotations}, spec=spec, status=status)


def logical_cluster(name: str, parent: str) -> Obj:
    return at(name, "cluster", spec={"owner": {"cluster": parent}})


def placement(*selectors: Obj, namespaces: Obj, **annotations: str) -> Obj:
    spec = {"locationSelectors": list(selectors), "namespaceSelector": namespaces}
    return at("w", "p", metadata={"annotations": annotations}, spec=spec)


def slice_to(*numbers: int) -> Obj:
    owner = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": "p", "uid": "uid-p"}
    found = [
        {"cluster": "inv", "locationName": f"t{one}", "syncTargetName": f"t{one}", "syncTargetUID": UID.format(one)}
        for one in numbers
    ]
    return at("w", "p", metadata={"ownerReferences": [owner]}, destinations=found)


def copied(number: int, name: str, namespace: str = "") -> Obj:
    annotations = {"edge.kcp.io/projection": orjson.dumps({"sources": ["w|p"]}).decode()}
    marked = {"labels": {"edge.kcp.io/projected": "yes"}, "annotations": annotations}
    return at(f"box{number}", name, namespace, metadata=marked)


SHOP = at("w", "shop", metadata={"labels": {"env": "prod"}})
WEB = at("w", "web", "shop")
PROD, ALL = {"matchLabels": {"env": "prod"}}, {"matchLabels": {}}
BOUND = {
    "group": "acme.io",
    "resource": "widgets",
    "schema": {"name": "x", "identityHash": "i"},
    "storageVersions": ["v1"],
}

UNREACHABLE = {"type": "EdgeReachable", "status": "False", "reason": "Timeout"}

SCHEDULER_HISTORY: list[Step] = [
    ("targets", target("t1", 1), False),
    ("locations", location("t1", env="prod"), False),
    ("placements", placement(PROD, namespaces=ALL), False),
    ("targets", target("t2", 2), False),
    ("locations", location("t2", env="prod"), False),
    ("slices", slice_to(1), False),
    ("slices", slice_to(1, 2), False),
    ("locations", location("t1", env="test"), False),
    ("placements", placement(PROD, ALL, namespaces=ALL), False),
    ("slices", slice_to(2), True),
    ("targets", target("t2", 2), True),
]

MAILBOX_HISTORY: list[Step] = [
    ("targets", target("t1", 1), False),
    ("workspaces", workspace(1), False),
    ("targets", target("t2", 2), False),
    ("workspaces", workspace(2, "Scheduling"), False),
    ("bindings", at("box1", "bind-edge"), False),
    ("configs", at("box1", "the-one"), False),
    ("workspaces", workspace(2), False),
    ("targets", target("t1", 3), False),
    ("workspaces", workspace(1), True),
]

FEED_HISTORY: list[Step] = [
    ("clusters", logical_cluster("w", "org"), False),
    ("workspaces", workspace(1), False),
    ("workspaces", workspace(2), False),
    ("locations", location("t1", env="prod"), False),
    ("locations", location("t2", env="prod"), False),
    ("bindings", at("w", "acme", status={"boundResources": [BOUND]}), False),
    ("namespaces", SHOP, False),
    ("deployments", WEB, False),
    ("placements", placement({}, namespaces=PROD), False),
    ("slices", slice_to(1, 2), False),
    ("namespaces", copied(1, "shop"), False),
    ("deployments", copied(1, "web", "shop"), False),
    ("deployments", copied(2, "web", "shop"), False),
    ("collectors", at("w", "c", spec={"limit": 1}), False),
    ("configs", at("box1", "the-one", status={"conditions": [UNREACHABLE]}), False),
    (
        "deployments",
        at("w", "other", "shop", metadata={"annotations": {"edge.kcp.io/expand-parameters": "true"}}),
        False,
    ),
    ("customizers", at("w", "z", "shop", replacements=[]), False),
    ("placements", placement({}, namespaces=PROD, **{"edge.kcp.io/summarize": "deployments.apps"}), False),
    ("slices", slice_to(1), False),
    ("locations", location("t1", env="test"), False),
    ("deployments", copied(2, "web", "shop"), True),
    ("namespaces", at("w", "shop", metadata={"labels": {"env": "test"}}), False),
    ("namespaces", SHOP, False),
    ("bindings", at("w", "acme"), True),
    ("workspaces", workspace(2), True),
]


async def ask_for_rights(made: edge_scheduler.EdgeScheduler) -> None:
    """As workers do; they try again what fails."""
    placement = made._placements.cache.get(Key("w", "", "p"))
    for _ in range(2 if placement is not None and made._begin() else 0):
        with contextlib.suppress(InjectedError):
            made._waits_for_rights(placement)
        await asyncio.sleep(0.01)


async def run_scheduler(fail_at: int, *, late: bool = False) -> Outcome:
    log = Logger(io.StringIO())
    rights = trusting(log)
    setting = edge_scheduler.EdgeSchedulerSetting(
        SERVER, SERVER, "http://h/edge", "http://h/s", "http://h/w", rights, lambda: NOW
    )
    with failing((Triggers, Resolver), fail_at, late=late) as calls:
        made = edge_scheduler.EdgeScheduler(setting, "edge-scheduler", SharedInformers(simulated_environment()), log)
        informers = {name: getattr(made, f"_{name}") for name in ("targets", "locations", "placements", "slices")}
        rebuilding, reviewing = asyncio.create_task(made.rebuilder.run()), asyncio.create_task(rights.run())
        for version, (kind, obj, deleted) in enumerate(SCHEDULER_HISTORY, 1):
            deliver(informers[kind], obj, version, deleted=deleted)
            await asyncio.sleep(0.01)
            if version > 3 and made.rebuilder.clean.is_set():
                await ask_for_rights(made)
            await asyncio.sleep(LONG if version == len(SCHEDULER_HISTORY) else 0.01)
        await ask_for_rights(made)
        await asyncio.sleep(LONG)
        await ask_for_rights(made)
    rebuilding.cancel()
    reviewing.cancel()
    assert made.rebuilder.clean.is_set()
    key = ObjectKey("w", "p")
    resolution = made._resolver.resolve(key, frozenset())
    state = resolution.destinations, list(made._triggers.slices(key)), len(made.controller.queue)
    return calls[0], made.rebuilder.tally.successes, state


async def run_mailbox(fail_at: int, *, late: bool = False) -> Outcome:
    setting = mailbox.MailboxSetting(SERVER, SERVER, "root:espw", "http://h/edge", "http://h/w")
    with failing((Mailboxes,), fail_at, late=late) as calls:
        made = mailbox.MailboxController(setting, SharedInformers(simulated_environment()), Logger(io.StringIO()))
        informers = {name: getattr(made, f"_{name}") for name in ("targets", "workspaces", "bindings", "configs")}
        rebuilding = asyncio.create_task(made.rebuilder.run())
        for version, (kind, obj, deleted) in enumerate(MAILBOX_HISTORY, 1):
            deliver(informers[kind], obj, version, deleted=deleted)
            await asyncio.sleep(0.01)
        await asyncio.sleep(LONG)
    rebuilding.cancel()
    assert made.rebuilder.clean.is_set()
    index = made._mailboxes
    state = dict(index._targets), dict(index._workspaces), dict(index._names), len(made.controller.queue)
    return calls[0], made.rebuilder.tally.successes, state


ENGINE = (PlacementState, PlacementIndex, ObjectIndex, CopyIndex, NameOwners, ServedKinds, Withdrawals, Dependencies)
NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


async def run_feed(fail_at: int, *, late: bool = False) -> Outcome:
    views = FeedViews(SERVER.workspace("*"), SERVER, SERVER.workspace("root"), "http://h/edge", "http://h/s")
    log = Logger(io.StringIO())
    feed = PlacementFeed(views, WithdrawalLimits(), SharedInformers(simulated_environment()), log)
    recorder = Recorder(SERVER, "test", lambda: NOW, monotonic, lambda: "x", log)
    translator = PlacementTranslator(feed, recorder, lambda: NOW)
    summarizer = StatusSummarizer(feed, recorder, lambda: NOW)
    feed._builtin = {NAMESPACES: "v1", DEPLOYMENTS: "v1", BINDINGS: "v1alpha1", DEFINITIONS: "v1"}
    feed._rebuild()
    group = asyncio.TaskGroup()
    async with group:
        feed._group = group
        group.create_task(feed.rebuilder.run())
        looking = group.create_task(summarizer._digest_copies())
        feed.feeds.want(group, feed.known.served_kinds.builtin())
        for informer in feed.feeds.informers():
            informer.synced.set()
        feed._started = True
        feed.rebuilder.attempt("begin", lambda: feed._notify(feed.known.begin()))
        static: dict[str, Informer[Any]] = {
            "placements": feed.placements,
            "configs": feed.configs,
            "slices": feed._slices,
            "customizers": feed._customizers,
            "locations": feed.locations,
            "workspaces": feed._workspaces,
            "clusters": feed._clusters,
            "collectors": summarizer._collectors,
            "namespaces": feed.feeds._informers[WatchedCollection(NAMESPACES, "v1")],
            "deployments": feed.feeds._informers[WatchedCollection(DEPLOYMENTS, "v1")],
            "bindings": feed.feeds._informers[WatchedCollection(BINDINGS, "v1alpha1")],
        }
        with failing((*ENGINE, Summaries, StatusReturner), fail_at, late=late) as calls:
            for version, (kind, obj, deleted) in enumerate(FEED_HISTORY, 1):
                deliver(static[kind], obj, version, deleted=deleted)
                await asyncio.sleep(0.01)
            await asyncio.sleep(LONG)
        assert feed.rebuilder.clean.is_set()
        state = feed_state(feed, translator, summarizer)
        rebuilds = feed.rebuilder.tally.successes
        looking.cancel()
        group._abort()
    return calls[0], rebuilds, state


def feed_state(feed: PlacementFeed, translator: PlacementTranslator, summarizer: StatusSummarizer) -> Any:
    known, summaries = feed.known, summarizer._summaries
    assert translator._known is known
    assert summarizer._known is known
    wanted = {
        (mailbox, ref): (sorted(known.selections.reasons(mailbox, ref), key=str), known.withdrawals.is_held(key))
        for key in known.placements
        for mailbox in known.selections.destinations(key)
        for ref in known.selections.refs_at(mailbox)
    }
    made = {key: sorted(known.copies.copies(key)) for key in known.placements}
    index = (
        known.placements,
        known.locations,
        known.customizers,
        known.mailboxes,
        known.collections,
        known._placements_through,
    )
    subjects = {
        key: {ref: summaries.summary(SummarySubject(key, ref)) for ref in refs} for key, refs in summaries._of.items()
    }
    name_owners = known.name_owners._tenant, known.name_owners._observed, known.name_owners._copy_tenants
    return (
        wanted,
        made,
        index,
        name_owners,
        known._customized,
        feed._listened,
        subjects,
        summaries._reports,
        summaries._queries,
    )


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("run", "step"),
    [
        (run_scheduler, 1),
        (run_mailbox, 1),
        pytest.param(run_feed, 29, marks=pytest.mark.slow),
        pytest.param(run_feed, 1, marks=pytest.mark.long),
    ],
)
async def test_the_state_after_any_one_failure_is_that_without_failures(
    run: Callable[..., Any], step: int, late: bool
) -> None:
    """`step`: every call fails once, or every so many."""
    number, rebuilds, expected = await run(0)
    assert (number >= 9, rebuilds) == (True, 0)
    for fail_at in range(1, number + 1, step):
        _, _, found = await run(fail_at, late=late)
        assert found == expected, fail_at


async def test_an_object_that_always_fails_stops_neither_the_controller_nor_further_rebuilds() -> None:
    class Engine:
        def __init__(self) -> None:
            self.objects: dict[str, int] = {}

        def put(self, change: CacheChange[int]) -> None:
            if change.key.name == "bad" and bad:
                raise ValueError("a secret")
            self.objects[change.key.name] = change.new or 0

    log, bad, engines, cache = io.StringIO(), True, [Engine()], Cache[int]()

    def put(change: CacheChange[int]) -> None:
        engines[-1].put(change)

    def rebuild() -> None:
        engines.append(Engine())
        rebuilder.replay("Thing", cache, put)

    rebuilder = Rebuilder("test", rebuild, simulated_environment(), Logger(log))
    listener = rebuilder.guarded("Thing", put)
    running = asyncio.create_task(rebuilder.run())

    def write(name: str, version: int) -> None:
        change = cache.apply(CachedObject(Key("", "", name), version, version))
        assert change is not None
        listener(change)

    write("bad", 1)
    assert not rebuilder.clean.is_set()
    write("good", 2)  # while the engine is dirty
    assert engines[0].objects == {}
    await rebuilder.clean.wait()
    assert engines[-1].objects == {"good": 2}
    write("bad", 3)
    write("good", 4)
    assert rebuilder.clean.is_set()
    assert engines[-1].objects == {"good": 4}
    await asyncio.sleep(LONG)
    assert 5 < rebuilder.tally.successes < 40  # with backoff
    assert rebuilder.failed_calls == rebuilder.tally.successes + 2
    bad = False
    await asyncio.sleep(LONG)
    assert engines[-1].objects == {"bad": 3, "good": 4}
    rebuilt = rebuilder.tally.successes
    await asyncio.sleep(LONG)
    assert rebuilder.tally.successes == rebuilt
    running.cancel()
    assert "a secret" not in log.getvalue()


class RecordingTransport(SilentTransport):
    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.last_body = b""

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        self.requests.append((request.method, request.target.partition("?")[0]))
        self.last_body = request.body
        async with super().open(request) as reply:
            yield reply


@pytest.mark.parametrize(
    ("failing_method", "kind", "changed"),
    [
        ("on_slice", "slices", slice_to(1, 2)),
        ("on_placement", "placements", placement({}, namespaces=PROD, changed="yes")),
        ("on_object", "deployments", at("w", "web", "shop", metadata={"generation": 2})),
    ],
)
async def test_copies_are_not_withdrawn_because_the_engine_fails_with_an_object(
    monkeypatch: pytest.MonkeyPatch, failing_method: str, kind: str, changed: Obj
) -> None:
    """The engine is used without the object: its copies, or those that it selects, seem to be unwanted."""
    transport = RecordingTransport()
    server = Client(transport)
    views = FeedViews(server.workspace("*"), server, server.workspace("root"), "http://h/edge", "http://h/s")
    log = Logger(io.StringIO())
    feed = PlacementFeed(views, WithdrawalLimits(), SharedInformers(simulated_environment()), log)
    translator = PlacementTranslator(
        feed, Recorder(server, "test", lambda: NOW, monotonic, lambda: "x", log), lambda: NOW
    )
    feed._builtin = {NAMESPACES: "v1", DEPLOYMENTS: "v1", BINDINGS: "v1alpha1", DEFINITIONS: "v1"}
    feed._rebuild()
    feed.feeds._informers = {source: feed.feeds._informer(source) for source in feed.known.served_kinds.builtin()}
    informers: dict[str, Informer[Any]] = {
        "placements": feed.placements,
        "slices": feed._slices,
        "workspaces": feed._workspaces,
        "clusters": feed._clusters,
        "namespaces": feed.feeds._informers[WatchedCollection(NAMESPACES, "v1")],
        "deployments": feed.feeds._informers[WatchedCollection(DEPLOYMENTS, "v1")],
    }
    for informer in feed.feeds.informers():
        informer.synced.set()
    feed._started = True
    feed.rebuilder.attempt("begin", lambda: feed._notify(feed.known.begin()))
    rebuilding = asyncio.create_task(feed.rebuilder.run())
    history: list[tuple[str, Obj]] = [
        ("clusters", logical_cluster("w", "org")),
        ("workspaces", workspace(1)),
        ("namespaces", SHOP),
        ("deployments", WEB),
        ("placements", placement({}, namespaces=PROD)),
        ("slices", slice_to(1)),
        ("namespaces", copied(1, "shop")),
        ("deployments", copied(1, "web", "shop")),
    ]
    for version, (name, obj) in enumerate(history, 1):
        deliver(informers[name], obj, version, deleted=False)
    copy = CopyKey(f"inv-mb-{UID.format(1)}", ObjectRef(DEPLOYMENTS, "shop", "web"))
    method = getattr(PlacementState, failing_method)

    def fails(self: PlacementState, *args: Any) -> Any:
        if any(one is not None and one in args for one in bad):
            raise InjectedError
        return method(self, *args)

    async def deletions() -> list[tuple[str, str]]:
        transport.requests.clear()
        copying = asyncio.create_task(translator._copier.copy(copy))
        await asyncio.sleep(LONG)
        copying.cancel()
        return [one for one in transport.requests if one[0] == "DELETE"]

    assert feed.known.selections.is_desired(*copy)
    monkeypatch.setattr(PlacementState, failing_method, fails)
    bad = [
        informers[kind]._decode(orjson.dumps({**changed, "metadata": {**changed["metadata"], "resourceVersion": "99"}}))
    ]
    deliver(informers[kind], changed, 99, deleted=False)
    await asyncio.sleep(1.0)
    assert feed.rebuilder.clean.is_set()
    assert not feed.known.selections.is_desired(*copy)
    assert await deletions() == []
    bad.clear()
    await asyncio.sleep(LONG)
    assert feed.known.selections.is_desired(*copy)
    deliver(informers[kind], changed, 100, deleted=True)
    assert not feed.known.selections.is_desired(*copy) or kind == "slices"
    assert bool(await deletions()) == (kind != "slices")
    rebuilding.cancel()


async def test_no_condition_is_written_before_all_copies_were_reconciled_after_a_rebuild() -> None:
    """A new engine knows no problems yet: the condition would become True, and False again."""
    transport = RecordingTransport()
    server = Client(transport)
    views = FeedViews(server.workspace("*"), server, server.workspace("root"), "http://h/edge", "http://h/s")
    log = Logger(io.StringIO())
    feed = PlacementFeed(views, WithdrawalLimits(), SharedInformers(simulated_environment()), log)
    translator = PlacementTranslator(
        feed, Recorder(server, "test", lambda: NOW, monotonic, lambda: "x", log), lambda: NOW
    )
    feed._rebuild()
    feed._started = True
    rebuilding = asyncio.create_task(feed.rebuilder.run())
    history = [
        (feed._workspaces, workspace(1)),
        (feed.placements, placement(namespaces=PROD)),
        (feed._slices, slice_to(1)),
    ]
    for version, (informer, obj) in enumerate(history, 1):
        deliver(informer, obj, version, deleted=False)
    queue, status = translator.controller.queue, StatusKey(PlacementKey("w", "p"))

    async def written() -> int:
        await asyncio.sleep(10.0)
        writing = asyncio.create_task(translator._write_status(status, 0))
        await asyncio.sleep(1.0)
        writing.cancel()
        return len(transport.requests)

    assert (queue.idle, await written()) == (False, 0)
    while not queue.idle:
        async with queue.next():
            pass
    assert await written() == 1
    feed.rebuilder.failed("test", InjectedError())
    assert (await written(), queue.idle) == (1, False)
    while not queue.idle:
        async with queue.next():
            pass
    assert await written() == 2
    rebuilding.cancel()


@pytest.mark.parametrize("failing_method", ["on_object", "on_placement"])
async def test_a_placement_reports_copies_that_stay_because_the_translator_fails_with_an_object(
    monkeypatch: pytest.MonkeyPatch, failing_method: str
) -> None:
    method, failing_cluster = getattr(PlacementState, failing_method), ""

    def fails(self: PlacementState, *args: Any) -> Any:
        cluster, name = args[0] if failing_method == "on_placement" else (args[0], args[1].name)
        if cluster == failing_cluster and name in ("p", "prices"):
            raise InjectedError
        return method(self, *args)

    async with shop("florin") as one:
        await one.at_rest()
        monkeypatch.setattr(PlacementState, failing_method, fails)
        failing_cluster = one.workloads[0]
        if failing_method == "on_object":
            changed, named = config_map("prices", {"tea": "4"}), "configmaps shop/prices"
            await one.must_put(one.workloads[0], MAPS, changed)
        else:
            named = "EdgePlacement p"
            annotated = {"metadata": {"annotations": {"changed": "yes"}}}
            await one.patch(one.workloads[0], f"{EDGE}/edgeplacements/p", annotated)
        await one.fleet.eventually(lambda: one.says("TranslatorFailed", "stay", named, "change or delete"))
        assert await one.has(one.boxes, f"{MAPS}/prices")
        failing_cluster = ""
        await one.fleet.eventually(lambda: one.says("Projected"))
        assert await one.has(one.boxes, f"{MAPS}/prices")


@pytest.mark.parametrize(
    ("failing_method", "kind", "changed"),
    [
        ("on_location", "locations", location("t1", env="prod", a="b")),
        ("on_target", "targets", target("t1", 1) | {"x": 1}),
    ],
)
async def test_destinations_are_not_lost_because_the_engine_fails_with_their_objects(
    monkeypatch: pytest.MonkeyPatch, failing_method: str, kind: str, changed: Obj
) -> None:
    method = getattr(Triggers, failing_method)

    def fails(self: Triggers, change: CacheChange[Any]) -> Any:
        if change.key.name == "t1" and bad:
            raise InjectedError
        return method(self, change)

    bad = False
    monkeypatch.setattr(Triggers, failing_method, fails)
    transport = RecordingTransport()
    server = Client(transport)
    log = Logger(io.StringIO())
    rights = trusting(log)
    setting = edge_scheduler.EdgeSchedulerSetting(
        server, server, "http://h/edge", "http://h/s", "http://h/w", rights, lambda: NOW
    )
    made = edge_scheduler.EdgeScheduler(setting, "edge-scheduler", SharedInformers(simulated_environment()), log)
    informers = {name: getattr(made, f"_{name}") for name in ("targets", "locations", "placements", "slices")}
    rebuilding, reviewing = asyncio.create_task(made.rebuilder.run()), asyncio.create_task(rights.run())
    history: list[tuple[str, Obj]] = [
        *(("targets", target(f"t{number}", number)) for number in (1, 2)),
        *(("locations", location(f"t{number}", env="prod")) for number in (1, 2)),
        ("placements", placement(PROD, namespaces=ALL)),
        ("slices", slice_to(1, 2)),
    ]
    for version, (name, obj) in enumerate(history, 1):
        deliver(informers[name], obj, version, deleted=False)

    async def written() -> list[str]:
        transport.requests.clear()
        await ask_for_rights(made)
        reconciling = asyncio.create_task(made.reconcile(ObjectKey("w", "p"), 0))
        await asyncio.sleep(LONG)
        reconciling.cancel()
        return [target for _, target in transport.requests if "singleplacementslices" in target]

    made._begin()
    bad = True
    deliver(informers[kind], changed, 99, deleted=False)
    await asyncio.sleep(1.0)
    assert made.rebuilder.clean.is_set()
    assert await written() == []
    reported = next(one for one in orjson.loads(transport.last_body)["status"]["conditions"] if one["type"] == "Ready")
    assert (reported["status"], reported["reason"]) == ("False", "SchedulerFailed")
    assert f"process {'SyncTarget' if kind == 'targets' else 'Location'} t1" in reported["message"]
    bad = False
    await asyncio.sleep(LONG)
    assert await written() == []
    assert b'"Resolved"' in transport.last_body
    deliver(informers[kind], changed, 100, deleted=True)
    assert await written() != []
    rebuilding.cancel()
    reviewing.cancel()
