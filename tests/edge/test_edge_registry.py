"""The directories and processes of embedded edges."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from farflung.edge.ports import PortMapping
from farflung.edge.registry import EdgeError, EdgeRegistry, EdgeSpec, EmbeddedEdge

ASKED = EdgeSpec(datetime(2026, 11, 16, 6, 30, 0, tzinfo=UTC), ports=(PortMapping(8081, 8083),), context="kind-florin")
HOLDING = """
import sys, pathlib
from farflung.edge.registry import EdgeRegistry
with EdgeRegistry(pathlib.Path(sys.argv[1])).existing(sys.argv[2]).locked() as held:
    held.write_phase("Ready", api="https://127.0.0.1:1")
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def registry(tmp_path: Path) -> EdgeRegistry:
    return EdgeRegistry(tmp_path)


@contextmanager
def held_elsewhere(home: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDING, str(home), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_spec_of_an_edge_is_stored(registry: EdgeRegistry) -> None:
    made = registry.create("florin", ASKED)

    assert registry.all() == [made]
    assert registry.existing("florin").spec == ASKED
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    assert made.phase.phase == "Stopped"


def test_there_is_one_edge_of_a_name(registry: EdgeRegistry) -> None:
    registry.create("florin", ASKED)

    with pytest.raises(EdgeError, match="edge florin already exists, and it is stopped; `farflung edge delete"):
        registry.create("florin", ASKED)


def test_an_edge_is_removed_with_all_files_of_its_pods(registry: EdgeRegistry) -> None:
    edge = registry.create("florin", ASKED)
    left = edge.node / "pods" / "a"
    left.mkdir(parents=True)
    (left / "file").touch()
    left.chmod(0o500)

    registry.remove(edge)

    assert registry.all() == []
    assert not edge.directory.exists()
    with pytest.raises(EdgeError, match="edge florin does not exist"):
        registry.existing("florin")


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "Florin", "-a", "a" * 50, "a b", ".a", "a\n", "a..b", "a.-b", "a-.b"]
)
def test_invalid_names_are_refused(registry: EdgeRegistry, name: str) -> None:
    with pytest.raises(EdgeError, match="is not a valid name of an edge"):
        registry.edge(name)


@pytest.mark.parametrize("name", ["a", "a" * 49, "a.b-c.d", "1--2"])
def test_the_node_of_an_edge_has_a_name_that_a_label_can_have(registry: EdgeRegistry, name: str) -> None:
    assert len(registry.edge(name).node_name) <= 63


def test_a_failed_creation_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdgeError, match=r"cannot create .*/file/edges/florin: not a directory"):
        EdgeRegistry(tmp_path / "file").create("florin", ASKED)


def test_a_process_is_seen_as_long_as_it_lives(registry: EdgeRegistry, tmp_path: Path) -> None:
    edge = registry.create("florin", ASKED)
    with held_elsewhere(tmp_path, "florin") as process:
        phase = edge.phase
        assert (phase.pid, phase.phase, phase.api) == (process.pid, "Ready", "https://127.0.0.1:1")
        with pytest.raises(EdgeError, match="edge florin is already running"), edge.locked():
            pass

        edge.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL

    assert edge.phase.phase == "Stopped"
    with edge.locked() as lock:
        lock.write_phase("Ready")
        assert edge.phase.pid == os.getpid()


def test_a_process_that_has_ended_gets_no_signal(registry: EdgeRegistry) -> None:
    edge = registry.create("florin", ASKED)
    (edge.directory / "process").write_bytes(msgspec.json.encode({"pid": os.getpid(), "phase": "Ready"}))

    edge.signal(signal.SIGKILL)

    assert edge.phase.pid == 0


def test_words_become_shorter_and_stay_readable(registry: EdgeRegistry) -> None:
    edge = registry.create("florin", ASKED)
    with edge.locked() as lock:
        lock.write_phase("Ready", api="https://a.very.long.name.example.com:12345", runtime="process://0.1.0")
        lock.write_phase("Stopping", api="")

        assert (edge.phase.phase, edge.phase.api, edge.phase.runtime) == ("Stopping", "", "process://0.1.0")


def test_a_file_that_cannot_be_read_is_named(registry: EdgeRegistry) -> None:
    edge: EmbeddedEdge = registry.create("florin", ASKED)
    (edge.directory / "edge.json").write_text("{")

    with pytest.raises(EdgeError, match=r"cannot read .*edge\.json: .*; `farflung edge delete florin` removes it"):
        _ = edge.spec


def test_the_home_of_a_user_can_be_elsewhere(tmp_path: Path) -> None:
    assert EdgeRegistry.of_user({"FARFLUNG_HOME": str(tmp_path)}).edge("a").directory == tmp_path / "edges" / "a"
    assert EdgeRegistry.of_user({}).edge("a").directory == Path("~/.farflung/edges/a").expanduser()
