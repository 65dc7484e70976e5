"""What the status of a terminating Namespace says, word for word as Kubernetes does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from farflung.machinery.errors import Obj


class Verdict(NamedTuple):
    status: str
    reason: str
    message: str


DISCOVERY: Final = "NamespaceDeletionDiscoveryFailure"
PARSING: Final = "NamespaceDeletionGroupVersionParsingFailure"
CONTENT: Final = "NamespaceDeletionContentFailure"
REMAINING: Final = "NamespaceContentRemaining"
FINALIZERS: Final = "NamespaceFinalizersRemaining"

#: each condition, in their order, when there is nothing to tell
FINE: Final = {
    DISCOVERY: Verdict("False", "ResourcesDiscovered", "All resources successfully discovered"),
    PARSING: Verdict("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT: Verdict("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    REMAINING: Verdict("False", "ContentRemoved", "All content successfully removed"),
    FINALIZERS: Verdict("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(slots=True)
class Remains:
    """What is left in a namespace after its content was deleted."""

    resources: Counter[tuple[str, str]] = field(default_factory=Counter)  #: (plural, group) → objects
    finalizers: Counter[str] = field(default_factory=Counter)  #: finalizer → objects that it holds
    failures: list[str] = field(default_factory=list)  #: why something could not even be deleted

    def verdicts(self) -> dict[str, Verdict]:
        found = dict(FINE)
        if self.failures:
            told = f"Failed to delete all resource types, {len(self.failures)} remaining: "
            found[CONTENT] = Verdict("True", "ContentDeletionFailed", told + ", ".join(sorted(self.failures)))
        if self.resources:
            counts = [
                f"{name}.{group} has {count} resource instances" for (name, group), count in self.resources.items()
            ]
            told = "Some resources are remaining: "
            found[REMAINING] = Verdict("True", "SomeResourcesRemain", told + ", ".join(sorted(counts)))
        if self.finalizers:
            counts = [f"{name} in {count} resource instances" for name, count in self.finalizers.items()]
            told = "Some content in the namespace has finalizers remaining: "
            found[FINALIZERS] = Verdict("True", "SomeFinalizersRemain", told + ", ".join(sorted(counts)))
        return found


def conditions(present: Sequence[Obj], remains: Remains, now: str) -> list[Obj]:
    """A Namespace's conditions: ours brought up to date, those of others as they are.  Equal to `present` if there is
    nothing new."""
    updated = list(present)
    for kind, verdict in remains.verdicts().items():
        place = next((place for place, one in enumerate(updated) if one.get("type") == kind), None)
        if place is None:
            updated.append(condition(kind, verdict, now))
        else:
            old = updated[place]
            since = old.get("lastTransitionTime") if old.get("status") == verdict.status else now
            updated[place] = condition(kind, verdict, since)
    return updated


def condition(kind: str, verdict: Verdict, since: str | None) -> Obj:
    return {
        "type": kind,
        "status": verdict.status,
        "lastTransitionTime": since,
        "reason": verdict.reason,
        "message": verdict.message,
    }
