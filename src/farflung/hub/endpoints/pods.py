"""create of `pods/NAME/binding` and `pods/NAME/eviction`, within the limits of PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from farflung.apis.edge.names import AUTHOR
from farflung.apis.globalscheduler.machines import is_virtual_machine
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.names import POD_SCHEDULED
from farflung.apis.validation import check_labels
from farflung.http.messages import Answer
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind, Shape, builtin_shape
from farflung.hub.registry import delete, respond
from farflung.hub.registry.bodies import Body, decode_object
from farflung.hub.registry.call import Call
from farflung.hub.registry.delete import DeleteOptions, Preconditions
from farflung.hub.registry.pipeline import Write, differs_in_spec, modified, set_namespace
from farflung.hub.registry.update import ATTEMPTS
from farflung.hub.request.options import WriteOptions, write_options
from farflung.machinery import names, times
from farflung.machinery.errors import (
    ApiError,
    FieldError,
    Obj,
    bad_request,
    conflict,
    go_quote,
    invalid,
    invalid_value,
    not_supported,
    required,
)
from farflung.machinery.selectors import selector_of
from farflung.machinery.times import format_seconds
from farflung.store.base import Conflict, Entry

#: annotations that in workspaces only the hub writes
SERVER_ANNOTATIONS: Final = frozenset({AUTHOR, CLUSTER_ANNOTATION})
SEVERAL_BUDGETS: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
CLUSTER: Final = "Cluster"  #: the kind that virtual machines are bound to
SCALED: Final = {"ReplicaSet": "apps", "StatefulSet": "apps", "ReplicationController": ""}


def binding_shape() -> Shape:
    return builtin_shape("", "v1", "Binding", "io.k8s.api.core.v1.Binding")


def eviction_shape() -> Shape:
    return builtin_shape("policy", "policy/v1", "Eviction", "io.k8s.api.policy.v1.Eviction")


def received(call: Call, shape: Shape, options: WriteOptions) -> Body:
    """The Binding or Eviction in a request."""
    body = decode_object(call.request, shape, options, call.shape)
    set_namespace(call, body.obj.setdefault("metadata", {}))
    return body


def check_name(call: Call, kind: str, obj: Obj) -> None:
    if obj["metadata"].get("name", "") != call.target.name:
        raise bad_request(f"name in URL does not match name in {kind} object")


async def admit(call: Call, shape: Shape, body: Body, options: WriteOptions) -> None:
    identified = {**body.obj, "kind": shape.kind, "apiVersion": shape.api_version}
    write = Write(call, options, identified, warnings=body.warnings)
    await call.tools.pipeline.check(write, call.target.subresource)


async def done(work: Awaitable[None], warnings: list[str]) -> Answer:
    try:
        await work
    except ApiError as error:
        raise respond.warned(error, warnings) from None
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return respond.json_response(201, status, respond.headers_of(warnings))


# --- binding --------------------------------------------------------------------------------------


def bind_named(call: Call) -> Awaitable[Answer]:
    """create of `bindings`, the older path: the object names the pod."""
    options = write_options("CreateOptions", call.request.query)
    name = received(call, binding_shape(), options).obj["metadata"].get("name", "")
    target = call.target._replace(plural="pods", name=name, subresource="binding")
    return bind(replace(call, target=target, kind=call.tools.kinds.builtin.of("", "v1", "pods")))


async def bind(call: Call) -> Answer:
    options = write_options("CreateOptions", call.request.query)
    body = received(call, binding_shape(), options)
    check_name(call, "Binding", body.obj)
    check_binding(body.obj, clusters=may_be_machines(call.kind))
    await admit(call, binding_shape(), body, options)
    if call.tools.annotates:
        drop_server_annotations(body.obj["metadata"])
    return await done(assign(call, body.obj, options), body.warnings)


def drop_server_annotations(metadata: Obj) -> None:
    """Those of a Binding become annotations of its Pod."""
    for name in SERVER_ANNOTATIONS & (metadata.get("annotations") or {}).keys():
        del metadata["annotations"][name]


def may_be_machines(kind: Kind) -> bool:
    spec = kind.schema.member("spec")
    return kind.resource.custom or (spec is not None and spec.member("virtualMachine") is not None)


def check_binding(binding: Obj, *, clusters: bool) -> None:
    """`clusters`: whether pods may be virtual machines, which are bound to Clusters."""
    target = binding.get("target") or {}
    errors: list[FieldError] = []
    if target.get("kind", "Node") not in (("", "Node", CLUSTER) if clusters else ("", "Node")):
        errors.append(unknown_target(target))
    if not target.get("name"):
        errors.append(required("target.name"))
    elif clusters and (wrong := names.dns_subdomain(target["name"])):
        errors.append(invalid_value("target.name", target["name"], ",".join(wrong)))
    if is_for_cluster(binding):
        labels = binding["metadata"].get("labels") or {}
        check_labels(labels, "metadata.labels", errors)
        strange = [name for name in labels if not name.startswith(f"{GLOBALSCHEDULER_GROUP}/")]
        errors += [invalid_value("metadata.labels", name, "must be a label of the scheduler") for name in strange]
    refuse(binding, errors)


def unknown_target(target: Obj) -> FieldError:
    return not_supported("target.kind", target["kind"], ("Node", "<empty>"))


def refuse(binding: Obj, errors: list[FieldError]) -> None:
    if errors:
        raise invalid("", "Binding", binding["metadata"].get("name", ""), errors)


async def assign(call: Call, binding: Obj, options: WriteOptions) -> None:
    for _ in range(ATTEMPTS):
        entry = call.found()
        pod = call.kind.renewed(entry)
        check_assignable(pod, binding)
        new = assigned(pod, binding, scheduled(call, pod))
        if call.resource.custom:
            old = objects.decode(entry)
            if (call.kind.rules.another_generation or differs_in_spec)(new, old):
                new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        value = call.kind.encode(new, before=len(entry.value))
        if options.dry_run:
            return
        call.check_current()
        try:
            await call.store.put(entry.key, value, expect=entry.revision)
        except Conflict:
            continue
        return
    raise modified(call)


def check_assignable(pod: Obj, binding: Obj) -> None:
    metadata, spec, wanted = pod["metadata"], pod.get("spec") or {}, binding["metadata"]
    name = metadata["name"]
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != metadata[field]:
            what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
            both = f"{what} in precondition: {wanted[field]}, {what} in object meta: {metadata[field]}"
            raise conflict("", "pods", name, f"Precondition failed: {both}")
    if is_for_cluster(binding) and spec.get("virtualMachine") is None:
        refuse(binding, [unknown_target(binding["target"])])
    if "deletionTimestamp" in metadata:
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    for field, what in (("nodeName", "node"), ("clusterName", "cluster")):
        if there := spec.get(field):
            raise conflict("", "pods/binding", name, f"pod {name} is already assigned to {what} {go_quote(there)}")
    if spec.get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def is_for_cluster(binding: Obj) -> bool:
    return bool((binding.get("target") or {}).get("kind") == CLUSTER)


def scheduled(call: Call, pod: Obj) -> Obj:
    """The condition PodScheduled.  A custom resource and a virtual machine have no null values."""
    probed = {} if call.resource.custom or is_virtual_machine(pod) else {"lastProbeTime": None}
    return {"type": POD_SCHEDULED, "status": "True", **probed, "lastTransitionTime": call.now()}


def assigned(pod: Obj, binding: Obj, condition: Obj) -> Obj:
    """As upstream, a binding changes no managedFields.  Only machines get its labels."""
    spec = pod["spec"] = {**(pod.get("spec") or {}), "nodeName": binding["target"]["name"]}
    if is_for_cluster(binding):
        spec["clusterName"] = binding["target"]["name"]
        if labels := binding["metadata"].get("labels"):
            pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}
    if noted := binding["metadata"].get("annotations"):
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **noted}
    status = pod["status"] = {**(pod.get("status") or {})}
    known = status.get("conditions") or ()
    others = [one for one in known if isinstance(one, dict) and one.get("type") != condition["type"]]
    status["conditions"] = [*others, condition]
    status.setdefault("phase", "Pending")
    return pod


# --- eviction -------------------------------------------------------------------------------------


async def evict(call: Call) -> Answer:
    options = write_options("CreateOptions", call.request.query)
    body = received(call, eviction_shape(), options)
    check_name(call, "Eviction", body.obj)
    await admit(call, eviction_shape(), body, options)
    how = msgspec.convert(body.obj.get("deleteOptions") or {}, DeleteOptions)
    if options.dry_run:
        how.dryRun = ["All"]
    delete.check_options(call, how)
    return await done(evict_pod(call, how, body.warnings), body.warnings)


async def evict_pod(call: Call, options: DeleteOptions, warnings: list[str]) -> None:
    entry = call.found()
    pod = objects.decode(entry)
    if not is_exempt(pod):
        await count_eviction(call, pod, dry_run=bool(options.dryRun))
    wanted = options.preconditions or Preconditions()
    wanted.uid = wanted.uid or pod["metadata"]["uid"]
    options.preconditions = wanted
    await delete.remove(call, entry, options, warnings)


async def count_eviction(call: Call, pod: Obj, *, dry_run: bool) -> None:
    """Count an eviction in the pod's PodDisruptionBudget.  Raises 429 if the budget allows none."""
    for _ in range(ATTEMPTS):
        budgets = budgets_of(call, pod)
        if len(budgets) > 1:
            raise ApiError(500, "InternalError", SEVERAL_BUDGETS, {})
        if not budgets:
            return
        entry, budget = budgets[0]
        pods = selected(call, selector_of(budget["spec"]["selector"]).matches)
        now = call.tools.clock()
        status = budget_status(budget, pods, expected(call, pods), now)
        after = status_after_eviction(budget, pod, status, now)
        if after is None or dry_run:
            return
        value = objects.encode(budget_kind(call).stored_as, {**budget, "status": after})
        try:
            await call.store.put(entry.key, value, expect=entry.revision)
        except Conflict:
            continue
        return
    raise modified(call)


def budget_kind(call: Call) -> Kind:
    return call.tools.kinds.builtin.of("policy", "v1", "poddisruptionbudgets")


def budgets_of(call: Call, pod: Obj) -> list[tuple[Entry, Obj]]:
    """The budgets that select a pod.  A missing selector selects nothing, an empty one everything."""
    home = objects.prefix(budget_kind(call).resource, call.target.cluster, call.target.namespace)
    found = [(entry, objects.decode(entry)) for entry in call.store.list(home).entries]
    labels = pod["metadata"].get("labels", {})
    return [(entry, budget) for entry, budget in found if concerns(budget, labels)]


def concerns(budget: Obj, labels: dict[str, str]) -> bool:
    selector = budget.get("spec", {}).get("selector")
    return selector is not None and selector_of(selector).matches(labels)


def selected(call: Call, matches: Callable[[dict[str, str]], bool]) -> list[Obj]:
    pods = (objects.decode(entry) for entry in call.store.list(call.prefix).entries)
    return [pod for pod in pods if matches(pod["metadata"].get("labels", {}))]


def expected(call: Call, pods: list[Obj]) -> int:
    """The desired number of pods: the replicas of their controllers, and the pods without one."""
    alone = 0
    makers: dict[str, int] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        maker = next((one for one in owners if one.get("controller") and one["kind"] in SCALED), None)
        made_by = maker and call.find(
            SCALED[maker["kind"]], f"{maker['kind'].lower()}s", call.target.namespace, maker["name"]
        )
        if made_by:
            makers[made_by["metadata"]["uid"]] = made_by["spec"].get("replicas", 1)
        else:
            alone += 1
    return alone + sum(makers.values())


EVICTION_TIMEOUT: Final = timedelta(minutes=2)  #: an evicted pod that still exists after this time counts again
CANNOT_EVICT: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def is_exempt(pod: Obj) -> bool:
    """Whether evicting a pod disrupts nothing."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def budget_status(budget: Obj, pods: Iterable[Obj], expected: int, now: datetime) -> Obj:
    """The status of a budget.  `expected`: the desired number of its pods."""
    disrupted = recent_evictions(budget, now)
    healthy = sum(
        is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted
        for pod in pods
    )
    desired = desired_healthy(budget.get("spec", {}), expected)
    status = {
        **(budget.get("status") or {}),
        "observedGeneration": budget["metadata"].get("generation", 0),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
        "disruptedPods": disrupted,
    }
    if not disrupted:
        del status["disruptedPods"]
    return status


def recent_evictions(budget: Obj, now: datetime) -> dict[str, str]:
    """The pods that were evicted within EVICTION_TIMEOUT, and their times."""
    noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    return {name: since for name, since in noted.items() if now - times.parse(since) < EVICTION_TIMEOUT}


def desired_healthy(spec: Obj, expected: int) -> int:
    if (most := spec.get("maxUnavailable")) is not None:
        return max(expected - share(most, expected), 0)
    least = spec.get("minAvailable")
    return expected if least is None else share(least, expected)


def share(value: Any, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up."""
    if isinstance(value, int):
        return value
    return -(-whole * int(value.removesuffix("%")) // 100)


def status_after_eviction(budget: Obj, pod: Obj, status: Obj, now: datetime) -> Obj | None:
    """The status of a budget after the eviction of a pod; None if the budget ignores this pod.  Raises 429."""
    healthy, desired = status["currentHealthy"], status["desiredHealthy"]
    if not is_ready(pod):
        always = budget.get("spec", {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (healthy >= desired and desired > 0):
            return None
    if status["disruptionsAllowed"] <= 0:
        name = budget["metadata"]["name"]
        why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
        raise ApiError(429, "TooManyRequests", CANNOT_EVICT, details)
    return {
        **status,
        "disruptionsAllowed": status["disruptionsAllowed"] - 1,
        "disruptedPods": {**status.get("disruptedPods", {}), pod["metadata"]["name"]: format_seconds(now)},
    }
