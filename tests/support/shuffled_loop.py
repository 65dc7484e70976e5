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
    """What asyncio promises holds: callbacks run in the order in which they came, and so do first steps of tasks."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._tempers: WeakKeyDictionary[asyncio.Task[Any], float] = WeakKeyDictionary()  #: of those that began
        self._kept: list[asyncio.Handle] = []  #: further steps, that wait for another turn

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        handles = [ready.popleft() for _ in range(len(ready))]  # other threads may add to it meanwhile
        steps, self._kept = self._kept, []
        now: list[asyncio.Handle] = []
        for handle in handles:
            (steps if self._has_begun(handle) else now).append(handle)
        self._random.shuffle(steps)
        for step in steps:
            (self._kept if self._random.random() < self._tempers[_task(step)] else now).append(step)
        if self._kept and not now:
            now.append(self._kept.pop())  # a loop with nothing to do would sleep
        ready.extendleft(reversed(now))
        super()._run_once()  # type: ignore[misc]

    def _has_begun(self, handle: asyncio.Handle) -> bool:
        """Whether it is a further step of a task."""
        task = _task(handle)
        if task is None or task in self._tempers:
            return task is not None
        self._tempers[task] = self._random.choice(TEMPERS)
        return False


def _task(handle: asyncio.Handle) -> Any:
    """That takes its next step then; None if it is another callback."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner if isinstance(owner, asyncio.Task) else None


class ShuffledPolicy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return ShuffledLoop(self._seed)
