"""Moving the write-ahead log into the file, beside the writes and not in their way."""

from __future__ import annotations

import logging
import sqlite3
import threading
from typing import Final

PERIOD: Final = 0.2  #: seconds between two looks while there are writes
IDLE: Final = 2.0  #: seconds without a write after which the log is cut to nothing
PATIENCE: Final = 5.0  #: seconds until the next try after a failure
FRAMES: Final = 32_768  #: pages in the log (128 MiB) that are worth making writers wait for

log = logging.getLogger(__name__)


class Checkpointer:
    """A thread that sleeps until a commit sets `dirty`."""

    def __init__(self, connection: sqlite3.Connection, dirty: threading.Event) -> None:
        self._connection = connection
        self._dirty = dirty
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store-checkpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Blocks until a checkpoint under way is done."""
        self._stopping.set()
        self._dirty.set()
        self._thread.join()

    def _work(self) -> None:
        while self._next_commit():
            self._stopping.wait(PERIOD if self._checkpoint("passive") else PATIENCE)
            if not self._dirty.wait(IDLE) and not self._checkpoint("truncate"):
                self._dirty.set()

    def _next_commit(self) -> bool:
        """Wait for one.  `stop` sets `dirty` last, so clearing it first cannot hide that it is time to stop."""
        self._dirty.wait()
        self._dirty.clear()
        return not self._stopping.is_set()

    def _checkpoint(self, mode: str) -> bool:
        try:
            [(busy, frames, _)] = self._connection.execute(f"pragma wal_checkpoint({mode})").fetchall()
            if frames > FRAMES:
                [(busy, _, _)] = self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        except sqlite3.Error as error:
            log.warning("the write-ahead log stays as it is: %s", error)
            return False
        return not busy
