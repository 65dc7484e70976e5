from __future__ import annotations

from collections.abc import Callable, Iterator
from ssl import SSLContext

import pytest
from http_harness import Harness, Toy

from farflung.http.limits import Limits


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
