"""`farflung explain` takes kinds as kubectl does."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from farflung.cli.inspect_commands import SPELLINGS, KindGroup
from farflung.cli.main import main


@click.group(cls=KindGroup)
def explain() -> None:
    pass


@explain.command("pod")
@click.argument("name")
@click.option("--namespace", "-n", default="default")
def pod(name: str, namespace: str) -> None:
    click.echo(f"{namespace}/{name}")


@pytest.mark.parametrize("words", [["pod", "third"], ["pod/third"], ["pods", "third"], ["po/third"]])
def test_a_kind_is_called_as_kubectl_calls_it(words: list[str]) -> None:
    assert CliRunner().invoke(explain, words).output == "default/third\n"
    assert CliRunner().invoke(explain, [*words, "-n", "shop"]).output == "shop/third\n"


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_every_spelling_leads_to_a_command(name: str) -> None:
    assert CliRunner().invoke(main, ["explain", name, "--help"]).exit_code == 0


@pytest.mark.parametrize("words", [["pod/a", "b"], ["pod"], ["sprocket/a"], ["sprockets", "a"]])
def test_other_words_are_wrong(words: list[str]) -> None:
    assert CliRunner().invoke(explain, words).exit_code == 2
