"""Hostile bytes to a real hub: a 4xx Status or a closed connection, nothing written, and the hub goes on.

Every way to frame a request wrongly is in tests/http, every bad body, query and path in tests/hub/test_bad_requests.py.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from hub_process import PATIENCE, Client, HubProcess, Json, Reply

LIMIT = 3 * 1024 * 1024


class Victim:
    """A namespace with one ConfigMap that no hostile request may change."""

    def __init__(self, hub: HubProcess, client: Client, namespace: str) -> None:
        self.hub = hub
        self.client = client
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.client.create(self.path, {"metadata": {"name": "calm", "labels": {"victim": "yes"}}, "data": {"a": "b"}})
        self._calm = self._present()

    def _present(self) -> list[Json]:
        items = self.client.get(self.path)["items"]
        return [item for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]

    def refuses(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Reply:
        """Send it, and see it refused as it should be."""
        reply = self.client.request(method, path, body, {"Content-Type": content_type} if body is not None else None)
        check_refusal(reply, sent=len(path) + len(body if isinstance(body, bytes) else b""))
        return reply

    def is_calm(self) -> bool:
        return self._present() == self._calm and self.client.text("/readyz") == "ok"


def check_refusal(reply: Reply, sent: int = 0) -> None:
    assert 400 <= reply.status < 500, (reply.status, reply.body[:300])
    if reply.body != b"404 page not found\n":
        status = reply.json
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
        assert status["code"] == reply.status
        assert status["message"]
        assert len(reply.body) < 20_000 + 5 * sent, "an answer multiplies the attack"


@pytest.fixture
def victim(hub: HubProcess, namespace: str) -> Iterator[Victim]:
    with hub.client() as client:
        victim = Victim(hub, client, namespace)
        yield victim
        assert victim.is_calm()


def config_map(data: bytes) -> bytes:
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"evil"},"data":' + data + b"}"


def talk(hub: HubProcess, data: bytes) -> bytes:
    """Send bytes; what came back when the hub closed the connection."""
    received = b""
    with hub.raw() as connection, suppress(ConnectionError, ssl.SSLError):
        connection.sendall(data)
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def head(victim: Victim, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {victim.path} HTTP/1.1", "Host: hub", f"Authorization: Bearer {victim.hub.token}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def check_closed(answer: bytes) -> None:
    """Nothing at all, or answers of which the last is a refusal (501: of a transfer encoding)."""
    if answer and b"HTTP/1.1 501 " not in answer:
        start = answer.rindex(b"HTTP/1.1 ")
        line, _, rest = answer[start:].partition(b"\r\n")
        check_refusal(Reply(int(line.split()[1]), {}, rest.partition(b"\r\n\r\n")[2]))


def test_a_body_above_the_limit_is_refused_however_it_comes(victim: Victim) -> None:
    filling = b'{"a":"' + b"x" * LIMIT + b'"}'
    assert victim.refuses("POST", victim.path, config_map(filling)).status == 413
    claimed = head(victim, "Content-Type: application/json", f"Content-Length: {10**15}")
    assert talk(victim.hub, claimed).startswith(b"HTTP/1.1 413 ")
    chunked = head(victim, "Content-Type: application/json", "Transfer-Encoding: chunked")
    pieces = b"".join(b"10000\r\n" + b" " * 65536 + b"\r\n" for _ in range(LIMIT // 65536 + 1))
    check_closed(talk(victim.hub, chunked + pieces))


def test_lengths_that_contradict_each_other_smuggle_nothing(victim: Victim) -> None:
    body = config_map(b'{"a":"b"}')
    smuggled = head(victim, "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    for headers in (
        ["Content-Length: 5", f"Content-Length: {len(smuggled)}"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Content-Length: -1"],
        ["Content-Length: 0x10"],
        ["Content-Length: 1 2"],
    ):
        request = head(victim, "Content-Type: application/json", *headers).replace(b"Connection: close\r\n", b"")
        check_closed(talk(victim.hub, request + b"0\r\n\r\n" + smuggled))


def test_half_open_and_slow_clients_delay_no_other_client(victim: Victim) -> None:
    address = (victim.hub.address.hostname, victim.hub.port)
    body = config_map(b'{"a":"b"}')
    slow = head(victim, "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
        dripping = [stack.enter_context(victim.hub.raw()) for _ in range(20)]
        watch = head(victim, method="GET").replace(b" HTTP/1.1", b"?watch=true HTTP/1.1", 1)
        for _ in range(10):
            stack.enter_context(victim.hub.raw()).sendall(watch)  # and never read
        for position in range(0, len(slow) - 1, 20):
            for connection in dripping:
                connection.sendall(slow[position : min(position + 20, len(slow) - 1)])
            assert victim.is_calm()
    assert victim.is_calm()


def test_watchers_that_never_read_are_cut_off_before_they_cost_much(victim: Victim) -> None:
    watch = head(victim, method="GET").replace(b" HTTP/1.1", b"?watch=true HTTP/1.1", 1)
    name = f"{victim.path}/flood"
    with victim.hub.raw() as deaf:
        deaf.sendall(watch)
        victim.client.create(victim.path, {"metadata": {"name": "flood"}})
        for number in range(12):
            large = {"metadata": {"name": "flood"}, "data": {"a": f"{number}" + "x" * 900_000}}
            assert victim.client.request("PUT", name, large).status == 200
        assert victim.client.request("DELETE", name).status == 200
    assert victim.is_calm()
