"""Lists and watches that are produced while their clients read: what they show, and what they cost in memory.

The twin of a slow client is the list of all changes: a state by revision, and the events after it.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import yaml
from examples import examples
from hub_harness import CONFIG_MAPS, PARTIAL, PARTIAL_LIST, PROTOBUF, TABLE, LocalHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from long_turns import no_long_turns
from throttled_client import ThrottledClient, server_of

from farflung.apis import wire
from farflung.http.connection import ServerState
from farflung.http.limits import Limits
from farflung.http.messages import Request, Response, Service, StreamedBody, Uncounted
from farflung.http.server import Server, listening_sockets, serve_on
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import Obj

YAML = "application/yaml"
JSON = "application/json"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def fill(hub: LocalHub, count: int, size: int) -> None:
    """ConfigMaps c00000, c00001, … with so many bytes of data."""
    await hub.config_map("c00000", k="v" * size)
    entry = hub.store.get("/core/configmaps/root/default/c00000")
    assert entry is not None
    for number in range(1, count):
        name = f"c{number:05}"
        value = entry.value.replace(b"c00000", name.encode())
        await hub.store.put(f"/core/configmaps/root/default/{name}", value, expect=0)


def names_in(body: bytes, accept: str) -> list[str]:
    match accept:
        case "application/yaml":
            items = yaml.load(body, Loader=yaml.CSafeLoader)["items"]
        case "application/vnd.kubernetes.protobuf":
            items = protobuf.decode(body, "io.k8s.api.core.v1.ConfigMapList", wire.MESSAGES).obj["items"]
        case _ if "as=Table" in accept:
            items = [row["object"] for row in orjson.loads(body)["rows"]]
        case _:
            items = orjson.loads(body)["items"]
    return [item["metadata"]["name"] for item in items]


# --- what they show -------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [JSON, TABLE, PARTIAL_LIST, YAML, PROTOBUF])
async def test_a_large_list_shows_one_revision_however_slowly_it_is_read(hub: LocalHub, accept: str) -> None:
    await fill(hub, 350, 4000)
    request = hub.prepared("GET", CONFIG_MAPS, None, "", {"accept": accept})
    whole = (await hub.get(CONFIG_MAPS, accept=accept)).body
    answer = await hub.answer(request)
    assert isinstance(answer, Response)
    assert isinstance(answer.body, StreamedBody)
    body = b""
    for number, piece in enumerate(answer.body.pieces(Uncounted())):
        body += piece
        await hub.config_map(f"between-{number}")
        await hub.delete(f"{CONFIG_MAPS}/c{349 - number:05}")
        await hub.patch(f"{CONFIG_MAPS}/c{100 + number:05}", {"data": {"k": "new"}})

    assert body == whole
    assert answer.body.size in (None, len(body))
    assert names_in(body, accept) == [f"c{number:05}" for number in range(350)]


@pytest.mark.parametrize("selector", ["labelSelector=a!%3Db", "fieldSelector=metadata.name!%3Dx"])
async def test_others_are_served_while_objects_are_selected(hub: LocalHub, selector: str) -> None:
    await fill(hub, 1000, 10)
    listing = asyncio.create_task(hub.get(CONFIG_MAPS, selector))
    await asyncio.sleep(0)
    await hub.config_map("between")
    assert not listing.done()
    assert (await listing).names == [f"c{number:05}" for number in range(1000)]
    page = await hub.get(CONFIG_MAPS, f"{selector}&limit=600")
    assert page.names[-1] == "c00598"
    rest = await hub.get(CONFIG_MAPS, f"{selector}&limit=600&continue={page.json['metadata']['continue']}")
    assert rest.names == [f"c{number:05}" for number in range(599, 1000)]


NAMES = [f"n{number}" for number in range(8)]
SIZES = st.sampled_from([10, 3_000, 20_000, 30_000])  # smaller than what worker processes compute
KINDS = ["list", "after a list", "version 0", "initial events", "old version"]
WRITES = st.tuples(st.sampled_from(["put", "put", "delete"]), st.sampled_from(NAMES), SIZES)
OPENINGS = st.tuples(st.just("open"), st.sampled_from(KINDS), st.sampled_from([JSON, PARTIAL, TABLE]))
READS = st.tuples(st.just("read"), st.integers(0, 2), st.sampled_from([1, 5_000, 70_000, 200_000]))


class History:
    """A hub with all changes of its ConfigMaps."""

    def __init__(self, hub: LocalHub) -> None:
        self.hub = hub
        self.number = 0
        self.began = hub.store.revision
        self.states: dict[int, dict[str, str]] = {self.began: {}}  #: by revision: the mark of each object
        self.events: list[Event] = []

    @property
    def state(self) -> dict[str, str]:
        return self.states[max(self.states)]

    async def write(self, verb: str, name: str, size: int) -> None:
        state, exists = dict(self.state), name in self.state
        self.number += 1
        mark = str(self.number)
        body = {"metadata": {"name": name, "labels": {"mark": mark}}, "data": {"k": "x" * size}}
        if verb == "put":
            await (self.hub.put(f"{CONFIG_MAPS}/{name}", body) if exists else self.hub.create(CONFIG_MAPS, body))
            event, state[name] = ("MODIFIED" if exists else "ADDED"), mark
        elif exists:
            await self.hub.delete(f"{CONFIG_MAPS}/{name}")
            event, mark = "DELETED", state.pop(name)
        else:
            return
        self.states[self.hub.store.revision] = state
        self.events.append((self.hub.store.revision, event, name, mark))


Event = tuple[int, str, str, str]  #: revision, type, name, mark


def seen(event: Obj) -> Event:
    """An event of any representation, as the history has it."""
    obj = event["object"]
    if obj["kind"] == "Table":
        obj = obj["rows"][0]["object"]
    metadata = obj["metadata"]
    return int(metadata["resourceVersion"]), event["type"], metadata["name"], metadata["labels"]["mark"]


class SlowReader:
    """A client, and what the history says it has to read."""

    def __init__(self, server: ServerState, history: History, kind: str, accept: str) -> None:
        self.history = history
        self.kind = kind
        self.opened = history.hub.store.revision
        self.since = history.began if kind == "old version" else self.opened
        self.initial = history.state if kind in ("version 0", "initial events") else {}
        query: dict[str, Any] = {"watch": "1"}
        match kind:
            case "list":
                query, accept = {}, accept.replace("PartialObjectMetadata;", "PartialObjectMetadataList;")
            case "after a list" | "old version":
                query["resourceVersion"] = self.since
            case "version 0":
                query["resourceVersion"] = 0
            case _:
                query |= INITIAL
        self.client = ThrottledClient(server, history.hub.prepared("GET", CONFIG_MAPS, None, query, {"accept": accept}))

    async def answered(self) -> None:
        """The hub has read the present or the past."""
        async with asyncio.timeout(60):
            while not self.client.pipe.data:
                await asyncio.sleep(0)

    @property
    def changes(self) -> list[Event]:
        return [event for event in self.history.events if event[0] > self.since]

    async def finish(self) -> None:
        """The rest is read, and checked."""
        client = self.client
        if self.kind == "list":
            await client.read_until(lambda: client.complete)
            if client.complete:
                self._check_list(orjson.loads(client.body))
        else:
            total = len(self.initial) + (self.kind == "initial events") + len(self.changes)
            await client.read_until(lambda: client.body.count(b"\n") >= total)
            assert not client.complete, "a client that was disconnected must not take it for a regular end"
            self._check_watch(client.events)

    def _check_list(self, document: Obj) -> None:
        assert document["metadata"]["resourceVersion"] == str(self.opened)
        items = [row["object"] for row in document["rows"]] if "rows" in document else document["items"]
        read = {item["metadata"]["name"]: item["metadata"]["labels"]["mark"] for item in items}
        assert read == self.history.states[self.opened]

    def _check_watch(self, events: list[Obj]) -> None:
        """The state at the opening and then every change once, or the beginning of that."""
        initial = [("ADDED", name, self.initial[name]) for name in sorted(self.initial)]
        assert [seen(event)[1:] for event in events[: len(initial)]] == initial[: len(events)]
        events = events[len(initial) :]
        if self.kind == "initial events" and events:
            metadata = events[0]["object"]["metadata"]
            assert (events[0]["type"], metadata["resourceVersion"]) == ("BOOKMARK", str(self.opened))
            events = events[1:]
        read = [seen(event) for event in events]
        assert read == self.changes[: len(read)]
        assert self.client.pipe.closed or read == self.changes


@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(
    st.lists(WRITES, min_size=3, max_size=15),
    st.lists(st.one_of(WRITES, READS, READS, OPENINGS), max_size=30),
    st.sampled_from([Limits(), Limits(write_buffer=1000), Limits(unread=150_000), Limits(stream_buffer=50_000)]),
)
async def test_a_slow_client_reads_every_change_once_or_is_disconnected(
    before: list[Any], steps: list[Any], limits: Limits
) -> None:
    hub = await LocalHub.in_memory().furnish()
    history, server = History(hub), server_of(hub.assembly, limits)
    readers: list[SlowReader] = []
    for write in before:
        await history.write(*write)
    for step, what, how in [("open", "initial events", JSON), *steps]:
        match step:
            case "open":
                readers.append(SlowReader(server, history, what, how))
                await readers[-1].answered()
            case "read":
                readers[what % len(readers)].client.read(how)
                await asyncio.sleep(0)
            case _:
                await history.write(step, what, how)
        assert server.unread.total <= limits.unread
    for reader in readers:
        await reader.finish()
        if limits == Limits():
            assert not reader.client.pipe.closed
    for reader in readers:
        reader.client.pipe.abort()
    await asyncio.sleep(0)
    assert server.unread.total == 0
    hub.close()


async def test_a_client_that_comes_later_sees_later_objects_than_a_slow_one(hub: LocalHub) -> None:
    await fill(hub, 100, 4000)
    server = server_of(hub.assembly, Limits())
    request = hub.prepared("GET", CONFIG_MAPS, None, {"watch": "1"}, {})
    slow, like_it = ThrottledClient(server, request), ThrottledClient(server, request)
    async with asyncio.timeout(60):
        while not (slow.pipe.paused and like_it.pipe.paused):
            await asyncio.sleep(0)
    await hub.config_map("later")
    late = ThrottledClient(server, request)
    for client in (slow, like_it, late):
        await client.read_until(lambda client=client: client.body.count(b"\n") == 101)
    names = [seen[-1]["object"]["metadata"]["name"] for seen in (slow.events, like_it.events, late.events)]
    assert names == ["later"] * 3
    assert sorted(slow.body.splitlines()) == sorted(like_it.body.splitlines()) == sorted(late.body.splitlines())


async def test_the_first_event_of_a_table_has_its_columns_and_no_other_one(hub: LocalHub) -> None:
    await fill(hub, 300, 4000)
    for query in ({"resourceVersion": 0}, {"resourceVersion": 1}):
        watch = await hub.watch(CONFIG_MAPS, query, accept=TABLE)
        events = await watch.next(300)
        assert [number for number, event in enumerate(events) if event["object"]["columnDefinitions"]] == [0]
        watch.leave()


# --- what they cost -------------------------------------------------------------------------------

CLIENTS = 2  #: of each kind
UNREAD = [
    ("", JSON),
    ("", TABLE),
    ("", PARTIAL_LIST),
    ("", YAML),
    ("", PROTOBUF),
    ("labelSelector=a!%3Db", JSON),
    ("watch=1&resourceVersion=0", JSON),
    ("watch=1&resourceVersion=0", TABLE),
    ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", PARTIAL),
    ("watch=1&resourceVersion=1", JSON),
]


@asynccontextmanager
async def served(hub: LocalHub, limits: Limits) -> AsyncIterator[Server]:
    control = hub.assembly.flow_control
    service = Service(control, hub.assembly.hub.admit, control.flow_of)
    server = await serve_on(await listening_sockets("127.0.0.1", 0), service, tls=None, limits=limits)
    try:
        yield server
    finally:
        await server.stop(0)


def http(request: Request) -> bytes:
    headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{request.method} {request.path}?{request.query} HTTP/1.1\r\nhost: hub\r\n{headers}\r\n".encode()


async def connect(server: Server, request: Request) -> socket.socket:
    """A client that sends a request and reads nothing."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, http(request))
    return client


async def test_no_kind_of_reading_holds_a_turn(hub: LocalHub) -> None:
    await fill(hub, 1_500, 10_000)
    async with served(hub, Limits()) as server, no_long_turns():
        for query, accept in UNREAD:
            request = hub.prepared("GET", CONFIG_MAPS, None, query, {"accept": accept, "connection": "close"})
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(http(request))
            received = 0
            while part := await reader.read(1 << 20):
                received += len(part)
                if query.startswith("watch") and received > 500_000:
                    break
            assert received > 500_000
            writer.close()


async def test_an_event_for_many_watches_holds_no_turn(hub: LocalHub) -> None:
    selectors = [{"labelSelector": f"a!={number}"} for number in range(150)]
    watches = [await hub.watch(CONFIG_MAPS, selector, accept=TABLE) for selector in selectors]
    async with no_long_turns():
        await hub.config_map("large", **{f"k{number}": "v" for number in range(2_500)})
        for watch in watches:
            assert len(await watch.next(1)) == 1


async def test_clients_that_read_nothing_share_the_stored_bytes(hub: LocalHub) -> None:
    await fill(hub, 1_500, 10_000)
    async with served(hub, Limits(stall_timeout=3600)) as server:
        tracemalloc.start()
        try:
            clients = [
                await connect(server, hub.prepared("GET", CONFIG_MAPS, None, query, {"accept": accept}))
                for query, accept in UNREAD * CLIENTS
            ]
            connections = server._shared.connections
            async with asyncio.timeout(60):
                while len(connections) < len(clients) or not all(each.writing_paused for each in connections):
                    await asyncio.sleep(0.01)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        buffered = sum(connection.buffered for connection in connections)
        assert buffered <= server.unread_bytes < len(clients) * 500_000 + 16_000_000  # and the old changes, once
        assert most < len(clients) * 1_000_000  # each would be 15 MB
        for client in clients:
            client.close()


async def test_replaced_objects_are_counted_while_a_client_that_reads_nothing_holds_them(hub: LocalHub) -> None:
    await fill(hub, 100, 10_000)
    async with served(hub, Limits(stall_timeout=3600)) as server:
        for query in ("", "watch=1&resourceVersion=0"):
            clients = [await connect(server, hub.prepared("GET", CONFIG_MAPS, None, query, {})) for _ in range(3)]
            async with asyncio.timeout(60):
                while sum(each.writing_paused for each in server._shared.connections) < 3:
                    await asyncio.sleep(0.01)
            before = server.unread_bytes
            for number in itertools.chain(range(50), range(50)):
                change = {"data": {"k": f"{hub.store.revision:05}" * 2_000}}
                await hub.patch(f"{CONFIG_MAPS}/c{number:05}", change)
            count = 50 + 100 * bool(query)  # the events wait for all three watches
            async with asyncio.timeout(60):
                while not count * 10_000 <= server.unread_bytes - before < count * 11_000:
                    await asyncio.sleep(0.01)
            for client in clients:
                client.close()
            async with asyncio.timeout(60):
                while server.unread_bytes:
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("query", ["", "watch=1&resourceVersion=0"])
async def test_a_client_that_reads_nothing_is_disconnected(hub: LocalHub, query: str) -> None:
    await fill(hub, 100, 10_000)
    async with served(hub, Limits(stall_timeout=0.1)) as server:
        client = await connect(server, hub.prepared("GET", CONFIG_MAPS, None, query, {}))
        async with asyncio.timeout(60):
            while not any(connection.writing_paused for connection in server._shared.connections):
                await asyncio.sleep(0.01)
            while server.open_connections or hub.watches.count:
                await asyncio.sleep(0.01)
        client.close()
        assert server.unread_bytes == 0
