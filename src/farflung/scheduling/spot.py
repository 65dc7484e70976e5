"""How many spot machines a site has left.

For each flavor there are pools of vcpus and memory, counted in machines: of blocks of hours (`finite`, by hours) and
open-ended ones (`infinite`), which are taken away with delay or at once.  The names of pools are made of the words cpu
or mem, block if they are, and delay or immediate, in any spelling: `cpu_block_delay`, `MemoryImmediate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from farflung.scheduling.values import SpotPool

FAKE: Final = 1000  #: machines in each pool, if all spot requests are taken as satisfiable


def offered(spot: Mapping[str, Any], pool: SpotPool) -> int:
    """As many as both vcpus and memory allow; none if a pool is not there or makes no sense."""
    pools = spot.get(pool.flavor)
    if not isinstance(pools, Mapping):
        return 0
    return min(_amount(pools, "cpu", pool), _amount(pools, "mem", pool))


def _amount(pools: Mapping[str, Any], resource: str, pool: SpotPool) -> int:
    for name, content in pools.items():
        words = str(name).lower()
        if (
            resource in words
            and ("block" in words) == (pool.hours > 0)
            and ("delay" if pool.delay else "immediate") in words
            and isinstance(content, Mapping)
        ):
            return _machines(content, pool.hours)
    return 0


def _machines(content: Mapping[str, Any], hours: int) -> int:
    amount = content.get("infinite")
    if hours:
        finite = content.get("finite")
        amount = finite.get(f"{hours}h") if isinstance(finite, Mapping) else None
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not math.isfinite(amount):
        return 0
    return max(0, int(amount))
