"""The hub as a process: how it starts, refuses to start, stops and starts again."""

from __future__ import annotations

import http.client
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from hub_process import HubProcess, eventually, refused

Start = Callable[..., HubProcess]


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
    """What a hub that cannot start says, which is all it says."""
    code, said = refused(*arguments)
    assert code == 1
    assert said.startswith("farflung hub: ")
    assert said.endswith("\n")
    assert said.count("\n") == 1
    return said.removeprefix("farflung hub: ").rstrip("\n")


def names(hub: HubProcess) -> list[str]:
    with hub.client() as client:
        return [item["metadata"]["name"] for item in client.get("/api/v1/namespaces/default/configmaps")["items"]]


def create(hub: HubProcess, name: str) -> None:
    with hub.client() as client:
        client.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})


def test_a_ready_hub_says_where_it_is_and_keeps_its_secrets(start: Start) -> None:
    hub = start()
    assert hub.ready_line == f"farflung hub is ready on https://127.0.0.1:{hub.port}"
    assert hub.hint == f"  export KUBECONFIG={hub.kubeconfig}"
    modes = {file.name: file.stat().st_mode & 0o777 for file in hub.directory.iterdir()}
    assert modes["admin.kubeconfig"] == 0o600
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077 and not name.endswith(".crt")} == {}
    assert hub.directory.stat().st_mode & 0o077 == 0
    with hub.client() as client:
        assert client.text("/readyz") == "ok"
        assert client.get("/version")["minor"] == "33"
        assert "default" in [item["metadata"]["name"] for item in client.get("/api/v1/namespaces")["items"]]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_watches_and_the_hub_in_order(start: Start, how: signal.Signals) -> None:
    hub = start()
    create(hub, "seen")
    assert hub.address.hostname is not None
    watching = http.client.HTTPSConnection(hub.address.hostname, hub.port, context=hub.tls, timeout=60)
    watching.request(
        "GET",
        "/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3Dseen",
        headers={"Authorization": f"Bearer {hub.token}"},
    )
    stream = watching.getresponse()
    assert orjson.loads(stream.readline())["type"] == "ADDED"
    assert hub.stop(how) == "farflung hub is stopping\n"
    assert stream.read() == b""  # the last chunk came: a stream cut short would raise
    watching.close()
    assert hub.trouble() == []


def test_a_stop_lets_a_request_that_is_under_way_finish(start: Start) -> None:
    hub = start()
    body = orjson.dumps({"metadata": {"name": "late"}, "data": {"a": "b" * 1000}})
    head = (
        f"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {hub.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with hub.raw() as connection:
        connection.sendall(head.encode() + body[:500])
        assert names(hub) == ["kube-root-ca.crt"] or names(hub) == []
        hub.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses_connections(hub), "the end of listening")
        connection.sendall(body[500:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 201 Created\r\n")
    assert hub.process.wait(timeout=60) == 0
    assert "late" in names(start())


def refuses_connections(hub: HubProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((hub.address.hostname, hub.port)) != 0


def test_a_restart_keeps_objects_versions_token_and_authority(start: Start) -> None:
    first = start()
    create(first, "kept")
    with first.client() as client:
        before = client.get("/api/v1/namespaces/default/configmaps/kept")
    kubeconfig, authority = first.kubeconfig.read_bytes(), (first.directory / "ca.crt").read_bytes()
    first.stop()
    second = start(port=first.port)
    assert second.kubeconfig.read_bytes() == kubeconfig
    assert (second.directory / "ca.crt").read_bytes() == authority
    with second.client() as client:
        assert client.get("/api/v1/namespaces/default/configmaps/kept") == before
        version = before["metadata"]["resourceVersion"]
        client.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "new"}})
        query = f"watch=true&resourceVersion={version}&timeoutSeconds=1"
        seen = client.text(f"/api/v1/namespaces/default/configmaps?{query}").splitlines()
        added = [event["object"]["metadata"]["name"] for event in map(orjson.loads, seen)]
        assert added.count("new") == 1
        assert "kept" not in added
    assert second.trouble() == []


def test_a_lost_kubeconfig_is_written_anew_and_the_lost_token_is_worth_nothing(start: Start) -> None:
    first = start()
    create(first, "kept")
    first.stop()
    first.kubeconfig.write_bytes(b"\xff\xfe not yaml: [")
    second = start()
    assert second.token != first.token
    assert second.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert "kept" in names(second)
    with second.client() as client:
        old = client.request("GET", "/api/v1/namespaces", headers={"Authorization": f"Bearer {first.token}"})
        assert (old.status, old.json["reason"]) == (401, "Unauthorized")


def test_a_second_signal_ends_at_once_what_the_first_waits_for(start: Start) -> None:
    hub = start()
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {hub.token}\r\n"
    with hub.raw() as stalled:
        stalled.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert names(hub)
        hub.process.send_signal(signal.SIGINT)
        assert hub.process.stdout is not None
        assert hub.process.stdout.readline() == "farflung hub is stopping\n"
        hub.process.send_signal(signal.SIGINT)
        assert hub.process.stdout.readline() == "farflung hub stops at once\n"
        assert hub.process.wait(timeout=60) == 1


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = one_sentence("--root-directory", str(tmp_path / "data"), "--port", str(port))
    assert said == f"127.0.0.1:{port} is in use; stop what listens there or choose another --port"
    assert not (tmp_path / "data").exists()


def test_an_address_that_is_not_here_is_named(tmp_path: Path) -> None:
    said = one_sentence("--root-directory", str(tmp_path / "data"), "--port", "0", "--bind-address", "192.0.2.1")
    assert said.startswith("cannot listen on 192.0.2.1:0: ")
    said = one_sentence("--root-directory", str(tmp_path / "data"), "--port", "0", "--bind-address", "no.invalid")
    assert said.startswith("cannot listen on no.invalid: ")


@pytest.mark.parametrize("place", ["/proc/sys/kernel", "/proc/nothing", "FILE/data"])
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    directory = place.replace("FILE", str(tmp_path / "file"))
    assert directory in one_sentence("--root-directory", directory, "--port", "0")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--nonsense"], "No such option"),
        (["--port", "70000"], "Invalid value for '--port'"),
        (["--port", "http"], "Invalid value for '--port'"),
        (["--root-directory", __file__], "is a file"),
        (["surplus"], "Got unexpected extra argument (surplus)"),
    ],
)
def test_a_bad_flag_is_named(flags: list[str], complaint: str) -> None:
    code, said = refused(*flags)
    assert code == 2
    assert said.splitlines()[-1].startswith("Error: ")
    assert complaint in said.splitlines()[-1]


def test_a_second_hub_on_the_same_directory_is_refused_and_harms_nothing(start: Start) -> None:
    hub = start()
    create(hub, "kept")
    before = {file.name: file.read_bytes() for file in hub.directory.iterdir() if "sqlite" not in file.name}
    said = one_sentence("--root-directory", str(hub.directory), "--port", "0")
    assert f"is in use by another process (pid {hub.process.pid})" in said
    after = {file.name: file.read_bytes() for file in hub.directory.iterdir() if "sqlite" not in file.name}
    assert after == before
    create(hub, "more")
    assert {"kept", "more"} <= set(names(hub))
    hub.stop()
    assert {"kept", "more"} <= set(names(start()))


def overwrite_header(database: bytes) -> bytes:
    return b"garbage, garbage" + database[16:]


def overwrite_pages(database: bytes) -> bytes:
    return database[:4096] + b"\xa5" * (len(database) - 4096)


def cut_off(database: bytes) -> bytes:
    return database[:50]


def from_the_future(database: bytes) -> bytes:
    return database[:60] + (1000).to_bytes(4, "big") + database[64:]


@pytest.mark.parametrize("damage", [overwrite_header, overwrite_pages, cut_off, from_the_future])
def test_a_damaged_database_is_refused_and_left_alone(start: Start, damage: Callable[[bytes], bytes]) -> None:
    hub = start()
    create(hub, "kept")
    hub.stop()
    database = hub.directory / "hub.sqlite"
    sound = database.read_bytes()
    database.write_bytes(damage(sound))
    before = {file.name: file.read_bytes() for file in hub.directory.iterdir() if not file.name.endswith(".lock")}
    assert str(database) in one_sentence("--root-directory", str(hub.directory), "--port", "0")
    after = {file.name: file.read_bytes() for file in hub.directory.iterdir() if not file.name.endswith(".lock")}
    assert after == before
    database.write_bytes(sound)
    assert "kept" in names(start())


@pytest.mark.parametrize("name", ["tokens.json", "ca.crt", "ca.key"])
def test_other_damaged_files_are_named_and_left_alone(start: Start, name: str) -> None:
    hub = start()
    hub.stop()
    damaged = hub.directory / name
    sound = damaged.read_bytes()
    damaged.write_bytes(b'{"not": what it should be')
    assert str(damaged) in one_sentence("--root-directory", str(hub.directory), "--port", "0")
    assert damaged.read_bytes() == b'{"not": what it should be'
    damaged.write_bytes(sound)
    assert start().token == hub.token
