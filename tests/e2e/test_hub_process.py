"""The hub as a process: how it starts, refuses to start, stops and starts again.

What it refuses to start with, and the sentence for each, is in tests/cli/test_hub_command.py.
"""

from __future__ import annotations

import http.client
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import orjson
import pytest
from hub_process import HubProcess, eventually, refused

Start = Callable[..., HubProcess]
NAMESPACES = "/api/v1/namespaces"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts hubs on one directory; none outlives the test."""
    started: list[HubProcess] = []

    def starting(**options: int) -> HubProcess:
        started.append(HubProcess(tmp_path / "data", **options))
        return started[-1]

    yield starting
    for hub in started:
        hub.kill()


def one_sentence(*arguments: str) -> str:
    """All that a hub which cannot start prints."""
    code, output = refused(*arguments)
    assert code == 1
    assert output.startswith("farflung hub: ")
    assert output.endswith("\n")
    assert output.count("\n") == 1
    return output.removeprefix("farflung hub: ").rstrip("\n")


def names(hub: HubProcess) -> set[str]:
    with hub.client() as client:
        return {item["metadata"]["name"] for item in client.get(MAPS)["items"]}


def create(hub: HubProcess, name: str) -> None:
    with hub.client() as client:
        client.create(MAPS, {"metadata": {"name": name}})


def files(directory: Path) -> dict[str, bytes]:
    """Except the database, which a running hub writes, and locks."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if "sqlite" not in file.name}


def refuses_connections(hub: HubProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((hub.address.hostname, hub.port)) != 0


@contextmanager
def watch(hub: HubProcess, name: str) -> Iterator[http.client.HTTPResponse]:
    """Of one ConfigMap that exists; its first event is read."""
    assert hub.address.hostname is not None
    connection = http.client.HTTPSConnection(hub.address.hostname, hub.port, context=hub.tls, timeout=60)
    with closing(connection):
        path = f"{MAPS}?watch=true&fieldSelector=metadata.name%3D{name}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {hub.token}"})
        stream = connection.getresponse()
        assert orjson.loads(stream.readline())["type"] == "ADDED"
        yield stream


def begun_request(hub: HubProcess, length: int) -> bytes:
    return (
        f"POST {MAPS} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {hub.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def test_a_hub_prints_its_two_lines_after_what_it_logs_while_it_starts(workspaces: HubProcess) -> None:
    starting = re.compile(r'\] "starting controller" controller="(.+)"$', re.MULTILINE)
    first = starting.findall(workspaces.starting_log)
    assert {"edge-scheduler", "global-scheduler-copies", "placement-translator-status"}.issubset(first)
    assert set(first) == set(starting.findall(workspaces.log()))
    for line in workspaces.starting_log.splitlines():
        assert re.match(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z_]+\.py:\d+\] ", line)
    assert workspaces.ready_line == f"farflung hub is ready on https://127.0.0.1:{workspaces.port}"
    assert workspaces.hint == f"  export KUBECONFIG={workspaces.kubeconfig}"


def test_a_hub_serves_stops_in_order_and_comes_back_as_it_was(start: Start) -> None:
    hub = start()
    assert hub.ready_line == f"farflung hub is ready on https://127.0.0.1:{hub.port}"
    assert hub.hint == f"  export KUBECONFIG={hub.kubeconfig}"
    modes = {file.name: file.stat().st_mode & 0o777 for file in hub.directory.iterdir()}
    assert modes["admin.kubeconfig"] == 0o600
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077 and not name.endswith(".crt")} == {}
    assert hub.directory.stat().st_mode & 0o077 == 0
    create(hub, "kept")
    with hub.client() as client:
        assert client.text("/readyz") == "ok"
        assert client.get("/version")["minor"] == "33"
        before = client.get(f"{MAPS}/kept")

    content = files(hub.directory)
    output = one_sentence("--root-directory", str(hub.directory), "--port", "0")
    assert f"is in use by another process (pid {hub.process.pid})" in output
    assert files(hub.directory) == content

    body = orjson.dumps({"metadata": {"name": "late"}, "data": {"a": "b" * 1000}})
    with watch(hub, "kept") as stream, hub.raw() as connection:
        connection.sendall(begun_request(hub, len(body)) + body[:500])
        assert names(hub) >= {"kept"}
        hub.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses_connections(hub), "the end of listening")
        connection.sendall(body[500:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 201 Created\r\n")
        assert stream.read() == b""  # the last chunk came: a stream cut short would raise
    assert hub.process.stdout is not None
    assert hub.process.stdout.read() == "farflung hub is stopping\n"
    assert hub.process.wait(timeout=60) == 0

    again = start(port=hub.port)
    assert files(again.directory) == content  # with its kubeconfig, tokens and authority
    with again.client() as client:
        assert client.get(f"{MAPS}/kept") == before
        version = before["metadata"]["resourceVersion"]
        client.create(MAPS, {"metadata": {"name": "new"}})
        seen = client.text(f"{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=1").splitlines()
    added = [event["object"]["metadata"]["name"] for event in map(orjson.loads, seen)]
    assert (added.count("late"), added.count("new"), added.count("kept")) == (1, 1, 0)
    assert again.stop(signal.SIGINT) == "farflung hub is stopping\n"
    assert again.trouble() == []


def test_a_second_signal_ends_at_once_what_the_first_waits_for(start: Start) -> None:
    hub = start()
    with hub.raw() as stalled:
        stalled.sendall(begun_request(hub, 100) + b"{")
        names(hub)
        hub.process.send_signal(signal.SIGINT)
        assert hub.process.stdout is not None
        assert hub.process.stdout.readline() == "farflung hub is stopping\n"
        hub.process.send_signal(signal.SIGINT)
        assert hub.process.stdout.readline() == "farflung hub stops at once\n"
        assert hub.process.wait(timeout=60) == 1


# --- a full disk ----------------------------------------------------------------------------------

NO_ROOM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
os.execv(sys.argv[1], sys.argv[1:])
"""


def versions(directory: Path) -> dict[str, tuple[int, int]]:
    """Which file it is, and when it was written; of all but the database and locks."""
    found = {file.name: file.stat() for file in directory.iterdir() if "sqlite" not in file.name}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize(
    ("command", "path", "end"),
    [("hub", NAMESPACES, HubProcess.kill), ("start", f"/clusters/root{NAMESPACES}", HubProcess.stop)],
)
def test_a_hub_that_starts_on_a_full_disk_serves_reads_and_later_writes(
    start: Start, command: str, path: str, end: Callable[[HubProcess], object]
) -> None:
    options = {"command": command, "arguments": ["--no-controllers"] if command == "start" else []}
    hub = start(**options)
    with hub.client() as client:
        client.create(path, {"metadata": {"name": "before"}})
    written = versions(hub.directory)
    end(hub)

    hub = start(port=hub.port, wrapper=[sys.executable, "-c", NO_ROOM], **options)
    with hub.client() as client:
        assert "before" in {item["metadata"]["name"] for item in client.get(path)["items"]}
        reply = client.request("POST", path, {"metadata": {"name": "full"}})
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")
        assert reply.json["message"] == "the store cannot write: database or disk is full"
        assert client.request("GET", "/readyz/store").status == 500
        assert client.request("GET", "/livez").status == 200
    assert versions(hub.directory) == written

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (most, most))
    with hub.client() as client:
        client.create(path, {"metadata": {"name": "after"}})
        assert client.request("GET", "/readyz/store").status == 200
    end(hub)
    hub = start(**options)
    with hub.client() as client:
        found = {item["metadata"]["name"] for item in client.get(path)["items"]}
    assert found >= {"before", "after"}
    assert "full" not in found
