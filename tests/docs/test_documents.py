"""The documents are true: what they show runs, what they name exists, and what there is they name."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from executable import ROOT, Directory, Step, matches, run, steps_of
from kubectl_runner import kubectls, minor_of
from own_ports import own_ports, with_ports
from shared_hubs import SharedHubs

from farflung.cli.main import main

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXECUTABLE = [path for path in DOCUMENTS if steps_of(path.read_text())]
HOW_TOS = [path for path in EXECUTABLE if path.parent.name == "howto"]
KEPT = {".exported", ".farflung", ".venv", "config"}  #: what a reader has before or wants to keep
COMMAND_LINE = ROOT / "docs/reference/command-line.md"


#: what documents use that not every kubectl has → since which 1.x it has it
NEEDED = {"--for=jsonpath": 23, "create token": 24, "--subresource": 24, "auth whoami": 28}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- what they show runs --------------------------------------------------------------------------


def runs() -> list[Any]:
    """The README for every run of the tests, the others when there is time."""
    slow = {path: pytest.mark.slow for path in EXECUTABLE if path.name != "README.md"}
    return [pytest.param(path, marks=slow.get(path, ()), id=name_of(path)) for path in EXECUTABLE]


@pytest.fixture(scope="session")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedHubs]:
    hubs = SharedHubs(tmp_path_factory.mktemp("hubs"))
    yield hubs
    hubs.stop()


@pytest.mark.parametrize("document", runs())
def test_what_a_document_shows_happens(document: Path, hubs: SharedHubs, tmp_path: Path) -> None:
    """On a hub that other documents used before, unless it starts one with options."""
    if not kubectls():
        pytest.fail("there is no kubectl on the PATH: `make setup` installs it", pytrace=False)
    for words, since in NEEDED.items():
        if words in document.read_text() and minor_of(kubectls()[-1]) < since:
            pytest.skip(f"kubectl has {words} since 1.{since}")
    with own_ports() as ports:
        directory = Directory(tmp_path, ports)
        run(document, directory, hubs)
    assert document not in HOW_TOS or {one.name for one in directory.path.iterdir()} <= KEPT, "files are left behind"


def test_a_newcomer_can_run_the_readme_and_the_tutorials() -> None:
    tutorials = set(map(name_of, ROOT.glob("docs/tutorial/*.md")))
    assert len(tutorials) >= 2
    assert {"README.md", *tutorials} <= set(map(name_of, EXECUTABLE))


# --- what they name exists ------------------------------------------------------------------------

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
SOURCE = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?[\w.-]+\.(?:py|sh|txt|toml))`")
MAKE = re.compile(r"`make ([a-z]+)`|^ +make ([a-z]+)\b", re.MULTILINE)
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_source_file_that_is_named_exists(document: Path) -> None:
    named = [name for name in SOURCE.findall(document.read_text()) if "/" in name]
    places = (ROOT, ROOT / "src/farflung")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_make_target_is_described_and_every_one_described_exists() -> None:
    named = {first or second for path in DOCUMENTS for first, second in MAKE.findall(path.read_text())}
    described = {first or second for first, second in MAKE.findall((ROOT / "CONTRIBUTING.md").read_text())}
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    assert named <= targets
    assert described == targets


# --- what there is they name ----------------------------------------------------------------------

OPTION = re.compile(r"^\| (`-.+?) \|(?: (.*?) \|)?", re.MULTILINE)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for word, child in command.commands.items():
            yield from commands(child, f"{name} {word}")


COMMANDS = dict(commands(main, "farflung"))


def section_of(command: str) -> str:
    """What the reference says of a command."""
    found = re.search(rf"^## `{command}`\n(.*?)(?=^## |\Z)", COMMAND_LINE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name_of(COMMAND_LINE)} says nothing of `{command}`"
    return found[1]


def documented(command: str) -> dict[str, str]:
    """Each option that the reference has for a command, and its default there."""
    rows = OPTION.findall(section_of(command))
    return {option: default.strip("`") for row, default in rows for option in re.findall(r"(?<![\w-])-[\w-]+", row)}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_exactly_the_options_of_a_command(command: str) -> None:
    options = [one for one in COMMANDS[command].params if isinstance(one, click.Option)]
    known = {name for option in options for name in option.opts} | {"-h", "--help"}
    assert set(documented(command)) | {"-h", "--help"} == known


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_the_default_of_every_option_that_shows_one(command: str) -> None:
    shown = {one.opts[0]: str(one.default) for one in COMMANDS[command].params if getattr(one, "show_default", False)}
    assert {name: documented(command)[name] for name in shown} == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_has_help(command: str) -> None:
    assert COMMANDS[command].help
    assert [one.name for one in COMMANDS[command].params if isinstance(one, click.Option) and not one.help] == []


# --- how documents are read -----------------------------------------------------------------------


def test_blocks_are_found_with_their_words_and_outputs() -> None:
    shown = "# T\n```shell\na\n```\n```text\nb\n```\nwords\n```text\nc\n```\n"
    text = f"{shown}<!-- ^C -->\n```shell fails\nd\n```\n```\n```\n"
    assert steps_of(text) == [Step(2, "a\n", [], "b\n"), Step(12, "", ["^C"]), Step(13, "d\n", ["fails"])]


def test_ages_widths_and_ellipses_do_not_count_but_words_do() -> None:
    assert matches("NAME   AGE\na      1s\n", "NAME      AGE\na         12m5s\n")
    assert matches("uid: …\nb\n", "uid: 17\nb\n")
    assert not matches("uid: …\nb\n", "uid: 17\nand\nb\n")
    assert not matches("NAME AGE\na 1s\n", "NAME AGE\nb 1s\n")


def test_ports_that_documents_show_are_others_each_time_and_nobody_elses() -> None:
    with own_ports() as first, own_ports() as second:
        assert set(first.values()).isdisjoint(second.values())
        assert with_ports("8081:8082 18081 48082 v8083", first) == f"{first['8081']}:{first['8082']} 18081 48082 v8083"
    with socket.create_server(("127.0.0.1", int(first["8082"]))), own_ports() as third:
        assert set(first.values()).isdisjoint(third.values())
