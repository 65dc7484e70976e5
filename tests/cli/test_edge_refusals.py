"""`farflung edge` with what it cannot use: one sentence, and nothing is left behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from edge_runner import kind_config

from farflung.cli.main import main

CREATE = ("create", "florin", "--runtime", "process")
EmbeddedEdge = Callable[..., Result]


@pytest.fixture
def edge(tmp_path: Path) -> EmbeddedEdge:
    """Runs a command in a home without edges."""
    return lambda *words: CliRunner().invoke(main, ["edge", *words], env={"HOME": str(tmp_path), "KUBECONFIG": None})


def refusal(ended: Result) -> str:
    assert (ended.exit_code, ended.stdout) == (1, ""), ended
    return ended.stderr.rpartition("Error: ")[2].strip()


def command_line() -> str:
    words = Path("/proc/self/cmdline").read_text().replace("\0", " ").strip()
    return words if len(words) <= 80 else f"{words[:80]}…"


def test_a_port_in_use_is_named_with_the_process_that_has_it(edge: EmbeddedEdge, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        config.write_text(kind_config({8081: taken}))
        assert refusal(edge(*CREATE, "--config", str(config))) == (
            f"port {taken} of 127.0.0.1 is in use by process {os.getpid()} ({command_line()})"
        )
    assert edge("list").output == "No edges found.\n"


def test_a_configuration_or_kubeconfig_that_cannot_be_used_is_named(edge: EmbeddedEdge, tmp_path: Path) -> None:
    strange = tmp_path / "strange.yaml"
    strange.write_text("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{}, {}]\n")
    assert refusal(edge(*CREATE, "--config", str(strange))) == (f"{strange}: it has 2 nodes; an embedded edge has one")
    assert refusal(edge(*CREATE, "--kubeconfig", str(tmp_path))).startswith("cannot read ")
    assert edge("list").output == "No edges found.\n"


def test_a_name_that_is_given_twice_is_refused(edge: EmbeddedEdge) -> None:
    for words in (("create", "florin"), ("delete", "cluster", "florin")):
        ended = edge(*words, "--name", "guilder")
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert ended.stderr.endswith(f"Error: '{' '.join(words[1:])}' and --name guilder: give the name once\n")


def test_a_name_may_be_given_as_for_kind(edge: EmbeddedEdge) -> None:
    assert "'../florin' is not a valid name of an edge" in refusal(edge("create", "cluster", "--name", "../florin"))
    assert "'../florin' is not a valid name of an edge" in refusal(edge("create", "--name", "../florin"))
    assert refusal(edge("delete", "cluster", "--name", "florin")).startswith("edge florin does not exist; ")


def test_a_name_that_is_none_or_names_no_edge_is_refused(edge: EmbeddedEdge) -> None:
    assert "is not a valid name of an edge" in refusal(edge("create", "../florin"))
    assert refusal(edge("delete", "florin")).startswith("edge florin does not exist; ")
    assert refusal(edge("start", "florin")).startswith("edge florin does not exist; ")
