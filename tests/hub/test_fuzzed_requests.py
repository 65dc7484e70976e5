"""Good requests, damaged where it hurts: protobuf, tokens of pages, selectors, every type of patch, headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from examples import examples
from hostile import ANYTHING, altered, ask, damaged
from hub_harness import (
    ADMIN_TOKEN,
    APPLY_PATCH,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL,
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

EXAMPLES = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))

OBJECTS: dict[str, Any] = {
    f"{CONFIG_MAPS}/a": {"metadata": {"name": "a", "labels": {"k": "v"}, "finalizers": ["e.io/f"]}, "data": {"a": "b"}},
    f"{PODS}/p": pod("p", volumes=[{"name": "v", "emptyDir": {}}], tolerations=[{"key": "k", "operator": "Exists"}]),
    f"{DEPLOYMENTS}/d": deployment("d", replicas=2, strategy={"rollingUpdate": {"maxSurge": 1}}),
    f"{SERVICES}/s": {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "p", "port": 80}, {"name": "q", "port": 81}]},
    },
}
PATHS = st.sampled_from(sorted(OBJECTS))


async def furnished() -> LocalHub:
    hub = await LocalHub.in_memory().furnish()
    for path, obj in OBJECTS.items():
        await hub.create(path.rpartition("/")[0], obj)
    return hub


def request(method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, path, query, {"authorization": f"Bearer {ADMIN_TOKEN}", **named}, body)


def run(test: Callable[[LocalHub], Awaitable[None]]) -> None:
    async def whole() -> None:
        hub = await furnished()
        await test(hub)
        for path in OBJECTS:
            answer = await hub.get(path)
            assert answer.status in (200, 404)
            assert (await hub.get(path, accept=PROTOBUF)).status == answer.status
        assert hub.watches.count == 0

    asyncio.run(whole())


@EXAMPLES
@given(PATHS, st.data(), st.sampled_from(["POST", "PUT"]))
def test_damaged_protobuf_is_refused_or_stored_whole(path: str, data: st.DataObject, method: str) -> None:
    async def test(hub: LocalHub) -> None:
        good = (await hub.get(path, accept=PROTOBUF)).body
        collection, _, _ = path.rpartition("/")
        body = data.draw(damaged(good))
        where = collection if method == "POST" else path
        await ask(hub, request(method, where, "", body, content_type=PROTOBUF, accept=PROTOBUF))
        await ask(hub, request(method, where, "dryRun=All", body, content_type=PROTOBUF))

    run(test)


@EXAMPLES
@given(st.data())
def test_damaged_tokens_of_pages_are_refused_or_go_on(data: st.DataObject) -> None:
    async def test(hub: LocalHub) -> None:
        for number in range(5):
            await hub.config_map(f"c{number}")
        token = (await hub.get(CONFIG_MAPS, {"limit": "2"})).json["metadata"]["continue"]
        for path in (CONFIG_MAPS, "/api/v1/configmaps", PODS):
            damage = data.draw(damaged(token.encode()))
            query = f"limit={data.draw(st.integers(0, 3))}&continue={quote(damage)}"
            assert await ask(hub, request("GET", path, query)) in (200, 400, 410)

    run(test)


WORDS = st.sampled_from(["k", "v", "a.b/c", "-", "metadata.name", "status.phase", "spec.nodeName", "é", "", "x" * 300])
MARKS = st.sampled_from(
    ["=", "==", "!=", "!", ",", " ", "(", ")", " in ", " notin ", ">", "<", "\\", "in(", "\x00", "+"]
)
SELECTORS = st.lists(WORDS | MARKS, max_size=14).map("".join)


@EXAMPLES
@given(st.lists(st.tuples(SELECTORS, SELECTORS), min_size=1, max_size=6))
def test_selectors_of_any_words_are_refused_or_select(selectors: list[tuple[str, str]]) -> None:
    async def test(hub: LocalHub) -> None:
        for labels, fields in selectors:
            query = f"labelSelector={quote(labels)}&fieldSelector={quote(fields)}"
            for path in (CONFIG_MAPS, PODS, "/api/v1/pods"):
                status = await ask(hub, request("GET", path, query))
                assert status in (200, 400)
                assert await ask(hub, request("GET", path, f"{query}&watch=1")) == status
            assert await ask(hub, request("DELETE", CONFIG_MAPS, f"{query}&dryRun=All")) in (200, 400)

    run(test)


@EXAMPLES
@given(PATHS, st.data())
def test_patches_of_any_type_change_what_they_may_or_nothing(path: str, data: st.DataObject) -> None:
    async def test(hub: LocalHub) -> None:
        live = (await hub.get(path)).json
        for _ in range(3):
            media = data.draw(st.sampled_from([MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]))
            body = data.draw(altered({"spec": live.get("spec", {}), "metadata": live["metadata"]}))
            if media == APPLY_PATCH and isinstance(body, dict):
                body = {"apiVersion": live["apiVersion"], "kind": live["kind"], **body}
                if isinstance(body.get("metadata"), dict):
                    body["metadata"] = {key: item for key, item in body["metadata"].items() if key != "managedFields"}
            if media == STRATEGIC_PATCH and isinstance(body, dict):
                directive = data.draw(
                    st.sampled_from(
                        ["$patch", "$retainKeys", "$setElementOrder/x", "$deleteFromPrimitiveList/finalizers"]
                    )
                )
                place = body.get("metadata") if isinstance(body.get("metadata"), dict) else body
                place[directive] = data.draw(ANYTHING | st.sampled_from(["delete", "replace", "merge"]))
            query = "fieldManager=fuzz&force=1" if media == APPLY_PATCH else ""
            raw = json.dumps(body).encode(errors="surrogatepass")
            await ask(hub, request("PATCH", path, query, raw, content_type=media))

    run(test)


POINTERS = st.lists(
    st.sampled_from(
        ["metadata", "labels", "k", "spec", "containers", "ports", "0", "1", "-", "~0", "~1", "~", "", "01", "name"]
    ),
    max_size=5,
).map(lambda parts: "".join(f"/{part}" for part in parts))
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), "path": POINTERS},
    optional={"from": POINTERS, "value": ANYTHING},
)


@EXAMPLES
@given(PATHS, st.lists(OPERATIONS, min_size=1, max_size=5))
def test_json_patches_of_any_operations_change_what_they_may_or_nothing(path: str, operations: list[Any]) -> None:
    async def test(hub: LocalHub) -> None:
        for count in range(1, len(operations) + 1):
            raw = json.dumps(operations[:count]).encode(errors="surrogatepass")
            await ask(hub, request("PATCH", path, "", raw, content_type=JSON_PATCH))

    run(test)


@EXAMPLES
@given(PATHS, st.data())
def test_altered_objects_are_refused_or_stored(path: str, data: st.DataObject) -> None:
    async def test(hub: LocalHub) -> None:
        live = (await hub.get(path)).json
        for _ in range(3):
            body = data.draw(altered(data.draw(altered(live))))
            raw = json.dumps(body).encode(errors="surrogatepass")
            query = data.draw(st.sampled_from(["", "fieldValidation=Strict", "fieldValidation=Ignore", "dryRun=All"]))
            await ask(hub, request("PUT", path, query, raw, content_type="application/json"))
            await ask(hub, request("PUT", f"{path}/status", query, raw, content_type="application/json"))
            await ask(hub, request("POST", path.rpartition("/")[0], query, raw, content_type="application/json"))

    run(test)


HEADERS = ["accept", "content-type", "user-agent", "impersonate-user", "impersonate-group", "impersonate-extra-%zz"]
PIECES = st.lists(
    st.sampled_from(
        ["application/json", PROTOBUF, TABLE, PARTIAL, ";", ",", "q=", "as=Table", "v=v1", "g=", "*/*", "/", '"', "é"]
    ),
    max_size=8,
).map("".join)


@EXAMPLES
@given(st.lists(st.dictionaries(st.sampled_from(HEADERS), PIECES, min_size=1), min_size=1, max_size=5))
def test_headers_of_any_words_are_refused_or_understood(headers: list[dict[str, str]]) -> None:
    async def test(hub: LocalHub) -> None:
        for sent in headers:
            for method, path, query in (("GET", CONFIG_MAPS, ""), ("GET", PODS, "watch=1"), ("GET", "/apis", "")):
                asked = request(method, path, query)
                await ask(hub, Request(method, path, query, {**asked.headers, **sent}, b""))
            body = b'{"metadata":{"generateName":"x-"}}'
            await ask(hub, Request("POST", CONFIG_MAPS, "dryRun=All", {**asked.headers, **sent}, body))

    run(test)


@pytest.mark.parametrize("path", sorted(OBJECTS))
async def test_good_protobuf_is_good(path: str) -> None:
    """Otherwise all damage would be refused for another reason."""
    hub = await furnished()
    good = (await hub.get(path, accept=PROTOBUF)).body
    assert await ask(hub, request("PUT", path, "", good, content_type=PROTOBUF)) == 200
