"""Jobs and CronJobs: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from farflung.apis.printers import (
    AGE,
    NAME,
    NOTHING,
    TEMPLATE,
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
from farflung.machinery import times
from farflung.machinery.errors import Obj


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
    *TEMPLATE,
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
