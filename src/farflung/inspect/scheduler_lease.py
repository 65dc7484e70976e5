"""The Lease of the global scheduler: its holder, and the holder's files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import orjson

from farflung.apis.globalscheduler.names import FILES_ANNOTATION
from farflung.apis.kcp.names import COMPUTE
from farflung.apis.names import LEASES
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machines.controller import NAME
from farflung.machines.files.configuration import SchedulerConfiguration

LONGEST: Final = 1000  #: characters of a problem
SILENT: Final = timedelta(
    minutes=1
)  #: without renewal, after which the holder counts as dead; tolerates clock differences


class ScheduledFiles(Result, frozen=True):
    """The configuration files of the running scheduler."""

    options: list[str]
    sites: int
    when: str  #: they were last valid
    problem: str
    since: str


class SchedulerStatus(Result, frozen=True):
    works: bool  #: the Lease is held
    heard: str  #: the last renewal
    files: ScheduledFiles | None

    @property
    def is_well(self) -> bool:
        return self.works and not (self.files and self.files.problem)


async def lease_of(root: Client) -> Obj | None:
    """Empty: not found; None: not visible."""
    try:
        return await root.workspace(COMPUTE).get(LEASES, NAME, "default")
    except NotFound:
        return {}
    except Forbidden:
        return None


def read_lease(lease: Obj, now: datetime) -> SchedulerStatus:
    heard = fields.moment(lease, "spec", "renewTime")
    is_held = bool(fields.text(lease, "spec", "holderIdentity"))
    works = is_held and (heard is None or now - heard < SILENT)
    return SchedulerStatus(works, "" if heard is None else times.format_seconds(heard), _files(lease))


def _files(lease: Obj) -> ScheduledFiles | None:
    """None: no files, or the Lease is not held."""
    if not fields.text(lease, "spec", "holderIdentity"):
        return None
    annotation = fields.texts(lease, "metadata", "annotations").get(FILES_ANNOTATION, "")
    try:
        found = orjson.loads(annotation)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    options = found.get("options")
    return ScheduledFiles(
        [one for one in options if isinstance(one, str)] if isinstance(options, list) else [],
        fields.number(found, "sites"),
        *(fields.text(found, name) for name in ("when", "problem", "since")),
    )


def has_sites(lease: Obj | None) -> bool:
    """Whether machines may be bound although there are no Clusters."""
    files = _files(lease or {})
    return files is not None and files.sites > 0


async def remarks(root: Client, configured: SchedulerConfiguration) -> list[str]:
    """For `explain` and `plan`.  `configured`: by the options of the command."""
    files = _files(await lease_of(root) or {})
    return [] if files is None else list(_remarks(files, named=configured != SchedulerConfiguration()))


def _remarks(files: ScheduledFiles, *, named: bool) -> Iterator[str]:
    if not named:
        yield f"the global scheduler uses {fields.line(' '.join(files.options))}; this command does not"
    if files.problem:
        yield f"its files are invalid since {fields.line(files.since)}: {describe_problem(files)}"


def describe_problem(files: ScheduledFiles) -> str:
    return f"{fields.line(files.problem, LONGEST)}; the version of {fields.line(files.when)} stays in use"
