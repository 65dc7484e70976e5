"""Reading logs of containers."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.logs import LogFilter, NodeLogs, seek_last
from farflung.edge.runtimes.log_files import LogWriter, log_file, log_line
from farflung.hub.endpoints.logs import LogOptions

START = datetime(2026, 11, 16, 6, 30, 0, tzinfo=UTC)
TEXTS = st.lists(st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"|")), max_size=30)


class Writing:
    """A log in CRI format, with a second between two lines."""

    def __init__(self, directory: Path, limit: int = 1 << 20) -> None:
        self._now = START
        self.writer = LogWriter(log_file(directory, "uid", "main", 0), self._tick, limit)

    def _tick(self) -> datetime:
        now, self._now = self._now, self._now + timedelta(seconds=1)
        return now

    def line(self, text: str) -> None:
        self.writer.feed("stdout", f"{text}\n".encode())


async def shown(
    directory: Path,
    *,
    ended: Callable[[], bool] = lambda: True,
    follow: bool = False,
    tail: int | None = None,
    since: datetime | None = None,
    timestamps: bool = False,
    limit: int | None = None,
) -> bytes:
    wanted = LogOptions("uid", "main", 0, follow, tail, since, timestamps, limit)
    return b"".join([piece async for piece in NodeLogs(directory).logs("florin", wanted, ended)])


@contextmanager
def written(directory: Path, limit: int = 1 << 20) -> Iterator[Writing]:
    writing = Writing(directory, limit)
    yield writing
    writing.writer.close()


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    with written(tmp_path) as writing:
        yield writing


async def test_a_log_has_the_output(tmp_path: Path, writing: Writing) -> None:
    for text in ("one", "", "three"):
        writing.line(text)
    writing.writer.feed("stderr", b"unfinished")
    writing.writer.close()

    assert await shown(tmp_path) == b"one\n\nthree\nunfinished\n"
    assert await shown(tmp_path, tail=2) == b"three\nunfinished\n"
    assert await shown(tmp_path, tail=0) == b""
    assert await shown(tmp_path, since=START + timedelta(seconds=2)) == b"three\nunfinished\n"
    assert await shown(tmp_path, limit=6) == b"one\n\nt"
    assert await shown(tmp_path, tail=3, timestamps=True) == (
        b"2026-11-16T06:30:01.000000000Z \n2026-11-16T06:30:02.000000000Z three\n"
        b"2026-11-16T06:30:04.000000000Z unfinished\n"
    )


async def test_long_lines_come_back_in_one_piece(tmp_path: Path, writing: Writing) -> None:
    text = "x" * 100_000
    writing.line(text)
    writing.line("short")

    assert await shown(tmp_path) == f"{text}\nshort\n".encode()
    stamped = await shown(tmp_path, timestamps=True)
    assert stamped.count(b"2026-11-16") == 2


async def test_nothing_was_printed_where_no_log_is(tmp_path: Path) -> None:
    assert await shown(tmp_path) == b""
    assert await shown(tmp_path, follow=True, tail=5) == b""


async def test_a_rotated_log_is_read_from_both_files(tmp_path: Path) -> None:
    with written(tmp_path, limit=1000) as writing:
        for number in range(20):
            writing.line(str(number))
    everything = (await shown(tmp_path)).decode().split()

    assert everything == [str(number) for number in range(int(everything[0]), 20)]
    assert (await shown(tmp_path, tail=len(everything) - 1)).decode().split() == everything[1:]


async def test_a_followed_log_misses_nothing_while_files_change_under_it(tmp_path: Path) -> None:
    over, seen = False, b""

    async def read() -> None:
        nonlocal seen
        wanted = LogOptions("uid", "main", 0, follow=True)
        async for piece in NodeLogs(tmp_path).logs("florin", wanted, lambda: over):
            seen += piece

    with written(tmp_path, limit=1000) as writing:
        reading = asyncio.create_task(read())
        for number in range(60):
            writing.line(str(number))
            while number % 8 == 0 and seen.count(b"\n") <= number:  # what is not read yet must fit into what is kept
                await asyncio.sleep(0.01)
        over = True
        await reading

    assert seen.decode().split() == [str(number) for number in range(60)]


async def test_output_just_before_the_exit_is_shown(tmp_path: Path, writing: Writing) -> None:
    def ended() -> bool:
        writing.line("last words")
        return True

    writing.line("first words")

    assert await shown(tmp_path, follow=True, ended=ended) == b"first words\nlast words\n"


@given(TEXTS, st.integers(0, 40))
def test_the_last_lines_are_those_that_a_list_of_lines_ends_with(texts: list[bytes], wanted: int) -> None:
    whole = b"".join(log_line(START, "stdout", text) for text in texts)
    file = io.BytesIO(whole)

    found = seek_last(file, wanted)

    assert found == min(wanted, len(texts))
    assert file.read() == b"".join(log_line(START, "stdout", text) for text in texts[len(texts) - found :])


@given(TEXTS, st.lists(st.integers(0, 2000), max_size=10), st.integers(1, 100))
def test_pieces_of_any_size_show_the_same(texts: list[bytes], cuts: list[int], limit: int) -> None:
    whole = b"".join(log_line(START, "stdout", text) for text in texts)
    places = sorted({0, len(whole), *(min(place, len(whole)) for place in cuts)})
    cut = LogFilter(None, limit, timestamps=False)

    pieces = b"".join(cut.feed(whole[a:b]) for a, b in pairwise(places)) + cut.end()

    assert pieces == b"".join(text + b"\n" for text in texts)[:limit]


@given(st.binary(max_size=200))
def test_a_malformed_log_does_not_raise(data: bytes) -> None:
    cut = LogFilter(START, None, timestamps=True)

    assert len(cut.feed(data) + cut.end()) <= len(data) + 1
