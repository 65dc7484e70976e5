"""Ports of this machine that a test has for itself, however many tests run and whatever else listens here."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from free_ports import is_free

SHOWN = ("8081", "8082", "8083", "18481", "18483")  #: the ports that documents show
BLOCKS = range(21000, 31000, 10)  #: below those that this machine hands out for connections


@contextmanager
def own_ports() -> Iterator[dict[str, str]]:
    """Which stands for each that documents show."""
    with ExitStack() as held:
        first = next(first for first in BLOCKS if _takes(first, held))
        yield {shown: str(first + number) for number, shown in enumerate(SHOWN)}


def with_ports(text: str, ports: Mapping[str, str]) -> str:
    """A text that names these instead of those it shows."""
    return re.sub(r"\b\d+\b", lambda found: ports.get(found[0], found[0]), text)


def _takes(first: int, held: ExitStack) -> bool:
    """Whether a block is free, and ours from now on: a name that one process at a time has says so."""
    sign = socket.socket(socket.AF_UNIX)
    try:
        sign.bind(f"\0farflung-tests-{first}")
    except OSError:
        sign.close()
        return False
    held.enter_context(sign)
    return all(map(is_free, range(first, first + len(SHOWN))))
