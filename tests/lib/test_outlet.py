"""Streams that never block who writes to them: real pipes, some of which nobody reads."""

from __future__ import annotations

import calendar
import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farflung.lib import outlet
from farflung.lib.outlet import Outlet, RotatedFile, Rotation, expired_backups

PIPE = 64 << 10  #: bytes that a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for one in (reading, writing):
        try:
            os.close(one)
        except OSError as error:
            assert error.errno == errno.EBADF


def lost(number: int) -> str:
    return f"{number} lost"


def read_until(descriptor: int, end: bytes) -> list[str]:
    text = b""
    while not text.endswith(end):
        piece = os.read(descriptor, PIPE)
        assert piece, text[-1000:]
        text += piece
    return text.decode().splitlines()


def test_lines_without_a_reader_never_block_and_are_read_in_order_later(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    stream = Outlet(writing, lost)
    expected = [f"line {number}" for number in range(50_000)]
    for line in expected:
        stream.write(f"{line}\n".encode())
    assert read_until(reading, b"line 49999\n") == expected


def test_what_is_lost_is_told_in_its_place(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "MAX_WAITING_BYTES", 1000)
    reading, writing = pipe
    os.write(writing, b"." * PIPE)
    stream = Outlet(writing, lost)
    written = [f"line {number:4}" for number in range(500)]
    for line in written:
        stream.write(f"{line}\n".encode())
    os.read(reading, PIPE)
    first = read_until(reading, b" lost\n")
    kept = len(first) - 1
    assert first == [*written[:kept], f"{500 - kept} lost"]
    assert 0 < kept < 500
    stream.write(b"later\n")
    assert read_until(reading, b"later\n") == ["later"]


def test_a_disk_that_is_full_costs_lines_and_they_are_told_of_afterwards(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    full = os.open("/dev/full", os.O_WRONLY)
    stream = Outlet(full, lost)
    stream.write(b"one\n")
    stream.write(b"two\n")
    stream.drain()
    os.dup2(writing, full)
    stream.write(b"three\n")
    assert read_until(reading, b" lost\n") == ["3 lost"]
    stream.write(b"four\n")
    stream.drain()
    assert os.read(reading, PIPE) == b"four\n"
    os.close(full)


def test_a_reader_that_is_gone_ends_nothing_and_holds_up_no_end(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.close(reading)
    stream = Outlet(writing, lost)
    for _ in range(100):
        stream.write(b"nobody reads this\n")
    stream.drain()


def test_nobody_waits_for_ever_for_a_reader_that_never_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "STALL_SECONDS", 0.05)
    reading, writing = pipe
    stream = Outlet(writing, lost)
    stream.write(b"x" * PIPE + b"\n")
    stream.drain()
    assert read_until(reading, b"\n") == ["x" * PIPE]


def test_a_pipe_that_another_process_made_nonblocking_is_waited_for(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    stream = Outlet(writing, lost)
    expected = [f"line {number}" for number in range(50_000)]
    for line in expected:
        stream.write(f"{line}\n".encode())
    assert read_until(reading, b"line 49999\n") == expected


def test_no_line_of_two_processes_is_cut_in_two() -> None:
    reading, writing = os.pipe()
    script = "from farflung.lib import outlet; outlet.unblock(str)\nfor i in range(3000): print(f'{word} {i:050}')"
    words = ["one", "two"]
    started = [subprocess.Popen([sys.executable, "-c", f"word = {word!r}; {script}"], stdout=writing) for word in words]
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    assert [one.wait() for one in started] == [0, 0]
    for word in words:
        assert [line for line in lines if line.startswith(word)] == [f"{word} {i:050}" for i in range(3000)]
    assert len(lines) == 6000


def run(script: str) -> subprocess.CompletedProcess[str]:
    """What a process prints that has only one place for everything."""
    script = f"from farflung.lib import outlet; import logging, os, sys; outlet.unblock(str)\n{script}"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)


def test_output_errors_and_logs_keep_their_order_and_nothing_is_missing_at_the_end() -> None:
    ended = run("for i in range(3000): print(i); print(i, file=sys.stderr); logging.warning(i)")
    numbers = re.sub(r"WARNING:root:", "", ended.stdout).split()
    assert numbers == [str(number) for number in range(3000) for _ in range(3)]


def test_a_crash_prints_its_traceback_after_all_else() -> None:
    ended = run("for i in range(3000): print(i)\nraise KeyError('lost')")
    assert ended.returncode == 1
    assert "\n2999\nTraceback (most recent call last):\n" in ended.stdout
    assert ended.stdout.endswith("KeyError: 'lost'\n")


def test_who_leaves_the_short_way_can_wait_for_what_is_printed() -> None:
    ended = run("for i in range(3000): print(i)\noutlet.drain(); os._exit(3)")
    assert ended.returncode == 3
    assert ended.stdout.split() == [str(number) for number in range(3000)]


@pytest.mark.parametrize("end", ["", "raise KeyError", "sys.exit(1)"])
def test_a_process_whose_output_has_no_reader_still_ends(end: str) -> None:
    reading, writing = os.pipe()
    script = f"from farflung.lib import outlet; import sys; outlet.unblock(str)\nprint('x' * 100000)\n{end}"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=writing, stderr=writing)
    os.close(writing)
    assert process.wait(60) == (1 if end else 0)
    os.close(reading)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_process_that_was_started_without_output_works(closed: str, tmp_path: Path) -> None:
    script = "from farflung.lib import outlet; import sys; outlet.unblock(str); kept = open(sys.argv[1], 'w')"
    script += "\nprint(1); print(2, file=sys.stderr); outlet.drain(); kept.write('3')"
    command = f"exec {shlex.join([sys.executable, '-c', script, str(tmp_path / 'kept')])} {closed}"
    assert subprocess.run(command, shell=True, capture_output=True, timeout=60).returncode == 0
    assert (tmp_path / "kept").read_text() == "3"


def test_a_stream_in_memory_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    outlet.unblock(lost)
    assert (sys.stdout, sys.stderr) == before


def test_a_line_that_cannot_be_formatted_is_reported_and_others_are_written(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    stream = Outlet(writing, lost)
    stream.defer(lambda: b"before\n")
    stream.defer(lambda: b"%d\n" % int("a secret"))
    stream.defer(lambda: b"after\n")
    assert read_until(reading, b"after\n") == ["before", "cannot format a log line: ValueError", "after"]


# --- files ----------------------------------------------------------------------------------------


def put(file: RotatedFile, *lines: str) -> None:
    """One after the other, each written before the next."""
    for line in lines:
        file.defer(lambda: f"{line}\n".encode())  # noqa: B023
        file.drain()


def test_a_full_file_is_rotated_and_the_newest_backups_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet, "MEGABYTE", 20)
    path = tmp_path / "audit.log"
    strange = tmp_path / "audit-of-last-year.log"
    strange.touch()
    file = RotatedFile(path, Rotation(1, backups=2), lost)
    moments = iter(range(1_000_000_000, 1_000_000_010))
    monkeypatch.setattr("farflung.lib.outlet.time.time", lambda: next(moments) + 0.25)
    put(file, *(f"line {number:8}" for number in range(5)))
    backups = sorted(one for one in tmp_path.iterdir() if one not in (path, strange))
    assert [one.name for one in backups] == [
        "audit-2001-09-09T01-46-42.250.log",
        "audit-2001-09-09T01-46-43.250.log",
    ]
    assert [one.read_text() for one in (*backups, path)] == [f"line {number:8}\n" for number in (2, 3, 4)]
    assert strange.exists()
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in (*backups, path))


def test_an_existing_file_is_continued_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "MEGABYTE", 20)
    path = tmp_path / "audit.log"
    put(RotatedFile(path, Rotation(1), lost), "one")
    put(RotatedFile(path, Rotation(1), lost), "two", "a longer line")
    assert path.read_text() == "a longer line\n"
    assert sorted(one.read_text() for one in tmp_path.iterdir()) == ["a longer line\n", "one\ntwo\n"]


def test_old_backups_expire(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    names = ["audit-2026-01-01T00-00-00.000.log", "audit-2026-01-02T00-00-00.000.log", "audit-2026-01.log", "audit.log"]
    for name in names:
        (tmp_path / name).touch()
    now = calendar.timegm((2026, 1, 3, 12, 0, 0))
    assert [one.name for one in expired_backups(path, Rotation(days=2), now)] == names[:1]
    assert expired_backups(path, Rotation(), now) == []
    assert [one.name for one in expired_backups(path, Rotation(backups=1), now)] == names[:1]


def test_a_file_system_that_is_full_costs_whole_lines_which_are_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a line that fits only partly, nothing stays."""
    reported: list[int] = []
    file = RotatedFile(tmp_path / "audit.log", Rotation(), lambda number: reported.append(number) or "")
    put(file, "one")
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 3:
            return write(descriptor, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("farflung.lib.outlet.os.write", half)
    put(file, "lost", "lost too")
    monkeypatch.setattr("farflung.lib.outlet.os.write", write)
    put(file, "two")
    assert (tmp_path / "audit.log").read_text() == "one\ntwo\n"
    assert (sum(reported), file.lost) == (2, 2)


def test_deferred_lines_count_with_their_sizes(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "MAX_WAITING_BYTES", 1000)
    reading, writing = pipe
    os.write(writing, b"." * PIPE)
    stream = Outlet(writing, lost)
    for _ in range(20):
        stream.defer(lambda: b"line\n", 400)
    assert 16 <= stream.lost <= 18
    os.read(reading, PIPE)
