"""Lines of the log: nothing is lost, nothing is mixed, and exceptions keep their texts to themselves."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading

import pytest

from farflung.cli import logs
from farflung.cli.logs import FORMAT, DiscreetFormatter, Lines


def test_every_line_is_written_in_order_with_its_time() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    for number in range(5000):
        lines.write(f"line {number}")
    lines.close()
    written = stream.getvalue().splitlines()
    assert [line.split(" INFO ")[1] for line in written] == [f"line {number}" for number in range(5000)]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO line 0$", written[0])


def test_nothing_is_written_before_the_beginning() -> None:
    stream = io.StringIO()
    lines = Lines(stream, silent=True)
    lines.write("too early")
    lines.begin()
    lines.write("in time")
    lines.close()
    assert stream.getvalue().endswith(" INFO in time\n")
    assert "early" not in stream.getvalue()


def test_a_stream_that_nobody_reads_costs_lines_and_not_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST", 3)
    monkeypatch.setattr(logs, "PATIENCE", 0.01)
    reading, written, ended = threading.Event(), threading.Event(), threading.Event()

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            written.set()
            reading.wait(10)
            size = super().write(text)
            if "lost" in text:
                ended.set()
            return size

    stream = Pipe()
    lines = Lines(stream)
    lines.write("first")
    assert written.wait(10)
    for number in range(5):
        lines.write(f"line {number}")
    lines.close()
    reading.set()
    assert ended.wait(10)
    assert "line 2" in stream.getvalue()
    assert "line 3" not in stream.getvalue()
    assert "WARNING 2 lines were lost" in stream.getvalue()


def test_lines_survive_a_stream_that_is_gone() -> None:
    stream = io.StringIO()
    stream.close()
    lines = Lines(stream)
    lines.write("nobody reads this")
    lines.close()


def test_an_exception_says_where_and_of_which_type_and_nothing_else() -> None:
    try:
        raise KeyError("hunter2")
    except KeyError:
        record = logging.LogRecord("farflung", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    text = DiscreetFormatter(FORMAT).format(record)
    assert "it failed" in text
    assert text.endswith("KeyError")
    assert __file__ in text
    assert text.count("hunter2") == text.count('raise KeyError("hunter2")')
