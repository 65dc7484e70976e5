"""Tests that are marked so run in simulated time; the others start processes, which take their own time."""

from simulated_time import factories_of_marked_tests as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
