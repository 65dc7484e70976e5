"""Defaults and validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from farflung.apis.core.claims import default_claim
from farflung.apis.core.pods import (
    check_template,
    default_template,
    pod_spec_warnings,
)
from farflung.apis.validation import (
    NOT_NEGATIVE,
    Errors,
    Rules,
    check_at_most_everything,
    check_choice,
    check_count_or_percent,
    check_immutable,
    check_name,
    check_not_negative,
    check_selector,
    check_supported,
    is_empty_selector,
    is_zero_count,
    keep_spec,
    keep_status,
    selects,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported, required

NO_MATCH: Final = "`selector` does not match template `labels`"
MORE_THAN_REPLICAS: Final = "cannot be greater than status.replicas"
MORE_THAN_READY: Final = "cannot be greater than readyReplicas"
TEMPLATE: Final = "spec.template"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
STATEFUL_CHANGEABLE: Final = frozenset(
    {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    }
)  # fmt: skip
STATEFUL_FROZEN: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


# --- what they share ------------------------------------------------------------------------------


def template_labels(spec: Obj) -> Any:
    """None if the template has none: that is how it is shown."""
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels")


def check_selected_template(spec: Obj, kind: str, errors: Errors, *, claims: Iterable[Obj] = ()) -> None:
    """The template of pods that run for ever and that the (valid) selector must select."""
    selector = spec.get("selector")
    if not is_empty_selector(selector) and not selects(selector, template_labels(spec) or {}):
        errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
    check_template(spec.get("template") or {}, TEMPLATE, errors, claims=claims)
    check_runs_for_ever(spec, kind, errors)


def check_runs_for_ever(spec: Obj, kind: str, errors: Errors) -> None:
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        errors.append(not_supported(f"{TEMPLATE}.spec.restartPolicy", pod.get("restartPolicy", ""), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(field_forbidden(f"{TEMPLATE}.spec.activeDeadlineSeconds", why))


def check_required_selector(spec: Obj, empty: str, errors: Errors) -> bool:
    """Whether the selector can be applied."""
    selector, before = spec.get("selector"), len(errors)
    if selector is None:
        errors.append(required("spec.selector"))
        return True
    check_selector(selector, "spec.selector", errors)
    if len(errors) > before:
        errors.append(invalid_value("spec.selector", selector, "invalid label selector"))
        return False
    if is_empty_selector(selector):
        errors.append(invalid_value("spec.selector", selector, empty))
    return True


def check_counts(status: Obj, counts: Iterable[str], errors: Errors) -> None:
    check_not_negative(status, counts, "status", errors)


def check_not_more(status: Obj, members: Iterable[str], than: str, why: str, errors: Errors) -> None:
    limit = status.get(than, 0)
    for member in members:
        count = status.get(member, 0)
        if count > limit:
            errors.append(invalid_value(f"status.{member}", count, why))


def check_collisions(status: Obj, former: Obj, errors: Errors) -> None:
    before, now = former.get("collisionCount"), status.get("collisionCount")
    if before is not None and (now or 0) < before:
        errors.append(invalid_value("status.collisionCount", now or 0, "cannot be decremented"))


def template_warnings(new: Obj, old: Obj | None) -> list[str]:
    template = spec_of(new).get("template")
    if not template or (old is not None and spec_of(old).get("template") == template):
        return []
    return pod_spec_warnings(template.get("spec") or {}, f"{TEMPLATE}.spec")


def selector_is_immutable(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    check_immutable(spec_of(new).get("selector"), spec_of(old).get("selector"), "spec.selector", errors)
    return errors


# --- Deployment -----------------------------------------------------------------------------------


def _default_deployment(deployment: Obj) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    deployment.setdefault("status", {})


def _prepare_deployment(deployment: Obj) -> None:
    deployment["status"] = {}


def _prepare_deployment_status(new: Obj, old: Obj) -> None:
    new["spec"] = old["spec"]
    labels = (old.get("metadata") or {}).get("labels")
    metadata = new.setdefault("metadata", {})
    metadata.pop("labels", None)
    if labels:
        metadata["labels"] = labels


def _another_deployment(new: Obj, old: Obj) -> bool:
    """Annotations count: they travel to the ReplicaSets."""

    def annotations(deployment: Obj) -> Obj:
        return (deployment.get("metadata") or {}).get("annotations") or {}

    return new.get("spec") != old.get("spec") or annotations(new) != annotations(old)


def _validate_deployment(deployment: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(deployment)
    check_not_negative(spec, ("replicas",), "spec", errors)
    if check_required_selector(spec, "empty selector is invalid for deployment", errors):
        check_selected_template(spec, "ReplicaSet", errors)
    _check_deployment_strategy(spec.get("strategy") or {}, "spec.strategy", errors)
    check_not_negative(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), "spec", errors)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        errors.append(invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errors


def _check_deployment_strategy(strategy: Obj, path: str, errors: Errors) -> None:
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type", ""):
        case "Recreate":
            if rolling is not None:
                why = "may not be specified when strategy `type` is 'Recreate'"
                errors.append(field_forbidden(f"{path}.rollingUpdate", why))
        case "RollingUpdate":
            _check_rolling_update(rolling or {}, f"{path}.rollingUpdate", errors)
        case type_:
            shown = {"Type": type_, "RollingUpdate": rolling}
            errors.append(not_supported(path, shown, ("Recreate", "RollingUpdate")))


def _check_rolling_update(rolling: Obj, path: str, errors: Errors) -> None:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    check_count_or_percent(unavailable, f"{path}.maxUnavailable", errors)
    check_count_or_percent(surge, f"{path}.maxSurge", errors)
    if is_zero_count(unavailable) and is_zero_count(surge):
        errors.append(invalid_value(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    check_at_most_everything(unavailable, f"{path}.maxUnavailable", errors)


def _validate_deployment_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    status = new.get("status") or {}
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
    check_counts(status, ("observedGeneration", *counts, "terminatingReplicas"), errors)
    check_not_more(status, counts[1:4], "replicas", MORE_THAN_REPLICAS, errors)
    check_not_more(status, ("availableReplicas",), "readyReplicas", MORE_THAN_READY, errors)
    check_collisions(status, old.get("status") or {}, errors)
    return errors


DEPLOYMENT_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_deployment,
    prepare_create=_prepare_deployment,
    prepare_update=keep_status,
    prepare_status=_prepare_deployment_status,
    validate=_validate_deployment,
    validate_update=selector_is_immutable,
    validate_status=_validate_deployment_status,
    warnings=template_warnings,
    generation=True,
    another_generation=_another_deployment,
)


# --- ReplicaSet -----------------------------------------------------------------------------------


def _default_replica_set(replica_set: Obj) -> None:
    spec = replica_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec)
    replica_set.setdefault("status", {}).setdefault("replicas", 0)


def _prepare_replicas(obj: Obj) -> None:
    obj["status"] = {"replicas": 0}


def _validate_replica_set(replica_set: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(replica_set)
    check_not_negative(spec, ("replicas", "minReadySeconds"), "spec", errors)
    if check_required_selector(spec, "empty selector is invalid for deployment", errors):
        check_selected_template(spec, "ReplicaSet", errors)
    return errors


def _validate_replicas_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    status = new.get("status") or {}
    counts = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    check_counts(status, ("replicas", *counts, "observedGeneration", "terminatingReplicas"), errors)
    check_not_more(status, counts, "replicas", MORE_THAN_REPLICAS, errors)
    check_not_more(status, ("availableReplicas",), "readyReplicas", MORE_THAN_READY, errors)
    return errors


REPLICA_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_replica_set,
    prepare_create=_prepare_replicas,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_replica_set,
    validate_update=selector_is_immutable,
    validate_status=_validate_replicas_status,
    warnings=template_warnings,
    generation=True,
)


# --- ReplicationController ------------------------------------------------------------------------


def _default_controller(controller: Obj) -> None:
    spec = controller.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    if spec.get("template") is not None:
        labels = default_template(spec)["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
    controller.setdefault("status", {}).setdefault("replicas", 0)


def _validate_controller(controller: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(controller)
    selector: Mapping[str, str] = spec.get("selector") or {}
    check_not_negative(spec, ("minReadySeconds",), "spec", errors)
    if not selector:
        errors.append(required("spec.selector"))
    check_not_negative(spec, ("replicas",), "spec", errors)
    if spec.get("template") is None:
        errors.append(required(TEMPLATE))
        return errors
    labels = template_labels(spec) or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
    check_template(spec["template"], TEMPLATE, errors)
    check_runs_for_ever(spec, "ReplicationController", errors)
    return errors


CONTROLLER_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_controller,
    prepare_create=_prepare_replicas,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_controller,
    validate_status=_validate_replicas_status,
    warnings=template_warnings,
    generation=True,
)


# --- StatefulSet ----------------------------------------------------------------------------------


def _default_stateful_set(stateful_set: Obj) -> None:
    spec = stateful_set.setdefault("spec", {})
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("metadata", {})
        default_claim(claim)
    status = stateful_set.setdefault("status", {})
    status.setdefault("replicas", 0)
    status.setdefault("availableReplicas", 0)


def _prepare_stateful_set(stateful_set: Obj) -> None:
    stateful_set["status"] = {"replicas": 0, "availableReplicas": 0}


def _validate_stateful_set(stateful_set: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(stateful_set)
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        field = "spec.podManagementPolicy"
        errors.append(invalid_value(field, policy, why) if policy else required(field))
    _check_stateful_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy", errors)
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for member in ("whenDeleted", "whenScaled"):
        field = f"spec.persistentVolumeClaimRetentionPolicy.{member}"
        check_supported(retention.get(member, "Retain"), ("Retain", "Delete"), field, errors)
    check_not_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec", errors)
    check_not_negative(spec.get("ordinals") or {}, ("start",), "spec.ordinals", errors)
    if name := spec.get("serviceName"):
        check_name(names.dns_subdomain, name, "spec.serviceName", errors)
    if check_required_selector(spec, "empty selector is invalid for statefulset", errors):
        check_selected_template(spec, "StatefulSet", errors, claims=spec.get("volumeClaimTemplates") or ())
    return errors


def _check_stateful_strategy(strategy: Obj, path: str, errors: Errors) -> None:
    rolling = strategy.get("rollingUpdate")
    match strategy.get("type", ""):
        case "":
            errors.append(required(path))
        case "OnDelete":
            if rolling is not None:
                why = "only allowed for updateStrategy 'RollingUpdate'"
                errors.append(invalid_value(f"{path}.rollingUpdate", rolling, why))
        case "RollingUpdate":
            check_not_negative(rolling or {}, ("partition",), f"{path}.rollingUpdate", errors)
        case type_:
            shown = {"Type": type_, "RollingUpdate": rolling}
            errors.append(invalid_value(path, shown, "must be 'RollingUpdate' or 'OnDelete'"))


def _validate_stateful_update(new: Obj, old: Obj) -> Errors:
    def frozen(obj: Obj) -> Obj:
        return {key: value for key, value in spec_of(obj).items() if key not in STATEFUL_CHANGEABLE}

    return [] if frozen(new) == frozen(old) else [field_forbidden("spec", STATEFUL_FROZEN)]


def _validate_stateful_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    status = new.get("status") or {}
    counts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    check_counts(status, ("replicas", *counts, "observedGeneration", "collisionCount"), errors)
    check_not_more(status, counts, "replicas", MORE_THAN_REPLICAS, errors)
    check_not_more(
        status, ("availableReplicas",), "readyReplicas", "cannot be greater than status.readyReplicas", errors
    )
    check_collisions(status, old.get("status") or {}, errors)
    return errors


STATEFUL_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_stateful_set,
    prepare_create=_prepare_stateful_set,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_stateful_set,
    validate_update=_validate_stateful_update,
    validate_status=_validate_stateful_status,
    warnings=template_warnings,
    generation=True,
)


# --- DaemonSet ------------------------------------------------------------------------------------

DAEMON_COUNTS: Final = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


def _default_daemon_set(daemon_set: Obj) -> None:
    spec = daemon_set.setdefault("spec", {})
    default_template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    status = daemon_set.setdefault("status", {})
    for member in DAEMON_COUNTS:
        status.setdefault(member, 0)


def _prepare_daemon_set(daemon_set: Obj) -> None:
    daemon_set["status"] = dict.fromkeys(DAEMON_COUNTS, 0)
    _set_template_generation(daemon_set, max(_template_generation(daemon_set), 1))


def _template_generation(daemon_set: Obj) -> int:
    text = ((daemon_set.get("metadata") or {}).get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _set_template_generation(daemon_set: Obj, number: int) -> None:
    metadata = daemon_set.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(number)}


def _prepare_daemon_set_update(new: Obj, old: Obj) -> None:
    keep_status(new, old)
    changed = spec_of(new).get("template") != spec_of(old).get("template")
    _set_template_generation(new, max(_template_generation(old), 1) + changed)


def _validate_daemon_set(daemon_set: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(daemon_set)
    selector, before = spec.get("selector"), len(errors)
    check_selector(selector, "spec.selector", errors)
    if len(errors) == before and not selects(selector, template_labels(spec) or {}):
        errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
    if is_empty_selector(selector):
        errors.append(invalid_value("spec.selector", selector, "empty selector is invalid for daemonset"))
    check_template(spec.get("template") or {}, TEMPLATE, errors)
    check_runs_for_ever(spec, "DaemonSet", errors)
    check_not_negative(spec, ("minReadySeconds",), "spec", errors)
    _check_daemon_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy", errors)
    check_not_negative(spec, ("revisionHistoryLimit",), "spec", errors)
    return errors


def _check_daemon_strategy(strategy: Obj, path: str, errors: Errors) -> None:
    match strategy.get("type", ""):
        case "OnDelete":
            pass
        case "RollingUpdate":
            if strategy.get("rollingUpdate") is None:
                errors.append(required(f"{path}.rollingUpdate"))
            else:
                _check_daemon_rolling(strategy["rollingUpdate"], f"{path}.rollingUpdate", errors)
        case type_:
            check_choice(type_, ("RollingUpdate", "OnDelete"), f"{path}.type", errors)


def _check_daemon_rolling(rolling: Obj, path: str, errors: Errors) -> None:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    check_count_or_percent(unavailable, f"{path}.maxUnavailable", errors)
    check_count_or_percent(surge, f"{path}.maxSurge", errors)
    match is_zero_count(unavailable), is_zero_count(surge):
        case False, False:
            why = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid_value(f"{path}.maxSurge", surge, why))
        case True, True:
            errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    check_at_most_everything(unavailable, f"{path}.maxUnavailable", errors)
    check_at_most_everything(surge, f"{path}.maxSurge", errors)


def _validate_daemon_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    status = new.get("status") or {}
    others = ("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable")
    check_counts(status, (*DAEMON_COUNTS, *others), errors)
    check_collisions(status, old.get("status") or {}, errors)
    return errors


DAEMON_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_daemon_set,
    prepare_create=_prepare_daemon_set,
    prepare_update=_prepare_daemon_set_update,
    prepare_status=keep_spec,
    validate=_validate_daemon_set,
    validate_update=selector_is_immutable,
    validate_status=_validate_daemon_status,
    warnings=template_warnings,
    generation=True,
)


# --- ControllerRevision ---------------------------------------------------------------------------


def _validate_revision(revision: Obj) -> Errors:
    errors: Errors = []
    if revision.get("data") is None:
        errors.append(required("data", "data is mandatory"))
    if revision.get("revision", 0) < 0:
        errors.append(invalid_value("revision", revision["revision"], NOT_NEGATIVE))
    return errors


def _validate_revision_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    check_immutable(new.get("data"), old.get("data"), "data", errors)
    return errors


REVISION_RULES: Final = Rules(
    name=names.dns_subdomain, validate=_validate_revision, validate_update=_validate_revision_update
)


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("", "ReplicationController"): CONTROLLER_RULES,
    ("apps", "Deployment"): DEPLOYMENT_RULES,
    ("apps", "ReplicaSet"): REPLICA_SET_RULES,
    ("apps", "StatefulSet"): STATEFUL_SET_RULES,
    ("apps", "DaemonSet"): DAEMON_SET_RULES,
    ("apps", "ControllerRevision"): REVISION_RULES,
}
