"""LogLines of the log: nothing is lost, nothing is mixed, and exceptions keep their texts to themselves."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from functools import partial

import pytest

from farflung.lib.log_lines import KlogFormatter, LogLines


def test_every_line_is_written_in_order_with_its_time() -> None:
    stream = io.StringIO()
    lines = LogLines(stream)
    for number in range(5000):
        lines.write(partial(str, f"line {number}"), 256)
    written = stream.getvalue().splitlines()
    assert [line.split("] ")[1] for line in written] == [f"line {number}" for number in range(5000)]
    assert re.match(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ audit\.py:1\] line 0$", written[0])


def test_nothing_is_written_before_the_beginning() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, silent=True)
    lines.write(partial(str, "too early"), 256)
    lines.begin()
    lines.write(partial(str, "in time"), 256)
    assert stream.getvalue().endswith("] in time\n")
    assert "early" not in stream.getvalue()


@pytest.mark.parametrize(
    ("level", "letter"), [("DEBUG", "I"), ("INFO", "I"), ("WARNING", "W"), ("ERROR", "E"), ("CRITICAL", "E")]
)
def test_the_hub_logs_in_the_format_of_its_controllers(level: str, letter: str) -> None:
    record = logging.LogRecord("farflung", getattr(logging, level), "/a/b.py", 7, "%d objects", (3,), None)
    line = KlogFormatter().format(record)
    assert re.fullmatch(rf"{letter}\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} +{os.getpid()} b\.py:7\] 3 objects", line)


def test_an_exception_says_where_and_of_which_type_and_nothing_else() -> None:
    try:
        raise KeyError("hunter2")
    except KeyError:
        record = logging.LogRecord("farflung", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    text = KlogFormatter().format(record)
    assert "it failed" in text
    assert text.endswith("KeyError")
    assert __file__ in text
    assert text.count("hunter2") == text.count('raise KeyError("hunter2")')
