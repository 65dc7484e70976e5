from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from ssl import SSLContext

import pytest

from farflung.hub.http.limits import Limits

sys.path.append(str(Path(__file__).parent))  # the tests beside this file share a harness
from http_harness import Harness, Toy


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def start(toy: Toy) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def starting(limits: Limits | None = None, tls: SSLContext | None = None) -> Harness:
        started.append(Harness(toy, limits, tls))
        return started[-1]

    yield starting
    for harness in started:
        harness.close()


@pytest.fixture
def server(start: Callable[..., Harness]) -> Harness:
    return start()
