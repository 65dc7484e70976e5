"""The controllers of a process share their watches."""

from __future__ import annotations

import asyncio
import io
import re
from collections import Counter

import pytest
from fleet import PROVIDER, FaultyTransport
from simulated_time import simulated_environment
from translated import MAPS, NAMESPACES, PROD, config_map, namespace, world

from farflung.cli.controllers import ALL, ControllerSettings, ProcessStatus, Servers, run_controllers
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machines.files.reloader import Reloader

KIND = re.compile(r"(/api/v1/\w+|/apis/[^/]+/v\w+/\w+)[^/]*$")
pytestmark = pytest.mark.simulated_time


def watches(*transports: FaultyTransport) -> Counter[str]:
    """Open watches by API group, version and resource: an identity of an export is no part of the kind."""
    targets = [sink.target.partition("?")[0] for one in transports for sink in one._sinks]
    return Counter(KIND.findall(target)[0] for target in targets)


async def test_a_process_with_all_controllers_has_one_watch_per_kind() -> None:
    async with world("florin") as one:
        fleet = one.fleet
        await fleet.crash()
        everywhere = Client(fleet.masters, "/clusters/*", "test")
        servers = Servers(fleet.client(f"/clusters/{PROVIDER}"), fleet.client("/clusters/root"), everywhere)
        settings, status, log = ControllerSettings(ALL, "farflung controllers"), ProcessStatus(), Logger(io.StringIO())
        files = Reloader(settings.files, settings.loaded, log)
        running = asyncio.create_task(
            run_controllers(
                settings, servers, files=files, identity="a", status=status, env=simulated_environment(), log=log
            )
        )
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "3"}))
        await one.placement(0, "p", namespaceSelector=PROD)
        await fleet.eventually(lambda: one.has(one.boxes, f"{MAPS}/prices"), "the copy")
        await fleet.eventually(
            lambda: watches(fleet.transport, fleet.masters)["/apis/globalscheduler.com/v1/clusters"], "the leader"
        )
        found = watches(fleet.transport, fleet.masters)
        running.cancel()
        await asyncio.wait({running})
        # the view of Pods is there before any workspace binds them, the translator's collection only afterwards
        assert {kind: number for kind, number in found.items() if number > 1} == {"/api/v1/pods": 2}
        assert len(found) == 33
