"""Deployments, ReplicaSets, StatefulSets, DaemonSets: resources, validation and printer columns.

ReplicationControllers have the same validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from farflung.apis.core.claims import default_claim
from farflung.apis.core.pods import check_template, default_template, pod_spec_warnings
from farflung.apis.printers import (
    AGE,
    NAME,
    NOTHING,
    REPLICAS,
    TEMPLATE_CONTAINERS,
    PrinterRow,
    column,
    field,
    labels_text,
    part,
    printer,
    selector_text,
)
from farflung.apis.resource import SCALE, Group, Resource, Subresource, status
from farflung.apis.rows import (
    Always,
    ChangeCheck,
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
    Refused,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unless,
    Validation,
    When,
    immutable,
    new_status,
    not_negative,
)
from farflung.apis.validation import (
    Errors,
    Rules,
    check_at_most_everything,
    check_count_or_percent,
    check_selector,
    is_empty_selector,
    is_zero_count,
    keep_spec,
    keep_status,
    selects,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, not_supported, qualified, required
from farflung.machinery.table import Printer

LABELS_PAGE: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors"


def ready_text(obj: Obj) -> str:
    return f"{part(obj, 'status').get('readyReplicas', 0)}/{part(obj, 'spec').get('replicas', 0)}"


def owner_text(revision: Obj) -> str:
    owners = part(revision, "metadata").get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    if not owner:
        return NOTHING
    group = owner.get("apiVersion", "").rpartition("/")[0]
    return f"{qualified(owner.get('kind', ''), group).lower()}/{owner.get('name', '')}"


READY: Final = column("Ready", "Number of the pod with ready state", ready_text)


def selector(description: str, show: Callable[[Obj | None], str] = selector_text) -> PrinterRow:
    return field("Selector", "spec.selector", None, show, description=description, priority=1)


CONTROLLER_REVISIONS: Final = printer(
    "apps.v1.ControllerRevision",
    NAME,
    column("Controller", "Controller of the object", owner_text),
    field("Revision", "revision", 0),
    AGE,
)
DAEMON_SETS: Final = printer(
    "apps.v1.DaemonSet",
    NAME,
    field("Desired", "status.desiredNumberScheduled", 0, type="integer"),
    field("Current", "status.currentNumberScheduled", 0, type="integer"),
    field(
        "Ready",
        "status.numberReady",
        0,
        type="integer",
        description="The number of nodes that should be running the daemon pod and have one or more of the daemon pod "
        "running and ready.",
    ),
    field("Up-to-date", "status.updatedNumberScheduled", 0, type="integer"),
    field("Available", "status.numberAvailable", 0, type="integer"),
    field("Node Selector", "spec.template.spec.nodeSelector", show=labels_text),
    AGE,
    *TEMPLATE_CONTAINERS,
    selector(
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. If empty, "
        f"defaulted to labels on Pod template. More info: {LABELS_PAGE}"
    ),
)
DEPLOYMENTS: Final = printer(
    "apps.v1.Deployment",
    NAME,
    READY,
    field("Up-to-date", "status.updatedReplicas", 0),
    field("Available", "status.availableReplicas", 0),
    AGE,
    *TEMPLATE_CONTAINERS,
    selector(
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by "
        "this deployment.",
        partial(selector_text, empty="", invalid="<invalid>"),
    ),
)
REPLICA_SETS: Final = printer(
    "apps.v1.ReplicaSet",
    NAME,
    *REPLICAS,
    AGE,
    *TEMPLATE_CONTAINERS,
    selector(
        "Selector is a label query over pods that should match the replica count. If the selector is empty, it is "
        "defaulted to the labels present on the pod template. Label keys and values that must match in order to be "
        f"controlled by this replica set. More info: {LABELS_PAGE}"
    ),
)
STATEFUL_SETS: Final = printer("apps.v1.StatefulSet", NAME, READY, AGE, *TEMPLATE_CONTAINERS)


# --- Workloads ------------------------------------------------------------------------------------

APPS: Final = Group("apps", "v1", "io.k8s.api.apps.v1.")


def _workload(kind: str, short: str, printer: Printer, *subresources: Subresource) -> Resource:
    names, all_of = (short,), (*subresources, status(kind))
    plural = f"{kind.lower()}s"
    return APPS.stored(plural, kind, printer=printer, short_names=names, categories=("all",), subresources=all_of)


RESOURCES: Final = (
    APPS.stored("controllerrevisions", "ControllerRevision", printer=CONTROLLER_REVISIONS),
    _workload("DaemonSet", "ds", DAEMON_SETS),
    _workload("Deployment", "deploy", DEPLOYMENTS, SCALE),
    _workload("ReplicaSet", "rs", REPLICA_SETS, SCALE),
    _workload("StatefulSet", "sts", STATEFUL_SETS, SCALE),
)


NO_MATCH: Final = "`selector` does not match template `labels`"
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


# --- Pod templates and their selectors ------------------------------------------------------------


def template_labels(spec: Obj) -> Any:
    """None if the template has none: that is how it is shown."""
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels")


def check_runs_for_ever(spec: Obj, kind: str, errors: Errors) -> None:
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        errors.append(not_supported(f"{TEMPLATE}.spec.restartPolicy", pod.get("restartPolicy", ""), ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(field_forbidden(f"{TEMPLATE}.spec.activeDeadlineSeconds", why))


def selected_template(kind: str, empty: str) -> Always:
    """A spec with a required selector and a template of pods that run for ever, which a valid selector must select."""

    def check(spec: Obj, path: str, errors: Errors) -> None:
        selector, before = spec.get("selector"), len(errors)
        if selector is None:
            errors.append(required("spec.selector"))
        else:
            check_selector(selector, "spec.selector", errors)
            if len(errors) > before:
                errors.append(invalid_value("spec.selector", selector, "invalid label selector"))
                return
            if is_empty_selector(selector):
                errors.append(invalid_value("spec.selector", selector, empty))
        if not is_empty_selector(selector) and not selects(selector, template_labels(spec) or {}):
            errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
        claims = spec.get("volumeClaimTemplates") or ()
        check_template(spec.get("template") or {}, TEMPLATE, errors, claims=claims)
        check_runs_for_ever(spec, kind, errors)

    return Always("spec", check, zero={})


def template_warnings(new: Obj, old: Obj | None) -> list[str]:
    template = spec_of(new).get("template")
    if not template or (old is not None and spec_of(old).get("template") == template):
        return []
    return pod_spec_warnings(template.get("spec") or {}, f"{TEMPLATE}.spec")


# --- Counts of pods in a status -------------------------------------------------------------------


def status_counts(*members: str) -> Table:
    return not_negative(*(f"status.{member}" for member in members))


def at_most(limit: str, members: Iterable[str], detail: str = "") -> Always:
    """Counts that must not exceed another one."""

    def check(status: Obj, path: str, errors: Errors) -> None:
        most = status.get(limit, 0)
        for member in members:
            count = status.get(member, 0)
            if count > most:
                errors.append(
                    invalid_value(f"{path}.{member}", count, detail or f"cannot be greater than status.{limit}")
                )

    return Always("status", check, zero={})


def check_collisions(new: Obj, old: Obj, errors: Errors) -> None:
    now, before = (new.get("status") or {}).get("collisionCount"), (old.get("status") or {}).get("collisionCount")
    if before is not None and (now or 0) < before:
        errors.append(invalid_value("status.collisionCount", now or 0, "cannot be decremented"))


READY_COUNTS: Final = at_most("readyReplicas", ("availableReplicas",), "cannot be greater than readyReplicas")


# --- Deployment -----------------------------------------------------------------------------------


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


def _check_rollout_possible(rolling: Obj, path: str, errors: Errors) -> None:
    unavailable = rolling.get("maxUnavailable", 0)
    if is_zero_count(unavailable) and is_zero_count(rolling.get("maxSurge", 0)):
        errors.append(invalid_value(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))


def _refuse_strategy(strategy: Obj, path: str, errors: Errors) -> None:
    shown = {"Type": strategy.get("type", ""), "RollingUpdate": strategy.get("rollingUpdate")}
    errors.append(not_supported(path, shown, ("Recreate", "RollingUpdate")))


def _check_deadline(spec: Obj, path: str, errors: Errors) -> None:
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        errors.append(
            invalid_value(f"{path}.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
        )


ROLLING_COUNTS: Final = Table(
    Always("maxUnavailable", check_count_or_percent, zero=0), Always("maxSurge", check_count_or_percent, zero=0)
)
DEPLOYMENT: Final = Validation(
    not_negative("spec.replicas"),
    selected_template("ReplicaSet", "empty selector is invalid for deployment"),
    When(
        "spec.strategy.type",
        "Recreate",
        Pointer(
            "spec.strategy.rollingUpdate", ForbiddenField("may not be specified when strategy `type` is 'Recreate'")
        ),
    ),
    When(
        "spec.strategy.type",
        "RollingUpdate",
        Always(
            "spec.strategy.rollingUpdate",
            ROLLING_COUNTS,
            _check_rollout_possible,
            Always("maxUnavailable", check_at_most_everything, zero=0),
            zero={},
        ),
    ),
    Unless("spec.strategy.type", ("Recreate", "RollingUpdate"), Always("spec.strategy", _refuse_strategy, zero={})),
    not_negative("spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.progressDeadlineSeconds"),
    Struct("spec", _check_deadline),
)
DEPLOYMENT_COUNTS: Final = ("updatedReplicas", "readyReplicas", "availableReplicas")
DEPLOYMENT_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec.replicas", 1),
        Struct("spec", default_template),
        Default("spec.strategy.type", "RollingUpdate"),
        When(
            "spec.strategy.type",
            "RollingUpdate",
            Default("spec.strategy.rollingUpdate.maxUnavailable", "25%"),
            Default("spec.strategy.rollingUpdate.maxSurge", "25%"),
        ),
        Default("spec.revisionHistoryLimit", 10),
        Default("spec.progressDeadlineSeconds", 600),
        Default("status", {}),
    ),
    prepare_create=new_status({}),
    prepare_update=keep_status,
    prepare_status=_prepare_deployment_status,
    validate=DEPLOYMENT,
    validate_update=immutable("spec.selector"),
    validate_status=Validation(
        status_counts(
            "observedGeneration", "replicas", *DEPLOYMENT_COUNTS, "unavailableReplicas", "terminatingReplicas"
        ),
        at_most("replicas", DEPLOYMENT_COUNTS),
        READY_COUNTS,
        ChangeCheck(check_collisions),
    ),
    warnings=template_warnings,
    generation=True,
    another_generation=_another_deployment,
)


# --- ReplicaSet -----------------------------------------------------------------------------------

REPLICA_COUNTS: Final = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
REPLICAS_STATUS: Final = Validation(
    status_counts("replicas", *REPLICA_COUNTS, "observedGeneration", "terminatingReplicas"),
    at_most("replicas", REPLICA_COUNTS),
    READY_COUNTS,
)
REPLICA_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec.replicas", 1),
        Struct("spec", default_template),
        Default("status.replicas", 0),
    ),
    prepare_create=new_status({"replicas": 0}),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(
        not_negative("spec.replicas", "spec.minReadySeconds"),
        selected_template("ReplicaSet", "empty selector is invalid for deployment"),
    ),
    validate_update=immutable("spec.selector"),
    validate_status=REPLICAS_STATUS,
    warnings=template_warnings,
    generation=True,
)


# --- ReplicationController ------------------------------------------------------------------------


def _default_selector(controller: Obj) -> None:
    """The labels of the template are the default of the selector and of the controller's own labels."""
    spec = controller["spec"]
    if spec.get("template") is None:
        return
    labels = default_template(spec)["metadata"].get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = controller.setdefault("metadata", {})
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _check_controlled_template(spec: Obj, path: str, errors: Errors) -> None:
    selector: Mapping[str, str] = spec.get("selector") or {}
    labels = template_labels(spec) or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
    check_template(spec["template"], TEMPLATE, errors)
    check_runs_for_ever(spec, "ReplicationController", errors)


CONTROLLER_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(Default("spec.replicas", 1), _default_selector, Default("status.replicas", 0)),
    prepare_create=new_status({"replicas": 0}),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(
        not_negative("spec.minReadySeconds"),
        Required("spec.selector"),
        not_negative("spec.replicas"),
        RequiredPointer("spec.template"),
        IfPresent("spec.template", Struct("spec", _check_controlled_template)),
    ),
    validate_status=REPLICAS_STATUS,
    warnings=template_warnings,
    generation=True,
)


# --- StatefulSet ----------------------------------------------------------------------------------


def _refuse_update_strategy(strategy: Obj, path: str, errors: Errors) -> None:
    shown = {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}
    errors.append(invalid_value(path, shown, "must be 'RollingUpdate' or 'OnDelete'"))


STATEFUL_SET: Final = Validation(
    Required(
        "spec.podManagementPolicy",
        InvalidIf("{v} not in ('OrderedReady', 'Parallel')", "must be 'OrderedReady' or 'Parallel'"),
    ),
    Required("spec.updateStrategy.type", named="spec.updateStrategy"),
    When(
        "spec.updateStrategy.type",
        "OnDelete",
        Pointer("spec.updateStrategy.rollingUpdate", Refused("only allowed for updateStrategy 'RollingUpdate'")),
    ),
    When("spec.updateStrategy.type", "RollingUpdate", not_negative("spec.updateStrategy.rollingUpdate.partition")),
    Unless(
        "spec.updateStrategy.type",
        ("", "OnDelete", "RollingUpdate"),
        Struct("spec.updateStrategy", _refuse_update_strategy),
    ),
    *(
        Always(f"spec.persistentVolumeClaimRetentionPolicy.{member}", Enum("Retain", "Delete"), zero="Retain")
        for member in ("whenDeleted", "whenScaled")
    ),
    not_negative("spec.replicas", "spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.ordinals.start"),
    Optional("spec.serviceName", Format(names.dns_subdomain)),
    selected_template("StatefulSet", "empty selector is invalid for statefulset"),
)


def _validate_stateful_update(new: Obj, old: Obj) -> Errors:
    def frozen(obj: Obj) -> Obj:
        return {key: value for key, value in spec_of(obj).items() if key not in STATEFUL_CHANGEABLE}

    return [] if frozen(new) == frozen(old) else [field_forbidden("spec", STATEFUL_FROZEN)]


STATEFUL_COUNTS: Final = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
STATEFUL_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec.podManagementPolicy", "OrderedReady"),
        Default("spec.updateStrategy.type", "RollingUpdate"),
        When("spec.updateStrategy.type", "RollingUpdate", Default("spec.updateStrategy.rollingUpdate.partition", 0)),
        Default("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"),
        Default("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"),
        Default("spec.replicas", 1),
        Default("spec.revisionHistoryLimit", 10),
        Struct("spec", default_template),
        Each(
            "spec.volumeClaimTemplates",
            Default("kind", "PersistentVolumeClaim"),
            Default("apiVersion", "v1"),
            Default("metadata", {}),
            default_claim,
        ),
        Default("status.replicas", 0),
        Default("status.availableReplicas", 0),
    ),
    prepare_create=new_status({"replicas": 0, "availableReplicas": 0}),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=STATEFUL_SET,
    validate_update=_validate_stateful_update,
    validate_status=Validation(
        status_counts("replicas", *STATEFUL_COUNTS, "observedGeneration", "collisionCount"),
        at_most("replicas", STATEFUL_COUNTS),
        at_most("readyReplicas", ("availableReplicas",)),
        ChangeCheck(check_collisions),
    ),
    warnings=template_warnings,
    generation=True,
)


# --- DaemonSet ------------------------------------------------------------------------------------

DAEMON_COUNTS: Final = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


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


def _check_daemon_template(spec: Obj, path: str, errors: Errors) -> None:
    selector, before = spec.get("selector"), len(errors)
    check_selector(selector, "spec.selector", errors)
    if len(errors) == before and not selects(selector, template_labels(spec) or {}):
        errors.append(invalid_value(f"{TEMPLATE}.metadata.labels", template_labels(spec), NO_MATCH))
    if is_empty_selector(selector):
        errors.append(invalid_value("spec.selector", selector, "empty selector is invalid for daemonset"))
    check_template(spec.get("template") or {}, TEMPLATE, errors)
    check_runs_for_ever(spec, "DaemonSet", errors)


def _check_one_of_surge_and_unavailable(rolling: Obj, path: str, errors: Errors) -> None:
    surge = rolling.get("maxSurge", 0)
    match is_zero_count(rolling.get("maxUnavailable", 0)), is_zero_count(surge):
        case False, False:
            why = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid_value(f"{path}.maxSurge", surge, why))
        case True, True:
            errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


DAEMON_SET: Final = Validation(
    Always("spec", _check_daemon_template, zero={}),
    not_negative("spec.minReadySeconds"),
    Required("spec.updateStrategy.type", Enum("RollingUpdate", "OnDelete")),
    When(
        "spec.updateStrategy.type",
        "RollingUpdate",
        RequiredPointer(
            "spec.updateStrategy.rollingUpdate",
            ROLLING_COUNTS,
            _check_one_of_surge_and_unavailable,
            Always("maxUnavailable", check_at_most_everything, zero=0),
            Always("maxSurge", check_at_most_everything, zero=0),
        ),
    ),
    not_negative("spec.revisionHistoryLimit"),
)
DAEMON_SET_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec", {}),
        Struct("spec", default_template),
        Default("spec.updateStrategy.type", "RollingUpdate"),
        When(
            "spec.updateStrategy.type",
            "RollingUpdate",
            Default("spec.updateStrategy.rollingUpdate.maxUnavailable", 1),
            Default("spec.updateStrategy.rollingUpdate.maxSurge", 0),
        ),
        Default("spec.revisionHistoryLimit", 10),
        *(Default(f"status.{member}", 0) for member in DAEMON_COUNTS),
    ),
    prepare_create=_prepare_daemon_set,
    prepare_update=_prepare_daemon_set_update,
    prepare_status=keep_spec,
    validate=DAEMON_SET,
    validate_update=immutable("spec.selector"),
    validate_status=Validation(
        status_counts(
            *DAEMON_COUNTS, "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"
        ),
        ChangeCheck(check_collisions),
    ),
    warnings=template_warnings,
    generation=True,
)


# --- ControllerRevision ---------------------------------------------------------------------------

REVISION_RULES: Final = Rules(
    name=names.dns_subdomain,
    validate=Validation(RequiredPointer("data", detail="data is mandatory"), not_negative("revision")),
    validate_update=immutable("data"),
)


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("", "ReplicationController"): CONTROLLER_RULES,
    ("apps", "Deployment"): DEPLOYMENT_RULES,
    ("apps", "ReplicaSet"): REPLICA_SET_RULES,
    ("apps", "StatefulSet"): STATEFUL_SET_RULES,
    ("apps", "DaemonSet"): DAEMON_SET_RULES,
    ("apps", "ControllerRevision"): REVISION_RULES,
}
