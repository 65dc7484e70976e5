from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Scripted, ScriptedServer, failure, query_of, said

from farflung.apis.names import Collection
from farflung.client.errors import Unreachable
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest
from farflung.lib.backoff import Backoff
from farflung.runtime.cache import Cache, CachedObject, Key
from farflung.runtime.environment import Environment
from farflung.runtime.reflector import Reflector

WIDGETS = Collection("acme.io", "v1", "widgets", "Widget")


class Finished(Exception):
    """The script has no more answers."""


def widget(name: str, version: int, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": str(version), "annotations": {"kcp.io/cluster": "c"}}
    return {"apiVersion": "acme.io/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


def listed(version: int, *items: Any, more: str = "") -> Scripted:
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return said({"metadata": metadata, "items": list(items)})


def event(type: str, obj: Any) -> bytes:
    return orjson.dumps({"type": type, "object": obj}) + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def watched(*chunks: bytes | Exception) -> Scripted:
    return Scripted(chunks=chunks)


@dataclass
class Heard:
    """A sink that writes down what it hears."""

    cache: Cache[Any] = field(default_factory=Cache)
    news: list[Any] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def replace(self, everything: list[CachedObject[Any]], version: int) -> None:
        self.cache.replace(everything, version)
        self.news.append(sorted(known.key.name for known in everything))

    def apply(self, news: CachedObject[Any]) -> None:
        self.cache.apply(news)
        self.news.append(f"{news.key.name}@{news.version}")

    def remove(self, gone: CachedObject[Any]) -> None:
        self.cache.remove(gone)
        self.news.append(f"-{gone.key.name}")

    def advance(self, version: int) -> None:
        self.cache.advance(version)

    def is_new(self, key: Key, version: int) -> bool:
        return version > self.cache.version(key)

    def previous(self, key: Key) -> Any:
        return self.cache.get(key)

    def trouble(self, what: str, error: Exception) -> None:
        self.troubles.append(f"{what}: {error}")


@dataclass
class Play:
    heard: Heard
    requests: list[OutgoingRequest]
    pauses: list[float]

    @property
    def watched_from(self) -> list[str]:
        queries = [query_of(request) for request in self.requests]
        return [query["resourceVersion"] for query in queries if "watch" in query]

    @property
    def lists(self) -> int:
        return sum("watch=" not in request.target for request in self.requests)


async def play(
    *script: Scripted, decode: Any = orjson.loads, heard: Heard | None = None, prefix: str = "/clusters/*"
) -> Play:
    """A reflector that gets these answers, one after the other."""
    answers: Iterator[Scripted] = iter(script)

    def answer(request: OutgoingRequest) -> Scripted:
        try:
            return next(answers)
        except StopIteration:
            raise Finished from None

    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    server, sink = ScriptedServer(answer), heard or Heard()
    env = Environment(lambda: 0.0, sleep, lambda: 0.5, Backoff(1.0, 30.0, lambda: 1.0))
    with pytest.raises(Finished):
        async with asyncio.timeout(60):
            await Reflector(Client(server, prefix), WIDGETS, decode, sink, env).run()
    return Play(sink, server.requests, pauses)


async def test_a_whole_list_of_several_pages_is_handed_on_at_once_and_watched_from_its_version() -> None:
    done = await play(listed(7, widget("a", 3), more="x"), listed(7, widget("b", 5)), watched(bookmark(9)))
    assert done.heard.news == [["a", "b"]]
    assert done.watched_from == ["7", "9"]
    assert query_of(done.requests[1])["continue"] == "x"


async def test_changes_are_passed_on_in_order_and_the_next_watch_resumes_after_the_last() -> None:
    changes = event("ADDED", widget("b", 8)) + event("MODIFIED", widget("a", 9)), event("DELETED", widget("a", 10))
    done = await play(listed(7, widget("a", 3)), watched(*changes))
    assert done.heard.news == [["a"], "b@8", "a@9", "-a"]
    assert done.watched_from == ["7", "10"]
    assert done.pauses == []


async def test_what_is_known_already_is_not_read_again() -> None:
    """As it is by who wrote it and was answered first."""
    changes = event("ADDED", widget("b", 8)), event("MODIFIED", widget("b", 8))
    done = await play(listed(7), watched(*changes))
    assert done.heard.news == [[], "b@8"]
    assert done.watched_from == ["7", "8"]


@pytest.mark.parametrize(
    ("prefix", "cluster"), [("", ""), ("/clusters/root:shop", "c"), ("/services/apiexport/root/edge/clusters/*", "c")]
)
async def test_the_annotation_with_a_logical_cluster_counts_only_in_workspaces(prefix: str, cluster: str) -> None:
    changes = event("ADDED", widget("b", 8)), event("DELETED", widget("a", 9))
    done = await play(listed(7, widget("a", 3)), watched(*changes), prefix=prefix)
    assert set(done.heard.cache) == {Key(cluster, "", "b")}


@given(st.data())
async def test_events_may_be_cut_anywhere(data: st.DataObject) -> None:
    stream = b"".join(event("ADDED", widget(f"w{n}", n)) for n in range(8, 12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    done = await play(listed(7), watched(*chunks))
    assert done.heard.news == [[], "w8@8", "w9@9", "w10@10", "w11@11"]


@pytest.mark.parametrize(
    "broken",
    [
        watched(Unreachable("reset")),
        Scripted(200, [b'{"metadata":{"resourceVersion":"7"},"items":[']),
        said({"kind": "Status"}),
        said(["nonsense"]),
        listed(7, {"metadata": {"name": 5}}),
        listed(7, {"metadata": {"name": "a", "resourceVersion": "many"}}),
        failure(500),
        failure(503),
        failure(403, "Forbidden"),
        failure(404, "NotFound"),
        Scripted(502, [b"<html>Bad gateway</html>"]),
    ],
    ids=str,
)
async def test_a_failing_list_is_retried_and_no_part_of_it_is_visible(broken: Scripted) -> None:
    done = await play(listed(7, widget("a", 3), more="x"), broken, listed(8, widget("b", 4)))
    assert done.heard.news == [["b"]]
    assert done.pauses == [1.0]
    assert len(done.heard.troubles) == 1


async def test_what_is_known_stays_while_the_server_is_away() -> None:
    away = [watched(Unreachable("refused"))] * 3
    done = await play(listed(7, widget("a", 3)), *away, watched(event("ADDED", widget("b", 9))))
    assert done.heard.news == [["a"], "b@9"]
    assert done.watched_from[:4] == ["7", "7", "7", "7"]


async def test_pauses_grow_up_to_a_limit_and_are_short_again_after_success() -> None:
    fails = failure(500)
    done = await play(*[fails] * 7, listed(7), fails, watched(bookmark(8)), fails)
    assert done.pauses == [1, 2, 4, 8, 16, 30, 30, 1, 1]


async def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    done = await play(failure(429, "TooManyRequests", retry_after="17"), listed(7))
    assert done.pauses == [17]


async def test_a_watch_whose_version_is_refused_as_too_new_relists() -> None:
    details = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 5}
    ahead = event("ERROR", {"kind": "Status", "code": 504, "reason": "Timeout", "details": details})
    done = await play(listed(7, widget("a", 3)), watched(ahead), listed(5))
    assert (done.heard.news, done.pauses) == ([["a"], []], [5])


async def test_a_retry_after_of_days_is_limited() -> None:
    done = await play(failure(503, retry_after="86400"), listed(7))
    assert done.pauses == [120]


async def test_a_server_that_lists_but_does_not_let_watch_is_asked_more_and_more_seldom() -> None:
    gone = failure(410, "Expired")
    for refusal, pauses in ((failure(403, "Forbidden"), [1, 2, 4, 8]), (gone, [2, 4, 8])):
        done = await play(*[listed(7), refusal] * 4)
        assert done.pauses == pauses
    done = await play(*[listed(7), gone] * 3, listed(7), watched(bookmark(8)), gone, listed(9))
    assert done.pauses == [2, 4]


async def test_a_watch_that_ends_at_once_and_says_nothing_new_is_a_failure() -> None:
    done = await play(listed(7), *[watched(bookmark(7))] * 3, watched(bookmark(8)))
    assert done.pauses == [1, 2, 4]


async def test_a_version_that_is_too_old_leads_to_a_new_list_without_a_pause() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    for expired in (watched(gone), failure(410, "Expired")):
        done = await play(listed(7, widget("a", 3)), expired, listed(90, widget("b", 80)), watched(bookmark(91)))
        assert done.heard.news == [["a"], ["b"]]
        assert done.watched_from == ["7", "90", "91"]
        assert done.pauses == []


async def test_a_watch_that_is_refused_is_followed_by_a_list_but_not_when_the_server_is_only_busy() -> None:
    refused = await play(listed(7), failure(400, "BadRequest"), listed(8))
    assert (refused.lists, refused.pauses) == (2, [1.0])
    for busy in (failure(429), failure(503), failure(500), failure(401)):
        done = await play(listed(7), busy, watched(bookmark(8)))
        assert (done.lists, done.watched_from) == (1, ["7", "7", "8"])


@pytest.mark.parametrize(
    "nonsense",
    [
        b"nonsense\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":5}\n',
        b'{"type":"RENAMED","object":{"metadata":{}}}\n',
        b'{"type":"ERROR","object":7}\n',
        event("ADDED", widget("c", 9))[:-20],
        event("BOOKMARK", {"metadata": {"resourceVersion": "-1"}}),
    ],
    ids=repr,
)
async def test_an_invalid_event_ends_the_watch_which_resumes_before_it(nonsense: bytes) -> None:
    good = event("ADDED", widget("b", 8))
    done = await play(listed(7, widget("a", 3)), watched(good + nonsense), watched(bookmark(9)))
    assert done.heard.news[:2] == [["a"], "b@8"]
    assert done.watched_from[:2] == ["7", "8"]
    assert done.lists == 1
    assert len(done.heard.troubles) == 1


async def test_watches_that_end_at_once_are_not_opened_in_a_hurry() -> None:
    done = await play(listed(7), watched(), watched(), watched())
    assert done.pauses == [1, 2, 4]


async def test_an_object_that_makes_no_sense_harms_no_other_and_what_was_known_of_it_stays() -> None:
    def decode(data: bytes) -> Any:
        if b"broken" in data:
            raise ValueError("broken")
        return orjson.loads(data)

    broken = widget("a", 9, broken=True)
    done = await play(
        listed(7, widget("a", 3), widget("new", 4, broken=True)),
        watched(event("MODIFIED", broken) + event("ADDED", widget("b", 10))),
        failure(410, "Expired"),
        listed(20, widget("a", 11, broken=True)),
        decode=decode,
    )
    assert done.heard.news == [["a"], "a@9", "b@10", ["a"]]
    assert done.heard.cache[Key("c", "", "a")] == widget("a", 3)
    assert len(done.heard.troubles) == 3


async def test_a_list_of_an_older_version_counts_because_a_backup_may_have_been_restored() -> None:
    done = await play(
        listed(700, widget("a", 300), widget("b", 400)), failure(410, "Expired"), listed(50, widget("a", 30))
    )
    assert dict(done.heard.cache) == {Key("c", "", "a"): widget("a", 30)}


async def test_a_server_that_went_back_to_an_older_copy_is_listed_again() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    status = {"kind": "Status", "status": "Failure", "reason": "Timeout", "code": 504, "details": {"causes": causes}}
    played = await play(listed(900, widget("a", 800)), said(status, 504), listed(7, widget("b", 5)))
    assert played.watched_from == ["900", "7"]
    assert played.heard.news == [["a"], ["b"]]


async def test_objects_that_cannot_even_be_decoded_are_trouble_and_no_end() -> None:
    bad = [b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n', event("ADDED", 5), event("ERROR", 5)]
    for line in bad:
        played = await play(listed(1, widget("a", 1)), watched(line), watched(event("ADDED", widget("b", 2))))
        assert played.heard.news == [["a"], "b@2"]
        assert played.watched_from[:2] == ["1", "1"]
