"""Hostile bytes over real sockets: a 4xx Status or a closed connection, nothing written, and the hub goes on."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import quote

import orjson
import pytest
from hub_process import PATIENCE, Client, HubProcess, Json, Reply

DEEP = 10_000
LIMIT = 3 * 1024 * 1024
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


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


BODIES = {
    "nothing": b"",
    "a cut-off object": config_map(b'{"a":"b"}')[:-5],
    "a cut-off string": b'{"metadata":{"name":"ev',
    "no object": b"[]",
    "null": b"null",
    "a number": b"1e400",
    "invalid UTF-8": config_map(b'{"a":"\xff\xfe"}'),
    "half a surrogate pair": config_map(b'{"a":"\\ud800"}') + b"x",
    "overlong UTF-8": config_map(b'{"a":"\xc0\xaf"}'),
    "NUL": b"\x00" * 100,
    "deep lists": config_map(b"[" * DEEP + b"]" * DEEP),
    "deep objects": config_map(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "deep and open": b'{"data":' + b"[" * DEEP,
    "deep unknown field": b'{"metadata":{"name":"evil"},"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "deep managed fields": b'{"metadata":{"name":"evil","managedFields":[{"manager":"m","operation":"Update",'
    b'"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":' + b'{"f:a":' * DEEP + b"{}" + b"}" * DEEP + b"}]}}",
    "a number of a million digits": config_map(b'{"a":' + b"9" * 1_000_000 + b"}"),
    "not JSON": b"<html></html>",
    "compressed": gzip.compress(config_map(b'{"a":"b"}')),
    "protobuf": b"k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "wrong types": b'{"metadata":{"name":["evil"],"labels":7,"ownerReferences":{"a":1}},"data":[1,2]}',
    "metadata that is none": b'{"metadata":"evil"}',
    "kind that is none": b'{"apiVersion":{"a":1},"kind":["ConfigMap"],"metadata":{"name":"evil"}}',
    "another kind": b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"evil"}}',
    "a name of a megabyte": b'{"metadata":{"name":"' + b"x" * 1_000_000 + b'"}}',
    "a name with a path": b'{"metadata":{"name":"../../secrets/evil"}}',
    "labels that are none": b'{"metadata":{"name":"evil","labels":{"' + b"-" * 5000 + b'":"\\u0000"}}}',
    "too many annotations": b'{"metadata":{"name":"evil","annotations":{"a":"' + b"x" * 300_000 + b'"}}}',
    "too much data": config_map(b'{"a":"' + b"x" * 1_100_000 + b'"}'),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_a_bad_object_is_refused_by_create_and_update(victim: Victim, body: bytes) -> None:
    victim.refuses("POST", f"{victim.path}?fieldValidation=Strict", body)
    victim.refuses("PUT", f"{victim.path}/calm?fieldValidation=Strict", body)


YAML = {
    "aliases that multiply": "metadata: {name: evil}\nx0: &x0 [a,a,a,a,a,a,a,a,a]\n"
    + "".join(f"x{n}: &x{n} [{','.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "a loop": "metadata: {name: evil}\ndata: &a {a: *a}\n",
    "a tag of Python": "!!python/object/apply:os.system ['false']\n",
    "deep lists": "data: " + "[" * DEEP,
    "deep blocks": "\n".join(" " * n + "a:" for n in range(500)) + "\n" + "- " * DEEP,
    "invalid UTF-8": "\udcff",
    "an open quote": "metadata: {name: 'evil",
    "two documents": "metadata: {name: evil}\n---\nmetadata: {name: eviler}\n",
    "an unknown anchor": "metadata: *nothing\n",
    "a key that is none": "? [a, b]\n: c\n",
    "a number that no type has room for": "kind: " + "9" * 400 + "\nmetadata: {name: evil}\n",
}


@pytest.mark.parametrize("text", YAML.values(), ids=list(YAML))
def test_a_bad_yaml_document_is_refused_by_create_and_apply(victim: Victim, text: str) -> None:
    body = text.encode(errors="surrogateescape")
    victim.refuses("POST", f"{victim.path}?fieldValidation=Strict", body, "application/yaml")
    apply = f"{victim.path}/calm?fieldManager=evil&fieldValidation=Strict"
    victim.refuses("PATCH", apply, body, PATCHES["apply"])


BAD_PATCHES = {
    "nothing": b"",
    "cut off": b'{"data":{"a"',
    "a string": b'"data"',
    "invalid UTF-8": b'{"data":{"a":"\xff"}}',
    "deep lists": b'{"data":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"data":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "wrong types": b'{"data":[{"a":1}]}',
    "another name": b'{"metadata":{"name":"evil"}}',
    "another version": b'{"metadata":{"resourceVersion":"99999999999999999999999"}}',
}


@pytest.mark.parametrize("body", BAD_PATCHES.values(), ids=list(BAD_PATCHES))
@pytest.mark.parametrize("content_type", PATCHES.values(), ids=list(PATCHES))
def test_a_bad_patch_is_refused(victim: Victim, body: bytes, content_type: str) -> None:
    victim.refuses("PATCH", f"{victim.path}/calm?fieldManager=evil", body, content_type)


def operations(*wanted: Json) -> bytes:
    return orjson.dumps(wanted)


GROWTH = [{"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/{n}"} for n in range(60)]
BAD_OPERATIONS = {
    "a copy of itself, again and again": operations(
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}, *GROWTH
    ),
    "far too many": operations(*[{"op": "test", "path": "/data/a", "value": "b"}] * 20_000),
    "a place that is not there": operations({"op": "replace", "path": "/a/b/c/d", "value": 1}),
    "no pointer": operations({"op": "add", "path": "data", "value": 1}),
    "a pointer of a megabyte": operations({"op": "add", "path": "/a" * 500_000, "value": 1}),
    "an index without end": operations({"op": "add", "path": "/metadata/managedFields/" + "9" * 5000, "value": 1}),
    "the whole object": operations({"op": "replace", "path": "", "value": [1]}),
    "no operation": operations({"op": "explode", "path": "/data"}),
    "a move into itself": operations({"op": "move", "from": "/data", "path": "/data/a/b"}),
    "no list": b'{"op":"add"}',
    "a list of nothing": b"[null, 1, []]",
}


@pytest.mark.parametrize("body", BAD_OPERATIONS.values(), ids=list(BAD_OPERATIONS))
def test_bad_operations_are_refused(victim: Victim, body: bytes) -> None:
    victim.refuses("PATCH", f"{victim.path}/calm", body, PATCHES["json"])


def test_bad_delete_options_are_refused(victim: Victim) -> None:
    for body in (
        b"{",
        b"[]",
        b'{"kind":"Pod","apiVersion":"v1"}',
        b'{"preconditions":{"uid":"other"}}',
        b'{"preconditions":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"propagationPolicy":"Everything"}',
        b'{"dryRun":["Some"]}',
        b'{"gracePeriodSeconds":"soon"}',
        b"\xff",
    ):
        victim.refuses("DELETE", f"{victim.path}/calm", body)
        victim.refuses("DELETE", f"{victim.path}?labelSelector=victim", body)
    victim.refuses("DELETE", f"{victim.path}/calm?dryRun=Some")
    victim.refuses("DELETE", f"{victim.path}/calm?propagationPolicy=Everything")


def test_a_content_type_that_is_not_known_is_refused(victim: Victim) -> None:
    body = config_map(b'{"a":"b"}')
    for content_type in ("text/plain", "application/xml", "application/cbor", "x", "/", "application/json-patch+json"):
        assert victim.refuses("POST", victim.path, body, content_type).status == 415
        assert victim.refuses("PUT", f"{victim.path}/calm", body, content_type).status == 415
    for content_type in ("application/json", "text/plain", "application/yaml", "x" * 5000):
        assert victim.refuses("PATCH", f"{victim.path}/calm", b"{}", content_type).status == 415
    reply = victim.client.request("GET", victim.path, headers={"Accept": "text/html"})
    check_refusal(reply)
    assert reply.status == 406


QUERIES = [
    "labelSelector=" + quote("a in (b"),
    "labelSelector=" + quote("((((((((((a"),
    "labelSelector=" + quote("=" * 1000),
    "labelSelector=" + quote("a=" + "x" * 2000),
    "labelSelector=" + quote(",".join(["!"] * 1000)),
    "labelSelector=" + quote("a in (" + "," * 5000 + "("),
    "labelSelector=%ff%fe",
    "labelSelector=%00",
    "fieldSelector=" + quote("metadata.name"),
    "fieldSelector=" + quote("a.b.c=d"),
    "fieldSelector=" + quote("metadata.name=a\\"),
    "fieldSelector=" + quote("=" * 5000),
    "limit=many",
    "limit=99999999999999999999999999",
    "continue=%00%ff",
    "continue=" + "A" * 5000,
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0",
    "resourceVersion=latest",
    "resourceVersion=-1",
    "resourceVersion=" + "9" * 5000,
    "resourceVersionMatch=Roughly&resourceVersion=1",
    "timeoutSeconds=soon",
    "watch=true&resourceVersion=latest",
    "watch=true&sendInitialEvents=true",
    "watch=true&labelSelector=" + quote("a in (b"),
    "watch=true&timeoutSeconds=" + "9" * 100,
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:40])
def test_an_absurd_query_is_refused(victim: Victim, query: str) -> None:
    victim.refuses("GET", f"{victim.path}?{query}")
    if "watch" not in query and "timeoutSeconds" not in query:
        victim.refuses("DELETE", f"{victim.path}?{query}")


def test_a_selector_as_long_as_a_request_line_may_be_is_read_without_ado(victim: Victim) -> None:
    values = ",".join(f"v{number}" for number in range(4000))
    assert (
        len(victim.client.get(f"{victim.path}?labelSelector={quote(f'victim in (yes,{values})', safe=',')}")["items"])
        == 1
    )
    terms = ",".join(f"k{number}!=v" for number in range(2500))
    assert victim.client.get(f"{victim.path}?labelSelector={quote(terms, safe=',')}")["items"]


PATHS = [
    "/api/v1/namespaces/%00/configmaps/x",
    "/api/v1/namespaces/%ff%fe/configmaps/x",
    "/api/v1/namespaces/a%2fb/configmaps/..",
    "/api/v1/" + "x/" * 1000,
    "/apis/" + "g" * 10_000 + "/v1/things",
    "/api/v1/namespaces/default/configmaps/x/y/z",
    "/api/v9/configmaps",
    "/../../etc/passwd",
    "//",
    "/clusters/../api/v1/namespaces",
    "/clusters/nowhere/api/v1/namespaces",
    "/openapi/v3/../../etc/passwd",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:40])
def test_a_path_that_leads_nowhere_is_not_found(victim: Victim, path: str) -> None:
    victim.refuses("GET", path)
    for method in ("POST", "PUT", "DELETE"):
        victim.refuses(method, path, {} if method != "DELETE" else None)


# --- bytes that are not even a proper request -------------------------------------------------------


def talk(hub: HubProcess, data: bytes, *, then_close: bool = False) -> bytes:
    """Send bytes; what came back when the hub closed the connection."""
    received = b""
    with hub.raw() as connection, suppress(ConnectionError, ssl.SSLError):
        connection.sendall(data)
        if then_close:
            connection.unwrap()
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


def test_a_body_that_ends_too_soon_writes_nothing(victim: Victim) -> None:
    body = config_map(b'{"a":"b"}')
    whole = head(victim, "Content-Type: application/json", f"Content-Length: {len(body) + 10}")
    check_closed(talk(victim.hub, whole + body, then_close=True))
    chunked = head(victim, "Content-Type: application/json", "Transfer-Encoding: chunked")
    check_closed(talk(victim.hub, chunked + b"%x\r\n%b\r\n" % (len(body), body), then_close=True))


def test_a_body_above_the_limit_is_refused_however_it_comes(victim: Victim) -> None:
    filling = b'{"a":"' + b"x" * LIMIT + b'"}'
    assert victim.refuses("POST", victim.path, config_map(filling)).status == 413
    claimed = head(victim, "Content-Type: application/json", f"Content-Length: {10**15}")
    assert talk(victim.hub, claimed).startswith(b"HTTP/1.1 413 ")
    chunked = head(victim, "Content-Type: application/json", "Transfer-Encoding: chunked")
    pieces = b"".join(b"10000\r\n" + b" " * 65536 + b"\r\n" for _ in range(LIMIT // 65536 + 1))
    check_closed(talk(victim.hub, chunked + pieces))


BODY = config_map(b'{"a":"b"}')
MALFORMED = {
    "not HTTP": [b"\x00\x01\x02\x03" * 100],
    "another protocol": [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    "an unknown version": [b"GET / HTTP/7.3\r\n\r\n"],
    "an endless line": [b"GET /" + b"x" * 100_000],
    "an endless header": [b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000],
    "many headers": [b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 5000 + b"\r\n"],
    "a header without a name": [b"GET / HTTP/1.1\r\n: y\r\n\r\n"],
    "a header with a NUL": [b"GET / HTTP/1.1\r\nX: \x00\r\n\r\n"],
    "spaces for a method": [b"    / HTTP/1.1\r\n\r\n"],
}


@pytest.mark.parametrize("pieces", MALFORMED.values(), ids=list(MALFORMED))
def test_what_is_no_request_is_refused_or_cut_off(victim: Victim, pieces: list[bytes]) -> None:
    check_closed(talk(victim.hub, b"".join(pieces) + b"\r\n\r\n"))


def test_lengths_that_contradict_each_other_smuggle_nothing(victim: Victim) -> None:
    smuggled = head(victim, "Content-Type: application/json", f"Content-Length: {len(BODY)}") + BODY
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


def test_bytes_that_are_not_tls_are_cut_off(victim: Victim) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x00" * 1000, b"\xff" * 70_000):
        address = (victim.hub.address.hostname, victim.hub.port)
        with socket.create_connection(address, timeout=PATIENCE) as plain, suppress(ConnectionError):
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(1 << 16):
                pass


def test_half_open_and_slow_clients_keep_nobody_waiting(victim: Victim) -> None:
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
