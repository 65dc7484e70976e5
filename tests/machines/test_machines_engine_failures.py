"""A scheduler in whose engine any one call fails binds every machine once, and ends with the engine of a new one."""

from __future__ import annotations

import asyncio
import io
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pytest
from failing_engines import LONG, InjectedError, SilentTransport, deliver, failing, trusting
from simulated_time import monotonic, simulated_environment

from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.controllers.mailbox.triggers import Mailboxes
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.machinery.patch import merge
from farflung.machines.controller import GlobalScheduler, GlobalSchedulerSetting
from farflung.machines.decide import CONFIRMED_BY, MachineLocations, SchedulerState
from farflung.machines.delivery import DeliveryController, DeliveryLabels, SiteMailboxes, TerminatingCopies
from farflung.machines.engine.engine import SchedulingEngine
from farflung.machines.engine.policy import default_policy
from farflung.machines.engine.queue import SchedulingQueue
from farflung.machines.engine.values import Flavor
from farflung.machines.status_writer import DeliveryStatusWriter
from farflung.machines.triggers import ClusterTargets, TargetShares
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.recorder import Recorder
from machines import allocation, cluster_spec, machine

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
STEP = 0.5  #: seconds between two changes: enough for the writes that one causes
REST = 20.0  #: until nothing is left to do
DELAY = 0.05  #: seconds between a write and its watch event
UID = "00000000-0000-4000-8000-000000000001"
ENGINE = (SchedulerState, SchedulingEngine, SchedulingQueue, MachineLocations, ClusterTargets, TargetShares, Mailboxes)
PARTS = (DeliveryController, DeliveryLabels, DeliveryStatusWriter, SiteMailboxes, TerminatingCopies)
PATH: Final = re.compile(
    r"/clusters/([^/]+)/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/?]+))?(?:/([a-z]+))?$"
)
Outcome = tuple[int, int, Any]  #: calls, rebuilds, which machines are bound


class Answer:
    def __init__(self, status: int, obj: Obj) -> None:
        self.status = status
        self._body = orjson.dumps(obj)

    def header(self, name: str) -> str:
        return ""

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body


class Server(SilentTransport):
    """Objects of the scheduler's kinds.  Lists and watches are not answered: the test delivers changes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, ...], Obj] = {}
        self.informers: dict[str, Informer[Any]] = {}
        self.bindings: Counter[str] = Counter()  #: by uid of the Pod
        self.delay = DELAY
        self._version = 0

    def write(self, plural: str, obj: Obj, *, deleted: bool = False) -> Obj:
        """With a watch event, later."""
        self._version += 1
        version, metadata = self._version, {**obj["metadata"], "resourceVersion": str(self._version)}
        written = {**obj, "metadata": metadata}
        key = (plural, metadata["annotations"]["kcp.io/cluster"], metadata.get("namespace", ""), metadata["name"])
        if deleted:
            self.objects.pop(key, None)
        else:
            self.objects[key] = written
        loop, informer = asyncio.get_running_loop(), self.informers[plural]
        loop.call_later(self.delay, lambda: deliver(informer, written, version, deleted=deleted))
        return written

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        found = PATH.search(request.target.partition("?")[0])
        cluster, namespace, plural, name, subresource = found.groups("") if found else [""] * 5
        if request.method == "GET" and not name and cluster != "box1":
            async with super().open(request) as reply:
                yield reply
        await asyncio.sleep(DELAY)
        body = orjson.loads(request.body) if request.body else {}
        yield self._answer(request.method, (plural, cluster, namespace, name), subresource, body)

    def _answer(self, method: str, key: tuple[str, ...], subresource: str, body: Obj) -> Answer:
        plural, cluster, *_ = key
        if method == "POST" and not subresource:
            if plural == "edgeplacements":
                metadata = {**body["metadata"], "uid": f"uid-{key}"}
                metadata["annotations"] = {**metadata["annotations"], "kcp.io/cluster": cluster}
                body = self.write(plural, {**body, "metadata": metadata})
            return Answer(201, body)
        known = self.objects.get(key)
        metadata = body.get("metadata") or {}
        if known is None:
            return Answer(404 if key[3] else 200, {"reason": "NotFound", "details": {"name": key[3]}})
        if any(metadata.get(field, known["metadata"][field]) != known["metadata"][field] for field in VERSIONED):
            return Answer(409, {"reason": "Conflict"})
        if subresource == "binding":
            if known["spec"].get("nodeName"):
                return Answer(409, {"reason": "Conflict"})
            self.bindings[known["metadata"]["uid"]] += 1
            name = body["target"]["name"]
            body = {
                "metadata": {"annotations": metadata["annotations"], "labels": metadata["labels"]},
                "spec": {"nodeName": name, "clusterName": name},
                "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
            }
        if method == "DELETE":
            self.write(plural, known, deleted=True)
        elif method != "GET":
            body = {**body, "metadata": {**metadata, "resourceVersion": None, **body.get("metadata", {})}}
            known = self.write(plural, merge.apply(known, body))
            self.check()
        return Answer(200, known)

    def check(self) -> None:
        """No Cluster has more machines than it has capacity for."""
        bound = Counter(self.bound().values())
        for (plural, *_, name), obj in self.objects.items():
            if plural == "clusters":
                assert bound[name] <= sum(one["totalcapacity"] for one in obj["spec"]["flavors"]), bound

    def bound(self) -> dict[str, str]:
        """Machine to Cluster, without copies."""
        return {
            name: obj["spec"]["nodeName"]
            for (plural, cluster, _, name), obj in self.objects.items()
            if plural == "pods" and cluster == "w" and obj["spec"].get("nodeName")
        }


VERSIONED = ("uid", "resourceVersion")


def at(obj: Obj, cluster: str = "w", namespace: str = "default") -> Obj:
    metadata = {"uid": f"uid-{obj['metadata']['name']}", "generation": 1, "creationTimestamp": "2024-05-01T11:00:00Z"}
    metadata |= obj["metadata"]
    metadata["annotations"] = {"kcp.io/cluster": cluster, **metadata.get("annotations", {})}
    return {**obj, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}


def site(name: str, flavors: dict[str, int], **more: Any) -> Obj:
    return at({"metadata": {"name": name}, "spec": cluster_spec(flavors, **more)})


def refusing(*names: str) -> Obj:
    why = {"reason": "Invalid", "message": "no", "apiVersion": "v1", "kind": "Pod", "namespace": "default"}
    return {"lastError": "", "rejected": [{**why, "name": name} for name in names]}


MAILBOX = at(
    {"metadata": {"name": f"inv-mb-{UID}", "annotations": {"edge.kcp.io/sync-target-name": "t1"}}}
    | {"spec": {"cluster": "box1"}, "status": {"phase": "Ready"}},
    "root",
    "",
)
TARGET = at({"metadata": {"name": "t1", "uid": UID}, "spec": {}}, "inv", "")
READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2024-05-01T11:00:00Z"}]}
BOUND_API = at({"metadata": {"name": "edge"}, "status": {"phase": "Bound"}}, "w", "")
CONFIG = at({"metadata": {"name": "the-one"}, "spec": {}}, "box1", "")
EDGE = {"workspace": "inv", "name": "t1"}

HISTORY: list[tuple[str, Obj, bool]] = [
    ("workspaces", MAILBOX, False),
    ("synctargets", TARGET, False),
    ("clusters", site("az1", {"small": 2}), False),
    ("clusters", site("az2", {"large": 1}), False),
    ("clusters", site("az3", {"edge": 1}, synctarget=EDGE), False),
    ("synctargets", TARGET | {"status": READY}, False),
    ("apibindings", BOUND_API, False),
    ("pods", at(machine("vm1")), False),
    ("pods", at(machine("vm2")), False),
    ("pods", at(machine("vm3", "large")), False),
    ("pods", at(machine("vm4", "edge")), False),
    ("pods", at(machine("vm5")), False),
    ("syncerconfigs", CONFIG, False),
    ("pods", at(machine("vm4", "edge"), "box1"), False),
    ("allocations", at(allocation("stack", {"huge": 1}, replicas=2)), False),
    ("pods", at(machine("vm1")), True),
    ("clusters", site("az4", {"huge": 2, "large": 1}, zone="az4"), False),
    ("clusters", site("az2", {"large": 1}), True),
    ("synctargets", TARGET | {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
    ("synctargets", TARGET | {"status": READY}, False),
]


def made(server: Server) -> GlobalScheduler:
    client, log = Client(server), Logger(io.StringIO())
    views = [f"http://h/services/apiexport/x/{name}" for name in ("pods", "machines", "workload", "scheduling", "edge")]
    setting = GlobalSchedulerSetting(client.workspace("*"), client, client, *views, trusting(log), lambda: NOW)
    recorder = Recorder(client, "test", lambda: NOW, monotonic, lambda: "x", log)
    scheduler = GlobalScheduler(setting, recorder, SharedInformers(simulated_environment()), log, workers=4)
    for informer in scheduler.informers:
        informer.synced.set()
        server.informers[informer.collection.plural] = informer
    return scheduler


@contextmanager
def running(scheduler: GlobalScheduler) -> Iterator[None]:
    task, reviewing = asyncio.create_task(scheduler.run()), asyncio.create_task(scheduler._setting.rights.run())
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()
        reviewing.cancel()


async def run(fail_at: int, *, late: bool = False) -> Outcome:
    server = Server()
    scheduler = made(server)
    with failing((*ENGINE, *PARTS), fail_at, late=late) as calls, running(scheduler):
        for plural, obj, deleted in HISTORY:
            server.write(plural, deepcopy(obj), deleted=deleted)
            await asyncio.sleep(STEP)
        await asyncio.sleep(REST)
        number, rebuilds = calls[0], scheduler.rebuilder.tally.successes
        assert scheduler.rebuilder.clean.is_set()
        assert scheduler.idle
        found = engine_state(scheduler)
        scheduler._rebuild()
        scheduler._terminating_copies.check_all()
        assert found == engine_state(scheduler)
    stack = server.objects["allocations", "w", "default", "stack"]["status"]["cluster_names"]
    return number, rebuilds, (sorted(server.bound().items()), stack, sorted(server.objects), server.bindings)


def engine_state(scheduler: GlobalScheduler) -> Any:
    state, clusters = scheduler.state, scheduler.clusters
    engine = state.engine
    sites = {one.key: (one, engine.free(one.key)) for one in engine.sites()}
    assert not state.in_progress
    subjects = state._observed, state._reservations, state._foreign, state._finished, state._subjects
    places = {key: sorted(uids) for key, uids in state._uids_at.items()}, state._locations.__dict__, set(state._health)
    deliveries = scheduler._deliveries._existing, scheduler._deliveries._unserved
    problems = scheduler._delivery_status._reported, set(scheduler._terminating_copies._kept)
    pending = {uid for uid in state._subjects if uid in state.queue}
    return sites, subjects, places, deliveries, problems, pending, clusters._index._shares._users


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("step", [pytest.param(29, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)])
async def test_the_state_after_any_one_failure_is_that_without_failures(step: int, late: bool) -> None:
    """`step`: every call fails once, or every so many."""
    number, rebuilds, expected = await run(0)
    assert (number >= 500, rebuilds) == (True, 0)
    assert [name for name, _ in expected[0]] == ["vm2", "vm3", "vm4", "vm5"]
    assert expected[3] == {f"uid-vm{one}": 2 if one == 3 else 1 for one in range(1, 6)}
    for fail_at in range(1, number + 1, step):
        _, _, found = await run(fail_at, late=late)
        assert found == expected, fail_at


@pytest.mark.parametrize(
    ("owner", "method", "plural", "name"),
    [(ClusterTargets, "on_cluster", "clusters", "az3"), (SchedulerState, "observe", "pods", "vm4")],
)
async def test_machines_are_not_moved_because_the_engine_fails_with_an_object(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, plural: str, name: str
) -> None:
    """The engine is used without the object: the Cluster of a machine, or the machines of a workspace, seem to be
    deleted."""
    original = getattr(owner, method)

    def fails(self: Any, subject: Any, *args: Any) -> Any:
        if bad and (subject.key.cluster, subject.key.name) == ("w", name):
            raise InjectedError
        return original(self, subject, *args)

    bad = False
    monkeypatch.setattr(owner, method, fails)
    server = Server()
    scheduler = made(server)
    with running(scheduler):
        for kind, obj, deleted in HISTORY[:13]:
            server.write(kind, deepcopy(obj), deleted=deleted)
            await asyncio.sleep(STEP)
        objects = sorted(server.objects)
        bound = server.bound()
        assert bound["vm4"] == "az3"
        assert "edgeplacements" in {kind for kind, *_ in objects}
        bad = True
        server.write(plural, server.objects[plural, "w", "default", name])
        await asyncio.sleep(LONG)
        assert scheduler.rebuilder.failing
        assert (server.bound(), sorted(server.objects)) == (bound, objects)
        server.write("pods", at(machine("vm6", "large")))
        bad = False
        await asyncio.sleep(LONG)
        assert not scheduler.rebuilder.failing
        assert (server.bound(), scheduler.idle) == (bound, True)
        server.write(plural, server.objects[plural, "w", "default", name], deleted=True)
        await asyncio.sleep(LONG)
        assert "edgeplacements" not in {kind for kind, *_ in server.objects}


class UnreadableServer(Server):
    """Fails to read the Pods of the workspace."""

    def _answer(self, method: str, key: tuple[str, ...], subresource: str, body: Obj) -> Answer:
        if (method, *key[:2]) == ("GET", "pods", "w"):
            return Answer(500, {"reason": "InternalError"})
        return super()._answer(method, key, subresource, body)


@pytest.mark.parametrize("kind", [Server, UnreadableServer])
async def test_a_binding_keeps_its_resources_when_the_engine_is_rebuilt_before_its_watch_event(
    kind: type[Server],
) -> None:
    server = kind()
    scheduler = made(server)
    with running(scheduler):
        server.write("clusters", site("az1", {"small": 1}))
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(1.5 * DELAY)  # it is being bound
        server.write("pods", at(machine("urgent", priority=5)))
        server.delay = LONG
        await asyncio.sleep(STEP)
        assert (server.bound(), scheduler.rebuilder.tally.successes) == ({"vm1": "az1"}, 0)
        scheduler.rebuilder.failed("test", InjectedError())
        await asyncio.sleep(STEP)
        assert (server.bound(), scheduler.rebuilder.tally.successes) == ({"vm1": "az1"}, 1)
        await asyncio.sleep(2 * CONFIRMED_BY)
        assert server.bound() == {"vm1": "az1"}
        server.delay = DELAY
        server.write("pods", server.objects["pods", "w", "default", "vm1"], deleted=True)
        await asyncio.sleep(REST)
        assert server.bound() == {"urgent": "az1"}


async def test_machines_are_evicted_although_the_result_of_a_binding_cannot_be_read() -> None:
    server = UnreadableServer()
    scheduler = made(server)
    with running(scheduler):
        server.write("clusters", site("az1", {"small": 1}))
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(1.5 * DELAY)
        server.delay = LONG
        await asyncio.sleep(STEP)
        server.delay = DELAY
        server.write("clusters", site("az2", {"huge": 1}))
        server.write("allocations", at(allocation("stack", {"huge": 1})))
        await asyncio.sleep(CONFIRMED_BY + REST)
        server.write("clusters", site("az3", {"huge": 1}))
        server.write("clusters", site("az2", {"huge": 1}), deleted=True)
        await asyncio.sleep(REST)
        assert server.objects["allocations", "w", "default", "stack"]["status"]["cluster_names"] == ["az3"]


async def test_resources_of_a_machine_with_which_the_engine_fails_are_not_given_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = SchedulerState._update

    def fails(self: Any, subject: Any, *args: Any) -> None:
        if bad and subject.key.name == "vm1":
            raise InjectedError
        original(self, subject, *args)

    bad = False
    monkeypatch.setattr(SchedulerState, "_update", fails)
    server = Server()
    scheduler = made(server)
    with running(scheduler):
        server.write("clusters", site("az1", {"small": 1}))
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(STEP)
        bad = True
        server.write("pods", server.objects["pods", "w", "default", "vm1"])
        await asyncio.sleep(LONG)
        assert scheduler.rebuilder.failing
        server.write("pods", at(machine("vm2")))
        await asyncio.sleep(STEP)
        assert server.bound() == {"vm1": "az1"}
        bad = False
        server.write("pods", server.objects["pods", "w", "default", "vm1"], deleted=True)
        await asyncio.sleep(LONG)
        assert server.bound() == {"vm2": "az1"}


async def test_the_engine_is_rebuilt_although_the_server_fails_with_one_binding() -> None:
    class FailingServer(Server):
        def _answer(self, method: str, key: tuple[str, ...], subresource: str, body: Obj) -> Answer:
            if (key[3], subresource) == ("vm1", "binding"):
                return Answer(500, {"reason": "InternalError"})
            return super()._answer(method, key, subresource, body)

    server = FailingServer()
    scheduler = made(server)
    with running(scheduler):
        server.write("clusters", site("az1", {"small": 2}))
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(STEP)
        scheduler.rebuilder.failed("test", InjectedError())
        server.write("pods", at(machine("vm2")))
        await asyncio.sleep(LONG)
        assert (server.bound(), scheduler.rebuilder.tally.successes) == ({"vm2": "az1"}, 1)


async def test_a_stack_keeps_its_resources_when_a_new_decision_about_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SchedulingEngine.decide

    def fails(self: Any, request: Any, **named: Any) -> Any:
        if bad and request.uid == "uid-stack":
            raise InjectedError
        return original(self, request, **named)

    bad = False
    monkeypatch.setattr(SchedulingEngine, "decide", fails)
    server = Server()
    scheduler = made(server)
    with running(scheduler):
        server.write("clusters", site("az1", {"small": 1}))
        server.write("allocations", at(allocation("stack", {"small": 1})))
        await asyncio.sleep(STEP)
        stack = server.objects["allocations", "w", "default", "stack"]
        assert stack["status"]["cluster_names"] == ["az1"]
        bad = True
        server.write("allocations", {**stack, "metadata": {**stack["metadata"], "generation": 2}})
        await asyncio.sleep(REST)
        assert scheduler.rebuilder.failing
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(STEP)
        assert server.bound() == {}


async def test_a_cluster_gets_no_machines_before_the_workspace_of_its_synctarget_is_known() -> None:
    """Else the capacity of the SyncTarget does not limit them."""
    server = Server()
    scheduler = made(server)
    scheduler.configure(default_policy(), {"small": Flavor("small", vcpus=2)}, ())
    workspace = {"metadata": {"name": "cluster", "resourceVersion": "1"}}
    server.objects["logicalclusters", "root:inv", "", "cluster"] = at(workspace, "inv", "")
    with running(scheduler):
        server.write("synctargets", TARGET | {"status": READY | {"allocatable": {"cpu": "2"}}})
        server.write("clusters", site("az1", {"small": 9}, synctarget={"workspace": "root:inv", "name": "t1"}))
        server.write("pods", at(machine("vm1")))
        await asyncio.sleep(REST)
        assert server.bound() == {"vm1": "az1"}
        server.write("pods", at(machine("vm2")))
        scheduler.rebuilder.failed("test", InjectedError())
        await asyncio.sleep(REST)
        assert (server.bound(), scheduler.rebuilder.tally.successes) == ({"vm1": "az1"}, 1)
