"""Whatever happens to a definition, and whenever: objects are shown as reading what is stored under it shows them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from definitions import DEFINITIONS, INTEGER, STRING, THINGS, definition, thing, version
from examples import examples
from hub_harness import Answer, LocalHub
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis.metadata import OBJECT_META
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.machinery.schema.structural.structural import compile_structural
from farflung.store.sqlite.store import SqliteStore

FIELDS = st.sampled_from(
    [STRING, INTEGER, {**STRING, "default": "D"}, {**INTEGER, "default": 7}, {**STRING, "nullable": True}]
)
SPECS = st.dictionaries(st.sampled_from("abc"), FIELDS)
VALUES = st.dictionaries(st.sampled_from("abcd"), st.one_of(st.none(), st.just("x"), st.just(1)))
NAMES = st.sampled_from(["one", "two"])
VERSIONS = st.sampled_from(["v1", "v2"])


@st.composite
def versions(draw: st.DrawFn) -> list[Obj]:
    """One or two versions; the first may be served or not, one of them is stored."""
    if draw(st.booleans()):
        return [version("v1", **draw(SPECS))]
    stored = draw(VERSIONS)
    return [version(name, storage=name == stored, **draw(SPECS)) for name in ("v1", "v2")]


STEPS = st.one_of(
    st.tuples(st.just("define"), versions()),
    st.tuples(st.just("write"), NAMES, VERSIONS, VALUES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("restart")),
)


def things(name: str) -> str:
    return f"/apis/example.com/{name}/namespaces/default/things"


class Bench:
    """A hub and what is done to it; refusals are part of the game."""

    def __init__(self, hub: LocalHub) -> None:
        self.hub = hub

    async def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("define", wanted):
                await self.hub.patch(f"{DEFINITIONS}/things.example.com", {"spec": {"versions": wanted}})
            case ("write", name, served, values):
                api_version = f"example.com/{served}"
                created = await self.hub.post(things(served), thing(name, api_version=api_version, **values))
                if created.status == 409:
                    await self.hub.patch(f"{things(served)}/{name}", {"spec": values})
            case ("delete", name):
                await self.hub.delete(f"{things('v1')}/{name}")
            case ("restart",):
                self.hub = LocalHub(self.hub.store)

    async def check(self) -> None:
        path = f"{DEFINITIONS}/things.example.com"
        for one in (await self.hub.get(path)).json["spec"]["versions"]:
            structural = compile_structural(one["schema"]["openAPIV3Schema"], OBJECT_META)
            expected = {}
            for entry in self.hub.store.list("/example.com/things/root/default/").entries:
                obj = objects.decode(entry)
                obj["apiVersion"] = f"example.com/{one['name']}"
                structural.conform(obj)
                expected[obj["metadata"]["name"]] = obj
            listed = (await self.hub.get(things(one["name"]))).json["items"]
            assert {item["metadata"]["name"]: item for item in listed} == expected
            for name, obj in expected.items():
                assert (await self.hub.get(f"{things(one['name'])}/{name}")).json == obj


@given(st.lists(STEPS, max_size=12))
async def test_objects_are_shown_under_the_present_schema_after_any_history(steps: list[tuple[Any, ...]]) -> None:
    bench = Bench(await LocalHub.in_memory().furnish())
    await bench.hub.create(DEFINITIONS, definition(version("v1", a=STRING)))
    for step in steps:
        await bench.do(step)
        await bench.check()


@settings(max_examples=examples(50))
@given(st.lists(st.lists(STEPS.filter(lambda step: step[0] != "restart"), min_size=1, max_size=6), max_size=4))
async def test_writes_that_meet_a_redefinition_are_shown_under_the_present_schema_too(
    batches: list[list[tuple[Any, ...]]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = await SqliteStore.open(Path(directory) / "hub.sqlite", stamp=objects.stamp)
        try:
            bench = Bench(await LocalHub(store).furnish())
            await bench.hub.create(DEFINITIONS, definition(version("v1", a=STRING)))
            for steps in batches:
                await asyncio.gather(*map(bench.do, steps))
                await bench.check()
        finally:
            await store.close()


@pytest.fixture
async def slow_hub(tmp_path: Path) -> AsyncIterator[LocalHub]:
    """A hub whose writes meet: its store takes its time to commit."""
    store = await SqliteStore.open(tmp_path / "hub.sqlite", stamp=objects.stamp)
    yield await LocalHub(store).furnish()
    await store.close()


async def redefined(hub: LocalHub) -> Answer:
    change = {"spec": {"versions": [version("v1", a=STRING, b={**STRING, "default": "B"})]}}
    return await hub.patch(f"{DEFINITIONS}/things.example.com", change)


async def test_a_change_that_was_overtaken_is_made_anew_under_the_present_schema(slow_hub: LocalHub) -> None:
    await slow_hub.create(DEFINITIONS, definition(version("v1", a=STRING)))
    await slow_hub.create(THINGS, thing("one", a="0"))
    changes = [slow_hub.patch(f"{THINGS}/one", {"spec": {"a": str(number)}}) for number in range(1, 4)]
    answers = await asyncio.gather(redefined(slow_hub), *changes)
    assert [answer.status for answer in answers] == [200, 200, 200, 200]
    assert (await slow_hub.get(f"{THINGS}/one")).json["spec"] == {"a": "3", "b": "B"}


async def test_a_deletion_that_was_overtaken_marks_what_the_present_schema_shows(slow_hub: LocalHub) -> None:
    await slow_hub.create(DEFINITIONS, definition(version("v1", a=STRING)))
    held = thing("one", a="0")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await slow_hub.create(THINGS, held)
    change = slow_hub.patch(f"{THINGS}/one", {"spec": {"a": "1"}})
    await asyncio.gather(redefined(slow_hub), change, slow_hub.delete(f"{THINGS}/one"))
    left = (await slow_hub.get(f"{THINGS}/one")).json
    assert left["spec"] == {"a": "1", "b": "B"}
    assert "deletionTimestamp" in left["metadata"]
