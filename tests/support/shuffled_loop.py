"""An event loop in which tasks that could go on do so in any order, some of them late: whoever counts on the order in
which asyncio happens to run them is found out.  `pytest --shuffle SEED` runs every test in such loops."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final
from weakref import WeakKeyDictionary

#: how likely a task is to be kept waiting in a turn of the loop; each has one of these for as long as it lives
TEMPERS: Final = (0.0, 0.0, 0.5, 0.9, 0.98)


class ShuffledLoop(asyncio.SelectorEventLoop):
    """What is no task runs in the order in which it came, as asyncio promises."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._tempers: WeakKeyDictionary[asyncio.Task[Any], float] = WeakKeyDictionary()
        self._kept: list[asyncio.Handle] = []  #: steps of tasks that wait for another turn

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        handles = [ready.popleft() for _ in range(len(ready))]  # other threads may add to it meanwhile
        others = [handle for handle in handles if _task(handle) is None]
        steps = [*self._kept, *(handle for handle in handles if _task(handle) is not None)]
        self._random.shuffle(steps)
        now: list[asyncio.Handle] = []
        self._kept = []
        for step in steps:
            (self._kept if self._random.random() < self._temper(step) else now).append(step)
        if self._kept and not others and not now:
            now.append(self._kept.pop())  # a loop with nothing to do would sleep
        ready.extendleft(reversed([*others, *now]))
        super()._run_once()  # type: ignore[misc]

    def _temper(self, step: asyncio.Handle) -> float:
        task = _task(step)
        assert task is not None
        return self._tempers.setdefault(task, self._random.choice(TEMPERS))


def _task(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    """That takes its next step then."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner if isinstance(owner, asyncio.Task) else None


class ShuffledPolicy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return ShuffledLoop(self._seed)
