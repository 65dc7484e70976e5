"""Virtual machines at the edges that stand for their Clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fleet import Fleet, fleet
from hub_harness import MERGE_PATCH
from platform_harness import MASTER, OPERATOR
from syncing import Link, mailbox_path

from farflung.http.messages import Request
from farflung.machinery.errors import Obj
from farflung.machines.failover import FailoverOptions
from machines import PODS, Machines, bind_edge, machines

SOON = FailoverOptions(refused=0.0, vanished=0.0)


@dataclass
class MachineRoom:
    """A cluster whose Pods may be virtual machines, and what a syncer sees of it."""

    far: Fleet
    workspace: str

    @property
    def store(self) -> Any:
        return self.far.hub.store

    def clock(self) -> datetime:
        return self.far.hub.now

    def hub(self, request: Request) -> Any:
        headers = {**request.headers, "authorization": f"Bearer {MASTER}"}
        path = f"/clusters/{self.workspace}{request.path}"
        return self.far.hub.function(replace(request, path=path, headers=headers))

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Obj | None:
        """None: there is no such thing."""
        answer = await self.far.hub.of(MASTER, method, f"/clusters/{self.workspace}{path}", body, **headers)
        assert answer.status in (200, 404), answer.body
        return answer.json if answer.status == 200 else None

    async def says(self, name: str, phase: str) -> None:
        """As who runs machines there would."""
        status = {"status": {"phase": phase, "hostIP": "10.1.1.1"}}
        assert await self.ask("PATCH", f"{PODS}/{name}/status", status, content_type=MERGE_PATCH)


@asynccontextmanager
async def machine_room() -> AsyncIterator[MachineRoom]:
    async with fleet() as far:
        workspace = await far.hub.workspace("edge")
        await far.hub.bind(workspace, "kubernetes", "root:compute", "kubernetes", by=OPERATOR)
        room = MachineRoom(far, workspace)

        async def is_served() -> bool:
            return await room.ask("GET", PODS) is not None

        await far.eventually(is_served, "Pods")
        yield room


@asynccontextmanager
async def linked_machines(
    directory: Path, edge: Any, room: int = 1, failover: FailoverOptions = SOON
) -> AsyncIterator[tuple[Machines, Link]]:
    """With a Cluster az1 that a SyncTarget stands for, and a syncer there.  `room`: for how many machines."""
    async with machines(start=False, failover=failover) as one:
        imw = await one.fleet.hub.workspace("imw")
        await bind_edge(one.fleet, one.shop)
        await one.fleet.target(imw, "edge1", {})
        await one.fleet.location(imw, "all", {}, {})
        await one.fleet.start(scheduler=True, mailboxes=True, translator=True, summarizer=True, globals=True)
        link = Link(one.fleet, edge, await mailbox_path(one.fleet), directory / "journal" / "syncer.sqlite")
        await one.cluster(
            "az1", {"small": room}, cpucapacity=9, memcapacity=9999, synctarget={"workspace": imw, "name": "edge1"}
        )
        await link.start()
        try:
            yield one, link
        finally:
            await link.stop()


def of_type(pod: Obj, type: str) -> Obj:
    found = [one for one in pod.get("status", {}).get("conditions", ()) if one["type"] == type]
    return found[0] if found else {}


def phase_is(one: Machines, name: str, phase: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return bool((await one.pod(name)).get("status", {}).get("phase") == phase)

    return is_so
