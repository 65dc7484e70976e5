"""Every verb against a hub, and lists and watches that are cut anywhere."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hub_harness import ADMIN_TOKEN, USER_TOKEN, LocalHub
from hypothesis import given
from hypothesis import strategies as st
from local_transport import LocalTransport
from scripted_server import Scripted, ScriptedServer, failure, query_of, said

from farflung.apis.names import Collection
from farflung.client import rest
from farflung.client.errors import (
    AlreadyExists,
    ClientError,
    Expired,
    Forbidden,
    Invalid,
    InvalidResponse,
    NotFound,
    Refused,
    TooMany,
    Unauthorized,
    Unreachable,
    UpdateConflict,
    response_error,
    status_error,
)
from farflung.client.rest import Client, ListOptions, PatchType
from farflung.client.transport import OutgoingRequest

MAPS = Collection("", "v1", "configmaps", "ConfigMap")
DEPLOYMENTS = Collection("apps", "v1", "deployments", "Deployment")
ACCOUNTS = Collection("", "v1", "serviceaccounts", "ServiceAccount")
WIDGETS = Collection("acme.io", "v1", "widgets", "Widget")


async def client_of(hub: LocalHub, token: str = ADMIN_TOKEN) -> Client:
    return Client(LocalTransport(hub.function, token), manager="tester")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"a": name[0]}},
        "data": data,
    }


# --- a hub ------------------------------------------------------------------------------------------


async def test_an_object_is_created_read_updated_patched_applied_and_deleted() -> None:
    client = await client_of(await LocalHub.in_memory().furnish())
    created = await client.create(MAPS, config_map("one", a="1"), "default")
    assert created["metadata"]["managedFields"][0]["manager"] == "tester"
    assert await client.get(MAPS, "one", "default") == created
    updated = await client.update(MAPS, {**created, "data": {"a": "2"}})
    with pytest.raises(UpdateConflict):
        await client.update(MAPS, {**created, "data": {"a": "3"}})
    patched = await client.patch(MAPS, "one", {"data": {"b": "x"}}, "default")
    assert patched["data"] == {"a": "2", "b": "x"}
    add = [{"op": "add", "path": "/data/c", "value": "y"}]
    patched = await client.patch(MAPS, "one", add, "default", how=PatchType.JSON)
    assert patched["data"] == {"a": "2", "b": "x", "c": "y"}
    applied = await client.apply(MAPS, config_map("one", d="z"))
    assert applied["data"]["d"] == "z"
    with pytest.raises(UpdateConflict):
        await Client(client.transport, manager="other").apply(MAPS, config_map("one", d="theirs"))
    forced = await Client(client.transport, manager="other").apply(MAPS, config_map("one", d="theirs"), force=True)
    assert forced["data"]["d"] == "theirs"
    with pytest.raises(UpdateConflict):
        await client.delete(MAPS, "one", "default", uid="another")
    with pytest.raises(UpdateConflict):
        await client.delete(MAPS, "one", "default", version=updated["metadata"]["resourceVersion"])
    await client.delete(MAPS, "one", "default", uid=created["metadata"]["uid"], propagation="Background")
    with pytest.raises(NotFound):
        await client.get(MAPS, "one", "default")


async def test_subresources_are_written_and_read() -> None:
    client = await client_of(await LocalHub.in_memory().furnish())
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, "default")
    changed = await client.update(DEPLOYMENTS, {**made, "status": {"replicas": 3}}, "status")
    assert changed["status"]["replicas"] == 3
    scaled = await client.patch(DEPLOYMENTS, "d", {"spec": {"replicas": 5}}, "default", "scale")
    assert scaled["kind"] == "Scale"
    assert (await client.get(DEPLOYMENTS, "d", "default", "scale"))["spec"]["replicas"] == 5
    request = {"metadata": {"name": "default"}, "spec": {"expirationSeconds": 3600}}
    assert (await client.create(ACCOUNTS, request, "default", "token"))["status"]["token"]


async def test_a_list_is_all_pages_and_may_be_selected() -> None:
    hub = await LocalHub.in_memory().furnish()
    client = await client_of(hub)
    names = [f"{letter}{number}" for letter in "ab" for number in range(4)]
    for name in names:
        await client.create(MAPS, config_map(name), "default")
    assert [one["metadata"]["name"] for one in await client.list(MAPS)] == names
    pages = [len(page.items or ()) async for page in client.pages(MAPS, size=3)]
    assert pages == [3, 3, 2]
    only = await client.list(MAPS, ListOptions("default", "a=a", "metadata.name!=a1"))
    assert [one["metadata"]["name"] for one in only] == ["a0", "a2", "a3"]
    assert await client.list(MAPS, ListOptions("elsewhere")) == []
    await client.delete_collection(MAPS, ListOptions("default", "a=a"))
    assert [one["metadata"]["name"] for one in await client.list(MAPS)] == names[4:]


async def test_refusals_have_the_class_that_tells_what_to_do() -> None:
    hub = await LocalHub.in_memory().furnish()
    client = await client_of(hub)
    await client.create(MAPS, config_map("one"), "default")
    with pytest.raises(AlreadyExists) as raised:
        await client.create(MAPS, config_map("one"), "default")
    assert (raised.value.status, raised.value.reason) == (409, "AlreadyExists")
    assert str(raised.value) == 'configmaps "one" already exists'
    assert raised.value.details["kind"] == "configmaps"
    with pytest.raises(Invalid):
        await client.create(MAPS, config_map("Not A Name"), "default")
    with pytest.raises(Forbidden):
        await (await client_of(hub, USER_TOKEN)).list(MAPS)
    with pytest.raises(Unauthorized):
        await (await client_of(hub, "nobody's")).list(MAPS)
    with pytest.raises(Refused) as ahead:
        async for _ in client.watch(MAPS, "999999999999", seconds=1):
            pass
    assert (ahead.value.is_future_version, raised.value.is_future_version) == (True, False)


async def test_a_watch_tells_what_happens_after_a_version_until_it_is_cut() -> None:
    client = await client_of(await LocalHub.in_memory().furnish())
    transport = client.transport
    assert isinstance(transport, LocalTransport)
    version = (await client.create(MAPS, config_map("before"), "default"))["metadata"]["resourceVersion"]
    heard: list[tuple[str, str]] = []
    enough = asyncio.Event()

    async def listen() -> None:
        async for events in client.watch(MAPS, version, ListOptions("default", "a=o"), seconds=60):
            heard.extend((event.type, orjson.loads(bytes(event.object))["metadata"]["name"]) for event in events)
            if len(heard) == 2:
                enough.set()

    listening = asyncio.create_task(listen())
    await client.create(MAPS, config_map("one"), "default")
    await client.create(MAPS, config_map("two"), "default")
    await client.delete(MAPS, "one", "default")
    async with asyncio.timeout(60):
        await enough.wait()
    transport.cut()
    with pytest.raises(Unreachable):
        await listening
    assert heard == [("ADDED", "one"), ("DELETED", "one")]


async def test_deleting_without_a_name_is_a_mistake_and_deletes_nothing() -> None:
    server = ScriptedServer(lambda request: said({}))
    with pytest.raises(ValueError, match="would delete everything"):
        await Client(server).delete(MAPS, "", "default")
    assert server.requests == []


# --- paths ------------------------------------------------------------------------------------------


async def test_names_and_clusters_stay_within_their_part_of_the_path() -> None:
    server = ScriptedServer(lambda request: said({}))
    client = Client(server)
    await client.workspace("root:a/../../b?c#d").get(WIDGETS, "x/../y?z", "n/m")
    await client.view("https://elsewhere.example/services/apiexport/x/y/", "*").get(WIDGETS, "w")
    await client.at("/other").get(MAPS, "m", "n", "status")
    assert [request.target for request in server.requests] == [
        "/clusters/root:a%2F..%2F..%2Fb%3Fc%23d/apis/acme.io/v1/namespaces/n%2Fm/widgets/x%2F..%2Fy%3Fz",
        "/services/apiexport/x/y/clusters/*/apis/acme.io/v1/widgets/w",
        "/other/api/v1/namespaces/n/configmaps/m/status",
    ]


# --- lists that go wrong ----------------------------------------------------------------------------


def page(*names: str, more: str = "") -> Scripted:
    items = [{"metadata": {"name": name}} for name in names]
    return said({"metadata": {"resourceVersion": "7", "continue": more}, "items": items})


async def test_a_list_whose_next_page_is_too_old_or_cut_is_no_list() -> None:
    for second in (failure(410, "Expired"), Scripted(200, [Unreachable("reset")]), Scripted(200, [b'{"items":['])):
        server = ScriptedServer(
            lambda request, second=second: second if "continue" in query_of(request) else page("a", more="m")
        )
        with pytest.raises((Expired, Unreachable, InvalidResponse)):
            await Client(server).list(WIDGETS)


async def test_a_list_that_leads_back_to_itself_is_given_up() -> None:
    server = ScriptedServer(lambda request: page("a", more="again"))
    with pytest.raises(InvalidResponse, match="without an end"):
        await Client(server).list(WIDGETS)
    assert len(server.requests) == 2


NONSENSE = [
    b"",
    b"null",
    b"[]",
    b"<html>",
    b"[" * 100_000,
    b'{"items":{}}',
    b'{"metadata":{"continue":"\xff"}}',
    b'{"items":[1]}',
]


@pytest.mark.parametrize("body", NONSENSE)
async def test_what_is_no_list_is_garbled(body: bytes) -> None:
    with pytest.raises(InvalidResponse):
        await Client(ScriptedServer(lambda request: Scripted(200, [body]))).list(WIDGETS)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"<html>", b"[" * 100_000, b'{"a":"\xff"}'])
async def test_what_is_no_object_is_garbled(body: bytes) -> None:
    with pytest.raises(InvalidResponse):
        await Client(ScriptedServer(lambda request: Scripted(200, [body]))).get(WIDGETS, "a")


# --- watches ----------------------------------------------------------------------------------------


def event(number: int) -> bytes:
    return orjson.dumps({"type": "ADDED", "object": {"metadata": {"name": f"w{number}"}}}) + b"\n"


async def heard_of(chunks: Sequence[bytes | Exception]) -> tuple[list[str], ClientError | None]:
    names: list[str] = []
    try:
        async for events in Client(ScriptedServer(lambda _: Scripted(200, chunks))).watch(WIDGETS, "1", seconds=9):
            names += [orjson.loads(bytes(one.object))["metadata"]["name"] for one in events]
    except ClientError as error:
        return names, error
    return names, None


@given(st.integers(0, 5), st.lists(st.integers(0, 300), max_size=8), st.integers(0, 300))
async def test_a_watch_cut_anywhere_tells_the_whole_events_before_and_nothing_else(
    count: int, cuts: list[int], end: int
) -> None:
    stream = b"".join(event(number) for number in range(count))
    sent = stream[:end]
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    chunks = [sent[a:b] for a, b in itertools.pairwise(edges)]
    names, error = await heard_of(chunks)
    whole = sent.count(b"\n")
    assert names == [f"w{number}" for number in range(whole)]
    assert (error is None) == (sent.endswith(b"\n") or not sent)
    names, error = await heard_of([*chunks, Unreachable("reset")])
    assert names == [f"w{number}" for number in range(whole)]
    assert isinstance(error, Unreachable)


LINES = [
    b"<html>",
    b"{}",
    b'{"type":5,"object":{}}',
    b'{"type":"ADDED"}',
    b'{"type":"\xff","object":{}}',
    b'{"object":' + b"[" * 100_000,
]


@pytest.mark.parametrize("line", LINES)
async def test_a_line_that_is_no_event_ends_the_watch_after_those_before_it(line: bytes) -> None:
    names, error = await heard_of([event(0) + line + b"\n" + event(1)])
    assert names == ["w0"]
    assert isinstance(error, InvalidResponse)


async def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "LONGEST_EVENT", 1000)
    names, error = await heard_of([event(0), *[b"x" * 100] * 20])
    assert names == ["w0"]
    assert isinstance(error, InvalidResponse)
    assert str(error) == "an event without an end"


async def test_a_refused_watch_is_a_refusal() -> None:
    server = ScriptedServer(lambda request: failure(429, "TooManyRequests", retry_after="3"))
    with pytest.raises(TooMany) as raised:
        async for _ in Client(server).watch(WIDGETS, "5", ListOptions("n", "a=b"), seconds=77):
            pass
    assert raised.value.retry_after == 3.0
    assert query_of(server.requests[0]) == {
        "labelSelector": "a=b",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "77",
    }


# --- what refusals say ------------------------------------------------------------------------------


def test_answers_of_proxies_are_refusals_too() -> None:
    error = response_error(502, b"<html>bad gateway" + b"x" * 1000 + b"</html>")
    assert (type(error), error.status, error.reason, len(error.message)) == (Refused, 502, "", 300)
    assert str(response_error(503, b"")) == "the server answered 503"
    assert str(response_error(302, b"\xff")) == "\ufffd"
    assert response_error(500, b"[" * 100_000).status == 500
    assert response_error(500, b'{"kind":"Status","message":5,"reason":[],"details":7}').message == ""


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("5", {}, 5.0),
        ("", {"retryAfterSeconds": 7}, 7.0),
        ("5", {"retryAfterSeconds": 7}, 5.0),
        ("", {}, None),
        ("-1", {"retryAfterSeconds": -1}, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", {"retryAfterSeconds": True}, None),
        ("9" * 50, {"retryAfterSeconds": 10**30}, None),
        ("٣", {}, None),
    ],
)
def test_how_long_to_wait_is_what_the_server_says(header: str, details: dict[str, Any], seconds: float | None) -> None:
    assert status_error(429, {"details": details}, header).retry_after == seconds


def test_an_expired_version_is_known_by_its_reason_too() -> None:
    assert isinstance(status_error(0, {"reason": "Expired"}), Expired)
    assert isinstance(status_error(410, {"reason": "Gone"}), Expired)


def _request_of(server: ScriptedServer) -> OutgoingRequest:
    [request] = server.requests
    return request


async def test_the_field_manager_is_sent_with_every_write_and_nothing_else() -> None:
    for verb, expected in (("get", {}), ("delete", {}), ("patch", {"fieldManager": "me"})):
        server = ScriptedServer(lambda request: said({}))
        client = Client(server, manager="me")
        await (client.patch(MAPS, "a", {}) if verb == "patch" else getattr(client, verb)(MAPS, "a"))
        assert query_of(_request_of(server)) == expected
