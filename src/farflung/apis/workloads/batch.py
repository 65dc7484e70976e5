"""Jobs and CronJobs: resources, validation and printer columns.

A schedule has five fields, or is a descriptor such as `@hourly` or `@every 5m`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from farflung.apis.core.pods import check_template, default_template, pod_spec_warnings
from farflung.apis.printers import (
    AGE,
    NAME,
    NOTHING,
    TEMPLATE_CONTAINERS,
    PrinterRow,
    boolean_text,
    column,
    condition_status,
    containers,
    deleting,
    described,
    field,
    moment,
    part,
    printer,
    selector_text,
)
from farflung.apis.resource import Group, count, status
from farflung.apis.rows import (
    Always,
    ChangeCheck,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    Format,
    IfAbsent,
    IfPresent,
    InvalidIf,
    Maximum,
    MaxItems,
    Optional,
    Pointer,
    Refused,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unique,
    Unless,
    Validation,
    When,
    new_status,
    not_negative,
)
from farflung.apis.validation import (
    LARGEST_INT32,
    Errors,
    Rules,
    check_domain_path,
    check_immutable,
    check_selector,
    keep_spec,
    keep_status,
    selects,
    spec_of,
)
from farflung.machinery import names, times
from farflung.machinery.errors import Obj, go_quote, invalid_value, not_supported, required, too_many


def job_status(job: Obj) -> str:
    conditions = part(job, "status").get("conditions")
    true = [word for word in ("Complete", "Failed", "Suspended", "FailureTarget") if holds(conditions, word)]
    if deleting(job) and not {"Complete", "Failed"} & set(true):
        return "Terminating"
    return true[0] if true else "Running"


def holds(conditions: list[Obj] | None, type: str) -> bool:
    return condition_status(conditions, type) == "True"


def completions_text(job: Obj) -> str:
    spec, succeeded = part(job, "spec"), part(job, "status").get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def duration_text(job: Obj, now: datetime) -> str:
    status = part(job, "status")
    started = moment(status.get("startTime"))
    return "" if started is None else times.human((moment(status.get("completionTime")) or now) - started)


def last_schedule(cron_job: Obj, now: datetime) -> str:
    scheduled = part(cron_job, "status").get("lastScheduleTime")
    return times.age(scheduled, now) if scheduled else NOTHING


CRON_JOBS: Final = printer(
    "batch.v1.CronJob",
    NAME,
    field("Schedule", "spec.schedule"),
    field("Timezone", "spec.timeZone", NOTHING),
    field("Suspend", "spec.suspend", None, boolean_text, type="boolean"),
    field("Active", "status.active", None, lambda active: len(active or ()), type="integer"),
    PrinterRow("Last Schedule", last_schedule, "status.lastScheduleTime"),
    AGE,
    *containers("spec.jobTemplate.spec.template.spec"),
    field("Selector", "spec.jobTemplate.spec.selector", None, selector_text, priority=1),
)
JOBS: Final = printer(
    "batch.v1.Job",
    NAME,
    column("Status", "Status of the job.", job_status),
    described("Completions", "status.succeeded", completions_text),
    PrinterRow("Duration", duration_text, description="Time required to complete the job."),
    AGE,
    *TEMPLATE_CONTAINERS,
    field("Selector", "spec.selector", None, selector_text, priority=1),
)


# --- Jobs -----------------------------------------------------------------------------------------

BATCH: Final = Group("batch", "v1", "io.k8s.api.batch.v1.")

RESOURCES: Final = (
    BATCH.stored(
        "cronjobs",
        "CronJob",
        printer=CRON_JOBS,
        short_names=("cj",),
        categories=("all",),
        subresources=(status("CronJob"),),
    ),
    BATCH.stored(
        "jobs",
        "Job",
        printer=JOBS,
        categories=("all",),
        subresources=(status("Job"),),
        selectable={"status.successful": count("status", "succeeded")},
    ),
)


DESCRIPTORS: Final = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))++)")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclasses.dataclass(frozen=True, slots=True)
class NumberRange:
    low: int
    high: int
    names: dict[str, int] = dataclasses.field(default_factory=dict)


MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
DAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
FIELDS: Final = (
    NumberRange(0, 59),
    NumberRange(0, 23),
    NumberRange(1, 31),
    NumberRange(1, 12, MONTHS),
    NumberRange(0, 6, DAYS),
)


class _Refused(Exception):
    pass


def wrong_schedule(text: str) -> str:
    """The error of a schedule; empty if it is valid.  The caller refuses a leading `TZ=`."""
    if not text:
        return "empty spec string"
    if text.startswith("@"):
        if text in DESCRIPTORS:
            return ""
        if text.startswith("@every "):
            duration = text.removeprefix("@every ")
            if _DURATION.fullmatch(duration):
                return ""
            return f"failed to parse duration {text}: time: invalid duration {go_quote(duration)}"
        return f"unrecognized descriptor: {text}"
    parts = text.split()
    if len(parts) != len(FIELDS):
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    try:
        for part, bounds in zip(parts, FIELDS, strict=True):
            for expression in filter(None, part.split(",")):
                _check_range(expression, bounds)
    except _Refused as refused:
        return str(refused)
    return ""


def _check_range(expression: str, bounds: NumberRange) -> None:
    range_and_step = expression.split("/")
    low_and_high = range_and_step[0].split("-")
    single = len(low_and_high) == 1
    if low_and_high[0] in ("*", "?"):
        start, end = bounds.low, bounds.high
    else:
        start = _number_or_name(low_and_high[0], bounds)
        if len(low_and_high) > 2:
            raise _Refused(f"too many hyphens: {expression}")
        end = start if single else _number_or_name(low_and_high[1], bounds)
    if len(range_and_step) > 2:
        raise _Refused(f"too many slashes: {expression}")
    step = 1
    if len(range_and_step) == 2:
        step = _number(range_and_step[1])
        end = bounds.high if single else end
    _check_bounds(start, end, step, bounds, expression)


def _check_bounds(start: int, end: int, step: int, bounds: NumberRange, expression: str) -> None:
    if start < bounds.low:
        raise _Refused(f"beginning of range ({start}) below minimum ({bounds.low}): {expression}")
    if end > bounds.high:
        raise _Refused(f"end of range ({end}) above maximum ({bounds.high}): {expression}")
    if start > end:
        raise _Refused(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise _Refused(f"step of range should be a positive number: {expression}")


def _number_or_name(text: str, bounds: NumberRange) -> int:
    named = bounds.names.get(text.lower())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or not text.isascii():
        raise _Refused(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    number = int(text)
    if number < 0:
        raise _Refused(f"negative number ({number}) not allowed: {text}")
    return number


# --- Jobs and CronJobs ----------------------------------------------------------------------------

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID: Final = "controller-uid"
OLD_JOB_NAME: Final = "job-name"
MAX_INDEXED: Final = 100_000  #: pods at a time of an indexed Job
LONGEST_CRON_JOB_NAME: Final = 52
LONGEST_MANAGER: Final = 63
UNIMPORTANT_WHILE_SUSPENDED: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
ZONES: Final = "https://www.iana.org/time-zones"


# --- Job ------------------------------------------------------------------------------------------


def _default_counts(spec: Obj) -> None:
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
        spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", LARGEST_INT32 if spec.get("backoffLimitPerIndex") is not None else 6)


def _default_replacement_policy(spec: Obj) -> None:
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")


def _default_own_labels(job: Obj) -> None:
    _default_labels(job, job["spec"]["template"]["metadata"].get("labels"))


def _default_labels(job: Obj, labels: Obj | None) -> None:
    metadata = job.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _prepare_job(job: Obj) -> None:
    """The selector of a Job is its uid, unless it brings its own."""
    job["status"] = {}
    spec = job["spec"]
    if spec.get("manualSelector"):
        return
    metadata, template = job["metadata"], spec["template"]["metadata"]
    uid, labels = metadata.get("uid", ""), dict(template.get("labels") or {})
    if OLD_JOB_NAME not in labels:
        labels[JOB_NAME] = labels[OLD_JOB_NAME] = metadata.get("name", "")
    if OLD_CONTROLLER_UID not in labels:
        labels[CONTROLLER_UID] = labels[OLD_CONTROLLER_UID] = uid
    template["labels"] = labels
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {CONTROLLER_UID: uid, **(selector.get("matchLabels") or {})}
    spec["selector"] = selector
    _default_labels(job, labels)


def _check_generated_selector(job: Obj, path: str, errors: Errors) -> None:
    spec = spec_of(job)
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    metadata = job.get("metadata") or {}
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    if not uid:
        errors.append(required("metadata.uid"))
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    expected = {CONTROLLER_UID: uid, JOB_NAME: name, OLD_CONTROLLER_UID: uid, OLD_JOB_NAME: name}
    for key, value in expected.items():
        field, found = f"spec.template.metadata.labels[{key}]", labels.get(key)
        if found is None:
            errors.append(required(field, f"must be '{value}'"))
        elif found != value:
            errors.append(invalid_value(field, labels, f"must be '{value}'"))
    if not selects(spec["selector"], expected):
        errors.append(invalid_value("spec.selector", spec["selector"], "`selector` not auto-generated"))


def _check_selector(spec: Obj, path: str, errors: Errors) -> None:
    selector, before = spec.get("selector"), len(errors)
    if selector is None:
        errors.append(required(f"{path}.selector"))
    check_selector(selector, f"{path}.selector", errors)
    labels = (spec.get("template") or {}).get("metadata", {}).get("labels")
    if (len(errors) == before or selector is None) and not selects(selector, labels or {}):
        why = "`selector` does not match template `labels`"
        errors.append(invalid_value(f"{path}.template.metadata.labels", labels, why))


def _check_failed_indexes(spec: Obj, path: str, errors: Errors) -> None:
    failed, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if failed is not None and completions is not None and failed > completions:
        errors.append(invalid_value(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))


def _check_restart(spec: Obj, path: str, errors: Errors) -> None:
    field = f"{path}.template.spec.restartPolicy"
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        errors.append(required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errors.append(not_supported(field, policy, ("OnFailure", "Never")))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        why = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid_value(field, policy, why))


def one_of(member: str, *choices: str) -> Required:
    return Required(member, Enum(*choices), detail=f"valid values: [{' '.join(map(go_quote, choices))}]")


ACTION: Final = Table(one_of("action", "Count", "FailIndex", "FailJob", "Ignore"))
CONDITIONS: Final = Table(
    Each(
        "onPodConditions",
        Always("type", Format(names.qualified_name)),
        one_of("status", "False", "True", "Unknown"),
    )
)
OPERATOR: Final = Table(one_of("operator", "In", "NotIn"))
EXIT_CODES: Final = Table(
    Always("values", InvalidIf("not {v}", "at least one value is required"), MaxItems(255), zero=[]),
    When("operator", "In", Each("values", InvalidIf("{v} == 0", "must not be 0 for the In operator"), Unique())),
    Unless("operator", "In", Each("values", Unique())),
    Optional("values", InvalidIf("list({v}) != sorted({v})", "must be ordered")),
)


def _check_failure_policy(spec: Obj, path: str, errors: Errors) -> None:
    policy = spec.get("podFailurePolicy") or {}
    rules, path = policy.get("rules") or (), f"{path}.podFailurePolicy.rules"
    if len(rules) > 20:
        errors.append(too_many(path, len(rules), 20))
    containers = _container_names(spec) if rules else set()
    for at, rule in enumerate(rules):
        where = f"{path}[{at}]"
        ACTION(rule, where, errors)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            why = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid_value(f"{where}.action", "FailIndex", why))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            _check_exit_codes(codes, containers, f"{where}.onExitCodes", errors)
        CONDITIONS(rule, where, errors)
        if codes is not None and conditions:
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(invalid_value(where, "", why))
        if codes is None and not conditions:
            why = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(invalid_value(where, "", why))


def _container_names(spec: Obj) -> set[str]:
    pod = (spec.get("template") or {}).get("spec") or {}
    lists = (pod.get("containers") or (), pod.get("initContainers") or ())
    return {container.get("name", "") for containers in lists for container in containers}


def _check_exit_codes(codes: Obj, containers: set[str], path: str, errors: Errors) -> None:
    OPERATOR(codes, path, errors)
    name = codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{path}.containerName", name, why))
    EXIT_CODES(codes, path, errors)


NOT_INDEXED: Final = Table(
    *(
        Pointer(member, Refused("requires indexed completion mode"))
        for member in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
    )
)

#: the spec of a Job or of a CronJob's template, without its selector
JOB_SPEC: Final = Table(
    not_negative(
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ),
    IfPresent("maxFailedIndexes", RequiredPointer("backoffLimitPerIndex", detail="when maxFailedIndexes is specified")),
    Pointer("managedBy", partial(check_domain_path, longest=LONGEST_MANAGER)),
    Pointer("completionMode", Enum("NonIndexed", "Indexed")),
    When(
        "completionMode",
        "Indexed",
        RequiredPointer("completions", detail="when completion mode is Indexed"),
        Check(_check_failed_indexes),
        Pointer(
            "parallelism",
            Maximum(MAX_INDEXED, f"must be less than or equal to {MAX_INDEXED} when completion mode is Indexed"),
        ),
    ),
    When("completionMode", "NonIndexed", NOT_INDEXED),
    IfAbsent("completionMode", NOT_INDEXED),
    IfPresent("podFailurePolicy", Check(_check_failure_policy), Pointer("podReplacementPolicy", Enum("Failed"))),
    IfAbsent("podFailurePolicy", Pointer("podReplacementPolicy", Enum("Failed", "TerminatingOrFailed"))),
    Always("template", check_template, zero={}),
    Check(_check_restart),
)


def _check_job_change(new: Obj, old: Obj, errors: Errors) -> None:
    fresh, former = spec_of(new), spec_of(old)
    if not _resizes_indexed(fresh, former):
        check_immutable(fresh.get("completions"), former.get("completions"), "spec.completions", errors)
    check_immutable(fresh.get("selector"), former.get("selector"), "spec.selector", errors)
    template = _template_for_comparison(fresh, former, old)
    check_immutable(template, former.get("template"), "spec.template", errors)
    for member in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        check_immutable(fresh.get(member), former.get(member), f"spec.{member}", errors)


def _resizes_indexed(fresh: Obj, former: Obj) -> bool:
    """An indexed Job may grow or shrink as long as it runs all at once."""
    completions = fresh.get("completions")
    return (
        former.get("completionMode") == "Indexed"
        and completions is not None
        and completions == fresh.get("parallelism")
    )


def _template_for_comparison(fresh: Obj, former: Obj, old: Obj) -> Any:
    """While a Job is suspended and never ran, where its pods go may still change."""
    template: Obj = fresh.get("template") or {}
    status = old.get("status") or {}
    if not (former.get("suspend") and status.get("startTime") is None):
        return template
    was = (former.get("template") or {}).get("spec") or {}
    spec = {k: v for k, v in (template.get("spec") or {}).items() if k not in UNIMPORTANT_WHILE_SUSPENDED}
    spec.update({key: was[key] for key in UNIMPORTANT_WHILE_SUSPENDED if key in was})
    metadata = (former.get("template") or {}).get("metadata") or {}
    return {**template, "metadata": metadata, "spec": spec}


def _job_warnings(new: Obj, old: Obj | None) -> list[str]:
    if old is not None and spec_of(old).get("template") == spec_of(new).get("template"):
        return []
    return pod_spec_warnings((spec_of(new).get("template") or {}).get("spec") or {}, "spec.template.spec")


JOB_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec", {}),
        Struct(
            "spec",
            _default_counts,
            Default("completionMode", "NonIndexed"),
            Default("suspend", False),
            Default("manualSelector", False),
            Each("podFailurePolicy.rules", Each("onPodConditions", Default("status", "True"))),
            _default_replacement_policy,
            default_template,
        ),
        _default_own_labels,
        Default("status", {}),
    ),
    prepare_create=_prepare_job,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(
        Check(_check_generated_selector),
        Always("spec", JOB_SPEC, _check_selector, zero={}),
    ),
    validate_update=Validation(ChangeCheck(_check_job_change)),
    validate_status=Validation(
        not_negative("status.active", "status.succeeded", "status.failed", "status.ready", "status.terminating")
    ),
    warnings=_job_warnings,
    generation=True,
)


# --- CronJob --------------------------------------------------------------------------------------


def _check_schedule(schedule: str, field: str, errors: Errors) -> None:
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid_value(field, schedule, why))
    elif wrong := wrong_schedule(schedule):
        errors.append(invalid_value(field, schedule, wrong))


def _check_time_zone(zone: str, field: str, errors: Errors) -> None:
    if not zone:
        errors.append(invalid_value(field, zone, "timeZone must be nil or non-empty string"))
    elif zone.lower() == "local":
        why = f"timeZone must be an explicit time zone as defined in {ZONES}"
        errors.append(invalid_value(field, zone, why))
    elif not _is_zone(zone):
        errors.append(invalid_value(field, zone, f"unknown time zone {zone}"))


def _is_zone(name: str) -> bool:
    if (
        len(name) > 64
        or not name.isascii()
        or not name.replace("_", "").replace("/", "").replace("-", "").replace("+", "").isalnum()
    ):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _cron_job_warnings(new: Obj, old: Obj | None) -> list[str]:
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    template = (spec_of(new).get("jobTemplate") or {}).get("spec") or {}
    pod = (template.get("template") or {}).get("spec") or {}
    return pod_spec_warnings(pod, "spec.jobTemplate.spec.template.spec")


CRON_JOB_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec.concurrencyPolicy", "Allow"),
        Default("spec.suspend", False),
        Default("spec.successfulJobsHistoryLimit", 3),
        Default("spec.failedJobsHistoryLimit", 1),
        Default("spec.jobTemplate.metadata", {}),
        Default("spec.jobTemplate.spec", {}),
        Struct("spec.jobTemplate.spec", default_template),
        Default("status", {}),
    ),
    prepare_create=new_status({}),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(
        Required("spec.schedule", _check_schedule),
        not_negative("spec.startingDeadlineSeconds"),
        Pointer("spec.timeZone", _check_time_zone),
        Required("spec.concurrencyPolicy", Enum("Allow", "Forbid", "Replace")),
        Always(
            "spec.jobTemplate.spec",
            JOB_SPEC,
            Pointer("selector", Refused("`selector` will be auto-generated")),
            Optional("manualSelector", Enum("nil", "false")),
            zero={},
        ),
        not_negative("spec.successfulJobsHistoryLimit", "spec.failedJobsHistoryLimit"),
    ),
    validate_create=Validation(
        Always(
            "metadata.name",
            InvalidIf(f"len({{v}}) > {LONGEST_CRON_JOB_NAME}", names.at_most(LONGEST_CRON_JOB_NAME)),
        )
    ),
    warnings=_cron_job_warnings,
    generation=True,
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("batch", "Job"): JOB_RULES,
    ("batch", "CronJob"): CRON_JOB_RULES,
}
