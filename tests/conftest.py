"""For all tests."""

import asyncio
import signal
from types import FrameType

import pytest
from hypothesis import settings
from shuffled_loop import ShuffledPolicy

from farflung.lib import memory

LONG = 3600  #: seconds that a long test, or a property test with many examples, may take, unless it says otherwise

# Property tests have no deadline: a slow machine is no bug. `make test` tries the same few examples every time;
# `make long` (--hypothesis-profile=explore) tries many, from the seed it prints.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=500, print_blob=True)
settings.load_profile("same")

memory.collect_seldom()  # collecting tests takes a quarter less CPU, running them a tenth


def pytest_addoption(parser: pytest.Parser) -> None:
    purpose = (
        "run tasks in an order that depends on this number, some of them late, to find code that relies on an order"
    )
    parser.addoption("--shuffle", type=int, metavar="SEED", help=purpose)


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores ^C, and all it starts would
    signal.signal(signal.SIGTERM, _end)
    if (seed := config.getoption("--shuffle")) is not None:
        asyncio.set_event_loop_policy(ShuffledPolicy(seed))


def pytest_collection_finish() -> None:
    memory.freeze()


def _end(number: int, frame: FrameType | None) -> None:
    """As at ^C, so that nothing is left running; once, because `timeout` says it twice."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    raise KeyboardInterrupt


@pytest.hookimpl(trylast=True)  # after Hypothesis has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    explores = config.getoption("--hypothesis-profile") == "explore"
    for item in items:
        is_long = item.get_closest_marker("long") or (explores and item.get_closest_marker("hypothesis"))
        if is_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG))
