"""LogLines of the log: nothing is lost, nothing is mixed, and exceptions keep their texts to themselves."""

from __future__ import annotations

import io
import logging
import re
import sys
from functools import partial

from farflung.lib.log_lines import FORMAT, DiscreetFormatter, LogLines, lost


def test_every_line_is_written_in_order_with_its_time() -> None:
    stream = io.StringIO()
    lines = LogLines(stream)
    for number in range(5000):
        lines.write(partial(str, f"line {number}"), 256)
    written = stream.getvalue().splitlines()
    assert [line.split(" INFO ")[1] for line in written] == [f"line {number}" for number in range(5000)]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO line 0$", written[0])


def test_nothing_is_written_before_the_beginning() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, silent=True)
    lines.write(partial(str, "too early"), 256)
    lines.begin()
    lines.write(partial(str, "in time"), 256)
    assert stream.getvalue().endswith(" INFO in time\n")
    assert "early" not in stream.getvalue()


def test_lost_lines_are_told_of_in_a_line_of_the_log() -> None:
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,000 WARNING 7 lines were lost, because the reader was too slow", lost(7)
    )


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
