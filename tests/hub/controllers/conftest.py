from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from house import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as house:
        yield house
