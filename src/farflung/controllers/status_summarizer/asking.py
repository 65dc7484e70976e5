"""StatusCollectors: read, and told whether they can be understood."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import orjson

from farflung.apis.names import Collection
from farflung.client.rest import Client
from farflung.controllers.status_summarizer.questions import InvalidQuestionError, Question, question_of
from farflung.controllers.status_summarizer.summaries import CollectorKey
from farflung.lib.klog import Logger
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer

COLLECTORS: Final = Collection("edge.kcp.io", "v1alpha1", "statuscollectors", "StatusCollector")
VALID: Final = "Valid"


class SeenCollector(msgspec.Struct, frozen=True):
    document: bytes
    question: Question | None = None  #: None: it cannot be understood
    errors: tuple[str, ...] = ()


def seen_collector(document: bytes) -> SeenCollector:
    try:
        return SeenCollector(document, question_of(orjson.loads(document).get("spec") or {}))
    except InvalidQuestionError as error:
        return SeenCollector(document, None, tuple(error.errors))


def status_of(seen: SeenCollector, now: datetime) -> Obj | None:
    """What is to be said of a StatusCollector; None if it is said already."""
    obj = orjson.loads(seen.document)
    before: Obj = obj.get("status") or {}
    condition: Obj = {"type": VALID, "status": "True" if seen.question is not None else "False"}
    if seen.errors:
        condition |= {"severity": "Error", "reason": "NotUnderstood", "message": "; ".join(seen.errors)}
    status: Obj = {
        "observedGeneration": obj["metadata"].get("generation", 0),
        "conditions": [condition | {"lastTransitionTime": _since(before, condition, now)}],
        **({"errors": list(seen.errors)} if seen.errors else {}),
    }
    return None if status == before else status


def _since(before: Obj, condition: Obj, now: datetime) -> str:
    for one in before.get("conditions") or ():
        same: dict[str, Any] = {name: value for name, value in one.items() if name != "lastTransitionTime"}
        if same == condition and "lastTransitionTime" in one:
            return str(one["lastTransitionTime"])
    return times.format_seconds(now)


class Asking:
    def __init__(
        self,
        collectors: Informer[SeenCollector],
        view: Callable[[str], Client],
        now: Callable[[], datetime],
        log: Logger,
    ) -> None:
        """`view`: the edge API of a workspace."""
        self._collectors = collectors
        self._view = view
        self._now = now
        self._log = log

    async def say(self, key: CollectorKey) -> None:
        seen = self._collectors.cache.get(Key(key.cluster, "", key.name))
        status = None if seen is None else status_of(seen, self._now())
        if seen is None or status is None:
            return
        obj = orjson.loads(seen.document) | {"status": status}
        self._collectors.assume(await self._view(key.cluster).update(COLLECTORS, obj, "status"))
        self._log.info("Updated status of StatusCollector", v=2, statusCollector=key.name, errors=len(seen.errors))
