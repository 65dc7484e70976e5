"""Refuses EdgePlacements whose spec no controller could interpret, with the message of that controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from farflung.hub.auth.virtual_machines import is_placement
from farflung.hub.registry.pipeline import CREATE, UPDATE, Stage, Step, Write
from farflung.lib.worker_pool import JobTerms, JobTimeout, Overloaded, WorkerLost, WorkerPool
from farflung.machinery.errors import CAUSES, FieldError, Obj, too_many_requests

SpecProblem = Callable[[Obj], str]  #: why an EdgePlacement is invalid, as `field: error`; empty: it is valid

LONG: Final = 1_000  #: characters of an expression that a worker process compiles
SECONDS: Final = 10.0  #: that it may take
UNCOMPILED: Final = "spec.where: Too long: compiling it takes too long; shorten it"


@dataclass(frozen=True, slots=True)
class StatedError(FieldError):
    """An error of which `detail` is the whole message."""

    @property
    def body(self) -> str:
        return self.detail


@dataclass(frozen=True, slots=True)
class PlacementSpecs:
    find_problem: SpecProblem  #: of a module, so that a worker process can call it
    workers: WorkerPool

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            Step(
                "check_placement",
                Stage.VALIDATE,
                self._check,
                lambda kind, operation: operation in (CREATE, UPDATE) and is_placement(kind.resource),
            ),
        )

    def _check(self, write: Write) -> Awaitable[None] | None:
        """An invalid spec of an earlier version stays until it is changed."""
        spec = write.new.get("spec")
        if write.old is not None and write.old.get("spec") == spec:
            return None
        if isinstance(spec, dict) and len(str(spec.get("where") or "")) > LONG:
            return self._check_in_worker(write)
        _refuse(write, self.find_problem(write.new))
        return None

    async def _check_in_worker(self, write: Write) -> None:
        try:
            problem = await self.workers.run(JobTerms(write.call.owner, SECONDS), self.find_problem, write.new)
        except Overloaded:
            raise too_many_requests("too many requests wait for the compilation of `spec.where`; send fewer") from None
        except (JobTimeout, WorkerLost):
            problem = UNCOMPILED
        _refuse(write, problem)


def _refuse(write: Write, problem: str) -> None:
    """Raises 422 if there is a problem."""
    if problem:
        field, _, message = problem.partition(": ")
        what = message.partition(": ")[0]
        error = StatedError(what if what in CAUSES else "Invalid value", field, None, message)
        raise write.call.invalid(write.name, [error])
