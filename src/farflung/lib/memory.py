"""Bounded caches of functions of texts, and settings of the garbage collector and of malloc."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MAX_TEXT: Final = 512  #: characters of a text that is remembered


def remember(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache a function of texts, but not of long ones: clients choose them, and memory must stay bounded."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: dict[tuple[Any, ...], R] = {}

        @wraps(function)
        def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
            key = (args, *kwargs.items()) if kwargs else args
            try:
                return known[key]
            except KeyError:
                pass
            result = function(*args, **kwargs)
            if not any(isinstance(text, str) and len(text) > MAX_TEXT for text in args):
                if len(known) >= most:
                    known.clear()
                known[key] = result
            return result

        return remembering

    return decorate


#: new objects between collections; Python's own are (700, 10, 10).  The first two bound the objects of a collection to
#: 40,000, which takes up to 15 ms.
THRESHOLDS: Final = (10_000, 3, 600)


def collect_seldom() -> None:
    """Raise the thresholds.  Imports, writes and decisions leave hardly any garbage, and Python's own thresholds cost
    a tenth of their time."""
    gc.set_threshold(*THRESHOLDS)


def freeze() -> None:
    """Exempt every present object from collections: call it when a process has started.  The little garbage of the
    start stays: collecting it first took 16 ms for 34 objects."""
    gc.freeze()


TRIM_THRESHOLD: Final = -1  #: options of glibc's mallopt
MMAP_THRESHOLD: Final = -3
LARGE_BLOCK: Final = 1024 * 1024  #: bytes; more than the buffer that each read of TLS takes and frees
FREE_TOP: Final = 16 * 1024 * 1024  #: free bytes that the heap keeps at its end


def return_large_blocks() -> None:
    """Return every large block to the operating system when it is freed.  Otherwise glibc raises its thresholds with
    the first large block that is freed, and keeps later ones: a burst of large bodies would never leave the process."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # absent in musl, which has no such thresholds
        mallopt(MMAP_THRESHOLD, LARGE_BLOCK)
        mallopt(TRIM_THRESHOLD, FREE_TOP)
