"""What the translator does about copies that a syncer holds until they are gone at its edge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleet import EDGE
from translated import (
    CONFIRM,
    DEFINITIONS,
    FINALIZER,
    MAPS,
    NAMESPACES,
    PRICES,
    PROD,
    SHOP,
    World,
    config_map,
    definition,
    deployment,
    hold,
    inside,
    is_going,
    let_go,
    namespace,
    shop,
    widget,
)

from farflung.machinery.errors import Obj
from farflung.placement.guard import WithdrawalLimits

WIDGETS = inside("shop", "widgets", "example.org/v1")
DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
BRINGS_KUBE = [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}]


async def are_going(one: World) -> bool:
    return all([await is_going(one, box) for box in one.boxes])


async def relabel(one: World, env: str) -> None:
    await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env=env))


async def has_data(one: World, wanted: dict[str, str]) -> bool:
    copy = await one.copy("florin", PRICES)
    return copy is not None and copy["data"] == wanted and "deletionTimestamp" not in copy["metadata"]


def deletions(one: World, what: str) -> int:
    lines = one.fleet.log.getvalue().splitlines()
    return sum("Deleted object in mailbox" in line and what in line for line in lines)


@asynccontextmanager
async def held_shop(*targets: str) -> AsyncIterator[World]:
    """Each copy of the prices is held, and all is at rest."""
    async with shop(*targets) as one:
        await one.at_rest()
        for box in one.boxes:
            await hold(one, box)
        await one.at_rest()
        yield one


async def test_finalizers_and_status_are_no_difference_and_stay_when_a_copy_is_changed() -> None:
    async with shop(nonNamespacedObjects=BRINGS_KUBE) as one:
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "nginx:1"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"), "the copy")
        await one.at_rest()
        box, web = one.boxes["florin"], f"{DEPLOYMENTS}/web"
        await hold(one, path=web)
        assert await one.patch(box, f"{web}/status", {"status": {"replicas": 3}}) is not None
        with one.fleet.hub.writes_nothing():
            await one.at_rest()
            await one.restart()
            await one.at_rest()
        await one.must_put(one.workloads[0], DEPLOYMENTS, deployment("web", "nginx:2"))

        async def changed() -> Obj | None:
            copy = await one.copy("florin", web)
            assert copy is not None
            containers = copy["spec"]["template"]["spec"]["containers"]
            return copy if containers[0]["image"] == "nginx:2" else None

        await one.fleet.eventually(changed, "the change")
        copy = await changed()
        assert copy is not None
        assert copy["metadata"]["finalizers"] == [FINALIZER]
        assert copy["status"]["replicas"] == 3


async def test_a_copy_with_a_finalizer_is_deleted_once_and_its_namespace_after_it() -> None:
    async with held_shop() as one:
        await relabel(one, "dev")
        await one.fleet.eventually(lambda: is_going(one))
        await one.at_rest()
        assert not await is_going(one, path=SHOP)
        with one.fleet.hub.writes_nothing():
            await one.restart()
            await one.at_rest()
        assert deletions(one, "configmaps shop/prices") == 1
        await let_go(one)
        await one.fleet.eventually(lambda: one.lacks(["florin"], SHOP), "the end of the namespace")


async def test_a_terminating_copy_that_is_selected_again_is_created_after_its_deletion() -> None:
    async with held_shop() as one:
        await relabel(one, "dev")
        await one.fleet.eventually(lambda: is_going(one))
        await one.at_rest()
        await relabel(one, "prod")
        await one.must_put(one.workloads[0], MAPS, config_map("prices", {"tea": "4"}))
        await one.must_put(one.workloads[0], MAPS, config_map("more", {"a": "1"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{MAPS}/more"), "others do not wait")
        await one.at_rest()
        copy = await one.copy("florin", PRICES)
        assert copy is not None
        assert copy["data"] == {"tea": "3"}
        await let_go(one)
        await one.fleet.eventually(lambda: has_data(one, {"tea": "4"}), "it is made anew")
        await one.at_rest()
        around = await one.copy("florin", SHOP)
        assert around is not None
        assert one.workloads[0] in around["metadata"]["annotations"]["edge.kcp.io/projection"]


async def test_a_definition_is_deleted_after_the_objects_of_its_kind() -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], DEFINITIONS, definition("v1"))
        await one.fleet.eventually(lambda: one.put(one.workloads[0], WIDGETS, widget("w", 1)), "a widget")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/w"), "its copy")
        await hold(one, path=f"{WIDGETS}/w")
        await one.at_rest()
        await one.delete(one.workloads[0], f"{WIDGETS}/w")
        await one.fleet.eventually(lambda: is_going(one, path=f"{WIDGETS}/w"))
        await one.at_rest()
        assert not await is_going(one, path=f"{DEFINITIONS}/widgets.example.org")
        await let_go(one, path=f"{WIDGETS}/w")
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{DEFINITIONS}/widgets.example.org"))


async def test_what_cannot_be_changed_is_made_again_when_its_syncer_lets_it_go() -> None:
    roles = inside("shop", "rolebindings", "rbac.authorization.k8s.io/v1")

    def role_binding(role: str) -> Obj:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rb"}}
        return {**head, "roleRef": reference, "subjects": []}

    async with shop() as one:
        await one.must_put(one.workloads[0], roles, role_binding("one"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{roles}/rb"))
        await hold(one, path=f"{roles}/rb")
        await one.fleet.crash()
        await one.delete(one.workloads[0], f"{roles}/rb")
        await one.must_put(one.workloads[0], roles, role_binding("two"))
        await one.start()
        await one.fleet.eventually(lambda: is_going(one, path=f"{roles}/rb"))
        await let_go(one, path=f"{roles}/rb")

        async def refers_to_two() -> bool:
            copy = await one.copy("florin", f"{roles}/rb")
            return copy is not None and copy["roleRef"]["name"] == "two"

        await one.fleet.eventually(refers_to_two)


# --- the guard ------------------------------------------------------------------------------------


async def test_what_is_being_withdrawn_counts_once_and_a_confirmation_is_used_up_with_it() -> None:
    async with held_shop("florin", "guilder", "krone") as one:
        one.fleet.limits = WithdrawalLimits(50, 1)
        await one.restart()
        await relabel(one, "dev")
        await one.fleet.eventually(lambda: one.says("WithdrawalHeld", "3 of 3"))
        placement = f"{EDGE}/edgeplacements/p"
        await one.patch(one.workloads[0], placement, {"metadata": {"annotations": {CONFIRM: "1/3"}}})
        await one.fleet.eventually(lambda: are_going(one), "all of them go")

        async def is_used_up() -> bool:
            found = await one.get(one.workloads[0], placement)
            return found is not None and CONFIRM not in found["metadata"].get("annotations", {})

        await one.fleet.eventually(is_used_up, "the confirmation is used up")
        await one.fleet.eventually(lambda: one.says("Projected"), "nothing is held")
        with one.fleet.hub.writes_nothing():
            await one.at_rest()
            await one.restart()
            await one.at_rest()
        for box in one.boxes:
            await let_go(one, box)
        await one.fleet.eventually(lambda: one.lacks(one.boxes, SHOP), "the namespaces go without being held again")
        assert await one.says("Projected")


async def test_what_is_being_withdrawn_from_some_leaves_room_for_others() -> None:
    async with held_shop("florin", "guilder", "krone") as one:
        one.fleet.limits = WithdrawalLimits(50, 1)
        await one.restart()
        for box in one.boxes:
            await one.location(box, env="prod")
        await one.placement(0, "p", PROD, namespaceSelector=PROD)
        await one.at_rest()
        for box in ("florin", "guilder"):  # one after the other: two at once would be held
            await one.location(box, env="dev")
            await one.fleet.eventually(lambda box=box: is_going(one, box), box)
            await one.at_rest()
        assert await one.says("Projected")
        assert not await is_going(one, "krone")
