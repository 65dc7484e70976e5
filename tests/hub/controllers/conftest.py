from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from house import House
from simulated_time import factories_of_marked_tests as pytest_asyncio_loop_factories

__all__ = ["house", "pytest_asyncio_loop_factories"]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as house:
        yield house
