"""Bad bodies, patches, options, queries and paths: each is a 4xx Status that is not much longer, and writes nothing."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import orjson
import pytest
from hub_harness import CONFIG_MAPS, Answer, LocalHub

from farflung.machinery.errors import Obj

DEEP = 10_000
CALM = f"{CONFIG_MAPS}/calm"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@pytest.fixture
async def victim(hub: LocalHub) -> LocalHub:
    """With one ConfigMap that no bad request may change."""
    await hub.config_map("calm", {"victim": "yes"}, a="b")
    return hub


async def refuses(
    hub: LocalHub, method: str, target: str, body: object = None, content_type: str = "application/json"
) -> Answer:
    path, _, query = target.partition("?")
    headers = {"content_type": content_type} if body is not None else {}
    with hub.writes_nothing():
        answer = await hub.request(method, path, body, query=query, **headers)
    check_refusal(answer, sent=len(target) + len(body if isinstance(body, bytes) else b""))
    return answer


def check_refusal(answer: Answer, sent: int = 0) -> None:
    assert 400 <= answer.status < 500, (answer.status, answer.body[:300])
    if answer.body != b"404 page not found\n":
        status = answer.json
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
        assert status["code"] == answer.status
        assert status["message"]
        assert len(answer.body) < 20_000 + 5 * sent, "an answer multiplies the attack"


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
async def test_a_bad_object_is_refused_by_create_and_update(victim: LocalHub, body: bytes) -> None:
    await refuses(victim, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    await refuses(victim, "PUT", f"{CALM}?fieldValidation=Strict", body)


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
async def test_a_bad_yaml_document_is_refused_by_create_and_apply(victim: LocalHub, text: str) -> None:
    body = text.encode(errors="surrogateescape")
    await refuses(victim, "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body, "application/yaml")
    apply = f"{CALM}?fieldManager=evil&fieldValidation=Strict"
    await refuses(victim, "PATCH", apply, body, PATCHES["apply"])


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
async def test_a_bad_patch_is_refused(victim: LocalHub, body: bytes, content_type: str) -> None:
    await refuses(victim, "PATCH", f"{CALM}?fieldManager=evil", body, content_type)


def operations(*wanted: Obj) -> bytes:
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
async def test_bad_operations_are_refused(victim: LocalHub, body: bytes) -> None:
    await refuses(victim, "PATCH", CALM, body, PATCHES["json"])


async def test_bad_delete_options_are_refused(victim: LocalHub) -> None:
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
        await refuses(victim, "DELETE", CALM, body)
        await refuses(victim, "DELETE", f"{CONFIG_MAPS}?labelSelector=victim", body)
    await refuses(victim, "DELETE", f"{CALM}?dryRun=Some")
    await refuses(victim, "DELETE", f"{CALM}?propagationPolicy=Everything")


async def test_a_content_type_that_is_not_known_is_refused(victim: LocalHub) -> None:
    body = config_map(b'{"a":"b"}')
    for content_type in ("text/plain", "application/xml", "application/cbor", "x", "/", "application/json-patch+json"):
        assert (await refuses(victim, "POST", CONFIG_MAPS, body, content_type)).status == 415
        assert (await refuses(victim, "PUT", CALM, body, content_type)).status == 415
    for content_type in ("application/json", "text/plain", "application/yaml", "x" * 5000):
        assert (await refuses(victim, "PATCH", CALM, b"{}", content_type)).status == 415
    answer = await victim.get(CONFIG_MAPS, accept="text/html")
    check_refusal(answer)
    assert answer.status == 406


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
async def test_an_absurd_query_is_refused(victim: LocalHub, query: str) -> None:
    await refuses(victim, "GET", f"{CONFIG_MAPS}?{query}")
    if "watch" not in query and "timeoutSeconds" not in query:
        await refuses(victim, "DELETE", f"{CONFIG_MAPS}?{query}")


async def test_a_selector_as_long_as_a_request_line_may_be_is_read_without_ado(victim: LocalHub) -> None:
    values = ",".join(f"v{number}" for number in range(4000))
    answer = await victim.get(CONFIG_MAPS, {"labelSelector": f"victim in (yes,{values})"})
    assert answer.names == ["calm"]
    terms = ",".join(f"k{number}!=v" for number in range(2500))
    assert (await victim.get(CONFIG_MAPS, {"labelSelector": terms})).names == ["calm"]


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
async def test_a_path_that_leads_nowhere_is_not_found(victim: LocalHub, path: str) -> None:
    await refuses(victim, "GET", path)
    for method in ("POST", "PUT", "DELETE"):
        await refuses(victim, method, path, {} if method != "DELETE" else None)
