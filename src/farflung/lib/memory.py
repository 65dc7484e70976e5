"""Bounded caches of functions of texts, and settings of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LONGEST: Final = 512  #: characters of a text that is remembered


def remember(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache a function of texts, but not of long ones: clients choose them, and memory must stay bounded."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=most)(function)

        @wraps(function)
        def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
            for text in args:
                if isinstance(text, str) and len(text) > LONGEST:
                    return function(*args, **kwargs)
            return cached(*args, **kwargs)  # type: ignore[arg-type]  # texts are hashable, says the caller

        return remembering

    return decorate


THRESHOLDS: Final = (20_000, 20, 50)  #: new objects between collections; Python's own are (700, 10, 10)


def collect_seldom() -> None:
    """Raise the thresholds.  Imports, writes and decisions leave hardly any garbage, and Python's own thresholds cost
    a tenth of their time."""
    gc.set_threshold(*THRESHOLDS)


def freeze() -> None:
    """Exempt every present object from collections: call it when a process has started.  The little garbage of the
    start stays: collecting it first took 16 ms for 34 objects."""
    gc.freeze()
