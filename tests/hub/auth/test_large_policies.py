"""Thousands of roles, bindings and rules: the event loop reads and compares them in several turns."""

from __future__ import annotations

from typing import Any

import orjson
from hub_harness import CONFIG_MAPS, USER_TOKEN, LocalHub
from long_turns import no_long_turns
from memory_store import MemoryStore

from farflung.hub.catalog import objects
from farflung.hub.controllers.cluster_roles import ClusterRoleIndex
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import selector_of
from farflung.store.base import ABSENT

GROUP = "rbac.authorization.k8s.io"
API = f"/apis/{GROUP}/v1"
USER = {"kind": "User", "apiGroup": GROUP, "name": "somebody"}


def role(name: str, rules: list[Obj]) -> Obj:
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def binding(name: str, role: str, **metadata: Any) -> Obj:
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
    return {"metadata": {"name": name, **metadata}, "roleRef": reference, "subjects": [USER]}


def get(resource: str, *verbs: str) -> Obj:
    return {"verbs": ["get", *verbs], "apiGroups": [""], "resources": [resource]}


async def test_reading_the_roles_and_bindings_of_a_cluster_never_holds_the_event_loop() -> None:
    """The attack: the first request after a restart reads everything that RBAC has in its workspace."""
    store = MemoryStore(stamp=objects.stamp)

    async def put(plural: str, obj: Obj, namespace: str = "") -> None:
        key = "/".join(part for part in (plural, "root", namespace, obj["metadata"]["name"]) if part)
        value = orjson.dumps({**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}})
        await store.put(f"/{GROUP}/{key}", value, expect=ABSENT)

    for number in range(4):
        await put("clusterroles", role(f"r{number}", [get(f"x{one}") for one in range(10_000)]))
    await put("clusterroles", role("last", [get("configmaps")]))
    for number in range(6_000):
        await put("rolebindings", binding(f"b{number}", f"r{number % 4}"), "default")
    await put("rolebindings", binding("z", "last"), "default")
    hub = await LocalHub(store).furnish()
    await hub.config_map("a")
    hub.token = USER_TOKEN
    async with no_long_turns():
        assert (await hub.get(f"{CONFIG_MAPS}/a")).status == 200
        assert (await hub.get(CONFIG_MAPS)).status == 403


async def test_comparing_thousands_of_rules_before_a_grant_never_holds_the_event_loop(hub: LocalHub) -> None:
    """The attack: a user without the verb `escalate` creates a role with as many rules as the user has."""
    owned = [get(f"r{number}") for number in range(400)]
    grants = {"verbs": ["create"], "apiGroups": [GROUP], "resources": ["clusterroles"]}
    await hub.create(f"{API}/clusterroles", role("owned", [*owned, grants]))
    await hub.create(f"{API}/clusterrolebindings", binding("owned", "owned"))
    hub.token = USER_TOKEN
    async with no_long_turns():
        allowed = await hub.post(f"{API}/clusterroles", role("same", owned))
        refused = await hub.post(f"{API}/clusterroles", role("more", [*owned, get("secrets")]))
    assert allowed.status == 201, allowed.message
    assert refused.status == 403
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}' in refused.message


async def test_an_aggregated_role_has_at_most_a_hundred_selectors(hub: LocalHub) -> None:
    selectors = [{"matchLabels": {"part": str(number)}} for number in range(101)]
    many = {"metadata": {"name": "many"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    answer = await hub.post(f"{API}/clusterroles", many)
    assert answer.status == 422
    assert answer.message.endswith("aggregationRule.clusterRoleSelectors: Too many: 101: must have at most 100 items")


async def test_a_binding_has_at_most_256_kibibytes(hub: LocalHub) -> None:
    crowd = binding("crowd", "view") | {"subjects": [{**USER, "name": f"user{number}"} for number in range(4_000)]}
    answer = await hub.post(f"{API}/clusterrolebindings", crowd)
    assert (answer.status, answer.message) == (413, "Request entity too large: limit is 262144")
    hub.close()


def test_the_parts_of_an_aggregated_role_are_ordered_by_selector_and_name() -> None:
    index = ClusterRoleIndex()
    wanted = [selector_of({"matchLabels": {"part": name}}) for name in ("b", "a")]
    for name, labels in {"z": {"part": "a"}, "y": {"part": "b"}, "x": {"part": "a"}, "w": {}}.items():
        index.put(name, labels, ())
    index.put("all", {"part": "a"}, wanted)
    assert index.parts("all") == ["y", "x", "z"]
    assert index.containing("x", {"part": "a"}) == {"all"}
    assert index.containing("all", {"part": "a"}) == set()
    index.put("all", {}, wanted[:1])
    assert index.parts("all") == ["y"]
    for name in ("all", "w", "x", "y", "z"):
        index.remove(name)
    assert not index
