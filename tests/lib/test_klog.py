from __future__ import annotations

import io
import os
import re
from datetime import datetime

from farflung.lib.klog import Bare, Logger, lost, shown


def printed(stream: io.StringIO) -> str:
    return re.sub(r"test_klog\.py:\d+", "test_klog.py:7", stream.getvalue()).replace(f"{os.getpid():7}", "   9071")


def logger(verbosity: int = 0) -> tuple[Logger, io.StringIO]:
    stream = io.StringIO()
    return Logger(stream, verbosity, lambda: datetime(2023, 3, 21, 6, 25, 23, 108443)), stream


def test_a_line_has_level_time_process_place_message_and_values_in_the_order_they_were_bound() -> None:
    log, stream = logger(2)
    log.bind(controller="edge-scheduler", triggeringKind=Bare("Location")).info("processing queueItem", v=2, key="a|b")
    assert printed(stream) == (
        "I0321 06:25:23.108443    9071 test_klog.py:7] "
        '"processing queueItem" controller="edge-scheduler" triggeringKind=Location key="a|b"\n'
    )


def test_a_plain_message_has_no_quotes() -> None:
    log, stream = logger()
    log.plain("Waiting for caches to sync for x")
    log.plain("too much", v=1)
    assert printed(stream) == "I0321 06:25:23.108443    9071 test_klog.py:7] Waiting for caches to sync for x\n"


def test_a_value_without_quotes_cannot_begin_another_line() -> None:
    assert shown(Bare("&{a:b\nI0321 forged\x1b[2K é}")) == r"&{a:b\nI0321 forged\x1b[2K é}"


def test_lines_that_are_not_asked_for_are_left_out() -> None:
    log, stream = logger(1)
    log.info("too much", v=2)
    assert stream.getvalue() == ""
    assert (log.enabled(1), log.enabled(2)) == (True, False)


def test_warnings_and_errors_are_printed_in_any_case() -> None:
    log, stream = logger(-1)
    log.warning("careful")
    log.error(ValueError("broken"), "it failed", key="a")
    log.error(ValueError(), "it failed")
    lines = [line.partition("] ")[2] for line in printed(stream).splitlines()]
    assert [line[0] for line in stream.getvalue().splitlines()] == ["W", "E", "E"]
    assert lines == ['"careful"', '"it failed" err="broken" key="a"', '"it failed" err="ValueError"']


def test_values_are_shown_as_klog_shows_them() -> None:
    assert shown('say "hi"\\') == r'"say \"hi\"\\"'
    assert shown("tab\tbell\x07null\x00é\u2028") == r'"tab\tbell\anull\x00é\u2028"'
    assert (shown(5), shown(True), shown(None), shown(0.5)) == ("5", "true", "<nil>", "0.5")
    assert shown("one\ntwo") == "<\n\tone\n\ttwo\n >"
    assert shown({"a": ["b"]}) == '{"a":["b"]}'


def test_a_value_of_several_lines_cannot_look_like_another_line_of_the_log() -> None:
    assert shown("one\r\n\tt\x1b[2Kwo\u2028") == "<\n\tone\\r\n\t\tt\\x1b[2Kwo\\u2028\n >"


def test_an_error_that_quotes_a_whole_object_is_cut() -> None:
    log, stream = logger()
    log.error(ValueError("é" * 100_000), "it failed", key="a")
    line = printed(stream).partition("] ")[2]
    assert line == f'"it failed" err="{"é" * 4096}… (95904 more characters)" key="a"\n'


def test_a_missing_reader_is_no_failure() -> None:
    log, stream = logger()
    stream.close()
    log.info("hello")


def test_lost_lines_are_told_of_in_a_line_as_all_others() -> None:
    form = r'W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ klog\.py:1\] "7 lines were lost, because the reader was too slow"'
    assert re.fullmatch(form, lost(7))
