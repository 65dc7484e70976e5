"""What a syncer reports in the status of `the-one`.  Pure; whatever the report is made of, reading it fails nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.apis.edge.names import EDGE_REACHABLE
from farflung.apis.kcp.names import HEARTBEAT_HEALTHY
from farflung.cli import fields
from farflung.machinery.errors import Obj
from farflung.placement.names import Part
from farflung.placement.syncer_config import parse_heartbeat
from farflung.syncer.report import LONGEST

SILENCE: Final = timedelta(seconds=60)  #: after which a syncer counts as gone, as the hub has it
NEWS: Final = timedelta(seconds=3)  #: within which a syncer that is heard reports what is new
EVERY: Final = "*"  #: in the place of a name: all objects of a kind
ADVICE: Final = {
    "NotOurs": "delete or rename one of the two, or let the syncer adopt what it finds (--adopt)",
    "Forbidden": "allow the syncer to: `farflung syncer-gen` with --allow, and apply what it prints",
    "Contested": "find out who changes it in the cluster, too",
    "NotServedError": "install its definition in the cluster",
}


class Problem(NamedTuple):
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
class Report:
    heard: datetime | None = None  #: when the server took the last one; None: there never was one
    unreachable: str | None = None  #: why the syncer does not reach its cluster; None: it does, or does not say
    pending: int = 0
    omitted: int = 0  #: problems that are not listed
    problems: tuple[tuple[tuple[str, ...], str, Problem], ...] = ()  #: of what, in which direction, and what
    through: Mapping[tuple[str, str], int] | None = None  #: by group and resource: all up to there is at the edge

    def problem(self, part: Part, direction: str) -> Problem | None:
        """With an object, or with all of its kind."""
        (group, resource), namespace, name = part
        about = ((group, resource, namespace, name), (group, resource, "", EVERY))
        return next((one for what, way, one in self.problems if what in about and way == direction), None)

    def has_brought(self, part: Part, version: Any, written: datetime | None, now: datetime) -> bool:
        """Whether a copy without problems is at the edge as it was `written` (None: only its version counts), and is
        now.  Writes of the syncer's own make the version greater, and are no news to it: then it counts that since then
        nothing was left to do, but what fails for other objects.  Times are of whole seconds, and a report may be older
        than what is heard next: so it counts when there was time for another one."""
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


def read(config: Obj) -> Report:
    """`config`: `the-one`, or nothing."""
    edge = fields.condition(config, EDGE_REACHABLE)
    said = fields.text(edge, "message") or fields.text(edge, "reason")
    return Report(
        _heard(config),
        fields.line(said) if edge.get("status") == "False" else None,
        fields.number(config, "status", "objects", "pending"),
        fields.number(config, "status", "problemsOmitted"),
        tuple(map(_problem, fields.objects(config, "status", "problems"))),
        {
            (fields.text(one, "group"), fields.text(one, "resource")): _whole(one.get("resourceVersion"))
            for one in fields.objects(config, "status", "syncedThrough")
        },
    )


def is_alive(report: Report, conditions: Sequence[Mapping[str, Any]] | None, now: datetime) -> bool:
    """By the clock of the hub, as the SyncTarget shows it, or by ours."""
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


def _problem(one: Obj) -> tuple[tuple[str, ...], str, Problem]:
    what = tuple(fields.text(one, name) for name in ("group", "resource", "namespace", "name"))
    problem = Problem(
        fields.line(fields.text(one, "reason")) or "Failing",
        fields.line(fields.text(one, "message"), LONGEST),
        fields.number(one, "tries"),
    )
    return what, fields.text(one, "direction"), problem


def _whole(value: Any) -> int:
    """Of a text with digits; 0 if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return 0
