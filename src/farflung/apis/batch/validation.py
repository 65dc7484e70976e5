"""Defaults and validation of Jobs and CronJobs.

A schedule has five fields, or is a descriptor such as `@hourly` or `@every 5m`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zoneinfo import ZoneInfo

from farflung.apis.core.pods import check_template, default_template, pod_spec_warnings
from farflung.apis.validation import (
    LARGEST_INT32,
    Errors,
    Rules,
    check_choice,
    check_domain_path,
    check_immutable,
    check_name,
    check_not_negative,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    selects,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, go_quote, invalid_value, not_supported, required, too_many

DESCRIPTORS: Final = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))++)")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class NumberRange:
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)


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
COMPLETION_MODES: Final = ("NonIndexed", "Indexed")
REPLACEMENT_POLICIES: Final = ("Failed", "TerminatingOrFailed")
CONCURRENCY_POLICIES: Final = ("Allow", "Forbid", "Replace")
FAILURE_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
JOB_NUMBERS: Final = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
MOST_INDEXED: Final = 100_000  #: pods at a time of an indexed Job
LONGEST_CRON_JOB_NAME: Final = 52
LONGEST_MANAGER: Final = 63
UNIMPORTANT_WHILE_SUSPENDED: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
ZONES: Final = "https://www.iana.org/time-zones"


# --- Job ------------------------------------------------------------------------------------------


def _default_job(job: Obj) -> None:
    spec = job.setdefault("spec", {})
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
        spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", LARGEST_INT32 if spec.get("backoffLimitPerIndex") is not None else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failures = spec.get("podFailurePolicy")
    for rule in (failures or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if failures is None else "Failed")
    template = default_template(spec)
    _default_labels(job, template["metadata"].get("labels"))
    job.setdefault("status", {})


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


def _validate_job(job: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(job)
    _check_generated_selector(job, spec, errors)
    check_job_spec(spec, "spec", errors)
    selector, before = spec.get("selector"), len(errors)
    if selector is None:
        errors.append(required("spec.selector"))
    check_selector(selector, "spec.selector", errors)
    labels = (spec.get("template") or {}).get("metadata", {}).get("labels")
    if (len(errors) == before or selector is None) and not selects(selector, labels or {}):
        why = "`selector` does not match template `labels`"
        errors.append(invalid_value("spec.template.metadata.labels", labels, why))
    return errors


def _check_generated_selector(job: Obj, spec: Obj, errors: Errors) -> None:
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


def check_job_spec(spec: Obj, path: str, errors: Errors) -> None:
    """The spec of a Job or of a CronJob's template, without its selector."""
    check_not_negative(spec, (*JOB_NUMBERS, "backoffLimitPerIndex", "maxFailedIndexes"), path, errors)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if (manager := spec.get("managedBy")) is not None:
        check_domain_path(manager, LONGEST_MANAGER, f"{path}.managedBy", errors)
    if (mode := spec.get("completionMode")) is not None:
        check_supported(mode, COMPLETION_MODES, f"{path}.completionMode", errors)
        if mode == "Indexed":
            _check_indexed(spec, path, errors)
    if mode in (None, "NonIndexed"):
        for member in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(member) is not None:
                errors.append(invalid_value(f"{path}.{member}", spec[member], "requires indexed completion mode"))
    if (failures := spec.get("podFailurePolicy")) is not None:
        _check_failure_policy(spec, failures, f"{path}.podFailurePolicy", errors)
    if (policy := spec.get("podReplacementPolicy")) is not None:
        choices = REPLACEMENT_POLICIES if spec.get("podFailurePolicy") is None else ("Failed",)
        check_supported(policy, choices, f"{path}.podReplacementPolicy", errors)
    check_template(spec.get("template") or {}, f"{path}.template", errors)
    _check_restart(spec, f"{path}.template.spec.restartPolicy", errors)


def _check_indexed(spec: Obj, path: str, errors: Errors) -> None:
    if spec.get("completions") is None:
        errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
    failed, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if failed is not None and completions is not None and failed > completions:
        errors.append(invalid_value(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    parallelism = spec.get("parallelism")
    if parallelism is not None and parallelism > MOST_INDEXED:
        why = f"must be less than or equal to {MOST_INDEXED} when completion mode is Indexed"
        errors.append(invalid_value(f"{path}.parallelism", parallelism, why))


def _check_restart(spec: Obj, field: str, errors: Errors) -> None:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        errors.append(required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errors.append(not_supported(field, policy, ("OnFailure", "Never")))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        why = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid_value(field, policy, why))


def _check_failure_policy(spec: Obj, policy: Obj, path: str, errors: Errors) -> None:
    rules = policy.get("rules") or ()
    if len(rules) > 20:
        errors.append(too_many(f"{path}.rules", len(rules), 20))
    containers = _container_names(spec)
    for at, rule in enumerate(rules):
        where = f"{path}.rules[{at}]"
        _check_one_of(rule.get("action", ""), FAILURE_ACTIONS, f"{where}.action", errors)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            why = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid_value(f"{where}.action", "FailIndex", why))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            _check_exit_codes(codes, containers, f"{where}.onExitCodes", errors)
        for index, pattern in enumerate(conditions):
            check_name(names.qualified_name, pattern.get("type", ""), f"{where}.onPodConditions[{index}].type", errors)
            _check_one_of(
                pattern.get("status", ""),
                ("False", "True", "Unknown"),
                f"{where}.onPodConditions[{index}].status",
                errors,
            )
        if codes is not None and conditions:
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(invalid_value(where, "", why))
        if codes is None and not conditions:
            why = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(invalid_value(where, "", why))


def _check_one_of(value: str, choices: tuple[str, ...], field: str, errors: Errors) -> None:
    if value:
        check_supported(value, choices, field, errors)
    else:
        errors.append(required(field, f"valid values: [{' '.join(map(go_quote, choices))}]"))


def _container_names(spec: Obj) -> set[str]:
    pod = (spec.get("template") or {}).get("spec") or {}
    lists = (pod.get("containers") or (), pod.get("initContainers") or ())
    return {container.get("name", "") for containers in lists for container in containers}


def _check_exit_codes(codes: Obj, containers: set[str], path: str, errors: Errors) -> None:
    operator, values = codes.get("operator", ""), codes.get("values") or ()
    _check_one_of(operator, ("In", "NotIn"), f"{path}.operator", errors)
    name = codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{path}.containerName", name, why))
    if not values:
        errors.append(invalid_value(f"{path}.values", values or [], "at least one value is required"))
    if len(values) > 255:
        errors.append(too_many(f"{path}.values", len(values), 255))
    seen: set[int] = set()
    for at, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid_value(f"{path}.values[{at}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(f"{path}.values[{at}]", value))
        seen.add(value)
    if list(values) != sorted(values):
        errors.append(invalid_value(f"{path}.values", values, "must be ordered"))


def _validate_job_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    if not _resizes_indexed(fresh, former):
        check_immutable(fresh.get("completions"), former.get("completions"), "spec.completions", errors)
    check_immutable(fresh.get("selector"), former.get("selector"), "spec.selector", errors)
    template = _template_for_comparison(fresh, former, old)
    check_immutable(template, former.get("template"), "spec.template", errors)
    for member in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        check_immutable(fresh.get(member), former.get(member), f"spec.{member}", errors)
    return errors


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


def _validate_job_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    counts = ("active", "succeeded", "failed", "ready", "terminating")
    check_not_negative(new.get("status") or {}, counts, "status", errors)
    return errors


def _job_warnings(new: Obj, old: Obj | None) -> list[str]:
    if old is not None and spec_of(old).get("template") == spec_of(new).get("template"):
        return []
    return pod_spec_warnings((spec_of(new).get("template") or {}).get("spec") or {}, "spec.template.spec")


JOB_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_job,
    prepare_create=_prepare_job,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_job,
    validate_update=_validate_job_update,
    validate_status=_validate_job_status,
    warnings=_job_warnings,
    generation=True,
)


# --- CronJob --------------------------------------------------------------------------------------


def _default_cron_job(cron_job: Obj) -> None:
    spec = cron_job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    default_template(template.setdefault("spec", {}))
    cron_job.setdefault("status", {})


def _prepare_cron_job(cron_job: Obj) -> None:
    cron_job["status"] = {}


def _validate_cron_job(cron_job: Obj) -> Errors:
    errors: Errors = []
    spec = spec_of(cron_job)
    schedule = spec.get("schedule", "")
    if not schedule:
        errors.append(required("spec.schedule"))
    elif "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid_value("spec.schedule", schedule, why))
    elif wrong := wrong_schedule(schedule):
        errors.append(invalid_value("spec.schedule", schedule, wrong))
    check_not_negative(spec, ("startingDeadlineSeconds",), "spec", errors)
    if (zone := spec.get("timeZone")) is not None:
        _check_time_zone(zone, "spec.timeZone", errors)
    check_choice(spec.get("concurrencyPolicy", ""), CONCURRENCY_POLICIES, "spec.concurrencyPolicy", errors)
    _check_job_template((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec", errors)
    check_not_negative(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec", errors)
    return errors


def _check_job_template(spec: Obj, path: str, errors: Errors) -> None:
    check_job_spec(spec, path, errors)
    if spec.get("selector") is not None:
        errors.append(invalid_value(f"{path}.selector", spec["selector"], "`selector` will be auto-generated"))
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{path}.manualSelector", True, ("nil", "false")))


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


def _validate_cron_job_create(cron_job: Obj) -> Errors:
    name = (cron_job.get("metadata") or {}).get("name", "")
    if len(name) > LONGEST_CRON_JOB_NAME:
        return [invalid_value("metadata.name", name, names.at_most(LONGEST_CRON_JOB_NAME))]
    return []


def _cron_job_warnings(new: Obj, old: Obj | None) -> list[str]:
    if old is not None and old.get("spec") == new.get("spec"):
        return []
    template = (spec_of(new).get("jobTemplate") or {}).get("spec") or {}
    pod = (template.get("template") or {}).get("spec") or {}
    return pod_spec_warnings(pod, "spec.jobTemplate.spec.template.spec")


CRON_JOB_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default_cron_job,
    prepare_create=_prepare_cron_job,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate_cron_job,
    validate_create=_validate_cron_job_create,
    warnings=_cron_job_warnings,
    generation=True,
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("batch", "Job"): JOB_RULES,
    ("batch", "CronJob"): CRON_JOB_RULES,
}
