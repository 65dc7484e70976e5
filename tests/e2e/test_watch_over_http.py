"""Watches over real sockets: whoever follows them knows what a list says, whenever they come."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator

import orjson
from hub_process import Client, HubProcess, Json

from farflung.client.transport import HttpTransport, OutgoingRequest

OBJECTS = 40  #: names that the writers fight over


def collection(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def events(client: Client, path: str, query: str) -> Iterator[Json]:
    for line in client.text(f"{path}?watch=true&allowWatchBookmarks=true&{query}").splitlines():
        yield orjson.loads(line)


def version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Follower(threading.Thread):
    """Lists, then follows short watches one after the other, each from where the last one ended."""

    def __init__(self, hub: HubProcess, path: str, done: threading.Event) -> None:
        super().__init__()
        self._hub = hub
        self._path = path
        self._done = done
        self.state: dict[str, Json] = {}
        self.wrong: list[object] = []

    def run(self) -> None:
        try:
            with self._hub.client() as client:
                listed = client.get(self._path)
                self.state = {item["metadata"]["name"]: item for item in listed["items"]}
                reached, last = version(listed), False
                while not last:
                    last = self._done.is_set()  # one more watch after the last write sees everything
                    for event in events(client, self._path, f"timeoutSeconds=1&resourceVersion={reached}"):
                        reached = self._follow(event, reached)
        except Exception as error:
            self.wrong.append(error)

    def _follow(self, event: Json, reached: int) -> int:
        obj = event["object"]
        if event["type"] == "BOOKMARK":
            return max(reached, version(obj))
        name = obj["metadata"]["name"]
        known = name in self.state
        if version(obj) <= reached or known == (event["type"] == "ADDED"):
            self.wrong.append(event)
        if event["type"] == "DELETED":
            self.state.pop(name, None)
        else:
            self.state[name] = obj
        return version(obj)


class Writer(threading.Thread):
    def __init__(self, hub: HubProcess, path: str, seed: int) -> None:
        super().__init__()
        self._hub = hub
        self._path = path
        self._random = random.Random(seed)
        self.wrong: list[object] = []

    def run(self) -> None:
        with self._hub.client() as client:
            for number in range(150):
                name = f"object-{self._random.randrange(OBJECTS)}"
                body: Json = {"metadata": {"name": name}, "data": {"number": str(number)}}
                create, change = ("POST", self._path, body), ("PUT", f"{self._path}/{name}", body)
                delete = ("DELETE", f"{self._path}/{name}", None)
                method, path, sent = self._random.choice([create, change, delete])
                reply = client.request(method, path, sent)
                if reply.status not in (200, 201, 404, 409):
                    self.wrong.append(reply)


def contents(state: dict[str, Json]) -> dict[str, tuple[Json, Json]]:
    return {name: (obj["metadata"], obj["data"]) for name, obj in state.items()}


def test_followers_that_come_and_go_end_up_with_what_a_list_says(hub: HubProcess, namespace: str) -> None:
    path = collection(namespace)
    done = threading.Event()
    writers = [Writer(hub, path, seed) for seed in range(3)]
    followers = [Follower(hub, path, done) for _ in range(3)]
    for thread in (*writers, *followers):
        thread.start()
    late = Follower(hub, path, done)
    late.start()
    for writer in writers:
        writer.join()
        assert writer.wrong == []
    done.set()
    with hub.client() as client:
        listed = {item["metadata"]["name"]: item for item in client.get(path)["items"]}
    for follower in (*followers, late):
        follower.join()
        assert follower.wrong == []
        assert contents(follower.state) == contents(listed)


def test_a_watch_that_begins_with_everything_says_when_it_has_told_it(hub: HubProcess, namespace: str) -> None:
    path = collection(namespace)
    with hub.client() as client:
        for name in ("a", "b", "c"):
            client.create(path, {"metadata": {"name": name, "labels": {"mine": "yes"}}})
        query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=mine&timeoutSeconds=1"
        told = list(events(client, path, query))
        assert [(event["type"], event["object"]["metadata"].get("name")) for event in told[:4]] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("ADDED", "c"),
            ("BOOKMARK", None),
        ]
        assert told[3]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert version(told[3]["object"]) >= version(told[2]["object"])


def test_a_list_in_pages_shows_one_moment_whatever_is_written_meanwhile(hub: HubProcess, namespace: str) -> None:
    path = collection(namespace)
    with hub.client() as client:
        for number in range(10):
            client.create(path, {"metadata": {"name": f"n{number}", "labels": {"mine": "yes"}}, "data": {"a": "old"}})
        page = client.get(f"{path}?labelSelector=mine&limit=3")
        seen = page["items"]
        for number in range(10):
            changed = {"metadata": {"name": f"n{number}", "labels": {"mine": "yes"}}, "data": {"a": "new"}}
            assert client.request("PUT", f"{path}/n{number}", changed).status == 200
        assert client.request("DELETE", f"{path}/n9").status == 200
        client.create(path, {"metadata": {"name": "n55", "labels": {"mine": "yes"}}})
        moment = page["metadata"]["resourceVersion"]
        while token := page["metadata"].get("continue"):
            page = client.get(f"{path}?labelSelector=mine&limit=3&continue={token}")
            assert page["metadata"]["resourceVersion"] == moment
            seen += page["items"]
    assert [(item["metadata"]["name"], item["data"]) for item in seen] == [(f"n{n}", {"a": "old"}) for n in range(10)]


async def test_one_client_follows_fifty_watches_beside_parallel_requests(hub: HubProcess, namespace: str) -> None:
    """Each has a connection of its own, because the hub speaks HTTP/1.1."""
    path, names = collection(namespace), [f"object-{number}" for number in range(30)]
    headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"}
    opened = asyncio.Semaphore(0)

    async def follow(query: str) -> list[str]:
        """The new names, in the order of their events."""
        found, rest = [], b""
        async with transport.open(OutgoingRequest("GET", f"{path}?watch=true&{query}", headers)) as reply:
            assert reply.status == 200
            opened.release()
            async for chunk in reply.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                seen = [orjson.loads(line)["object"]["metadata"]["name"] for line in lines]
                found += [name for name in seen if name in names]  # the hub adds one of its own
                if len(found) == len(names):
                    break
        return found

    async def create(name: str) -> int:
        body = orjson.dumps({"metadata": {"name": name}})
        async with transport.open(OutgoingRequest("POST", path, headers, body)) as reply:
            await reply.read()
            return reply.status

    async with HttpTransport(f"https://{hub.address.netloc}", tls=hub.tls) as transport, asyncio.timeout(60):
        async with transport.open(OutgoingRequest("GET", path, headers)) as reply:
            since = version(orjson.loads(await reply.read()))
        watches = [asyncio.create_task(follow(f"resourceVersion={since}")) for _ in range(50)]
        for _ in watches:
            await opened.acquire()
        assert await asyncio.gather(*map(create, names)) == [201] * len(names)
        first, *others = await asyncio.gather(*watches)
    assert sorted(first) == sorted(names)
    assert others == [first] * 49
