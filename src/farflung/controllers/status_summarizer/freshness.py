"""What syncers report, and how old what is known of their clusters may be.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.controllers.mailbox.heartbeat import config_of
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.status_summarizer.values import Verdict
from farflung.controllers.status_summarizer.verdicts import moment, sentence, word
from farflung.machinery import times

ANY: Final = "*"  #: in the place of a name: all objects of a kind
DOWN: Final = "down"  #: the direction of what does not get to its cluster
STATUS: Final = "status"  #: the direction of what its cluster says and does not get here
FAILING: Final = "Failing"
NOT_HEARD: Final = "NotHeard"
NOT_RETURNED: Final = "StatusNotReturned"
UNREACHABLE: Final = "EdgeUnreachable"


class Told(NamedTuple):
    """What a syncer said last."""

    beat: datetime | None = None  #: when, by the clock of the hub; None: nothing ever
    unreachable: Verdict | None = None  #: why it does not reach its cluster
    refused: Mapping[Part, Verdict] = {}  #: what it cannot bring there
    unreturned: Mapping[Part, Verdict] = {}  #: of what it cannot bring the status here

    def refusal(self, part: Part) -> Verdict | None:
        """Why it cannot bring an object, or any of its kind."""
        return _about(self.refused, part)

    def delay(self, part: Part) -> Verdict | None:
        """Why the status of an object may be old, although its syncer is heard of."""
        return _about(self.unreturned, part)

    def differences(self, other: Told) -> set[Part]:
        """Of which objects something else is said."""
        both = (self.refused, other.refused), (self.unreturned, other.unreturned)
        return {
            part for some, others in both for part in some.keys() | others.keys() if some.get(part) != others.get(part)
        }


def _about(said: Mapping[Part, Verdict], part: Part) -> Verdict | None:
    return said.get(part) or said.get(Part(part.kind, "", ANY))


NOTHING: Final = Told()


def told_by(document: bytes) -> Told:
    """A SyncerConfig.  What makes no sense was not said."""
    try:
        config = config_of(document)
    except msgspec.MsgspecError:
        return NOTHING
    edge = config.edge
    unreachable = None
    if edge is not None and edge.status == "False":
        unreachable = Verdict(UNREACHABLE, sentence(edge.message or edge.reason), moment(edge.last_transition_time))
    problems = _problems(orjson.loads(document).get("status"))
    unreturned = {part: _not_returned(verdict) for part, verdict in problems[STATUS].items()}
    return Told(config.beat, unreachable, problems[DOWN], unreturned)


def _not_returned(verdict: Verdict) -> Verdict:
    why = f"{verdict.reason}: {verdict.message}" if verdict.message else verdict.reason
    return Verdict(NOT_RETURNED, sentence(f"its syncer cannot bring its status here: {why}"))


def _problems(status: Any) -> dict[str, dict[Part, Verdict]]:
    """By direction."""
    listed = status.get("problems") if isinstance(status, dict) else None
    found: dict[str, dict[Part, Verdict]] = {DOWN: {}, STATUS: {}}
    for one in listed if isinstance(listed, list) else ():
        direction = one.get("direction") if isinstance(one, dict) else None
        if direction not in (DOWN, STATUS):
            continue
        group, resource, namespace, name = (
            str(one.get(field) or "") for field in ("group", "resource", "namespace", "name")
        )
        verdict = Verdict(word(one.get("reason")) or FAILING, sentence(one.get("message")))
        found[direction][Part(Kind(group, resource), namespace, name)] = verdict
    return found


def stale(told: Told, now: datetime, limit: timedelta) -> tuple[Verdict | None, float | None]:
    """Why what is known may be old, and after how many seconds to ask again; None: when something is heard.  Of whom
    nothing was ever heard, nothing is known that could be old."""
    if told.beat is None:
        return None, None
    left = (told.beat + limit - now).total_seconds()
    if left <= 0:
        since = times.format_seconds(told.beat)
        return Verdict(NOT_HEARD, f"its syncer was last heard of at {since}", since), None
    return told.unreachable, left
