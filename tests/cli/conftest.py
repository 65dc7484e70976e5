"""Tests that are marked so run in simulated time; the others start processes, which take their own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import simulated_time


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("simulated_time"):
        return simulated_time.pytest_asyncio_loop_factories(config)
    return {"asyncio": asyncio.new_event_loop}
