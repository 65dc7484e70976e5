"""Parsing the output of podman."""

from datetime import UTC, datetime

import orjson
import pytest

from farflung.edge.runtimes.base import Address
from farflung.edge.runtimes.podman_output import inspected, is_new_enough, last_line, version


def answer(state: dict[str, object], ports: object = None) -> bytes:
    return orjson.dumps(
        [
            {
                "Id": "951b",
                "Image": "102a",
                "ImageDigest": "sha256:59e7",
                "State": {"Health": {"Log": None}, **state},
                "NetworkSettings": {"Ports": ports, "Networks": {}},
            }
        ]
    )


RUNNING = {"Status": "running", "Running": True, "ConmonPid": 20324, "FinishedAt": "0001-01-01T00:00:00Z"}
EXITED = {"Status": "exited", "ExitCode": 0, "FinishedAt": "2026-11-16T06:34:06.444996937Z", "Error": ""}


def test_addresses_are_where_ports_were_published() -> None:
    found = inspected(
        answer(
            RUNNING,
            {
                "80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "42437"}],
                "81/tcp": [{"HostIp": "", "HostPort": "42438"}],
                "82/tcp": None,
                "83/tcp": [],
                "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "5353"}],
            },
        )
    )
    assert found is not None
    assert found.addresses == {80: Address("127.0.0.1", 42437), 81: Address("127.0.0.1", 42438)}
    assert found.state.conmon_pid == 20324
    assert not found.exited


def test_a_container_without_ports_has_no_addresses() -> None:
    for ports in (None, {}):
        found = inspected(answer(RUNNING, ports))
        assert found is not None
        assert found.addresses == {}


@pytest.mark.parametrize(
    ("state", "code", "reason"),
    [
        ({}, 0, "Completed"),
        ({"ExitCode": 3}, 3, "Error"),
        ({"ExitCode": 137, "OOMKilled": True}, 137, "OOMKilled"),
        ({"Status": "stopped", "ExitCode": 143}, 143, "Error"),
    ],
)
def test_the_exit_of_a_container_is_reported_as_in_kubernetes(state: dict[str, object], code: int, reason: str) -> None:
    found = inspected(answer(EXITED | state))
    assert found is not None
    assert found.exited
    assert (found.finished.exit_code, found.finished.reason) == (code, reason)
    assert found.finished.at == datetime(2026, 11, 16, 6, 34, 6, 444996, UTC)


def test_times_of_other_zones_are_understood() -> None:
    found = inspected(answer(EXITED | {"FinishedAt": "2026-11-16T07:34:06.5+01:00"}))
    assert found is not None
    assert found.finished.at == datetime(2026, 11, 16, 6, 34, 6, 500000, UTC)


@pytest.mark.parametrize("output", [b"", b"[]", b"[]\n"])
def test_a_missing_container_is_none(output: bytes) -> None:
    assert inspected(output) is None


def test_the_version_is_that_of_podman() -> None:
    assert version(b'{"host": {"arch": "amd64"}, "version": {"APIVersion": "4.3.1", "Version": "4.3.1"}}') == "4.3.1"


@pytest.mark.parametrize(
    ("found", "enough"),
    [("4.3.1", True), ("4.10.0", True), ("5.4.2-dev", True), ("4.2.9", False), ("3.4.4", False), ("", False)],
)
def test_only_a_podman_that_can_do_all_is_new_enough(found: str, enough: bool) -> None:
    assert is_new_enough(found) is enough


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        (b"Trying to pull x\nError: no such host\n\n", "no such host"),
        (b'time="x" level=warning msg="y"\nError: a: b\n', "a: b"),
        (b"", "podman printed no error"),
        (b"\xff\n", "\ufffd"),
    ],
)
def test_the_last_line_has_the_cause_of_a_failure(errors: bytes, sentence: str) -> None:
    assert last_line(errors) == sentence


def test_a_reason_is_never_long() -> None:
    assert len(last_line(b"x" * 100_000)) == 1024
