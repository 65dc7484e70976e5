"""`farflung hub` with files, addresses and options that it cannot use: one sentence, and nothing is changed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from farflung.cli.credentials import KUBECONFIG
from farflung.cli.hub import DATABASE, HubSettings, running
from farflung.cli.main import main
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.hub.request.audit_policy import DEFAULT_POLICY

Damage = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def same_signal_handlers() -> Iterator[None]:
    """The command sets its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a hub that was started once and stopped."""

    async def start_and_stop() -> None:
        async with running(HubSettings(tmp_path / "data", port=0, audits=False)):
            pass

    asyncio.run(start_and_stop())
    return tmp_path / "data"


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["hub", *arguments])


def refusal(directory: Path, *arguments: str) -> str:
    """The one sentence of a hub that cannot start."""
    ended = hub("--root-directory", str(directory), *arguments)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("farflung hub: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr.removeprefix("farflung hub: ").rstrip("\n")


def files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith(".lock")}


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(tmp_path / "data", "--port", str(port))
    assert said == f"127.0.0.1:{port} is in use; stop what listens there or choose another --port"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("address", "named"), [("192.0.2.1", "192.0.2.1:0"), ("no.invalid", "no.invalid")])
def test_an_address_of_another_machine_is_named(tmp_path: Path, address: str, named: str) -> None:
    said = refusal(tmp_path / "data", "--port", "0", "--bind-address", address)
    assert said.startswith(f"cannot listen on {named}: ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("place", ["/proc/sys/kernel", "/proc/nothing", "FILE/data"])
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    directory = place.replace("FILE", str(tmp_path / "file"))
    assert directory in refusal(Path(directory), "--port", "0")


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
    ended = hub(*flags)
    assert (ended.exit_code, ended.stdout) == (2, "")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert complaint in last


def overwrite_header(database: bytes) -> bytes:
    return b"garbage, garbage" + database[16:]


def overwrite_pages(database: bytes) -> bytes:
    return database[:4096] + b"\xa5" * (len(database) - 4096)


def cut_off(database: bytes) -> bytes:
    return database[:50]


def from_the_future(database: bytes) -> bytes:
    return database[:60] + (1000).to_bytes(4, "big") + database[64:]


def no_json(content: bytes) -> bytes:
    return b'{"not": what it should be'


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (DATABASE, overwrite_header),
        (DATABASE, overwrite_pages),
        (DATABASE, cut_off),
        (DATABASE, from_the_future),
        ("tokens.json", no_json),
        ("ca.crt", no_json),
        ("ca.key", no_json),
    ],
)
def test_a_damaged_file_is_named_and_everything_is_left_as_it_is(directory: Path, name: str, damage: Damage) -> None:
    path = directory / name
    path.write_bytes(damage(path.read_bytes()))
    before = files(directory)
    assert str(path) in refusal(directory, "--port", "0")
    assert files(directory) == before


# --- the audit log --------------------------------------------------------------------------------


async def test_audit_events_are_written_by_the_policy_of_a_file(tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(DEFAULT_POLICY.replace("omitStages: [RequestReceived]", "omitStages: []"))
    settings = HubSettings(tmp_path / "data", port=0, audit_policy_file=policy, audit_log_path=str(log))
    async with (
        running(settings),
        load(str(tmp_path / "data" / KUBECONFIG)).transport() as transport,
    ):
        client = Client(transport, "", "test")
        await client.raw("/api/v1/secrets")
        await client.raw("/api/v1/configmaps")
        assert b"farflung_audit_events_lost_total 0" in await client.raw("/metrics")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    own = [event for event in events if event["user"]["username"] == "farflung-admin"]
    assert [(event["stage"], event["verb"], event["sourceIPs"]) for event in own] == [
        ("RequestReceived", "list", ["127.0.0.1"]),
        ("ResponseComplete", "list", ["127.0.0.1"]),
    ]


def test_an_invalid_audit_policy_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []")
    data = tmp_path / "data"
    said = refusal(data, "--port", "0", "--audit-policy-file", str(policy))
    assert said.startswith(f"the audit policy {policy} is invalid: ")
    assert said.endswith("; correct the file")
    missing = tmp_path / "missing.yaml"
    said = refusal(data, "--port", "0", "--audit-policy-file", str(missing))
    assert said == f"cannot read the audit policy {missing}: no such file or directory"
    assert not data.exists()


def test_an_audit_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in ((pipe, "not a regular file"), (tmp_path / "no" / "log", "no such file or directory")):
        said = refusal(tmp_path / "data", "--port", "0", "--audit-log-path", str(path))
        assert said == f"cannot write the audit log {path}: {why}; choose another --audit-log-path"


@pytest.mark.parametrize("resources", ["Secrets", "configmaps,", "*"])
def test_resources_to_encrypt_must_be_resources(tmp_path: Path, resources: str) -> None:
    ended = hub("--root-directory", str(tmp_path / "data"), "--encryption-resources", resources)
    assert ended.exit_code == 2
    assert "is not a resource like configmaps, widgets.example.org, *.apps or *.*" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_key_file_that_cannot_be_read_is_named(directory: Path) -> None:
    key = directory / "encryption.key"
    key.write_text("not a key\n")
    assert refusal(directory) == f"line 1 of {key} is not a key: it must be 32 bytes in base64"
