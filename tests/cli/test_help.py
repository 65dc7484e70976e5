"""What `--help` says."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from farflung.cli.main import SECTIONS, main


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        for name, one in command.commands.items():
            yield from groups(one, (*path, name))


@pytest.mark.parametrize("path", list(groups(main)), ids=" ".join)
def test_no_summary_of_a_command_is_cut_off(path: tuple[str, ...]) -> None:
    said = CliRunner().invoke(main, [*path, "--help"])
    assert said.exit_code == 0
    assert "..." not in said.output.replace("[ARGS]...", "")


def test_every_option_says_what_it_is_for() -> None:
    def silent(command: click.Command, path: str) -> Iterator[str]:
        for one in command.params:
            if isinstance(one, click.Option) and not one.help:
                yield f"{path} {one.opts[0]}"
        for name, inner in getattr(command, "commands", {}).items():
            yield from silent(inner, f"{path} {name}")

    assert list(silent(main, "farflung")) == []


def test_a_controller_says_which_workspace_it_takes_for_the_providers() -> None:
    for command, workspace in (
        ("global-scheduler", "root:espw"),
        ("scheduler", "the one of the kubeconfig's context"),
    ):
        said = " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())
        assert f"exports the edge API; by default {workspace}." in said


def test_every_command_is_in_one_section_of_the_help() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    assert sorted(main.commands) == sorted(line.split()[0] for line in lines if re.match(r"  [a-z][\w-]+  ", line))
    assert [line for line in lines if line.endswith("Commands:")] == [f"{one}:" for one in SECTIONS]
