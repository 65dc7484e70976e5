"""Shells complete the words of a command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from farflung.cli.main import SHELLS, main

BIN = Path(sys.executable).parent
#: the words of the line, then all that bash suggests for the last one
COMPLETE = """
source <(farflung completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_farflung_completion farflung
echo "${COMPREPLY[@]}"
"""


@pytest.mark.slow  # processes
@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["tra"], "trace"),
        (["syncer"], "syncer syncer-gen syncer-revoke"),
        (["explain", ""], "allocation placement pod"),
        (["status", "--o"], "--output"),
        (["status", "-o", "j"], "json"),
        (["completion", ""], "bash zsh fish"),
    ],
)
def test_bash_suggests_commands_options_and_values(words: list[str], suggested: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    said = subprocess.run(
        [bash, "-c", COMPLETE, "bash", "farflung", *words], env=environment, capture_output=True, check=True, text=True
    )
    assert sorted(said.stdout.split()) == sorted(suggested.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0
    assert f"_FARFLUNG_COMPLETE={shell}_complete" in said.output
