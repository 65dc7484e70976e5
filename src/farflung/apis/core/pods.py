"""Defaults, preparation and validation of Pods and pod templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from farflung.apis.core.affinity import AFFINITY, TOLERATION, check_spread
from farflung.apis.core.containers import (
    CONTAINERS,
    IMAGE_PADDING,
    check_ephemeral_containers,
    check_init_containers,
    default_container,
)
from farflung.apis.core.resources import (
    PodContext,
    check_amounts,
    check_pod_requirements,
    default_requests,
    service_class,
)
from farflung.apis.core.security import OPERATING_SYSTEM, POD_SECURITY, check_host_processes, containers_of
from farflung.apis.core.volumes import check_volumes, default_volume
from farflung.apis.names import NO_EXECUTE, NOT_READY_TAINT, POD_SCHEDULED, UNREACHABLE_TAINT
from farflung.apis.rows import (
    ITSELF,
    Always,
    ChangeCheck,
    Check,
    ContextCheck,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfPresent,
    InvalidIf,
    Optional,
    Pointer,
    Range,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unique,
    Validation,
    When,
    Where,
)
from farflung.apis.validation import (
    LARGEST_INT32,
    Errors,
    Rules,
    check_address,
    check_annotations,
    check_immutable,
    check_labels,
    check_name,
    is_dual_stack,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, go_quote, invalid_value, required

ALL_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
#: fields of a pod spec that are checked always
PLAIN: Final = frozenset(
    {
        "containers", "volumes", "restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "securityContext",
        "schedulerName", "enableServiceLinks", "automountServiceAccountToken",
    }
)  # fmt: skip
DEFAULT_GRACE: Final = 30
TOLERATED: Final = (NOT_READY_TAINT, UNREACHABLE_TAINT)
TOLERATION_SECONDS: Final = 300
IMMUTABLE_SPEC: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)


# --- defaults -------------------------------------------------------------------------------------


def default_service_account(spec: Obj) -> None:
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


default_pod_spec: Final = Defaults(
    Each("volumes", default_volume),
    *(Each(member, default_container) for member in ALL_CONTAINERS),
    Default("restartPolicy", "Always"),
    Default("terminationGracePeriodSeconds", DEFAULT_GRACE),
    Default("dnsPolicy", "ClusterFirst"),
    Default("securityContext", {}),
    Default("schedulerName", "default-scheduler"),
    default_service_account,
)


def default_template(holder: Obj, member: str = "template") -> Obj:
    """Defaults of the template under `holder`, which is returned."""
    template: Obj = holder.setdefault(member, {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))
    return template


def default_pod(pod: Obj) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    status = pod.setdefault("status", {})
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    for member in ("containers", "initContainers"):
        for container in spec.get(member) or ():
            default_requests(container)
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort", 0))
    _default_pod_requests(spec)


def _default_pod_requests(spec: Obj) -> None:
    """A limit of the pod is its request too, for resources that no container requests."""
    resources = spec.get("resources")
    if not resources or not resources.get("limits"):
        return
    asked = {name for c in spec.get("containers") or () for name in ((c.get("resources") or {}).get("requests") or ())}
    requests = dict(resources.get("requests") or {})
    for resource, amount in resources["limits"].items():
        if resource not in asked:
            requests.setdefault(resource, amount)
    if requests:
        resources["requests"] = requests


# --- checks of a pod spec -------------------------------------------------------------------------


def check_host_network(spec: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    for at, container in enumerate(spec.get("containers") or ()):
        for index, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort", 0)
            if (host or not pod.template) and host != port.get("containerPort", 0):
                why = "must match `containerPort` when `hostNetwork` is true"
                errors.append(invalid_value(f"{path}.containers[{at}].ports[{index}].hostPort", host, why))


def check_searches(searches: Sequence[str], path: str, errors: Errors) -> None:
    if len(searches) > 32:
        errors.append(invalid_value(path, searches, "must not have more than 32 search paths"))
    if sum(map(names.size, searches)) + len(searches) - 1 > 2048:
        why = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid_value(path, searches, why))
    for at, search in enumerate(searches):
        domain = search.removesuffix(".")
        if search != "." and names.dns_subdomain(domain.replace("_", "x")):
            check_name(names.dns_subdomain, domain, f"{path}[{at}]", errors)


def lacks_nameservers(spec: Obj) -> bool:
    return spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers")


SUBDOMAIN: Final = Format(names.dns_subdomain)
NO_DNS: Final = "must provide `dnsConfig` when `dnsPolicy` is None"
NO_NAMESERVERS: Final = "must provide at least one DNS nameserver when `dnsPolicy` is None"
DNS_CONFIG: Final = Table(
    Optional("nameservers", InvalidIf("len({v}) > 3", "must not have more than 3 nameservers")),
    Each("nameservers", check_address),
    Optional("searches", check_searches),
    Each("options", Required("name", named=ITSELF, detail="must not be empty")),
)
PRIVATE_USERS: Final = ForbiddenField("when `pod.Spec.HostUsers` is false")

#: what most pods do without
PLACEMENT: Final = Table(
    Optional("nodeSelector", check_labels),
    POD_SECURITY,
    Struct("affinity", AFFINITY),
    Where(
        lacks_nameservers,
        RequiredPointer("dnsConfig", Required("nameservers", detail=NO_NAMESERVERS), detail=NO_DNS),
        otherwise=(Struct("dnsConfig", DNS_CONFIG),),
    ),
    Each("readinessGates", Always("conditionType", Format(names.qualified_name))),
    Each("schedulingGates", Always("name", Format(names.qualified_name), Unique(), named=ITSELF)),
    Optional("topologySpreadConstraints", check_spread),
    Check(check_host_processes),
    When(
        "hostUsers",
        False,
        Optional("hostNetwork", PRIVATE_USERS),
        Optional("hostPID", PRIVATE_USERS, named="HostPID"),
        Optional("hostIPC", PRIVATE_USERS, named="HostIPC"),
    ),
    Optional("serviceAccountName", SUBDOMAIN),
    Optional("nodeName", SUBDOMAIN),
    Pointer("activeDeadlineSeconds", Range(1, LARGEST_INT32)),
    Optional("hostname", Format(names.dns_label)),
    Optional("subdomain", Format(names.dns_label)),
    Each("tolerations", TOLERATION),
    Each("hostAliases", Always("ip", check_address), Each("hostnames", SUBDOMAIN)),
    Optional("priorityClassName", SUBDOMAIN),
    Pointer("runtimeClassName", SUBDOMAIN),
    IfPresent("preemptionPolicy", Required("preemptionPolicy", Enum("PreemptLowerPriority", "Never"))),
    Optional("overhead", check_amounts, named="overhead.limits"),
    OPERATING_SYSTEM,
)


def is_plain(spec: Obj) -> bool:
    """It has none of the fields that most pods do without: half the cost of checking a pod is asking for those."""
    return (
        spec.keys() <= PLAIN
        and not spec.get("securityContext")
        and spec.get("dnsPolicy") != "None"
        and not any("securityContext" in container for container in spec.get("containers") or ())
    )


POD_SPEC: Final = Table(
    CONTAINERS,
    IfPresent("initContainers", ContextCheck(check_init_containers)),
    IfPresent("ephemeralContainers", ContextCheck(check_ephemeral_containers)),
    Optional("resources", check_pod_requirements),
    When("hostNetwork", True, ContextCheck(check_host_network)),
    Required("restartPolicy", Enum("Always", "OnFailure", "Never")),
    Required("dnsPolicy", Enum("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")),
    Where(is_plain, otherwise=(Check(PLACEMENT),)),
)


def check_pod_spec(spec: Obj, path: str, errors: Errors, *, pod_name: str = "", claims: Iterable[Obj] = ()) -> None:
    """`pod_name` of a pod's own spec; `claims` are the templates a StatefulSet adds as volumes."""
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    volumes = _with_claims(spec.get("volumes") or (), claims)
    context = PodContext(
        volumes=check_volumes(volumes, pod_name, f"{path}.volumes", errors) if volumes else {},
        claims=_check_resource_claims(spec.get("resourceClaims") or (), f"{path}.resourceClaims", errors),
        grace=grace,
        restart=spec.get("restartPolicy", ""),
        host_users=spec.get("hostUsers") is not False,
        template=not pod_name,
    )
    POD_SPEC(spec, path, errors, context)


def _with_claims(volumes: Iterable[Obj], claims: Iterable[Obj]) -> list[Obj]:
    by_claim = {(claim.get("metadata") or {}).get("name", ""): claim for claim in claims}
    added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in by_claim if name]
    return [*(volume for volume in volumes if volume.get("name", "") not in by_claim), *added]


def _check_resource_claims(claims: Iterable[Obj], path: str, errors: Errors) -> frozenset[str]:
    seen: set[str] = set()
    for at, claim in enumerate(claims):
        name, where = claim.get("name", ""), f"{path}[{at}]"
        if not name:
            errors.append(required(f"{where}.name"))
        elif name in seen:
            errors.append(duplicate(f"{where}.name", name))
        else:
            check_name(names.dns_label, name, f"{where}.name", errors)
            seen.add(name)
        references = [claim.get(member) for member in ("resourceClaimName", "resourceClaimTemplateName")]
        if None not in references:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid_value(where, claim, why))
        if references == [None, None]:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid_value(where, claim, why))
    return frozenset(seen)


#: valid specs of templates as JSON: most occur again, in updates, in ReplicaSets and in other workspaces
_valid_specs: Final[set[bytes]] = set()
MAX_CACHED: Final = 512
LARGEST_CACHED: Final = 8 * 1024  #: bytes


def check_template(template: Obj, path: str, errors: Errors, *, claims: Iterable[Obj] = ()) -> None:
    metadata = template.get("metadata") or {}
    if labels := metadata.get("labels"):
        check_labels(labels, f"{path}.labels", errors)
    if annotations := metadata.get("annotations"):
        check_annotations(annotations, f"{path}.annotations", errors)
    spec = template.get("spec") or {}
    if claims:
        check_pod_spec(spec, f"{path}.spec", errors, claims=claims)
    elif (encoded := orjson.dumps(spec)) not in _valid_specs:
        before = len(errors)
        check_pod_spec(spec, f"{path}.spec", errors)
        if len(errors) == before and len(encoded) <= LARGEST_CACHED:
            if len(_valid_specs) >= MAX_CACHED:
                _valid_specs.clear()
            _valid_specs.add(encoded)
    if spec.get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        errors.append(field_forbidden(f"{path}.spec.ephemeralContainers", why))


# --- the kind -------------------------------------------------------------------------------------


def _prepare_create(pod: Obj) -> None:
    spec = spec_of(pod)
    status: Obj = {"phase": "Pending", "qosClass": service_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": POD_SCHEDULED,
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    pod["status"] = status


def _prepare_status(new: Obj, old: Obj) -> None:
    new["spec"] = old["spec"]
    metadata, former = new.get("metadata") or {}, old.get("metadata") or {}
    metadata.pop("ownerReferences", None)
    if "ownerReferences" in former:
        metadata["ownerReferences"] = former["ownerReferences"]
    if quality := (old.get("status") or {}).get("qosClass"):
        new.setdefault("status", {}).setdefault("qosClass", quality)


def check_own_spec(pod: Obj, path: str, errors: Errors) -> None:
    name = (pod.get("metadata") or {}).get("name") or "pod"
    check_pod_spec(spec_of(pod), "spec", errors, pod_name=name)


NO_ACCOUNT: Final = ForbiddenField("must not be specified when serviceAccountName is not set")
GATED: Final = ForbiddenField("cannot be set until all schedulingGates have been cleared")

POD: Final = Validation(
    Check(check_own_spec),
    When(
        "spec.serviceAccountName",
        "",
        Each("spec.volumes", Each("projected.sources", Pointer("serviceAccountToken", NO_ACCOUNT))),
    ),
    Each("spec.containers", IMAGE_PADDING),
    Each("spec.initContainers", IMAGE_PADDING),
)
NEW_POD: Final = Validation(
    Optional("spec.ephemeralContainers", ForbiddenField("cannot be set on create")),
    IfPresent("spec.schedulingGates", Optional("spec.nodeName", GATED)),
)


def _validate_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    if fresh == former:
        return errors
    for member in ("containers", "initContainers"):
        if len(fresh.get(member) or ()) != len(former.get(member) or ()):
            errors.append(field_forbidden(f"spec.{member}", "pod updates may not add or remove containers"))
            return errors
    if not _check_deadline(fresh.get("activeDeadlineSeconds"), former.get("activeDeadlineSeconds"), errors):
        return errors
    _check_only_added(fresh.get("tolerations") or (), former.get("tolerations") or (), errors)
    _check_only_removed(fresh.get("schedulingGates") or (), former.get("schedulingGates") or (), errors)
    allowed = _with_changeable_fields_of(former, fresh, errors)
    if allowed != former:
        errors.append(field_forbidden("spec", IMMUTABLE_SPEC + _difference(former, allowed)))
    return errors


def _check_deadline(fresh: int | None, former: int | None, errors: Errors) -> bool:
    field = "spec.activeDeadlineSeconds"
    if fresh is None:
        if former is not None:
            errors.append(invalid_value(field, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= fresh <= LARGEST_INT32:
        errors.append(invalid_value(field, fresh, names.between(0, LARGEST_INT32)))
        return False
    if former is not None and former < fresh:
        errors.append(invalid_value(field, fresh, "must be less than or equal to previous value"))
        return False
    return True


def _check_only_added(fresh: Iterable[Obj], former: Iterable[Obj], errors: Errors) -> None:
    def timeless(toleration: Obj) -> frozenset[tuple[str, str]]:
        return frozenset((key, value) for key, value in toleration.items() if key != "tolerationSeconds")

    if not set(map(timeless, former)) <= set(map(timeless, fresh)):
        why = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(field_forbidden("spec.tolerations", why))


def _check_only_removed(fresh: Iterable[Obj], former: Iterable[Obj], errors: Errors) -> None:
    known = {gate.get("name", "") for gate in former}
    for at, gate in enumerate(fresh):
        if (name := gate.get("name", "")) not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.append(field_forbidden(f"spec.schedulingGates[{at}].name", why))


def _with_changeable_fields_of(former: Obj, fresh: Obj, errors: Errors) -> Obj:
    """The new spec with the old values of all that may change."""
    changeable = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    if former.get("terminationGracePeriodSeconds", 0) < 0 and fresh.get("terminationGracePeriodSeconds") == 1:
        changeable.append("terminationGracePeriodSeconds")
    if former.get("schedulingGates"):
        _check_only_more_selective(fresh.get("nodeSelector") or {}, former.get("nodeSelector") or {}, errors)
        changeable.append("nodeSelector")
    allowed = {key: value for key, value in fresh.items() if key not in changeable}
    allowed.update({key: former[key] for key in changeable if key in former})
    for member in ("containers", "initContainers"):
        if fresh.get(member):
            allowed[member] = [
                {**container, "image": was.get("image", "")} if "image" in container else container
                for container, was in zip(fresh[member], former[member], strict=True)
            ]
    return allowed


def _check_only_more_selective(fresh: Obj, former: Obj, errors: Errors) -> None:
    if any(fresh.get(key) != value for key, value in former.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid_value("spec.nodeSelector", fresh, why))


def _difference(former: Obj, fresh: Obj) -> str:
    """The members that differ, before and after."""
    lines = ["  core.PodSpec{\n"]
    for member in sorted(former.keys() | fresh.keys()):
        if former.get(member) != fresh.get(member):
            for sign, spec in (("-", former), ("+", fresh)):
                if member in spec:
                    lines.append(f"{sign} \t{member}: {orjson.dumps(spec[member]).decode()},\n")
    return "".join([*lines, "  }\n"])


def check_fixed_status(new: Obj, old: Obj, errors: Errors) -> None:
    status, former = new.get("status") or {}, old.get("status") or {}
    if (node := status.get("nominatedNodeName")) and node != former.get("nominatedNodeName"):
        check_name(names.dns_subdomain, node, "status.nominatedNodeName", errors)
    check_immutable(status.get("qosClass"), former.get("qosClass"), "status.qosClass", errors)


def check_transitions(new: Obj, old: Obj, errors: Errors) -> None:
    """A terminated container must not restart if its restart policy forbids it."""
    status, former, restart = new.get("status") or {}, old.get("status") or {}, spec_of(old).get("restartPolicy", "")
    if restart == "Always":
        return
    for member in ("containerStatuses", "initContainerStatuses"):
        running = {
            one.get("name") for one in status.get(member) or () if (one.get("state") or {}).get("terminated") is None
        }
        for at, was in enumerate(former.get(member) or ()):
            ended = (was.get("state") or {}).get("terminated")
            if ended is None or (ended.get("exitCode", 0) != 0 and restart == "OnFailure"):
                continue
            if was.get("name") in running:
                why = "may not be transitioned to non-terminated state"
                errors.append(field_forbidden(f"status.{member}[{at}].state", why))


def check_addresses(entries: Sequence[Obj], path: str, errors: Errors) -> None:
    addresses = [entry.get("ip", "") for entry in entries]
    good = [check_address(address, f"{path}[{at}]", errors) for at, address in enumerate(addresses)]
    if len(addresses) > 1 and all(good) and (len(addresses) > 2 or not is_dual_stack(addresses)):
        errors.append(invalid_value(path, entries, "may specify no more than one IP for each IP family"))


POD_STATUS: Final = Validation(
    Each("status.conditions", Always("type", Format(names.qualified_name), named="Type"), named="metadata.conditions"),
    ChangeCheck(check_fixed_status),
    ChangeCheck(check_transitions),
    Optional("status.podIPs", check_addresses),
    Optional("status.hostIPs", check_addresses),
)


def grace_seconds(pod: Obj) -> int:
    """The default grace period in seconds; 0 if no container can be running."""
    spec = spec_of(pod)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    seconds: int = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return max(seconds, 0) if seconds >= 0 else 1


# --- warnings -------------------------------------------------------------------------------------


def pod_spec_warnings(spec: Obj, path: str) -> list[str]:
    warnings: list[str] = []
    for container, where in containers_of(spec, path):
        if variables := container.get("env"):
            _warn_of_hidden_variables(variables, where, warnings)
        if ports := container.get("ports"):
            first: dict[tuple[object, ...], int] = {}
            for at, port in enumerate(ports):
                key = tuple(port.get(member) for member in ("containerPort", "hostPort", "hostIP", "protocol"))
                before = first.setdefault(key, at)
                if before != at:
                    warnings.append(f"{where}.ports[{at}]: duplicate port definition with {where}.ports[{before}]")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        warnings.append(f"{path}.terminationGracePeriodSeconds: {why}")
    return warnings


def _warn_of_hidden_variables(variables: Iterable[Obj], path: str, warnings: list[str]) -> None:
    seen: set[str] = set()
    for at, variable in enumerate(variables):
        name = variable.get("name", "")
        if name in seen and f"$({name})" not in variable.get("value", ""):
            why = f"hides previous definition of {go_quote(name)}, which may be dropped when using apply"
            warnings.append(f"{path}.env[{at}]: {why}")
        seen.add(name)


def _warnings(new: Obj, old: Obj | None) -> list[str]:
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    return pod_spec_warnings(spec_of(new), "spec")


# --- tolerations ----------------------------------------------------------------------------------


def add_tolerations(pod: Obj) -> None:
    """A pod tolerates a node that is not ready or not reachable for five minutes, unless it has such tolerations."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or []
    handled = {t.get("key", "") for t in tolerations if t.get("effect", "") in (NO_EXECUTE, "")}
    missing = [key for key in TOLERATED if key not in handled and "" not in handled]
    if missing:
        spec["tolerations"] = [*tolerations, *map(_toleration, missing)]


def _toleration(key: str) -> Obj:
    return {"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": TOLERATION_SECONDS}


POD_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=default_pod,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=_prepare_status,
    validate=POD,
    validate_create=NEW_POD,
    validate_update=_validate_update,
    validate_status=POD_STATUS,
    warnings=_warnings,
    generation=True,
    graceful_seconds=grace_seconds,
    returns_deleted=True,
)


# --- PodTemplate ----------------------------------------------------------------------------------


POD_TEMPLATE_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(default_template),
    validate=Validation(Always("template", check_template, zero={})),
    warnings=lambda new, old: pod_spec_warnings((new.get("template") or {}).get("spec") or {}, "template.spec"),
    generation=True,
    returns_deleted=True,
)
