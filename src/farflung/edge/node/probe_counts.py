"""What the results of a probe mean, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from farflung.machinery.errors import Obj


@dataclass(frozen=True, slots=True)
class Probe:
    """The numbers of a probe, as the API has them."""

    handler: Obj
    delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    successes: int = 1  #: in a row, until it counts as one
    failures: int = 3
    grace: float | None = None  #: seconds that the container gets when this ends it

    @classmethod
    def of(cls, probe: Obj) -> Probe:
        grace = probe.get("terminationGracePeriodSeconds")
        return cls(
            probe,
            float(probe.get("initialDelaySeconds") or 0),
            float(probe.get("periodSeconds") or 10),
            float(probe.get("timeoutSeconds") or 1),
            int(probe.get("successThreshold") or 1),
            int(probe.get("failureThreshold") or 3),
            None if grace is None else float(grace),
        )


@dataclass(frozen=True, slots=True)
class Count:
    """`passing`: what the container is taken for; only so many equal results in a row change that."""

    passing: bool | None = None  #: None: nothing is known yet
    last: bool | None = None
    row: int = 0

    def after(self, success: bool, probe: Probe) -> Count:
        row = self.row + 1 if success == self.last else 1
        counted = replace(self, last=success, row=row)
        needed = probe.successes if success else probe.failures
        return replace(counted, passing=success) if row >= needed else counted
