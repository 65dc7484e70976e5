"""Jobs and CronJobs: resources and printer columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import (
    CONTAINERS,
    IMAGES,
    NOTHING,
    age_of,
    boolean_text,
    condition_status,
    container_cells,
    deleting,
    described,
    moment,
    name_of,
    part,
    selector_text,
)
from farflung.apis.resource import Group, count, status
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def cron_job_cells(obj: Obj, now: datetime) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    scheduled = status.get("lastScheduleTime")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone", NOTHING),
        boolean_text(spec.get("suspend")),
        len(status.get("active") or ()),
        times.age(scheduled, now) if scheduled else NOTHING,
        age_of(obj, now),
        *container_cells(part(spec, "jobTemplate", "spec", "template", "spec")),
        selector_text(part(spec, "jobTemplate", "spec").get("selector")),
    ]


CRON_JOBS: Final = Printer(
    (
        NAME,
        described("Schedule", "batch.v1.CronJobSpec.schedule"),
        described("Timezone", "batch.v1.CronJobSpec.timeZone"),
        described("Suspend", "batch.v1.CronJobSpec.suspend", "boolean"),
        described("Active", "batch.v1.CronJobStatus.active", "integer"),
        described("Last Schedule", "batch.v1.CronJobStatus.lastScheduleTime"),
        AGE,
        CONTAINERS,
        IMAGES,
        described("Selector", "batch.v1.JobSpec.selector", priority=1),
    ),
    cron_job_cells,
)


def job_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        job_status(obj),
        completions_text(obj),
        duration_text(part(obj, "status"), now),
        age_of(obj, now),
        *container_cells(part(spec, "template", "spec")),
        selector_text(spec.get("selector")),
    ]


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


def duration_text(status: Obj, now: datetime) -> str:
    started = moment(status.get("startTime"))
    return "" if started is None else times.human((moment(status.get("completionTime")) or now) - started)


JOBS: Final = Printer(
    (
        NAME,
        Column("Status", description="Status of the job."),
        described("Completions", "batch.v1.JobStatus.succeeded"),
        Column("Duration", description="Time required to complete the job."),
        AGE,
        CONTAINERS,
        IMAGES,
        described("Selector", "batch.v1.JobSpec.selector", priority=1),
    ),
    job_cells,
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
