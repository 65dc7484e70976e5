"""What `farflung edge list` shows of edges that run, do not, or cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson
import yaml

from farflung.cli import edge_list
from farflung.edge.ports import PortMapping
from farflung.edge.registry import EdgeRegistry, EdgeSpec

ASKED = EdgeSpec(
    datetime.now(UTC), "process", ports=(PortMapping(8081, 8083), PortMapping(80, 8080, "::")), context="kind-a"
)


def test_an_edge_that_does_not_run_is_shown_with_what_was_asked_for(tmp_path: Path) -> None:
    registry = EdgeRegistry(tmp_path)
    registry.create("florin", ASKED)

    table = edge_list.printed(edge_list.edge_states(registry.all()), "table")
    (document,) = orjson.loads(edge_list.printed(edge_list.edge_states(registry.all()), "json"))
    assert yaml.safe_load(edge_list.printed(edge_list.edge_states(registry.all()), "yaml")) == [document]

    head, row = table.splitlines()
    assert head.split() == ["NAME", "STATUS", "API", "RUNTIME", "PORTS", "PODS", "AGE"]
    ports = "127.0.0.1:8083->8081/tcp,[::]:8080->80/tcp"
    assert row.split()[:6] == ["florin", "Stopped", "<none>", "process", ports, "<none>"]
    assert (document["status"], document["pods"], document["context"]) == ("Stopped", None, "kind-a")
    assert document["ports"][1] == {"containerPort": 80, "hostPort": 8080, "listenAddress": "::"}


def test_an_edge_whose_files_are_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    registry = EdgeRegistry(tmp_path)
    broken = registry.create("broken", ASKED)
    (broken.directory / "edge.json").write_text("{")
    registry.create("florin", ASKED)

    rows = edge_list.printed(edge_list.edge_states(registry.all()), "table").splitlines()[1:]

    assert [row.split()[0] for row in rows] == ["broken", "florin"]


def test_an_edge_that_does_not_answer_has_no_pods_to_show(tmp_path: Path) -> None:
    registry = EdgeRegistry(tmp_path)
    edge = registry.create("florin", ASKED)
    with edge.locked() as lock:
        lock.write_phase("Ready", api="https://127.0.0.1:1", runtime="process://0")
        (seen,) = edge_list.edge_states([edge])

    assert (seen.status, seen.pods) == ("Ready", None)
