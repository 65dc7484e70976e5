"""Steps that are shown as they go: alive on a terminal, as lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol, TextIO


class Steps(Protocol):
    def step(self, what: str) -> contextlib.AbstractContextManager[None]:
        """It lasts as long as the block does.  Several may at the same time."""


class Lines:
    """Each step is a line when it is done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        print(f"  ✓ {what} ({time.monotonic() - began:.1f} s)", file=self._stream, flush=True)


@contextlib.contextmanager
def shown(stream: TextIO) -> Iterator[Steps]:
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(file=stream)
    what = TextColumn("{task.description}", table_column=Column())  # wraps, so that a narrow terminal shows the others
    columns = (SpinnerColumn(finished_text="[green]✓"), what, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        class Live:
            @contextlib.contextmanager
            def step(self, what: str) -> Iterator[None]:
                task = progress.add_task(what, total=1)
                yield
                progress.update(task, completed=1)

        yield Live()
