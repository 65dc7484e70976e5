"""Jobs."""

from __future__ import annotations

from typing import Final

from farflung.apis.batch import printers
from farflung.apis.group import Group, count, status

BATCH: Final = Group("batch", "v1", "io.k8s.api.batch.v1.")

RESOURCES: Final = (
    BATCH.stored(
        "cronjobs",
        "CronJob",
        printer=printers.CRON_JOBS,
        short_names=("cj",),
        categories=("all",),
        subresources=(status("CronJob"),),
    ),
    BATCH.stored(
        "jobs",
        "Job",
        printer=printers.JOBS,
        categories=("all",),
        subresources=(status("Job"),),
        selectable={"status.successful": count("status", "succeeded")},
    ),
)
