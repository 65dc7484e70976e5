"""The command line of tools/flaky.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "tools" / "flaky.py"


@pytest.fixture(scope="module")
def flaky() -> ModuleType:
    spec = importlib.util.spec_from_file_location("farflung_flaky", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "runs", "idle", "arguments"),
    [
        ("3", 3, False, []),
        ("5 --idle", 5, True, []),
        ("5 -- tests/lib", 5, False, ["tests/lib"]),
        ("5 --idle -- tests/syncer -k restart", 5, True, ["tests/syncer", "-k", "restart"]),
        ("--idle 5 -- tests/syncer -k restart", 5, True, ["tests/syncer", "-k", "restart"]),
    ],
)
def test_arguments_after_two_dashes_are_for_pytest(
    flaky: ModuleType, line: str, runs: int, idle: bool, arguments: list[str]
) -> None:
    chosen = flaky.parse(line.split())
    assert (chosen.runs, chosen.idle, chosen.arguments) == (runs, idle, arguments)


@pytest.mark.parametrize("line", ["", "0", "-1", "many", "3 tests/lib"])
def test_a_command_line_without_a_number_of_runs_is_refused(flaky: ModuleType, line: str) -> None:
    with pytest.raises(SystemExit) as caught:
        flaky.parse(line.split())
    assert caught.value.code == 2
