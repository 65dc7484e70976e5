"""The logs of containers, read from where the node has them written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from farflung.edge.log_cutting import Cut
from farflung.edge.node.log_files import log_file
from farflung.edge.runtimes.log_lines import older
from farflung.hub.endpoints.logs import LogsWanted

BLOCK: Final = 64 * 1024
LOOK: Final = 0.1  #: seconds between two looks at a log that is followed


class NodeLogs:
    """What the hub is given as its `Nodes`.  There is one node, so its name says nothing."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the node's."""
        self._directory = directory

    async def logs(self, node: str, wanted: LogsWanted, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        cut = Cut(wanted.since, wanted.limit, timestamps=wanted.timestamps)
        path = log_file(self._directory, wanted.pod_uid, wanted.container, wanted.attempt)
        with Following(path) as log:
            if wanted.tail is not None:
                log.skip_to_last(wanted.tail)
            while not cut.full:
                over = not wanted.follow or ended()  # asked first: what it printed until then is read after it
                for block in log.news():
                    if shown := cut.feed(block):
                        yield shown
                    await asyncio.sleep(0)
                    if cut.full:
                        return
                if over:
                    break
                await asyncio.sleep(LOOK)
            if rest := cut.end():
                yield rest


class Following:
    """A log, and what it goes on with when it has become long.  Use it as a context."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[BinaryIO] = []  #: the last one is still written to
        self._stack = ExitStack()

    def __enter__(self) -> Following:
        for path in (older(self._path), self._path):
            self._add(path)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, path: Path) -> None:
        try:
            self._open.append(self._stack.enter_context(path.open("rb")))
        except FileNotFoundError:
            return

    def skip_to_last(self, lines: int) -> None:
        """So many lines of all that is there are left to be read."""
        for file in reversed(self._open):
            lines -= seek_last(file, lines)

    def news(self) -> Iterator[bytes]:
        """What was not read before."""
        while self._open:
            for file in self._open:
                while block := file.read(BLOCK):
                    yield block
            del self._open[:-1]
            if not self._has_moved():
                return
            self._add(self._path)
        self._add(self._path)
        if self._open:
            yield from self.news()

    def _has_moved(self) -> bool:
        """What is written from now on goes elsewhere, and all that was written before is read."""
        try:
            present = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(present, os.fstat(self._open[-1].fileno()))


def seek_last(file: BinaryIO, lines: int) -> int:
    """Go to where the last lines begin.  How many they are, if there are not as many as wanted."""
    end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return 0
    found, start = 0, end
    while start > 0:
        size = min(BLOCK, start)
        start -= size
        file.seek(start)
        block = file.read(size)
        position = len(block)
        while (position := block.rfind(b"\n", 0, position)) >= 0:
            if start + position + 1 == end:
                continue  # the end of the last line begins none
            found += 1
            if found == lines:
                file.seek(start + position + 1)
                return lines
    file.seek(0)
    return found + (1 if end else 0)
