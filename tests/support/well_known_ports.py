"""The ports of the demo, for one test at a time, however many processes run tests."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def well_known_ports() -> Iterator[None]:
    """8081, 8082 and 8083 are ours as long as the block lasts."""
    with (Path(tempfile.gettempdir()) / "farflung-tests-8081.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
