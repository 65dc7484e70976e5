"""Syncers of two clusters that were let into the same mailbox: one serves it, and the other one touches nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from house import House
from syncing import CONFIGS, MAPS, NAMESPACES, Link, linked, scope
from translated import config_map, namespace

from farflung.apis.edge.names import SERVED_BY
from farflung.syncer.edge import LASTING

PATIENT = 100.0  #: seconds between two heartbeats; no silence in a test is as long as four of them
HASTY = 0.1


@asynccontextmanager
async def rivals(directory: Path) -> AsyncIterator[tuple[Link, Link]]:
    """One that serves a mailbox with something in it, and one of another cluster that is not started."""
    async with linked(directory) as first, House() as edge:
        await first.configure(scope("shop", resources=(MAPS,)))
        await first.put(NAMESPACES, namespace("shop"))
        await first.put(MAPS, config_map("page", {"words": "hello"}), "shop")
        await first.at_edge(MAPS, "page", "shop")
        await first.settled()
        second = Link(first.fleet, edge, first.path, directory / "second" / "syncer.sqlite")
        try:
            yield first, second
        finally:
            await second.stop()


async def uid(link: Link) -> str:
    return str((await link.cluster.get(NAMESPACES, LASTING))["metadata"]["uid"])


async def serves(link: Link) -> None:
    own = await uid(link)

    async def told() -> bool:
        return bool((await link.report())["edge"]["uid"] == own)

    await link.eventually(told, "a report of ours")


async def follows(link: Link) -> None:
    """What changes in the mailbox comes to its edge."""
    await link.mailbox.patch(MAPS, "page", {"data": {"words": "again"}}, "shop")

    async def changed() -> bool:
        return bool((await link.cluster.get(MAPS, "page", "shop"))["data"]["words"] == "again")

    await link.eventually(changed, "what the mailbox says")


def standing_back(link: Link) -> list[str]:
    return [line for line in link.log.getvalue().splitlines() if '"standing by"' in line]


async def stands_back(link: Link) -> None:
    await link.eventually(lambda: standing_back(link), "standing back")
    asked = len(link.up.requests)
    await link.eventually(lambda: len(link.up.requests) > asked + 8, "further looks")
    assert len(standing_back(link)) == 1


async def test_the_second_syncer_names_the_first_and_changes_nothing(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, second):
        second.beat = PATIENT
        await second.start()
        await stands_back(second)
        assert {request.method for request in [*second.up.requests, *second.down.requests]} == {"GET"}
        assert second.syncer is not None
        assert not second.syncer.configured
        sentence = f"the mailbox of florin is served by the syncer of cluster {await uid(first)}, last heard "
        assert second.syncer.standby_reason.startswith(sentence)
        assert sentence in standing_back(second)[0]
        await follows(first)
        assert not standing_back(first)
        assert "the hub does not have our last report" not in first.log.getvalue()


async def test_who_is_silent_is_followed_by_the_other_one_and_stands_back_when_it_returns(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, second):
        await first.stop()
        second.beat = HASTY
        await second.start()
        await second.at_edge(MAPS, "page", "shop")
        await serves(second)
        first.beat = PATIENT
        await first.cluster.delete(MAPS, "page", "shop")
        written = len(first.down.writes)
        await first.start()
        await stands_back(first)
        await first.restart()
        await first.eventually(lambda: len(standing_back(first)) == 2, "standing back, as before")
        assert len(first.down.writes) == written  # although it remembers what should be there
        await second.stop()
        first.beat = HASTY
        await first.restart()
        await first.at_edge(MAPS, "page", "shop")
        await serves(first)


async def test_a_syncer_that_was_away_keeps_and_reports_objects_that_were_withdrawn_meanwhile(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, second):
        await first.stop()
        second.beat = HASTY
        await second.start()
        await second.at_edge(MAPS, "page", "shop")
        first.beat = PATIENT
        await first.start()
        await stands_back(first)
        await first.mailbox.delete(MAPS, "page", "shop")
        await second.gone_at_edge(MAPS, "page", "shop")
        await second.gone_in_mailbox(MAPS, "page", "shop")
        await second.stop()
        first.beat = HASTY
        await first.restart()

        async def is_told() -> bool:
            conditions = {one["type"]: one for one in (await first.report())["conditions"]}
            return bool(conditions["OrphansPresent"]["reason"] == "ServedByAnother")

        await first.eventually(is_told, "the orphan")
        await first.at_edge(MAPS, "page", "shop")


async def test_an_operator_names_the_serving_syncer_and_the_other_one_notices(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, second):
        second.beat = PATIENT
        await second.start()
        await stands_back(second)
        first.beat = PATIENT
        await first.restart()
        chosen = {"metadata": {"annotations": {SERVED_BY: await uid(second)}}}
        await first.mailbox.patch(CONFIGS, "the-one", chosen)
        await second.at_edge(MAPS, "page", "shop")
        await stands_back(first)
        await serves(second)
        assert second.syncer is not None and second.syncer.standby_reason == ""


async def test_two_of_the_same_cluster_both_work_as_in_an_update_that_rolls(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, second):
        twin = Link(first.fleet, first.edge, first.path, second.journal)
        try:
            await twin.start()
            await twin.eventually(lambda: twin.syncer is not None and twin.syncer.configured, "the twin")
            await first.stop()
            await follows(twin)
            assert not standing_back(first) and not standing_back(twin)
        finally:
            await twin.stop()


async def test_a_syncer_without_known_cluster_waits_until_its_edge_answers(tmp_path: Path) -> None:
    async with rivals(tmp_path) as (first, _):
        await first.stop()
        first.journal, first.beat = tmp_path / "third" / "syncer.sqlite", PATIENT
        first.down.before = 10**9
        await first.start()
        await stands_back(first)
        first.down.before = 0
        await follows(first)
