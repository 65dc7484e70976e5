"""Why a placement does not use a Location or a SyncTarget, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from farflung.controllers.edge_scheduler.values import Effect, Location, Placement, Taint, Target, Toleration
from farflung.machinery.errors import go_quote
from farflung.machinery.selectors import Labels, LabelSelector, Requirement

#: what `spec.unschedulable` of a SyncTarget counts as
UNSCHEDULABLE: Final = Taint("edge.kcp.io/unschedulable", "", Effect.NO_SCHEDULE)
MOST_SELECTORS: Final = 3  #: that are named in a reason


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Iterator[Taint]:
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            yield taint


def refusal(location: Location, target: Target, tolerations: Sequence[Toleration], *, settled: bool) -> str:
    """Why taints keep a placement from a target at a location; empty if they do not.  `settled`: it is there already,
    and only NoExecute drives it out."""
    for whose, taints in (("the Location", location.taints), ("the SyncTarget", target.taints)):
        for taint in untolerated(taints, tolerations):
            if taint.effect is Effect.NO_EXECUTE or (taint.effect is Effect.NO_SCHEDULE and not settled):
                if taint is UNSCHEDULABLE:
                    return "the SyncTarget takes no new work (spec.unschedulable)"
                return f"{whose} has the taint {taint}, which is not tolerated"
    return ""


def is_reluctant(location: Location, target: Target, tolerations: Sequence[Toleration]) -> bool:
    """Whether the target is only taken if there is nothing better."""
    taints = (*location.taints, *target.taints)
    return any(taint.effect is Effect.PREFER_NO_SCHEDULE for taint in untolerated(taints, tolerations))


def mismatch(placement: Placement, labels: Labels) -> str:
    """Why none of the placement's selectors matches."""
    if not placement.selectors:
        return "spec.locationSelectors is empty"
    reasons = [
        f"spec.locationSelectors[{at}]: {unmet(selector, labels)}"
        for at, selector in enumerate(placement.selectors[:MOST_SELECTORS])
    ]
    if (more := len(placement.selectors) - MOST_SELECTORS) > 0:
        reasons.append(f"and so for {more} more")
    return "; ".join(reasons)


def unmet(selector: LabelSelector, labels: Labels) -> str:
    """Why a selector does not match the labels of a Location; empty if it does."""
    for one in selector.requirements:
        if not LabelSelector((one,)).matches(labels):
            return _words(one, labels.get(one.key))
    return ""


def _words(requirement: Requirement, value: str | None) -> str:
    if value is None:
        return f"the Location has no label {requirement.key}"
    has = f"the label {requirement.key} of the Location is {go_quote(value)}"
    match requirement.operator:
        case "in":
            named = ", ".join(map(go_quote, requirement.values))
            return f"{has}, not {named}" if len(requirement.values) == 1 else f"{has}, none of {named}"
        case "notin":
            return f"{has}, which it must not be"
        case "!":
            return f"{has}, and should not be there"
        case "gt":
            return f"{has}, not more than {requirement.values[0]}"
        case _:
            return f"{has}, not less than {requirement.values[0]}"
