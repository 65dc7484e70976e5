"""The write pipeline: its order is the table of ADR 5, and the same for creations and changes."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from hub_harness import LocalHub
from platform_harness import APIS, OPERATOR, PlatformHub, platform_hub
from policies import bind, policy, refused, rule

from farflung.apis.builtin.kinds import BUILTIN
from farflung.hub import registry
from farflung.hub.registry.pipeline import CREATE, UPDATE, Pipeline, Stage, Step
from farflung.machinery.errors import Obj
from farflung.placement.types import placement_problem

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
TABLE = Path(__file__).parents[2] / "docs" / "adr" / "0005-order-of-the-write-path.md"


def names_of(hub: LocalHub, group: str, version: str, plural: str, operation: str) -> list[str]:
    """The steps that the pipeline of a kind contains."""
    pipeline = hub.assembly.pipeline
    kind = hub.assembly.kinds.builtin.of(group, version, plural)
    runs = pipeline.compiled(kind, operation)[0]
    return [next(step.name for step in pipeline.steps if step.run == run) for run in runs]


def test_the_table_of_steps_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| `(\w+)` \| ", TABLE.read_text(), re.MULTILINE)
    assert rows == [
        (step.stage.name, step.name)
        for step in PlatformHub(placement_problem=placement_problem).assembly.pipeline.steps
    ]


def test_a_hub_without_workspaces_has_the_same_order() -> None:
    plain = [step.name for step in LocalHub.in_memory().assembly.pipeline.steps]
    assert plain == [
        step.name
        for step in PlatformHub(placement_problem=placement_problem).assembly.pipeline.steps
        if step.name in plain
    ]


def test_a_pipeline_has_only_the_steps_that_apply_to_its_kind() -> None:
    hub = LocalHub.in_memory()
    assert names_of(hub, "", "v1", "configmaps", CREATE) == [
        "check_new",
        "drop_server_fields",
        "manage_fields",
        "set_identity",
        "validate_create",
        "check_view",
        "check_policies",
        "reserve_quota",
    ]
    assert "allocate_addresses" in names_of(hub, "", "v1", "services", UPDATE)
    assert "check_escalation" in names_of(hub, "rbac.authorization.k8s.io", "v1", "roles", UPDATE)
    assert names_of(hub, "", "v1", "pods", "delete") == ["check_policies"]


def test_policies_are_never_reviewed() -> None:
    hub = LocalHub.in_memory()
    for operation in (CREATE, UPDATE, "delete"):
        names = names_of(hub, "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", operation)
        assert "check_policies" not in names


def test_steps_run_in_the_order_of_their_stages_for_any_order_of_registration() -> None:
    def nothing(write: object) -> None: ...

    late = Step("late", Stage.FINISH, nothing, lambda kind, operation: True)
    early = Step("early", Stage.CHECK, nothing, lambda kind, operation: True)
    assert Pipeline((late, early)).steps == (early, late)


# --- creations and changes ------------------------------------------------------------------------


def claim(size: str, **metadata: Any) -> Obj:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": "v"}
    return {"metadata": {"name": "c", **metadata}, "spec": spec}


async def limit(hub: LocalHub, size: str) -> None:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": size}}]
    await hub.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})


async def deny_large_claims(hub: LocalHub) -> None:
    small = "quantity(object.spec.resources.requests.storage).compareTo(quantity('2Gi')) <= 0"
    match = {"resourceRules": [rule("persistentvolumeclaims", operations=("CREATE", "UPDATE"))]}
    await bind(hub, policy("small", small, match=match))


async def quota(hub: LocalHub, size: str) -> None:
    hard = {"requests.storage": size}
    await hub.create("/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})


async def bound_claim(hub: LocalHub) -> None:
    await hub.create(CLAIMS, claim("1Gi"))
    present = (await hub.get(f"{CLAIMS}/c")).json
    present["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    assert (await hub.put(f"{CLAIMS}/c/status", present)).status == 200


async def grow(hub: LocalHub) -> Any:
    """An update of the claim to 5Gi."""
    present = (await hub.get(f"{CLAIMS}/c")).json
    present["spec"]["resources"]["requests"]["storage"] = "5Gi"
    return await hub.put(f"{CLAIMS}/c", present)


async def test_limit_ranges_come_before_policies_and_quotas_in_creations_and_changes(hub: LocalHub) -> None:
    await bound_claim(hub)
    await limit(hub, "3Gi")
    await deny_large_claims(hub)
    await quota(hub, "4Gi")
    why = "maximum storage usage per PersistentVolumeClaim is 3Gi, but request is 5Gi"
    created = await hub.post(CLAIMS, claim("5Gi") | {"metadata": {"name": "other"}})
    assert (created.status, created.message.endswith(why)) == (403, True), created.message
    changed = await grow(hub)
    assert (changed.status, changed.message.endswith(why)) == (403, True), changed.message


async def test_policies_come_before_quotas_in_creations_and_changes(hub: LocalHub) -> None:
    await bound_claim(hub)
    await deny_large_claims(hub)
    await quota(hub, "4Gi")
    small = "failed expression: quantity(object.spec.resources.requests.storage).compareTo(quantity('2Gi')) <= 0"
    assert refused(await hub.post(CLAIMS, claim("5Gi") | {"metadata": {"name": "other"}}), "small", small)
    assert refused(await grow(hub), "small", small)


async def test_a_quota_keeps_no_room_for_a_change_that_changes_nothing(hub: LocalHub) -> None:
    await bound_claim(hub)
    await quota(hub, "2Gi")
    for _ in range(3):
        assert (await hub.put(f"{CLAIMS}/c", (await hub.get(f"{CLAIMS}/c")).json)).status == 200
    assert (await hub.post(CLAIMS, claim("1Gi") | {"metadata": {"name": "other"}})).status == 201


# --- workspaces -----------------------------------------------------------------------------------


async def test_an_export_that_a_policy_refuses_gets_no_identity() -> None:
    hub = await platform_hub()
    cluster = await hub.workspace("provider")
    prefix = f"/clusters/{cluster}"
    exports = f"{prefix}{APIS}/apiexports"
    export = await hub.made(OPERATOR, exports, {"metadata": {"name": "e"}, "spec": {}})
    secret = f"{prefix}/api/v1/namespaces/{export['spec']['identity']['secretRef']['namespace']}/secrets/e"
    assert (await hub.delete(secret)).status == 200
    match = {"resourceRules": [rule("apiexports", operations=("UPDATE",))]}
    await bind(hub, policy("frozen", "!has(object.metadata.labels)", match=match), cluster=cluster)
    del export["spec"]["identity"]
    export["metadata"]["labels"] = {"a": "b"}
    answer = await hub.put(f"{exports}/e", export)
    assert refused(answer, "frozen", "failed expression: !has(object.metadata.labels)"), answer.body
    assert (await hub.get(secret)).status == 404


# --- generic code ---------------------------------------------------------------------------------


def test_the_registry_names_no_kind_but_the_namespace_and_the_definition_that_an_object_needs() -> None:
    kinds = {name for resource in BUILTIN for name in (resource.kind, resource.plural)}
    named = {
        (path.name, node.value)
        for path in Path(registry.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in kinds
    }
    assert named == {("pipeline.py", "namespaces")}
