"""What every command that needs a hub says if it finds none: one sentence with a remedy, and exit code 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from farflung.cli.main import main

OBJECT = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Those that are told where a server is; `edge create` is told where to write that."""
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from commands(one, (*path, name)) if name != "edge" else ()
    elif any("--kubeconfig" in one.opts for one in command.params):
        yield path, command


ALL = dict(commands(main))
ASKING = [path for path, command in ALL.items() if any("--workspace" in one.opts for one in command.params)]


def words(path: tuple[str, ...]) -> list[str]:
    """With everything that has to be said."""
    parameters = ALL[path].params
    spoken = ["pods/a" for one in parameters if isinstance(one, click.Argument)]
    files = ["-f", "object.yaml"] if any("--filename" in one.opts for one in parameters) else []
    place = ["--location", "a"] if any("--location" in one.opts for one in parameters) else []
    cluster = ["--from", "object.yaml"] if any("--from" in one.opts for one in parameters) else []
    return [*path, *spoken, *files, *place, *cluster]


def said(path: tuple[str, ...], kubeconfig: Path) -> Result:
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, words(path))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("object.yaml").write_text(OBJECT)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_without_a_kubeconfig_it_is_said_how_to_get_one(path: tuple[str, ...]) -> None:
    answer = said(path, Path("none"))
    assert (answer.exit_code, answer.output.count("\n")) == (1, 1)
    assert answer.output.endswith(
        ": there is no none; `farflung start` starts a hub, and `export KUBECONFIG=.farflung/admin.kubeconfig` selects"
        " it\n"
    )


def test_the_kubeconfig_of_a_hub_in_this_directory_is_named() -> None:
    Path(".farflung").mkdir()
    Path(".farflung", "admin.kubeconfig").touch()
    assert said(("status",), Path("none")).output == (
        "Error: there is no none; `export KUBECONFIG=.farflung/admin.kubeconfig` selects the hub of this directory\n"
    )


@pytest.mark.parametrize("path", ASKING, ids=" ".join)
def test_without_a_hub_it_is_said_how_to_start_it(path: tuple[str, ...]) -> None:
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1/clusters/root"}}
    context = {"name": "x", "context": {"cluster": "x", "user": ""}}
    Path("away").write_text(yaml.safe_dump({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    answer = said(path, Path("away"))
    assert (answer.exit_code, answer.output.count("\n")) == (1, 1)
    assert answer.output == (
        "Error: cannot reach the server: cannot connect to 127.0.0.1:1: connection refused; is the hub running? "
        "`farflung start` starts it\n"
    )
