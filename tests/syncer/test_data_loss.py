"""Each thing that must not cost an edge its workload, by itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fleet import WORKLOAD
from lying_line import LIES
from partition_end import agreed, at_rest
from partition_menu import BORN, REFS
from partition_world import World, separated
from syncing import CONFIGS, MAPS, NAMESPACES, gone
from translated import config_map

from farflung.apis.edge.names import CREATE_ONLY, RELEASE_ORPHANS, SYNCER_FINALIZER
from farflung.client.errors import NotFound
from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj
from farflung.placement.names import ObjectRef
from farflung.syncer import syncer
from farflung.syncer.conversion import is_downsynced

SHOP, FARM, A, B, IN_FARM, WEB, PICKER, DEFINITION, WIDGET = REFS


def ours(world: World) -> dict[ObjectRef, str]:
    """The uids of what is at the edge because of the mailbox."""
    objects = world.objects()
    return {ref: objects[ref]["metadata"]["uid"] for ref in REFS if ref in objects}


async def told(world: World, number: int) -> None:
    """So many orphans are reported."""

    async def said() -> bool:
        return bool((await world.link.report())["objects"]["orphaned"] == number)

    await world.link.eventually(said, f"{number} orphans")


async def condition(world: World, type: str) -> Obj:
    found: Obj = next(one for one in (await world.link.report())["conditions"] if one["type"] == type)
    return found


async def heartbeat(world: World) -> str:
    return str((await world.link.report())["lastSyncerHeartbeatTime"])


async def is_later(world: World, than: str) -> bool:
    return await heartbeat(world) > than


async def suspected(world: World, reason: str) -> None:
    async def said() -> bool:
        return bool((await condition(world, "OrphansPresent"))["reason"] == reason)

    await world.link.eventually(said, reason)


async def put_again(world: World) -> None:
    """As the translator does, that finds nothing of what it had put there."""
    await world.configure(0)
    for ref in REFS:
        await world.put(ref)


# --- a hub that says less than there is -----------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
async def test_wrong_answers_of_a_proxy_delete_nothing_at_the_edge(tmp_path: Path, lie: str) -> None:
    async with at_rest(tmp_path) as world:
        before = ours(world)
        asked = len(world.link.up.requests)
        await world.lie("hub", lie, 40)
        await world.link.eventually(lambda: world.line("hub").lies < 25 or lie in ("empty", "half"), "lies")
        if lie in ("empty", "half"):
            await world.link.eventually(lambda: len(world.link.up.requests) > asked + 10, "lists")
            await world.link.eventually(lambda: said_less(world), "orphans")
        assert ours(world) == before
        await world.restart()
        await world.heal()
        await agreed(world)
        assert ours(world) == before


async def said_less(world: World) -> bool:
    report = await world.link.report()
    return bool(report["objects"]["orphaned"] > 0)


async def test_an_empty_list_makes_orphans_and_a_whole_one_takes_them_back(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.lie("hub", "empty", 1000)
        await told(world, len(REFS))
        assert (await condition(world, "OrphansPresent"))["status"] == "True"
        await world.heal()
        await told(world, 0)
        assert (await condition(world, "OrphansPresent"))["status"] == "False"


async def test_a_hub_that_was_restored_takes_nothing_from_the_edge(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.withdraw(B)
        await world.link.gone_in_mailbox(MAPS, "b", "shop")
        before_it = await heartbeat(world)
        world.save_hub()
        await world.put(B)
        await world.link.eventually(lambda: is_later(world, before_it), "another heartbeat")
        await agreed(world)
        before = ours(world)
        await world.restart_hub(world.saved)
        await told(world, 1)
        await suspected(world, "HubRestored")
        assert ours(world) == before
        await world.put(B)
        await agreed(world)
        assert ours(world) == before


async def test_a_hub_that_was_restored_and_has_come_as_far_again_is_noticed(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.withdraw(B)
        await world.link.gone_in_mailbox(MAPS, "b", "shop")
        before_it = await heartbeat(world)
        world.save_hub()
        await world.put(B)
        await world.link.eventually(lambda: is_later(world, before_it), "another heartbeat")
        await agreed(world)
        was = world.hub_store.revision
        world.line("hub").go_down()
        await world.restart_hub(world.saved)
        await world.put(A)
        while world.hub_store.revision < was + 10:
            await world.put(PICKER)
        world.line("hub").up = True
        await told(world, 1)
        await agreed(world)


# --- a mailbox that is another one ----------------------------------------------------------------


async def test_a_mailbox_that_was_made_anew_takes_nothing_from_the_edge(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        before = ours(world)
        await world.renew_mailbox()
        await told(world, len(REFS))
        await suspected(world, "MailboxReplaced")
        assert ours(world) == before
        await put_again(world)
        await agreed(world)
        await told(world, 0)
        assert ours(world) == before


async def test_a_kind_that_a_new_mailbox_does_not_have_is_orphaned_with_all_the_rest(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        world.line("hub").go_down()
        await world.renew_mailbox()
        world.line("hub").up = True
        await told(world, len(REFS))


async def test_orphans_that_came_of_a_lie_are_found_by_a_restart(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.lie("hub", "empty", 1000)
        await told(world, len(REFS))
        world.line("hub").be_true()
        await world.restart()
        await told(world, 0)
        await agreed(world)


async def test_objects_withdrawn_from_a_deleted_mailbox_stay(tmp_path: Path) -> None:
    """Its syncer heard of it, and did not come to do it."""
    async with at_rest(tmp_path) as world:
        before = ours(world)
        world.line("edge").go_down()
        await world.withdraw(A)
        await world.link.eventually(lambda: "deletionTimestamp" in world.copies()[A]["metadata"])
        await world.renew_mailbox()
        await world.restart()
        await told(world, len(REFS))
        world.line("edge").up = True
        await agreed(world)
        assert ours(world) == before


async def test_what_was_made_only_once_is_remembered_when_its_mailbox_ends(tmp_path: Path) -> None:
    """The rest of what is at the edge needs the namespace, should the edge be replaced."""
    async with at_rest(tmp_path) as world:
        await world.put(SHOP, **{CREATE_ONLY: "false"})
        await agreed(world)
        await world.renew_mailbox()
        await told(world, len(REFS))
        await world.restart_edge(empty=True)
        await world.link.eventually(lambda: set(ours(world)) == set(REFS), "everything anew")


async def test_the_end_of_a_sync_target_takes_nothing_from_the_edge(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        before = ours(world)
        await world.link.fleet.do("DELETE", f"/clusters/root:compute{WORKLOAD}/synctargets/florin")
        await world.link.eventually(lambda: not world.mailbox_cluster(), "the end of the mailbox")
        await world.restart()
        await world.turns(500)
        assert ours(world) == before


# --- a hub that is away ---------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [False, True])
async def test_with_the_hub_away_from_the_start_the_edge_is_healed(tmp_path: Path, forgetting: bool) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.eventually(lambda: world.link.remembered, "memory")
        world.line("hub").go_down()
        await world.restart(forgetting=forgetting)
        for ref in (A, WEB, PICKER, WIDGET):
            before = world.objects()[ref]["metadata"]["uid"]
            await world.at_edge("delete", ref)

            def is_back(ref: ObjectRef = ref, before: str = before) -> bool:
                live = world.objects().get(ref)
                return live is not None and live["metadata"]["uid"] != before

            await world.link.eventually(is_back, f"{ref} again")
        await world.at_edge("edit", A)
        await world.link.eventually(lambda: world.objects()[A]["data"]["v"] != "edited", "the correction")
        await world.heal()
        await agreed(world)


# --- a journal that is old, or gone -----------------------------------------------------------------------


async def test_a_withdrawn_object_stays_deleted_although_the_syncer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.eventually(lambda: world.link.remembered, "memory")
        monkeypatch.setattr(syncer, "FLUSH", math.inf)
        await world.restart()
        await agreed(world)
        await world.withdraw(A)
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        await world.link.stop(forgetting=True)
        before = await heartbeat(world)
        world.jump(1)
        await world.link.start()
        await world.link.eventually(lambda: is_later(world, before), "a report")
        await world.put(B)  # which is heard after the end of A
        await agreed(world)
        assert A not in world.objects()
        assert (await world.link.report())["objects"]["orphaned"] == 0


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_hub_is_not_doubted_because_a_syncer_does_not_remember_its_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.eventually(lambda: world.link.remembered, "memory")
        monkeypatch.setattr(syncer, "FLUSH", math.inf)
        if runs == 2:
            world.jump(1)
            await world.restart()
            await agreed(world)
        before = await heartbeat(world)
        world.jump(1)
        await world.link.eventually(lambda: is_later(world, before), "a report that is not noted")
        await world.link.stop(forgetting=True)
        await world.withdraw(A)
        world.jump(1)
        await world.link.start()
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await agreed(world)
        assert (await world.link.report())["objects"]["orphaned"] == 0
        assert "does not have our last report" not in world.link.log.getvalue()


async def test_an_object_withdrawn_again_is_deleted_although_the_journal_has_only_the_first_withdrawal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.eventually(lambda: world.link.remembered, "memory")
        monkeypatch.setattr(syncer, "FLUSH", math.inf)
        await world.restart()
        await agreed(world)
        await world.withdraw(A)
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        await world.put(A)
        await world.link.at_edge(MAPS, "a", "shop")
        await world.link.stop(forgetting=True)
        await world.withdraw(A)
        await world.forget_history("hub")
        await world.link.start()
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        assert A not in world.objects()


async def test_an_object_applied_just_before_a_crash_is_an_orphan_of_a_deleted_mailbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_rest(tmp_path) as world:
        await world.withdraw(A)
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        await agreed(world)
        monkeypatch.setattr(syncer, "FLUSH", math.inf)
        await world.restart()
        await world.put(A)
        await agreed(world)
        await world.link.stop(forgetting=True)
        world.line("edge").go_down()
        await world.link.start()
        await world.renew_mailbox()
        await told(world, sum(map(is_downsynced, world.objects().values())))
        await world.heal()
        await agreed(world)
        assert A in world.objects() and A not in world.copies()


async def test_what_was_brought_just_before_a_crash_is_an_orphan_of_a_mailbox_that_is_replaced_until_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer, "FLUSH", math.inf)
    async with at_rest(tmp_path) as world:
        brought = sum(map(is_downsynced, world.objects().values()))
        await world.link.stop(forgetting=True)
        await world.renew_mailbox()
        await world.link.start()
        await told(world, brought)
        await agreed(world)


@pytest.mark.parametrize("journal", ["lost", "damaged"])
async def test_a_syncer_that_remembers_nothing_knows_its_own_again(tmp_path: Path, journal: str) -> None:
    async with at_rest(tmp_path) as world:
        before, revision = ours(world), world.edge_store.revision
        await world.restart(journal=journal)
        await agreed(world)
        assert ours(world) == before
        assert world.edge_store.revision == revision, "nothing was to be written"
        await world.withdraw(A)
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")


async def test_a_withdrawal_while_the_journal_is_lost_is_performed(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.stop()
        await world.withdraw(A)
        await world.restart(journal="lost")
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")


async def test_a_copy_outside_of_scope_and_journal_is_watched_and_deleted_when_withdrawn(
    tmp_path: Path,
) -> None:
    async with at_rest(tmp_path) as world:
        await world.restart()
        await agreed(world)
        await world.link.stop()
        await world.configure(3)
        await world.put(B)
        await world.withdraw(A)
        await world.restart(journal="lost")
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        await agreed(world)


async def test_a_withdrawal_without_journal_and_edge_keeps_the_finalizer(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        world.line("edge").go_down()
        await world.restart(journal="lost")
        await world.withdraw(A)
        await world.link.settled()
        assert world.copies()[A]["metadata"]["finalizers"] == [SYNCER_FINALIZER]
        world.line("edge").up = True
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")


# --- an edge that says less than there is ---------------------------------------------------------


async def test_an_edge_that_was_replaced_gets_everything_anew(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.restart_edge(empty=True)
        await agreed(world)
        assert set(ours(world)) == set(REFS)


async def test_an_edge_that_was_replaced_by_an_older_one_gets_everything_anew(tmp_path: Path) -> None:
    """Its versions are higher than those of the one that was there before, so that nobody sees a difference in them."""
    async with at_rest(tmp_path) as world:
        revision = world.edge_store.revision
        world.line("edge").go_down()
        await world.restart_edge(empty=True)
        while world.edge_store.revision < revision + 10:
            await world.born("put", BORN[0])
        world.line("edge").up = True
        await agreed(world)
        assert set(ours(world)) == set(REFS)


async def test_what_cannot_be_applied_at_once_in_an_empty_cluster_is_not_contested(tmp_path: Path) -> None:
    """What is in a namespace is refused until that is there again, which is nobody's wish."""
    async with at_rest(tmp_path) as world:
        for _ in range(2):
            await world.restart_edge(empty=True)
            await agreed(world)
        assert (await world.link.report())["problems"] == []


async def test_another_server_in_the_place_of_the_edge_ends_nothing(tmp_path: Path) -> None:
    """It knows nothing of what is asked, which is not to say that it is gone."""
    async with at_rest(tmp_path) as world:
        world.line("edge").tell("absent", 10_000)
        await world.withdraw(A)
        await world.link.eventually(lambda: world.line("edge").lies < 9_950, "questions")
        assert world.copies()[A]["metadata"]["finalizers"] == [SYNCER_FINALIZER]
        await world.forget_history("edge")
        await world.link.eventually(lambda: world.line("edge").lies < 9_900, "questions")
        for ref in BORN:
            assert ref in world.copies()
        world.line("edge").be_true()
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await agreed(world)


@pytest.mark.parametrize(("root", "ref"), [("/apis", WEB), ("/api", A)])
async def test_a_server_in_the_place_of_the_edge_that_knows_half_of_it_ends_nothing(
    tmp_path: Path, root: str, ref: ObjectRef
) -> None:
    async with at_rest(tmp_path) as world:
        asked = 0

        async def unknown(request: OutgoingRequest) -> None:
            nonlocal asked
            if request.target == root:
                asked += 1
                raise NotFound(404, "", "")

        world.link.down.gate = unknown
        await world.restart()
        await world.withdraw(ref)
        await world.link.eventually(lambda: asked > 2, "questions")
        assert ref in world.objects()
        assert ref in world.copies()
        world.link.down.gate = None
        await world.link.eventually(lambda: ref not in world.copies(), "its end")
        assert ref not in world.objects()
        await agreed(world)


async def test_an_empty_list_of_the_edge_takes_nothing_from_the_mailbox(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        before = {ref: world.copies()[ref]["metadata"]["uid"] for ref in BORN}
        await world.lie("edge", "empty", 1000)
        await world.link.eventually(lambda: world.line("edge").lies < 990, "lists")
        await world.heal()
        await agreed(world)
        assert {ref: world.copies()[ref]["metadata"]["uid"] for ref in BORN} == before


# --- what holds what is not ours ------------------------------------------------------------------


async def test_a_namespace_with_unmanaged_objects_stays_until_they_are_deleted(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.cluster.create(MAPS, config_map("theirs", {"a": "b"}), "farm")
        await world.withdraw(FARM)
        await world.link.eventually(lambda: IN_FARM not in world.objects(), "the end of what is ours")

        async def explained() -> bool:
            problems = (await world.link.report())["problems"]
            return any(one["reason"] == "NotEmpty" and "theirs" in one["message"] for one in problems)

        await world.link.eventually(explained, "an explanation")
        await world.link.cluster.delete(MAPS, "theirs", "farm")
        await world.link.gone_at_edge(NAMESPACES, "farm")
        await agreed(world)


async def test_a_namespace_stays_while_its_content_is_unknown(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.cluster.create(MAPS, config_map("theirs", {"a": "b"}), "farm")
        world.line("edge").tell("unlisted", 10_000)
        await world.withdraw(FARM)
        await world.link.eventually(lambda: world.line("edge").lies < 9_990, "lists")
        assert not await gone(world.link.cluster, MAPS, "theirs", "farm")
        world.line("edge").be_true()
        await agreed(world)
        assert not await gone(world.link.cluster, MAPS, "theirs", "farm")


async def test_an_orphan_without_journal_entry_is_not_deleted_with_its_namespace(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await world.link.stop()
        await world.link.mailbox.patch(MAPS, "a", {"metadata": {"finalizers": None}}, "farm")
        await world.withdraw(IN_FARM)
        await world.restart(journal="lost")
        await world.link.settled()
        await world.withdraw(FARM)
        await world.link.settled()
        assert IN_FARM in world.objects()


# --- letting orphans go ---------------------------------------------------------------------------


async def orphaned(world: World, *refs: ObjectRef) -> None:
    """Their copies go without a word."""
    before = len([ref for ref in REFS if ref in world.objects() and ref not in world.copies()])
    for ref in refs:
        world.line("hub").go_down()
        path = f"/api/v1/namespaces/{ref.namespace}/configmaps/{ref.name}"
        link = world.link
        assert path
        await link.mailbox.patch(MAPS, ref.name, {"metadata": {"finalizers": None}}, ref.namespace)
        await world.withdraw(ref)
    await world.forget_history("hub")
    world.line("hub").up = True
    await told(world, before + len(refs))


async def release(world: World, number: str) -> None:
    await world.link.mailbox.patch(CONFIGS, "the-one", {"metadata": {"annotations": {RELEASE_ORPHANS: number}}})


async def test_orphans_are_deleted_when_their_number_is_confirmed(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await orphaned(world, A, B)
        await release(world, "1")
        await world.link.settled()
        assert {A, B} <= set(world.objects())
        await world.release()
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_at_edge(MAPS, "b", "shop")
        await told(world, 0)


async def test_a_confirmation_for_some_orphans_does_not_cover_others(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await orphaned(world, A)
        await world.release()
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await told(world, 0)
        await orphaned(world, B)
        await world.restart()
        await world.link.settled()
        assert B in world.objects()
        await release(world, "0")
        await world.link.settled()
        await world.release()
        await world.link.gone_at_edge(MAPS, "b", "shop")


async def test_what_was_released_and_is_still_there_is_an_orphan_again_when_the_mailbox_is_replaced(
    tmp_path: Path,
) -> None:
    async with at_rest(tmp_path) as world:
        await orphaned(world, A)
        world.line("edge").go_down()
        await world.release()
        await told(world, 0)
        everything = sum(map(is_downsynced, world.objects().values()))
        await world.renew_mailbox()
        await told(world, everything)
        await world.heal()
        await agreed(world)
        assert A in world.objects() and A not in world.copies()


async def test_a_number_that_was_wrong_is_never_right(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        await orphaned(world, A)
        await release(world, "2")
        await world.link.settled()
        await orphaned(world, B)
        await world.restart()
        await told(world, 2)
        await world.link.settled()
        assert {A, B} <= set(world.objects())


async def test_a_number_is_weighed_although_nothing_is_wanted(tmp_path: Path) -> None:
    async with separated(tmp_path) as world:
        await release(world, "1")
        await world.link.start()
        await world.link.eventually(lambda: world.line("hub").has_told("syncerconfigs") and world.link.idle, "peace")


async def test_a_withdrawn_namespace_with_orphans_stays_and_is_reported(
    tmp_path: Path,
) -> None:
    async with at_rest(tmp_path) as world:
        await orphaned(world, A)
        await world.withdraw(SHOP)
        await agreed(world)
        assert {SHOP, A} <= set(world.objects())
        await world.release()
        await world.link.gone_at_edge(NAMESPACES, "shop")
        await agreed(world)
