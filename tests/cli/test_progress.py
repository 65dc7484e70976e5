"""ProgressReporter as they are shown on a terminal and elsewhere."""

import io
import re

import pytest

from farflung.cli.output import show_progress

LONG = "The scheduler resolves where: common on florin and guilder, special on guilder, and more"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(written: str) -> list[str]:
    return [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written).splitlines()]


def test_a_narrow_terminal_shows_a_mark_and_a_time_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with show_progress(stream) as steps:
        for what in ("Start", LONG):
            with steps.step(what):
                pass
    picture = lines(stream.getvalue())
    assert any(re.fullmatch(r"✓ Start +0:00:00", line) for line in picture)
    assert any(re.fullmatch(r"✓ The scheduler .* 0:00:00", line) for line in picture)


def test_elsewhere_each_step_is_a_line_when_it_is_done() -> None:
    stream = io.StringIO()
    with show_progress(stream) as steps, steps.step(LONG):
        assert stream.getvalue() == ""
    assert re.fullmatch(rf"  ✓ {re.escape(LONG)} \(\d+\.\d s\)\n", stream.getvalue())
