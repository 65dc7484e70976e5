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
FAILING: Final = "Failing"
NOT_HEARD: Final = "NotHeard"
UNREACHABLE: Final = "EdgeUnreachable"


class Told(NamedTuple):
    """What a syncer said last."""

    beat: datetime | None = None  #: when, by the clock of the hub; None: nothing ever
    unreachable: Verdict | None = None  #: why it does not reach its cluster
    refused: Mapping[Part, Verdict] = {}  #: what it cannot bring there

    def refusal(self, part: Part) -> Verdict | None:
        """Why it cannot bring an object, or any of its kind."""
        return self.refused.get(part) or self.refused.get(Part(part.kind, "", ANY))


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
    return Told(config.beat, unreachable, _refused(orjson.loads(document).get("status")))


def _refused(status: Any) -> dict[Part, Verdict]:
    listed = status.get("problems") if isinstance(status, dict) else None
    found: dict[Part, Verdict] = {}
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("direction") != DOWN:
            continue
        group, resource, namespace, name = (
            str(one.get(field) or "") for field in ("group", "resource", "namespace", "name")
        )
        verdict = Verdict(word(one.get("reason")) or FAILING, sentence(one.get("message")))
        found[Part(Kind(group, resource), namespace, name)] = verdict
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
