"""Whatever comes in: an answer, never an exception, never a fault of ours, and nothing is stored by what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from examples import examples
from hostile import ask
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL_LIST,
    PODS,
    PROTOBUF,
    SERVICES,
    STRATEGIC_PATCH,
    TABLE,
    LocalHub,
    deployment,
    pod,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farflung.http.messages import Request

SERVICE = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
SCALE = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d"}, "spec": {"replicas": 3}}
APPLIED = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment("d", replicas=2)}
BINDING = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
AUTOSCALERS = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
AUTOSCALER = {
    "metadata": {"name": "h"},
    "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
}

#: (method, path, query, content type, body): what good clients send
GOOD: list[tuple[str, str, str, str, Any]] = [
    ("GET", CONFIG_MAPS, "limit=1", "", None),
    ("GET", "/api/v1/configmaps", "labelSelector=a%3Db&fieldSelector=metadata.name%3Da", "", None),
    ("GET", CONFIG_MAPS, "watch=1&timeoutSeconds=5&allowWatchBookmarks=true", "", None),
    ("GET", "/api/v1/watch/namespaces/default/configmaps/a", "resourceVersion=2", "", None),
    ("GET", f"{CONFIG_MAPS}/a", "resourceVersion=0", "", None),
    ("POST", CONFIG_MAPS, "fieldManager=me", "application/json", {"metadata": {"name": "b"}, "data": {"k": "v"}}),
    ("POST", CONFIG_MAPS, "", "application/yaml", "metadata:\n  generateName: b-\ndata: {k: v}\n"),
    ("POST", PODS, "dryRun=All", "application/json", pod("q", volumes=[{"name": "v", "emptyDir": {}}])),
    ("POST", DEPLOYMENTS, "fieldValidation=Strict", "application/json", deployment("e")),
    ("POST", SERVICES, "", "application/json", {**SERVICE, "metadata": {"name": "t"}}),
    ("POST", AUTOSCALERS, "", "application/json", AUTOSCALER),
    ("POST", "/api/v1/namespaces", "", "application/json", {"metadata": {"name": "other", "labels": {"a": "b"}}}),
    ("PUT", f"{CONFIG_MAPS}/a", "", "application/json", {"metadata": {"name": "a"}, "data": {"k": "w"}}),
    ("PUT", f"{DEPLOYMENTS}/d/scale", "", "application/json", SCALE),
    ("PUT", f"{DEPLOYMENTS}/d/status", "", "application/json", {**deployment("d"), "status": {"replicas": 1}}),
    ("PUT", "/api/v1/namespaces/default/finalize", "", "application/json", {"metadata": {"name": "default"}}),
    ("PATCH", f"{CONFIG_MAPS}/a", "", MERGE_PATCH, {"metadata": {"labels": {"c": "d"}}, "data": {"k": None}}),
    ("PATCH", f"{PODS}/p", "", STRATEGIC_PATCH, {"spec": {"containers": [{"name": "main", "image": "i"}]}}),
    ("PATCH", f"{CONFIG_MAPS}/a", "", JSON_PATCH, [{"op": "add", "path": "/data/l", "value": "v"}]),
    ("PATCH", f"{DEPLOYMENTS}/d", "fieldManager=m&force=1", APPLY_PATCH, APPLIED),
    ("PATCH", f"{DEPLOYMENTS}/d/scale", "", MERGE_PATCH, {"spec": {"replicas": 2}}),
    ("PATCH", f"{SERVICES}/s", "", STRATEGIC_PATCH, {"spec": {"ports": [{"port": 81, "$patch": "delete"}]}}),
    ("DELETE", f"{CONFIG_MAPS}/a", "propagationPolicy=Foreground", "", None),
    ("DELETE", f"{PODS}/p", "", "application/json", {"gracePeriodSeconds": 5, "preconditions": {"uid": "x"}}),
    ("DELETE", CONFIG_MAPS, "labelSelector=a", "", None),
    ("POST", f"{PODS}/p/binding", "", "application/json", BINDING),
    ("POST", f"{PODS}/p/eviction", "", "application/json", {"metadata": {"name": "p"}}),
    ("GET", f"{PODS}/p/log", "", "", None),
    ("GET", "/apis", "", "", None),
    ("GET", "/openapi/v3/apis/apps/v1", "", "", None),
    ("GET", "/openapi/v2", "", "", None),
    ("GET", "/healthz/ping", "verbose", "", None),
    ("GET", "/clusters/root/api/v1/namespaces", "", "", None),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "",
        "application/json",
        {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
    ),
]

DEEP_LIST = "[" * 100_000 + "]" * 100_000
DEEP_OBJECT = '{"a":' * 50_000 + "1" + "}" * 50_000


def nested(depth: int) -> Any:
    value: Any = {"k": "v"}
    for _ in range(depth):
        value = {"a": value}
    return value


texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "a",
            "default",
            "..",
            ".",
            "/",
            "//",
            "\x00",
            "a\x00b",
            "a/b",
            "*",
            "é",
            "\ud7ff",
            "\U0001f600",
            "\n",
            "-1",
            "0",
            "9" * 30,
            "9" * 5000,
            "1e999",
            "NaN",
            "true",
            "All",
            "null",
            "$patch",
            "a" * 300,
            "%",
            '"',
            "\\",
            "\x7f",
        ]
    ),
    st.text(max_size=8),
)
numbers = st.one_of(
    st.sampled_from([0, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, 1e22]),
    st.integers(-(10**20), 10**20),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
names = st.one_of(
    texts,
    st.sampled_from(
        [
            "metadata",
            "name",
            "namespace",
            "spec",
            "status",
            "data",
            "labels",
            "annotations",
            "finalizers",
            "uid",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "generateName",
            "kind",
            "apiVersion",
            "op",
            "path",
            "$patch",
            "$retainKeys",
            "$setElementOrder/ports",
            "$deleteFromPrimitiveList/finalizers",
            "replicas",
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
            "containers",
            "ports",
            "fieldsV1",
            "time",
        ]
    ),
)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
) | st.builds(nested, st.integers(200, 300))


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with something else somewhere in it."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        changed = dict(value)
        key = draw(st.sampled_from(sorted(value)))
        match draw(st.integers(0, 5)):
            case 0:
                del changed[key]
            case 1:
                changed[draw(names)] = draw(junk)
            case _:
                changed[key] = draw(mutated(value[key]))
        return changed
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        changed_list = list(value)
        position = draw(st.integers(0, len(value) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                changed_list.append(value[position])
            case 1:
                changed_list.insert(position, draw(junk))
            case _:
                changed_list[position] = draw(mutated(value[position]))
        return changed_list
    return draw(junk)


@st.composite
def encoded(draw: st.DrawFn, value: Any) -> bytes:
    raw = b"" if value is None else value.encode() if isinstance(value, str) else json.dumps(value).encode()
    match draw(st.integers(0, 12)):
        case 0:
            position = draw(st.integers(0, len(raw)))
            return raw[:position] + draw(st.binary(max_size=4)) + raw[position + draw(st.integers(0, 4)) :]
        case 1:
            return draw(st.binary(max_size=20))
        case 2:
            return raw.replace(b'"', b'"\xff\xfe', draw(st.integers(1, 3)))
    return raw


@st.composite
def mangled_path(draw: st.DrawFn, path: str) -> str:
    parts = path.split("/")
    match draw(st.integers(0, 9)):
        case 0:
            position = draw(st.integers(0, len(parts) - 1))
            parts[position] = draw(
                st.sampled_from(
                    ["", "%", "%zz", "%2F", "a%2Fb", "a%2F%2Fb", "%00", "%2e%2e", "..", "%ff", "*", "watch"]
                )
                | st.text(st.characters(max_codepoint=255), max_size=6)
            )
        case 1:
            parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(["", "x", "status", "namespaces"])))
        case 2:
            del parts[draw(st.integers(0, len(parts) - 1)) :]
        case 3:
            return path + draw(st.sampled_from(["/", "//", "/status", "/scale", "/x/y/z", "%", "?", "#", ";a=b"]))
    return "/".join(parts)


PARAMETERS = (
    *("watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"),
    *("timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "dryRun", "fieldManager", "fieldValidation"),
    *("force", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "includeObject", "pretty"),
)
values = texts | st.sampled_from(
    [
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJhXHUwMDAwIn0",
        "a in (b,c)",
        "!a",
        "a=b=c",
        "(",
        "Exact",
        "NotOlderThan",
        "1",
        "2",
        "99999999999",
        "Foreground",
        "Orphan",
        "Strict",
        "Ignore",
        "Metadata",
        "a,b",
        "a>1",
    ]
)


@st.composite
def mangled_query(draw: st.DrawFn, query: str) -> str:
    pieces = query.split("&") if query else []
    for _ in range(draw(st.integers(0, 3))):
        pieces.append(f"{draw(st.sampled_from(PARAMETERS))}={quote(draw(values))}")
    if not draw(st.integers(0, 15)):
        pieces.append(draw(st.text(st.characters(max_codepoint=255), max_size=10)))
    return "&".join(pieces)


MEDIA = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        PROTOBUF,
        JSON_PATCH,
        MERGE_PATCH,
        STRATEGIC_PATCH,
        APPLY_PATCH,
        "",
        "text/plain",
        ";",
        "application/json;charset=utf-16",
        "ÿ",
    ]
)
ACCEPTS = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        PROTOBUF,
        TABLE,
        PARTIAL_LIST,
        "*/*",
        "",
        ",;q=",
        "application/json;q=x",
        "application/json;stream=watch",
        f"{PROTOBUF};stream=watch",
        "image/png",
        f"{TABLE},application/json",
        "é",
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    method, path, query, content_type, body = draw(st.sampled_from(GOOD))
    headers = {"authorization": "Bearer the-token-of-the-administrator"}
    if content_type:
        headers["content-type"] = content_type
    if not draw(st.integers(0, 9)):
        headers["content-type"] = draw(MEDIA)
    if not draw(st.integers(0, 4)):
        headers["accept"] = draw(ACCEPTS)
    if not draw(st.integers(0, 9)):
        headers["user-agent"] = draw(st.text(st.characters(max_codepoint=255), max_size=200))
    if not draw(st.integers(0, 19)):
        headers["authorization"] = draw(st.text(st.characters(max_codepoint=255), max_size=20))
    if not draw(st.integers(0, 19)):
        name = draw(
            st.sampled_from(["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-a"])
        )
        headers[name] = draw(st.text(st.characters(max_codepoint=255), max_size=20))
    if not draw(st.integers(0, 9)):
        method = draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "", "get", "é"]))
    if body is not None and not isinstance(body, str):
        for _ in range(draw(st.integers(0, 3))):
            body = draw(mutated(body))
    return Request(method, draw(mangled_path(path)), draw(mangled_query(query)), headers, draw(encoded(body)))


async def furnished() -> LocalHub:
    hub = await LocalHub.in_memory().furnish()
    await hub.config_map("a", {"a": "b"}, k="v")
    await hub.create(DEPLOYMENTS, deployment("d"))
    await hub.create(PODS, pod("p"))
    await hub.create(SERVICES, SERVICE)
    return hub


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=1, max_size=6))
def test_no_request_brings_the_hub_down(sent: list[Request]) -> None:
    async def run() -> None:
        hub = await furnished()
        for request in sent:
            await ask(hub, request)
        everything = await hub.get("/api/v1/configmaps")
        assert everything.status == 200
        assert hub.watches.count == 0

    asyncio.run(run())


async def test_what_good_clients_send_is_good() -> None:
    """Otherwise the mutations above would all die at the door."""
    for method, path, query, content_type, body in GOOD:
        hub = await furnished()
        raw = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = {"authorization": "Bearer the-token-of-the-administrator", "content-type": content_type}
        status = await ask(hub, Request(method, path, query, headers, raw))
        refused = path.endswith(("/log", "/binding", "/eviction")) or "preconditions" in raw.decode()
        assert status < 300 or refused, (method, path, status)


BODIES = [DEEP_LIST, DEEP_OBJECT, '{"metadata":{"name":"b"},"data":' + DEEP_OBJECT + "}", "[" * 3_000_000]


@pytest.mark.parametrize("body", BODIES, ids=["list", "object", "inside", "open"])
@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("POST", CONFIG_MAPS, "application/json"),
        ("POST", CONFIG_MAPS, "application/yaml"),
        ("POST", CONFIG_MAPS, PROTOBUF),
        ("PUT", f"{CONFIG_MAPS}/a", "application/json"),
        ("PATCH", f"{CONFIG_MAPS}/a", MERGE_PATCH),
        ("PATCH", f"{CONFIG_MAPS}/a", JSON_PATCH),
        ("PATCH", f"{CONFIG_MAPS}/a", STRATEGIC_PATCH),
        ("PATCH", f"{CONFIG_MAPS}/a", APPLY_PATCH),
        ("DELETE", f"{CONFIG_MAPS}/a", "application/json"),
        ("PUT", f"{DEPLOYMENTS}/d/scale", "application/json"),
    ],
)
async def test_endless_nesting_is_a_bad_request(method: str, path: str, content_type: str, body: str) -> None:
    hub = await furnished()
    query = "fieldManager=m" if content_type == APPLY_PATCH else ""
    headers = {"authorization": "Bearer the-token-of-the-administrator", "content-type": content_type}

    assert await ask(hub, Request(method, path, query, headers, body.encode())) in (400, 422)


REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"


@pytest.mark.parametrize("depth", range(236, 256, 3))
async def test_what_is_stored_can_be_shown_however_deep_it_is(depth: int) -> None:
    hub = await furnished()
    body = {"metadata": {"name": "deep"}, "revision": 1, "data": nested(depth)}
    table = await hub.watch(REVISIONS, {"includeObject": "Object"}, accept=TABLE)

    created = await hub.post(REVISIONS, body)
    added = await hub.patch(f"{CONFIG_MAPS}/a", [{"op": "add", "path": "/data/x", "value": body}], JSON_PATCH)

    assert created.status in (201, 400)
    assert 400 <= added.status < 500
    for accept in ("application/json", "application/yaml", PROTOBUF, TABLE, PARTIAL_LIST):
        assert (await hub.get(REVISIONS, "includeObject=Object", accept=accept)).status == 200
    assert len(table.events) == (created.status == 201)
    assert hub.watches.count == 1


async def test_lists_of_many_items_cost_no_more_than_their_length() -> None:
    """With time that grows with the square of the length, each of these takes a minute and not a moment."""
    hub = await furnished()
    owners = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": str(number)} for number in range(999)]
    finalizers = [f"example.com/{number}" for number in range(20_000)]
    metadata = {"name": "many", "ownerReferences": owners + owners[:1], "finalizers": finalizers}
    created = await hub.post(CONFIG_MAPS, {"metadata": metadata})
    assert created.json["metadata"]["ownerReferences"] == owners
    patch: Any = {"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers[1:]}}
    answer = await hub.patch(f"{CONFIG_MAPS}/many", patch, STRATEGIC_PATCH)
    assert answer.json["metadata"]["finalizers"] == finalizers[:1]

    ports = [{"name": f"p{number}", "port": number} for number in range(1, 8_000)]
    assert (await hub.put(f"{SERVICES}/s", {"metadata": {"name": "s"}, "spec": {"ports": ports}})).status == 200
    renamed = [{"port": number, "name": f"q{number}"} for number in range(1, 8_000)]
    answer = await hub.patch(f"{SERVICES}/s", {"spec": {"ports": renamed}}, STRATEGIC_PATCH)
    assert {port["name"] for port in answer.json["spec"]["ports"]} == {port["name"] for port in renamed}
    retained = {"spec": {"$retainKeys": [str(number) for number in range(50_000)]} | {str(n): 1 for n in range(50_000)}}
    assert (await hub.patch(f"{SERVICES}/s", retained, STRATEGIC_PATCH)).status < 500
