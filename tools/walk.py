#!/usr/bin/env python3
"""Trace three flows in one process, and count the files, functions and folder switches that each passes.

    .venv/bin/python tools/walk.py
    .venv/bin/python tools/walk.py --flow create --list

create      a Deployment is created in a workspace
placement   an EdgePlacement is edited until its copy is in a mailbox, without what the hub does
copy        a copy comes from a mailbox to an edge, without what the hub and the edge do

A switch is a call of a function in another folder than the function called before. Each flow runs once before it is
traced, so that caches are filled. `--list` also prints the files in the order in which they are first entered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = str(PROJECT / "src" / "farflung") + os.sep
STARTS = 0  #: argument of the instruction RESUME at the start of a function; another where a generator continues
SERVERS = tuple(SOURCES + folder + os.sep for folder in ("hub", "store", "http"))
sys.path.insert(0, str(PROJECT / "tests" / "support"))

from simulated_time import SimulatedLoop  # noqa: E402
from syncing import MAPS, NAMESPACES, linked, scope  # noqa: E402
from translated import PROD, config_map, deployment, namespace, world  # noqa: E402


class Trace:
    """The calls of functions of farflung, in their order."""

    def __init__(self, *, skip_servers: bool) -> None:
        """`skip_servers`: leave out what a hub does, and all that it calls."""
        self.codes: list[CodeType] = []
        self._skip_servers = skip_servers

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCES):
            return
        code = frame.f_code
        if code.co_flags & (0x20 | 0x80 | 0x200) and code.co_code[frame.f_lasti + 1] != STARTS:
            return  # a generator or coroutine that continues
        if not (self._skip_servers and self._is_called_by_server(frame)):
            self.codes.append(frame.f_code)

    def _is_called_by_server(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_filename.startswith(SERVERS):
                return True
            frame = frame.f_back
        return False

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(code.co_filename.removeprefix(SOURCES) for code in self.codes))

    @property
    def functions(self) -> int:
        return len({(code.co_filename, code.co_firstlineno) for code in self.codes})

    @property
    def switches(self) -> int:
        folders = [code.co_filename.rpartition(os.sep)[0] for code in self.codes]
        return sum(one != other for one, other in pairwise(folders))


@contextmanager
def traced(trace: Trace) -> Iterator[None]:
    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(None)


async def create(trace: Trace) -> None:
    async with world("florin") as one:
        hub, path = one.fleet.hub, f"/clusters/{one.workloads[0]}/apis/apps/v1/namespaces/default/deployments"
        for name in ("first", "second"):
            await hub.create(path, deployment(name, "nginx"))
        with traced(trace):
            await hub.create(path, deployment("third", "nginx"))


async def edit_placement(trace: Trace) -> None:
    async with world("florin", labels={"env": "prod"}) as one:
        await one.must_put(one.workloads[0], "/api/v1/namespaces", namespace("shop", env="prod"))
        maps = "/api/v1/namespaces/shop/configmaps"
        await one.must_put(one.workloads[0], maps, config_map("prices", {"tea": "3"}))
        everywhere, nowhere = {"matchLabels": {"env": "prod"}}, {"matchLabels": {"env": "none"}}

        async def move(selector: dict[str, Any], condition: Callable[[], Awaitable[bool]]) -> None:
            await one.placement(0, "p", selector, namespaceSelector=PROD)
            await one.fleet.eventually(condition, "the copies")

        await move(everywhere, lambda: one.has(one.boxes, f"{maps}/prices"))
        await move(nowhere, lambda: one.lacks(one.boxes, f"{maps}/prices"))
        await one.at_rest()
        with traced(trace):
            await move(everywhere, lambda: one.has(one.boxes, f"{maps}/prices"))


async def bring_copy(trace: Trace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with linked(Path(directory)) as link:
            await link.configure(scope("shop", resources=(MAPS,)))
            await link.put(NAMESPACES, namespace("shop"))
            await link.put(MAPS, config_map("first", {"tea": "3"}), "shop")
            await link.at_edge(MAPS, "first", "shop")
            await link.settled()
            with traced(trace):
                await link.put(MAPS, config_map("second", {"tea": "4"}), "shop")
                await link.at_edge(MAPS, "second", "shop")


FLOWS: dict[str, tuple[Callable[[Trace], Awaitable[None]], bool]] = {
    "create": (create, False),
    "placement": (edit_placement, True),
    "copy": (bring_copy, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flow", choices=FLOWS, help="trace this flow alone")
    parser.add_argument("--list", action="store_true", help="also print the files of each flow")
    arguments = parser.parse_args()
    print(f"{'flow':<12}{'files':>8}{'functions':>12}{'calls':>8}{'switches':>10}")
    for name, (flow, skip_servers) in FLOWS.items():
        if arguments.flow not in (None, name):
            continue
        trace = Trace(skip_servers=skip_servers)
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(flow(trace))
        print(f"{name:<12}{len(trace.files):>8}{trace.functions:>12}{len(trace.codes):>8}{trace.switches:>10}")
        if arguments.list:
            print("".join(f"    {file}\n" for file in trace.files), end="")


if __name__ == "__main__":
    main()
