"""Jobs."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, count, status

BATCH: Final = Group("batch", "v1", "io.k8s.api.batch.v1.")

RESOURCES: Final = (
    BATCH.stored("cronjobs", "CronJob", short_names=("cj",), categories=("all",), subresources=(status("CronJob"),)),
    BATCH.stored(
        "jobs",
        "Job",
        categories=("all",),
        subresources=(status("Job"),),
        selectable={"status.successful": count("status", "succeeded")},
    ),
)
