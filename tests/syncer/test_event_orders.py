"""What is heard late changes nothing: cases that only some orders of events bring about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleet import PROVIDER, TENANCY
from partition_end import agreed, at_rest
from partition_laws import is_going
from partition_menu import BORN, REFS, ROLES, SPECS
from partition_world import World, separated
from syncing import DEPLOYMENTS, MAPS, NAMESPACES

from farflung.apis.edge.names import SYNCER_FINALIZER
from farflung.apis.names import Collection
from farflung.client.errors import Forbidden, Unreachable
from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.informers import InformerHandlers, KindInformers
from farflung.syncer.upsync import read_object

OLD_CONFIGS = Collection("edge.kcp.io", "v1alpha1", "edgesyncconfigs", "EdgeSyncConfig")
SHOP = ObjectRef(GroupResource("", "namespaces"), "", "shop")
A_MAP = ObjectRef(GroupResource("", "configmaps"), "shop", "a")
ROLE = ObjectRef(GroupResource("rbac.authorization.k8s.io", "clusterroles"), "", "picker")
MANY = 2000  #: turns of the loop, after which everybody has done what could be done


def born(world: World) -> dict[str, str]:
    """The uids of what came from the edge."""
    copies = world.copies()
    return {ref.name: copies[ref]["metadata"]["uid"] for ref in BORN if ref in copies}


def old_config(*names: str) -> Obj:
    up = [{"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "local", "name": name} for name in names]
    return {
        "apiVersion": "edge.kcp.io/v1alpha1",
        "kind": OLD_CONFIGS.kind,
        "metadata": {"name": "old"},
        "spec": {"upSyncedResources": up},
    }


@pytest.mark.parametrize("late", ["syncerconfigs", "edgesyncconfigs"])
async def test_what_came_from_the_edge_stays_in_the_mailbox_until_it_is_known_what_is_wanted(
    tmp_path: Path, late: str
) -> None:
    heard = asyncio.Event()

    async def gate(request: OutgoingRequest) -> None:
        if f"/{late}?" in request.target:
            await heard.wait()

    async with at_rest(tmp_path) as world:
        await world.link.mailbox.create(OLD_CONFIGS, old_config(*(ref.name for ref in BORN)))
        if late == "edgesyncconfigs":
            await world.link.configure({**SPECS[0], "upsync": []})
        await world.link.settled()
        before = born(world)
        await world.link.stop()
        world.link.up.gate = gate
        await world.link.start()
        await world.turns(MANY)
        heard.set()
        await world.link.settled()
        assert born(world) == before
        await world.configure(0)
        await agreed(world)
        assert born(world) == before


async def test_an_object_that_the_edge_lost_is_applied_again_although_its_mailbox_ends(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        fleet, before = world.link.fleet, world.mailbox_cluster()
        world.line("edge").go_down()
        await world.restart_edge(empty=True)
        await fleet.crash()  # nobody lets go of what is in the mailbox
        name = world.link.path.rpartition(":")[2]
        await fleet.do("DELETE", f"/clusters/{PROVIDER}{TENANCY}/workspaces/{name}")

        def ends() -> bool:
            held = world.hub_store.held(before)
            return all(is_going(held[ref]) for ref in REFS)

        await world.link.eventually(ends, "the end of all copies")
        await world.turns(MANY)
        world.line("edge").up = True
        await world.turns(MANY)
        await fleet.start(scheduler=False, mailboxes=True)
        await fleet.eventually(lambda: world.mailbox_cluster() not in ("", before), "another mailbox")
        await world.link.eventually(lambda: set(REFS) <= set(world.objects()), "all that was there")


async def test_a_copy_whose_finalizer_another_client_removes_gets_it_again(tmp_path: Path) -> None:
    """As in a hub that was restored from a backup of before we held it."""
    async with at_rest(tmp_path) as world:
        await world.link.mailbox.patch(MAPS, "a", {"metadata": {"finalizers": None}}, "shop")

        async def held() -> bool:
            return SYNCER_FINALIZER in (await world.link.mailbox.get(MAPS, "a", "shop"))["metadata"].get(
                "finalizers", ()
            )

        await world.link.eventually(held, "our finalizer")


async def restart_hearing_the_edge_first(world: World) -> None:
    """The syncer knows all objects of the edge, and has looked at them, before it knows its configuration."""
    heard = asyncio.Event()

    async def gate(request: OutgoingRequest) -> None:
        if "/syncerconfigs?" in request.target:
            await heard.wait()

    await world.link.stop()
    world.line("edge").up = True
    world.link.up.gate = gate
    await world.link.start()
    await world.turns(MANY)
    heard.set()


async def test_an_object_withdrawn_before_a_restart_is_deleted_if_the_edge_is_listed_first(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        world.line("edge").go_down()
        await world.link.mailbox.delete(MAPS, "a", "shop")
        await world.link.settled()
        await restart_hearing_the_edge_first(world)
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")


async def test_a_status_written_during_a_restart_is_returned_if_the_edge_is_listed_first(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        world.line("edge").go_down()
        await world.link.cluster.patch(DEPLOYMENTS, "web", {"status": {"replicas": 7}}, "shop", "status")
        await restart_hearing_the_edge_first(world)

        async def returned() -> bool:
            copy = await world.link.mailbox.get(DEPLOYMENTS, "web", "shop")
            return bool(copy["status"]["replicas"] == 7)

        await world.link.eventually(returned, "the status")


async def test_a_withdrawn_namespace_reports_an_object_that_becomes_an_orphan_later(tmp_path: Path) -> None:
    """The syncer looks at the namespace while it still expects to delete the object in it, and has no further event of
    the namespace."""
    refused, silent = asyncio.Event(), asyncio.Event()

    async def refuse(request: OutgoingRequest) -> None:
        if request.method == "DELETE" and "/configmaps/" in request.target:
            refused.set()
            raise Unreachable("no answer")

    async def hold(request: OutgoingRequest) -> None:
        if "/namespaces?" in request.target:
            await silent.wait()

    async with at_rest(tmp_path) as world:
        world.link.down.gate = refuse
        await world.link.mailbox.delete(NAMESPACES, "farm")
        await world.link.eventually(refused.is_set, "an attempt to delete the object")
        await world.turns(MANY)
        world.link.up.gate = hold
        world.line("hub").cut()
        await world.turns(MANY)
        await world.link.mailbox.patch(MAPS, "a", {"metadata": {"finalizers": None}}, "farm")

        async def problem() -> bool:
            report = await world.link.report()
            return [(one["name"], one["reason"]) for one in report["problems"]] == [("farm", "NotEmpty")]

        await world.link.eventually(problem, "the report of the problem")


async def test_an_object_of_a_replaced_mailbox_is_deleted_when_the_new_mailbox_withdraws_it(tmp_path: Path) -> None:
    """The new copy never reached the edge."""
    async with at_rest(tmp_path) as world:
        world.line("edge").go_down()
        await world.renew_mailbox()
        await world.put(SHOP)
        await world.put(A_MAP)
        await world.configure(0)
        await world.link.eventually(lambda: is_held(world, A_MAP), "our finalizer")
        await world.withdraw(A_MAP)
        world.line("edge").up = True
        await world.link.gone_at_edge(MAPS, "a", "shop")
        await world.link.gone_in_mailbox(MAPS, "a", "shop")


async def test_a_copy_held_just_before_a_crash_is_released_although_its_kind_is_not_wanted_any_more(
    tmp_path: Path,
) -> None:
    async with separated(tmp_path) as world:
        await world.link.edge.settle()
        await world.configure(3)
        await world.put(ROLE)
        await world.link.start()
        await world.link.settled()
        held = asyncio.Event()

        async def crash(request: OutgoingRequest) -> None:
            """Nothing gets to the disk after the finalizer was sent."""
            if request.method == "PATCH" and "/clusterroles/" in request.target:
                world.link.forget()
                held.set()

        world.link.up.gate = crash
        await world.configure(2)
        await world.link.eventually(held.is_set, "the finalizer")
        await world.link.eventually(lambda: is_held(world, ROLE), "our finalizer")
        await world.link.stop()
        world.link.up.gate = None
        await world.configure(3)
        await world.withdraw(ROLE)
        await world.link.start()
        await world.link.gone_in_mailbox(ROLES, "picker")
        assert ROLE not in world.objects()


async def test_what_a_restored_hub_holds_is_followed_although_its_kind_is_not_wanted_any_more(tmp_path: Path) -> None:
    """Its last object had been withdrawn since the backup."""
    async with at_rest(tmp_path) as world:
        await world.configure(3)
        await world.link.settled()
        world.save_hub()
        await world.withdraw(ROLE)
        await world.link.gone_in_mailbox(ROLES, "picker")
        await world.link.settled()
        await world.restart_hub(world.saved)
        await agreed(world)
        assert ROLE in world.objects()
        await world.withdraw(ROLE)
        await world.link.gone_in_mailbox(ROLES, "picker")
        assert ROLE not in world.objects()


async def test_what_a_restored_hub_holds_is_followed_although_the_hub_refuses_lists_at_first(tmp_path: Path) -> None:
    """A hub that starts may answer 403 for a moment.  The syncer reports no problem of a kind that is not wanted."""
    refused: set[str] = set()

    async def refuse(request: OutgoingRequest) -> None:
        path = request.target.partition("?")[0]
        if request.method == "GET" and path.endswith(("/clusterroles", "/configmaps")):
            refused.add(path.rpartition("/")[2])
            raise Forbidden(403, "Forbidden", "not yet")

    async with at_rest(tmp_path) as world:
        for ref in REFS:
            if ref.resource == A_MAP.resource:
                await world.withdraw(ref)
                await world.link.gone_in_mailbox(MAPS, ref.name, ref.namespace)
        await world.configure(3)
        await world.link.settled()
        world.save_hub()
        await world.withdraw(ROLE)
        await world.link.gone_in_mailbox(ROLES, "picker")
        await world.link.settled()
        world.link.up.gate = refuse
        await world.restart_hub(world.saved)
        await world.link.eventually(lambda: refused == {"clusterroles", "configmaps"}, "refusals")
        await world.turns(MANY)
        assert (await world.link.report())["problems"] == []
        world.link.up.gate = None
        await agreed(world)
        assert ROLE in world.objects()


async def test_a_syncer_asks_again_what_is_served_when_its_mailbox_is_replaced(tmp_path: Path) -> None:
    """The mailbox before did not serve Deployments, and the configuration does not name them: nothing else asks."""
    async with at_rest(tmp_path) as world:
        await world.configure(3)
        await world.link.settled()
        world.save_hub()
        fleet, before = world.link.fleet, world.mailbox_cluster()
        name = world.link.path.rpartition(":")[2]
        await fleet.do("DELETE", f"/clusters/{PROVIDER}{TENANCY}/workspaces/{name}")
        await fleet.eventually(lambda: world.mailbox_cluster() not in ("", before), "another mailbox")

        async def has_orphans() -> bool:
            return bool((await world.link.report())["objects"]["orphaned"] == len(REFS))

        await world.link.eventually(has_orphans, "orphans")
        await world.release()
        await world.link.eventually(lambda: not set(REFS) & set(world.objects()), "the end of the orphans")
        await world.link.settled()
        await world.restart_hub(world.saved)
        await agreed(world)
        assert set(REFS) <= set(world.objects())


async def test_what_came_from_the_edge_is_withdrawn_from_a_restored_hub_although_its_kind_is_not_wanted_any_more(
    tmp_path: Path,
) -> None:
    """The backup was made after the configuration changed, and before the syncer withdrew what it had brought."""
    proceed = asyncio.Event()

    async def hold(request: OutgoingRequest) -> None:
        if request.method == "DELETE":
            await proceed.wait()

    async with at_rest(tmp_path) as world:
        world.link.up.gate = hold
        await world.configure(3)
        await world.turns(MANY)
        world.save_hub()
        assert set(BORN) <= set(world.copies())
        proceed.set()
        for ref in BORN:
            await world.link.gone_in_mailbox(MAPS, ref.name, ref.namespace)
        await world.configure(2)
        await world.link.settled()
        await world.restart_hub(world.saved)
        for ref in BORN:
            await world.link.gone_in_mailbox(MAPS, ref.name, ref.namespace)


async def test_what_came_from_the_edge_is_withdrawn_although_a_list_did_not_show_it(tmp_path: Path) -> None:
    async with at_rest(tmp_path) as world:
        line = world.line("hub")

        async def lie(request: OutgoingRequest) -> None:
            line.tell("empty", 1 if "/configmaps?" in request.target and "limit=" in request.target else 0)

        line.gate = lie
        await world.forget_history("hub")
        await world.turns(MANY)
        await world.configure(3)
        await world.turns(MANY)
        assert set(BORN) <= set(world.copies())
        line.gate = None
        line.be_true()
        await world.forget_history("hub")
        for ref in BORN:
            await world.link.gone_in_mailbox(MAPS, ref.name, ref.namespace)


async def test_a_copy_that_is_not_wanted_any_more_before_it_reached_the_edge_is_left_alone(tmp_path: Path) -> None:
    async with separated(tmp_path) as world:
        await world.furnish()
        world.line("edge").go_down()
        await world.link.start()
        await world.link.settled()
        await world.configure(3)
        await world.link.settled()
        world.line("edge").up = True
        await agreed(world)
        await world.configure(2)
        await world.link.at_edge(ROLES, "picker")
        await agreed(world)
        assert [ref for ref in REFS if ref in world.copies() and is_held(world, ref)] == [SHOP, A_MAP, ROLE]
        assert [ref for ref in REFS if ref in world.objects()] == [SHOP, A_MAP, ROLE]


async def test_a_kind_that_is_wanted_again_brings_copies_that_were_not_wanted_before(tmp_path: Path) -> None:
    async with separated(tmp_path) as world:
        await world.link.edge.settle()
        await world.configure(2)
        for ref in (SHOP, A_MAP, A_MAP._replace(name="b"), ROLE):
            await world.put(ref)
        await world.link.start()
        await agreed(world)
        await world.withdraw(A_MAP)
        await world.link.gone_in_mailbox(MAPS, "a", "shop")
        await world.configure(3)
        await world.link.settled()
        await world.configure(0)
        await world.link.at_edge(MAPS, "b", "shop")


def is_held(world: World, ref: ObjectRef) -> bool:
    return SYNCER_FINALIZER in world.copies()[ref]["metadata"].get("finalizers", ())


async def test_a_kind_counts_as_listed_only_after_the_syncer_compared_the_list_with_its_journal(tmp_path: Path) -> None:
    """A syncer that took over a mailbox forgot why it had orphans, because it counted them between the two."""
    listed: list[GroupResource] = []
    async with at_rest(tmp_path) as world:
        informers: KindInformers[Obj] = KindInformers(
            world.link.cluster,
            world.link.env,
            read_object,
            InformerHandlers(lambda ref, cluster, obj: None, lambda resource, error: None, listed=listed.append),
        )
        async with asyncio.TaskGroup() as group:
            informers.watch(group, {A_MAP.resource: MAPS})
            while not listed:
                assert not informers.is_listed(A_MAP.resource)
                assert not list(informers.positions())
                await asyncio.sleep(0)
            assert informers.is_listed(A_MAP.resource)
            informers.stop_all()


async def test_objects_that_wait_for_a_namespace_are_forgotten_with_it(tmp_path: Path) -> None:
    """The syncer never applied the namespace, and its mailbox is replaced: nothing is at the edge, so nothing is an
    orphan."""

    async def gate(request: OutgoingRequest) -> None:
        if request.target.partition("?")[0] == "/api/v1/namespaces/shop":
            raise Unreachable("the request was lost")

    async with separated(tmp_path) as world:
        await world.furnish()
        world.link.down.gate = gate
        await world.link.start()
        inside = [ref for ref in REFS if ref.namespace == "shop" and ref.resource.resource != "widgets"]

        def are_held() -> bool:
            copies = world.copies()
            return all(SYNCER_FINALIZER in (copies[ref]["metadata"].get("finalizers") or ()) for ref in inside)

        await world.link.eventually(are_held, "copies with a finalizer")
        await world.turns(MANY)
        world.line("hub").go_down()
        await world.renew_mailbox()
        world.line("hub").up = True

        async def are_orphans() -> bool:
            return bool((await world.link.report())["objects"]["orphaned"] >= len(inside))

        await world.link.eventually(are_orphans, "orphans")
        await world.turns(MANY)
        world.link.down.gate = None

        async def are_forgotten() -> bool:
            report = await world.link.report()
            return bool(report["objects"]["orphaned"] == len(world.objects().keys() & set(REFS)))

        await world.link.eventually(are_forgotten, "a report without orphans that are not at the edge")
        assert world.laws.broken == []
