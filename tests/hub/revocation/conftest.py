"""Tests run in simulated time."""

from simulated_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
