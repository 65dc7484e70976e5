from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # the tests beside this file share a house
from house import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as house:
        yield house
