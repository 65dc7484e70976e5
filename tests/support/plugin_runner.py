"""Runs kubectl's plugins in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Plugin = Callable[..., Outcome]


def plugin_runner(
    main: Callable[[], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Plugin:
    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["kubectl-plugin", *words])
        capsys.readouterr()
        code = main()
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run
