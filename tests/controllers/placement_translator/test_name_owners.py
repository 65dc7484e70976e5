"""Attacks of a tenant on the workload of another one, whose clusters both may use: by objects of the same names.

The owner's workspace is `root:owners:wmw-1`, the tenant's `root:tenants:wmw-2`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from fleet import EDGE
from provider_harness import schema
from translated import (
    DEFINITIONS,
    MAPS,
    NAMESPACES,
    PRICES,
    PROD,
    RBAC,
    World,
    binding,
    config_map,
    definition,
    deployment,
    hold,
    inside,
    is_going,
    let_go,
    namespace,
    secret,
    shop,
)

from farflung.machinery.errors import Obj

PARENTS = ("root:owners", "root:tenants")
SECRETS, DEPLOYMENTS = inside("shop", "secrets"), inside("shop", "deployments", "apps/v1")
PODS = inside("shop", "pods")
ROLES = f"{RBAC}/clusterroles"
KUBE = [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}]
WIDGETS = "/apis/ex.test/v1/widgets"
OWNER, TENANT = 0, 1


def role(*verbs: str) -> Obj:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}}
    return {**head, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}]}


@asynccontextmanager
async def tenants(*targets: str, parents: tuple[str, str] = PARENTS, **options: Any) -> AsyncIterator[World]:
    """The owner has a namespace `shop` with a ConfigMap and a Secret, and so has the tenant, who places it later."""
    async with shop(*targets, parents=parents, **options) as one:
        await one.must_put(one.workloads[OWNER], SECRETS, secret("password", {"value": "hers"}))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{SECRETS}/password"))
        await one.must_put(one.workloads[TENANT], NAMESPACES, namespace("shop", env="prod"))
        await one.must_put(one.workloads[TENANT], MAPS, config_map("prices", {"tea": "0"}))
        await one.must_put(one.workloads[TENANT], MAPS, config_map("reader", {"reads": "the Secret of the owner"}))
        yield one


async def attack(one: World, **spec: Any) -> None:
    await one.placement(TENANT, "q", namespaceSelector=PROD, **spec)


async def is_refused(one: World, reason: str = "NamespaceInUse", *words: str) -> bool:
    return await one.says(reason, *words, name="q", workload=TENANT)


async def tea(one: World) -> str:
    copy = await one.copy("florin", PRICES)
    return "" if copy is None else copy["data"]["tea"]


async def has_tea(one: World, price: str) -> bool:
    return await tea(one) == price


async def allow(one: World, value: str | None) -> None:
    path = "/apis/scheduling.kcp.io/v1alpha1/locations/florin"
    patch = {"metadata": {"annotations": {"edge.kcp.io/allow-sharing": value}}}
    assert await one.patch(one.inventory, path, patch) is not None


async def test_a_tenant_cannot_replace_an_object_nor_enter_the_namespace_of_another_tenant() -> None:
    async with tenants(nonNamespacedObjects=KUBE) as one:
        await one.must_put(one.workloads[OWNER], DEPLOYMENTS, deployment("web", "hers:1"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"))
        await one.must_put(one.workloads[TENANT], "/apis/apis.kcp.io/v1alpha1/apibindings", binding("kube"))
        await one.fleet.eventually(
            lambda: one.put(one.workloads[TENANT], DEPLOYMENTS, deployment("web", "evil:1")), "the Deployment"
        )
        await attack(one, nonNamespacedObjects=KUBE)
        await one.fleet.eventually(lambda: is_refused(one))
        await one.at_rest()
        copy = await one.copy("florin", f"{DEPLOYMENTS}/web")
        assert copy is not None
        assert copy["spec"]["template"]["spec"]["containers"][0]["image"] == "hers:1"
        assert await tea(one) == "3"
        assert await one.lacks(["florin"], f"{MAPS}/reader")
        assert await one.says("Projected")
        before = one.fleet.hub.store.revision
        await one.restart()
        await one.at_rest()
        assert (await tea(one), await one.lacks(["florin"], f"{MAPS}/reader")) == ("3", True)
        assert one.fleet.hub.store.revision == before or await is_refused(one)


async def test_the_owner_of_an_export_gets_no_copies_of_a_kind_of_the_same_name() -> None:
    """Copies in the mailbox would be visible in the view of the tenant's export."""
    widget = {"apiVersion": "ex.test/v1", "kind": "Widget", "spec": {"size": 1}}
    selected = [{"apiGroup": "ex.test", "resources": ["widgets"], "resourceNames": ["*"]}]
    async with tenants() as one:
        hub = one.fleet.hub
        for workload, name in ((TENANT, "theirs"), (OWNER, "hers")):
            provider = await hub.workspace(f"provider-{name}")
            await hub.export(provider, "ex.test", schema())
            await hub.bind(one.workloads[workload], name, f"root:provider-{name}", "ex.test")
            obj = {**widget, "metadata": {"name": name}}
            await one.fleet.eventually(
                lambda at=workload, obj=obj: one.put(one.workloads[at], WIDGETS, obj), "a widget"
            )
        await one.placement(TENANT, "q", nonNamespacedObjects=selected)
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/theirs"))
        await one.placement(OWNER, "p", namespaceSelector=PROD, nonNamespacedObjects=selected)
        await one.fleet.eventually(lambda: one.says("KindInUse", "widgets.ex.test hers", name="p", workload=OWNER))
        assert await one.lacks(["florin"], f"{WIDGETS}/hers")
        await one.delete(one.workloads[TENANT], f"{EDGE}/edgeplacements/q")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{WIDGETS}/hers"), "the copy")
        await one.fleet.eventually(lambda: one.says("Projected", name="p", workload=OWNER))


async def test_the_condition_names_the_cause_and_nothing_of_the_other_tenant() -> None:
    async with tenants() as one:
        await attack(one)
        await one.fleet.eventually(lambda: is_refused(one))
        await one.at_rest()
        message = (await one.condition("q", TENANT))["message"]
        assert message == (
            f"namespaces shop in {one.names['florin']}: the namespace at the Location florin is used by a workspace "
            "with another parent, so nothing is copied (rename it, or ask the owner of the Location to allow sharing "
            'with the annotation edge.kcp.io/allow-sharing: "true")'
        )
        texts = [message, *(text for _, text in await one.events(TENANT))]
        assert not [text for text in texts for name in (one.workloads[OWNER], "owners", "wmw-1") if name in text]


async def test_the_next_tenant_gets_a_namespace_after_the_last_copy_in_it_was_deleted() -> None:
    async with tenants() as one:
        await hold(one)
        await attack(one)
        await one.fleet.eventually(lambda: is_refused(one))
        await one.delete(one.workloads[OWNER], f"{EDGE}/edgeplacements/p")
        await one.fleet.eventually(lambda: is_going(one))
        await one.at_rest()
        await one.restart()
        await one.at_rest()
        assert await is_refused(one)
        assert await one.lacks(["florin"], f"{MAPS}/reader")
        await let_go(one)
        await one.fleet.eventually(lambda: has_tea(one, "0"))
        await one.fleet.eventually(lambda: is_refused(one, "Projected"))
        assert await one.has(["florin"], f"{MAPS}/reader")
        assert await one.lacks(["florin"], f"{SECRETS}/password")


async def test_the_first_tenant_keeps_a_namespace_when_her_placement_is_created_again() -> None:
    """The mark of the copies decides, also after a restart."""
    async with tenants() as one:
        await hold(one)
        await attack(one)
        await one.fleet.eventually(lambda: is_refused(one))
        await one.fleet.crash()
        await one.delete(one.workloads[OWNER], f"{EDGE}/edgeplacements/p")
        await one.placement(OWNER, "p", namespaceSelector=PROD)
        await one.start()
        await one.at_rest()
        assert await tea(one) == "3"
        assert await one.lacks(["florin"], f"{MAPS}/reader")
        assert await is_refused(one)


async def test_namespaces_that_every_cluster_has_belong_to_one_tenant_too() -> None:
    async with tenants() as one:
        maps = inside("default", "configmaps")
        for workload, name in ((OWNER, "hers"), (TENANT, "evil")):
            await one.must_put(one.workloads[workload], maps, config_map(name, {"a": "b"}))
        wanted = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["default"]}
        await one.placement(OWNER, "p", downsync=[wanted])
        await one.fleet.eventually(lambda: one.has(["florin"], f"{maps}/hers"))
        await one.placement(TENANT, "q", downsync=[wanted])
        await one.fleet.eventually(lambda: is_refused(one, "NamespaceInUse", "namespaces default"))
        assert await one.lacks(["florin"], f"{maps}/evil")
        await one.delete(one.workloads[OWNER], f"{maps}/hers")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{maps}/evil"))


async def test_a_cluster_scoped_object_belongs_to_one_tenant() -> None:
    async with tenants() as one:
        wanted = {"apiGroup": "rbac.authorization.k8s.io", "resources": ["clusterroles"], "objectNames": ["reader"]}
        for workload, name, verb in ((OWNER, "p", "get"), (TENANT, "q", "*")):
            await one.must_put(one.workloads[workload], ROLES, role(verb))
            await one.placement(workload, name, downsync=[wanted])
            await one.fleet.eventually(lambda: one.has(["florin"], f"{ROLES}/reader"))
        await one.fleet.eventually(
            lambda: is_refused(one, "NameInUse", "clusterroles.rbac.authorization.k8s.io reader")
        )
        copy = await one.copy("florin", f"{ROLES}/reader")
        assert copy is not None
        assert copy["rules"][0]["verbs"] == ["get"]


async def test_definitions_of_equal_content_are_shared_and_others_are_refused() -> None:
    async with tenants() as one:
        wanted = {"apiGroup": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"]}
        path = f"{DEFINITIONS}/widgets.example.org"
        for workload, name in ((OWNER, "p"), (TENANT, "q")):
            await one.must_put(one.workloads[workload], DEFINITIONS, definition("v1"))
            await one.placement(workload, name, downsync=[wanted])
            await one.fleet.eventually(lambda: one.has(["florin"], path))
        await one.at_rest()
        assert await is_refused(one, "Projected")
        await one.must_put(one.workloads[TENANT], DEFINITIONS, definition("v1", "v2"))
        await one.fleet.eventually(lambda: is_refused(one, "NameInUse", "widgets.example.org"))
        copy = await one.copy("florin", path)
        assert copy is not None
        assert len(copy["spec"]["versions"]) == 1
        await one.must_put(one.workloads[OWNER], DEFINITIONS, definition("v1", "v2"))
        await one.fleet.eventually(lambda: is_refused(one, "Projected"))
        uid = copy["metadata"]["uid"]
        await one.placement(OWNER, "p", namespaceSelector=PROD)
        await one.at_rest()
        copy = await one.copy("florin", path)
        assert copy is not None
        assert copy["metadata"]["uid"] == uid, "the definition, and with it all its objects, is never deleted meanwhile"


async def test_the_owner_of_a_location_can_allow_sharing_and_forbid_it_again() -> None:
    async with tenants() as one:
        await attack(one)
        await one.fleet.eventually(lambda: is_refused(one))
        await allow(one, "true")
        await one.fleet.eventually(lambda: one.has(["florin"], f"{MAPS}/reader"))
        await one.fleet.eventually(lambda: has_tea(one, "0"))
        await one.fleet.eventually(lambda: one.says("Conflict", "data.tea"))
        conflict = (await one.condition())["message"]
        assert "a workspace with another parent wins over" in conflict
        assert one.workloads[TENANT] not in conflict
        await one.restart()
        await one.at_rest()
        assert await tea(one) == "0"
        await allow(one, None)
        await one.fleet.eventually(lambda: one.lacks(["florin"], f"{MAPS}/reader"))
        await one.fleet.eventually(lambda: has_tea(one, "3"))
        await one.fleet.eventually(lambda: is_refused(one))
        await one.fleet.eventually(lambda: one.says("Projected"))


@pytest.mark.parametrize("name", ["kube-system", "farflung-syncer", "farflung-syncer-florin-1234"])
async def test_namespaces_of_the_components_of_a_cluster_are_reserved(name: str) -> None:
    async with shop() as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace(name, env="prod"))
        await one.must_put(one.workloads[0], inside(name, "configmaps"), config_map("evil", {"a": "b"}))
        await one.fleet.eventually(lambda: one.says("NamespaceReserved", name))
        await one.at_rest()
        assert await one.lacks(["florin"], f"{inside(name, 'configmaps')}/evil")
        path = "/apis/scheduling.kcp.io/v1alpha1/locations/florin"
        allowed = {"metadata": {"annotations": {"edge.kcp.io/allow-system-namespaces": "true"}}}
        assert await one.patch(one.inventory, path, allowed) is not None
        if name == "kube-system":
            await one.fleet.eventually(lambda: one.has(["florin"], f"{inside(name, 'configmaps')}/evil"))
        await one.at_rest()
        assert await one.lacks(["florin"], f"{inside(name, 'configmaps')}/evil") is (name != "kube-system")


async def test_a_syncer_upsyncs_from_a_namespace_only_for_its_tenant() -> None:
    everywhere = {"apiGroup": "group1.test", "resources": ["flanges"], "namespaces": ["*"], "names": ["*"]}
    async with tenants(upsync=[{**everywhere, "namespaces": ["shop"]}]) as one:
        await one.must_put(one.workloads[TENANT], NAMESPACES, namespace("mine", env="prod"))
        await attack(
            one, upsync=[everywhere, {**everywhere, "resources": ["sprockets"], "namespaces": ["shop", "lab"]}]
        )
        await one.fleet.eventually(lambda: is_refused(one))
        await one.at_rest()
        config = await one.copy("florin", f"{EDGE}/syncerconfigs/the-one")
        assert config is not None
        asked = {(*one["resources"], *one["namespaces"]) for one in config["spec"]["upsync"]}
        assert asked == {("flanges", "shop"), ("flanges", "mine"), ("sprockets", "lab")}
        assert config["spec"]["namespaceScope"]["namespaces"] == ["mine", "shop"]


async def test_a_summary_has_no_status_of_an_object_of_another_tenant() -> None:
    async with tenants(nonNamespacedObjects=KUBE, summarizes=True) as one:
        await one.must_put(one.workloads[OWNER], DEPLOYMENTS, deployment("web", "hers:1"))
        await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"))
        status = {
            "status": {"replicas": 7, "conditions": [{"type": "Progressing", "status": "False", "reason": "Hers"}]}
        }
        assert await one.patch(one.boxes["florin"], f"{DEPLOYMENTS}/web/status", status) is not None
        await one.must_put(one.workloads[TENANT], "/apis/apis.kcp.io/v1alpha1/apibindings", binding("kube"))
        await one.fleet.eventually(
            lambda: one.put(one.workloads[TENANT], DEPLOYMENTS, deployment("web", "evil:1")), "the Deployment"
        )
        await attack(one, nonNamespacedObjects=KUBE)
        await one.fleet.eventually(lambda: is_refused(one))
        await one.at_rest()
        path = f"{EDGE}/namespaces/shop/statussummaries"
        [hers], [his] = [await one.items(cluster, path) for cluster in one.workloads]
        assert hers["destinations"]["reporting"] == 1
        assert his["destinations"] == {"broken": 0, "expected": 1, "missing": 1, "reporting": 0, "stale": 0}
        assert "Hers" not in str(his)


def virtual_machine(name: str, image: str) -> Obj:
    spec = {"virtualMachine": {"image": image, "flavors": [{"flavorID": "small"}]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"deliver": "yes"}}, "spec": spec}


async def test_machines_of_one_name_are_not_merged_and_the_next_one_waits_for_the_end_of_the_first() -> None:
    """Their workspaces have the same parent, so other objects are merged."""
    delivery, at = "global-scheduler-az1", f"{PODS}/vm"
    selected = {"apiGroup": "", "resources": ["pods"], "labelSelectors": [{"matchLabels": {"deliver": "yes"}}]}
    async with tenants(parents=("root", "root"), nonNamespacedObjects=KUBE) as one:
        await one.must_put(one.workloads[TENANT], "/apis/apis.kcp.io/v1alpha1/apibindings", binding("kube"))

        async def deliver(workload: int, image: str) -> None:
            await one.placement(workload, delivery, downsync=[selected])
            await one.fleet.eventually(
                lambda: one.put(one.workloads[workload], PODS, virtual_machine("vm", image)), "a Pod"
            )

        async def runs(image: str) -> bool:
            copy = await one.copy("florin", at)
            return copy is not None and copy["spec"]["virtualMachine"]["image"] == image

        await deliver(TENANT, "younger")
        await one.fleet.eventually(lambda: runs("younger"), "the first copy")
        one.fleet.hub.now -= timedelta(minutes=1)
        await deliver(OWNER, "older")
        await hold(one, path=at)
        await one.fleet.eventually(lambda: one.says("NameInUse", "pods shop/vm", name=delivery, workload=OWNER))
        await one.delete(one.workloads[TENANT], at)
        await one.fleet.eventually(lambda: is_going(one, path=at))
        await one.at_rest()
        assert await runs("younger")
        await let_go(one, path=at)
        await one.fleet.eventually(lambda: runs("older"), "the next one")
        await one.fleet.eventually(lambda: one.says("Projected", name=delivery, workload=OWNER))


async def test_of_machines_of_one_name_the_oldest_is_copied() -> None:
    delivery, at = "global-scheduler-az1", f"{PODS}/vm"
    selected = {"apiGroup": "", "resources": ["pods"], "labelSelectors": [{"matchLabels": {"deliver": "yes"}}]}
    async with tenants(parents=("root", "root"), nonNamespacedObjects=KUBE) as one:
        await one.must_put(one.workloads[TENANT], "/apis/apis.kcp.io/v1alpha1/apibindings", binding("kube"))
        await one.fleet.crash()
        for workload in (TENANT, OWNER):
            await one.fleet.eventually(
                lambda to=workload: one.put(one.workloads[to], PODS, virtual_machine("vm", f"of {to}")), "a Pod"
            )
            one.fleet.hub.now += timedelta(minutes=1)
        for workload in (OWNER, TENANT):
            await one.placement(workload, delivery, downsync=[selected])
            one.fleet.hub.now += timedelta(minutes=1)
        await one.start()
        await one.fleet.eventually(lambda: one.says("NameInUse", name=delivery, workload=OWNER))
        copy = await one.copy("florin", at)
        assert copy is not None
        assert copy["spec"]["virtualMachine"]["image"] == f"of {TENANT}"
