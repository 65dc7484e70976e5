"""Assert that no turn of the event loop takes more CPU time than farflung.lib.loop_probe allows."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from farflung.lib.loop_probe import LONG, PERIOD, LoopProbe


@asynccontextmanager
async def no_long_turns() -> AsyncIterator[None]:
    """The garbage of other tests is not collected in between."""
    probe = LoopProbe()
    gc.collect()
    gc.disable()
    probe.start(asyncio.get_running_loop())
    try:
        yield
        await asyncio.sleep(2 * PERIOD)  # until the probe has measured the last turn
    finally:
        probe.stop()
        gc.enable()
    assert probe.long_turns == 0, f"a turn took more than {LONG} s of CPU time: {probe.longest:.3f} s"
