"""Write the condition of an EdgePlacement, and an Event for each new problem."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

import orjson

from farflung.apis.edge.names import CONFIRM_WITHDRAWAL, EDGE_PLACEMENTS
from farflung.controllers.placement_translator.decide import (
    PlacementProblem,
    PlacementProblems,
    condition,
    with_condition,
)
from farflung.lib.klog import Logger
from farflung.placement import names
from farflung.placement.feeds import FeedViews
from farflung.placement.index import Copy
from farflung.placement.names import PlacementKey
from farflung.placement.state import PlacementState, StatusKey
from farflung.placement.types import Placement
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import InvolvedObject, Recorder


@dataclass(frozen=True, slots=True)
class TranslatorContext:
    """What the writers of the translator share."""

    known: PlacementState
    views: FeedViews
    now: Callable[[], datetime]
    log: Logger
    failing_objects: Callable[..., list[str]]  #: of a workspace, or of all; see `PlacementFeed`


class StatusWriter:
    def __init__(
        self,
        context: TranslatorContext,
        placements: Informer[Placement],
        recorder: Recorder,
        changed: Callable[[StatusKey], None],
    ) -> None:
        """`changed` is called with the placements whose status has to be written."""
        self._known = context.known
        self._placements = placements
        self._view = context.views.edge_of
        self._recorder = recorder
        self._changed = changed
        self._now = context.now
        self._log = context.log
        self._problems = PlacementProblems()
        self._news: dict[PlacementKey, list[PlacementProblem]] = {}  #: problems without an Event

    def report(self, copy: Copy, keys: AbstractSet[PlacementKey], found: list[PlacementProblem]) -> None:
        """Set all problems of a copy, for these placements."""
        for key in keys if found else ():
            self._put(key, copy, found)
        for key in self._problems.about(copy):
            if not found or key not in keys:
                self._put(key, copy, [])

    def forget(self, key: PlacementKey) -> None:
        self._problems.forget(key)
        self._news.pop(key, None)

    def _put(self, key: PlacementKey, about: object, found: list[PlacementProblem]) -> None:
        if found and self._seen(key) is None:
            return
        new = self._problems.put(key, about, found)
        if new is None:
            return
        self._news.setdefault(key, []).extend(new)
        self._changed(StatusKey(key))

    def _seen(self, key: PlacementKey) -> Placement | None:
        """From the cache: the state lacks a placement with which the engine fails."""
        seen = self._placements.cache.get(Key(key.cluster, "", key.name))
        return seen if seen is not None and seen.alive else None

    async def write(self, key: PlacementKey) -> None:
        seen = self._seen(key)
        if seen is None:
            return
        self._check(key, seen)
        obj = orjson.loads(seen.document)
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = with_condition(obj.get("status"), condition(self._problems.of(key)), now)
        if status is not None:
            answer = await self._view(key.cluster).update(EDGE_PLACEMENTS, obj | {"status": status}, "status")
            self._record(key, seen)
            self._placements.assume(answer)
        self._news.pop(key, None)  # problems that the condition had already got their Event before
        if status is None and self._known.withdrawals.is_confirmation_used_up(key):
            await self._use_up(key, seen)

    def _check(self, key: PlacementKey, seen: Placement) -> None:
        """Set the problems of the placement itself."""
        self._put(
            key, "spec", [PlacementProblem(names.INVALID_SPEC, seen.workload.problem)] if seen.workload.problem else []
        )
        verdict = self._known.withdrawals.withdrawal(key)
        message = verdict.message(seen.generation)
        self._put(key, "withdrawal", [PlacementProblem(names.WITHDRAWAL_HELD, message)] if message else [])

    def _record(self, key: PlacementKey, seen: Placement) -> None:
        involved = InvolvedObject(
            key.cluster, EDGE_PLACEMENTS.api_version, EDGE_PLACEMENTS.kind, key.name, "", seen.uid
        )
        for problem in dict.fromkeys(self._news.get(key, ())):
            self._log.info("Problem with EdgePlacement", v=1, edgePlacement=str(key), reason=problem.reason)
            self._recorder.record(involved, "Warning", problem.reason, problem.message)

    async def _use_up(self, key: PlacementKey, seen: Placement) -> None:
        """Remove the confirmation, so that later withdrawals need a new one."""
        version = orjson.loads(seen.document)["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": {CONFIRM_WITHDRAWAL: None}}}
        self._placements.assume(await self._view(key.cluster).patch(EDGE_PLACEMENTS, key.name, patch))
        self._log.info("Withdrawal is complete, and its confirmation is used up", v=1, edgePlacement=str(key))
