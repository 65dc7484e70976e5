"""A syncer's report in the status of `the-one`.  Pure; accepts any content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_REACHABLE
from farflung.apis.kcp.names import HEARTBEAT_HEALTHY
from farflung.inspect import fields
from farflung.machinery.errors import Obj
from farflung.placement.names import Part
from farflung.placement.syncer_config import parse_heartbeat
from farflung.syncer.report import LONGEST

SILENCE: Final = timedelta(seconds=60)  #: without a heartbeat, after which a syncer counts as dead, as on the hub
NEWS: Final = timedelta(seconds=3)  #: until a live syncer reports a change
EVERY: Final = "*"  #: instead of a name: all objects of a kind
ADVICE: Final = {
    "NotManaged": "delete or rename one of the two, or let the syncer adopt existing objects (--adopt)",
    "Forbidden": "allow it: run `farflung syncer-gen` with --allow and apply the manifest",
    "Contested": "find the other writer in the cluster",
    "NotServedError": "install its definition in the cluster",
}


class ReportedProblem(NamedTuple):
    reason: str
    message: str
    tries: int

    @property
    def sentence(self) -> str:
        tried = f", tried {self.tries} times" if self.tries > 1 else ""
        return f"{self.reason}{tried}: {self.message}" if self.message else f"{self.reason}{tried}"

    @property
    def advice(self) -> str:
        return ADVICE.get(self.reason, "")


@dataclass(frozen=True, slots=True)
class EdgeReport:
    heard: datetime | None = None  #: time of the last heartbeat; None: never
    unreachable: str | None = None  #: why the syncer does not reach its cluster; None: it does, or unknown
    pending: int = 0
    omitted: int = 0  #: problems that are not listed
    problems: tuple[tuple[tuple[str, ...], str, ReportedProblem], ...] = ()  #: (object, direction, problem)
    through: Mapping[tuple[str, str], int] | None = (
        None  #: (group, resource) → all copies up to this resourceVersion are applied
    )

    def problem(self, part: Part, direction: str) -> ReportedProblem | None:
        """Of the object, or of its whole kind."""
        (group, resource), namespace, name = part
        about = ((group, resource, namespace, name), (group, resource, "", EVERY))
        return next((one for what, way, one in self.problems if what in about and way == direction), None)

    def has_brought(self, part: Part, version: Any, written: datetime | None, now: datetime) -> bool:
        """Whether the current version of a copy without problems is applied at the edge.  `written`: when it was last
        written; None: decide by its resourceVersion only.

        Writes of the syncer itself increase the resourceVersion and are not reported.  Then an idle syncer counts,
        whose last heartbeat is late enough after the write: timestamps have whole seconds, and a report may be older
        than its heartbeat.
        """
        through = (self.through or {}).get((part.kind.group, part.kind.resource))
        if through is None:
            return False
        if 0 < _whole(version) <= through:
            return True
        failing = len({what for what, way, _ in self.problems if way == "down"})
        idle = self.pending == 0 or (self.omitted == 0 and self.pending <= failing)
        if not idle or self.heard is None or written is None:
            return False
        return self.heard >= written and max(now, self.heard) - written >= NEWS


def read(config: Obj) -> EdgeReport:
    """`config`: `the-one`, or empty."""
    edge = fields.condition(config, EDGE_REACHABLE)
    text = fields.text(edge, "message") or fields.text(edge, "reason")
    return EdgeReport(
        _heard(config),
        fields.line(text) if edge.get("status") == "False" else None,
        fields.number(config, "status", "objects", "pending"),
        fields.number(config, "status", "problemsOmitted"),
        tuple(map(_problem, fields.objects(config, "status", "problems"))),
        {
            (fields.text(one, "group"), fields.text(one, "resource")): _whole(one.get("resourceVersion"))
            for one in fields.objects(config, "status", "syncedThrough")
        },
    )


def is_alive(report: EdgeReport, conditions: Sequence[Mapping[str, Any]] | None, now: datetime) -> bool:
    """By the hub's clock, as its condition says, or by ours."""
    if report.heard is None:
        return False
    healthy = any(one.get("type") == HEARTBEAT_HEALTHY and one.get("status") == "True" for one in conditions or ())
    return healthy or now - report.heard <= SILENCE


def _heard(config: Obj) -> datetime | None:
    if "metadata" not in config:
        return None
    try:
        return parse_heartbeat(orjson.dumps({"metadata": config["metadata"]})).beat
    except msgspec.MsgspecError:
        return None


def _problem(one: Obj) -> tuple[tuple[str, ...], str, ReportedProblem]:
    what = tuple(fields.text(one, name) for name in ("group", "resource", "namespace", "name"))
    problem = ReportedProblem(
        fields.line(fields.text(one, "reason")) or "Failing",
        fields.line(fields.text(one, "message"), LONGEST),
        fields.number(one, "tries"),
    )
    return what, fields.text(one, "direction"), problem


def _whole(value: Any) -> int:
    """Of a string of digits; else 0."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return 0
