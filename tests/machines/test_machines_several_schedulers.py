"""Several schedulers of which one works: whoever is started, ended, killed or cut off, and when, every machine is taken
by one of them, none is lost, and none is bound twice."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from examples import examples
from failing_engines import trusting
from fleet import PROVIDER, FaultyTransport
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_history import History
from platform_harness import MASTER, OPERATOR
from scripted_server import ScriptedServer, failure

from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machines.controller import GlobalScheduler, GlobalSchedulerSetting
from farflung.runtime.environment import Environment
from farflung.runtime.exports import find_view
from farflung.runtime.informer import SharedInformers
from farflung.runtime.leader import Candidate, LeaseRef, Terms
from farflung.runtime.recorder import Recorder
from machines import CATALOGUE, Machines, machines

TERMS = Terms(lasting=10.0, deadline=6.0, pause=0.5, renewal=2.0)  # of seconds that pass sooner
CONTENDERS = ["one", "two", "three"]
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("machine"), st.tuples(NAMES, st.just("small"), st.integers(1, 2))),
        st.tuples(st.just("machine"), st.tuples(NAMES, st.just("small"), st.integers(1, 2))),
        st.tuples(st.just("cluster"), st.tuples(st.sampled_from(["az1", "az2"]), st.integers(0, 3), st.just(0))),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.sampled_from(["start", "end", "kill", "cut off"]), st.sampled_from(CONTENDERS)),
        st.tuples(st.just("turns"), st.integers(1, 80)),
    ),
    min_size=8,
    max_size=20,
)


@dataclass
class Contender:
    """A process that schedules when it is its turn."""

    one: Machines
    name: str
    _lines: list[FaultyTransport] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """It can be reached again if it was cut off."""
        for line in self._lines:
            line.up = True
        if self._task is not None:
            return
        hub = self.one.fleet.hub
        ordinary, master = FaultyTransport(hub.function, OPERATOR), FaultyTransport(hub.function, MASTER)
        self._lines = [ordinary, master]
        log, env = Logger(self.one.fleet.log, 3), self.one.fleet.env
        espw, root, compute = (Client(ordinary, f"/clusters/{path}") for path in (PROVIDER, "root", "root:compute"))
        names = ("kubernetes", "globalscheduler.com", "workload.kcp.io", "scheduling.kcp.io", "edge.kcp.io")
        exporting = zip((compute, compute, root, root, espw), names, strict=True)
        views = [(await find_view(client, name, env, log)).url for client, name in exporting]
        candidate = Candidate(
            LeaseRef(compute, "default", "global-scheduler"), self.name, env, lambda: hub.now, log, TERMS
        )
        clients = [candidate.guarded(one) for one in (Client(master, "/clusters/*"), espw, root)]
        setting = GlobalSchedulerSetting(*clients, *views, trusting(log), lambda: hub.now, catalogue=CATALOGUE)

        async def work() -> None:
            recorder = Recorder(clients[0], self.name, lambda: hub.now, env.monotonic, lambda: self.name, log)
            await GlobalScheduler(setting, recorder, SharedInformers(env), log).run()

        self._task = asyncio.create_task(candidate.lead(work))

    def cut_off(self) -> None:
        for line in self._lines:
            line.go_down()

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def kill(self) -> None:
        """It leaves its Lease to nobody."""
        self.cut_off()
        await self.end()


async def suffer(history: History, contenders: dict[str, Contender], what: str, how: Any) -> None:
    match what:
        case "start":
            await contenders[how].start()
        case "end":
            await contenders[how].end()
        case "kill":
            await contenders[how].kill()
        case "cut off":
            contenders[how].cut_off()
        case _:
            await history.do(what, how)


async def is_all_bound(one: Machines) -> bool:
    return all(pod["spec"].get("nodeName") for pod in await one.pods())


@settings(max_examples=examples(3))
@given(steps=STEPS)
async def test_whoever_comes_and_goes_every_machine_is_taken_once_and_none_is_lost(steps: list[Any]) -> None:
    async with machines(start=False) as one:
        history = History(one)
        contenders = {name: Contender(one, name) for name in CONTENDERS}
        await contenders["one"].start()
        await contenders["two"].start()
        try:
            for what, how in steps:
                await suffer(history, contenders, what, how)
                await history.check()
            await contenders["three"].start()
            await one.fleet.eventually(history.is_at_rest, "all placed or told why")
            for name in ("one", "two"):
                await contenders[name].kill()
            await one.cluster("az9", {"small": 10}, zone="az9")  # what matched nothing is bound later
            await one.fleet.eventually(lambda: is_all_bound(one), "all placed")
            await history.check()
        finally:
            for contender in contenders.values():
                await contender.end()


async def test_a_term_that_ends_before_the_first_list_leaves_nothing_behind() -> None:
    """The next term of the process makes a new scheduler with the same shared informers."""
    tried = asyncio.Event()

    async def sleep(seconds: float) -> None:
        tried.set()
        await asyncio.Event().wait()

    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1, 30, lambda: 1.0))
    shared, log = SharedInformers(env), Logger(io.StringIO())
    client = Client(ScriptedServer(lambda request: failure(503)), "/clusters/root")
    views = (f"https://hub/{name}" for name in ("pods", "machines", "workload", "scheduling", "edge"))
    setting = GlobalSchedulerSetting(client, client, client, *views, trusting(log), lambda: datetime.now(UTC))
    recorder = Recorder(client, "one", lambda: datetime.now(UTC), env.monotonic, lambda: "one", log)
    running = asyncio.create_task(GlobalScheduler(setting, recorder, shared, log).run())
    async with asyncio.timeout(60):
        await tried.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not shared._reflectors
