"""Conditions of CustomResourceDefinitions: accepted names, establishment, termination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from farflung.machinery.errors import Obj, go_quote

#: as Go orders them
MEMBERS: Final = ("plural", "singular", "shortNames", "kind", "listKind", "categories")


class Naming(NamedTuple):
    accepted: Obj  #: `status.acceptedNames`
    reason: str  #: of the condition NamesAccepted
    message: str

    @property
    def settled(self) -> bool:
        return self.reason == NO_CONFLICTS


NO_CONFLICTS: Final = "NoConflicts"


def naming(definition: Obj, others: Sequence[Obj]) -> Naming:
    """The accepted names of a definition.  `others`: the other definitions of its group and cluster.

    Accepted names are never lost.  Of several conflicts the last one is reported.
    """
    wanted, accepted = definition["spec"]["names"], dict(_accepted(definition))
    resources, kinds = _taken(others)
    reason, message = NO_CONFLICTS, "no conflicts found"
    for member, reason_of_conflict, taken in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        conflicts = _conflicts(wanted.get(member), accepted.get(member), taken)
        if conflicts:
            reason, message = reason_of_conflict, _conflict_message(conflicts)
        else:
            accepted[member] = wanted.get(member)
    accepted["categories"] = wanted.get("categories")
    return Naming(_as_written(accepted), reason, message)


def _accepted(definition: Obj) -> Obj:
    return (definition.get("status") or {}).get("acceptedNames") or {}


def _taken(others: Sequence[Obj]) -> tuple[set[str], set[str]]:
    """The names of resources and of kinds."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        names = _accepted(other)
        resources.update((names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())))
        kinds.update((names.get("kind", ""), names.get("listKind", "")))
    return resources, kinds


def _conflicts(wanted: str | Sequence[str] | None, has: str | Sequence[str] | None, taken: set[str]) -> list[str]:
    asked = [wanted] if isinstance(wanted, str) else list(wanted or ())
    own = [has] if isinstance(has, str) else list(has or ())
    return [name for name in dict.fromkeys(asked) if name not in own and name in taken]


def _conflict_message(conflicts: Sequence[str]) -> str:
    texts = [f"{go_quote(name)} is already in use" for name in conflicts]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _as_written(names: Obj) -> Obj:
    """Plural and kind are there even if they are empty."""
    always = {"plural": names.get("plural") or "", "kind": names.get("kind") or ""}
    found = {**names, **always}
    return {member: found[member] for member in MEMBERS if found.get(member) or member in always}


# --- The status of a definition: accepted names, conditions, and how far its end has come ---------

NAMES_ACCEPTED: Final = "NamesAccepted"
ESTABLISHED: Final = "Established"
TERMINATING: Final = "Terminating"
APPROVAL: Final = "KubernetesAPIApprovalPolicyConformant"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"  #: the finalizer that waits for the objects
APPROVED: Final = "api-approved.kubernetes.io"  #: the annotation
PROTECTED: Final = ("k8s.io", "kubernetes.io")
SEE: Final = "see https://github.com/kubernetes/enhancements/pull/1111"


class DefinitionCondition(NamedTuple):
    """Status, reason and message of a condition of a definition."""

    status: str
    reason: str
    message: str


PENDING: Final = DefinitionCondition(
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
IN_PROGRESS: Final = DefinitionCondition("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
COMPLETED: Final = DefinitionCondition("False", "InstanceDeletionCompleted", "removed all instances")


def with_status(definition: Obj, others: Sequence[Obj], now: str) -> Obj:
    """The status a definition should have.

    `others` are the other definitions of its group in its cluster, `now` is an RFC 3339 time.  What is as it should be
    keeps its times, so the result equals the present status if nothing changed.
    """
    before: Obj = definition.get("status") or {}
    named = naming(definition, others)
    conditions = list(before.get("conditions") or ())
    approval = _approval(definition)
    if approval is not None:
        _set(conditions, APPROVAL, approval, now)
    _set(conditions, NAMES_ACCEPTED, DefinitionCondition(str(named.settled), named.reason, named.message), now)
    if not condition_is(definition, ESTABLISHED):
        established = (
            DefinitionCondition("True", "InitialNamesAccepted", "the initial names have been accepted")
            if named.settled
            else DefinitionCondition("False", "NotAccepted", "not all names are accepted")
        )
        _set(conditions, ESTABLISHED, established, now)
    return {
        "conditions": conditions,
        "acceptedNames": named.accepted,
        "storedVersions": before.get("storedVersions"),
    }


def terminating(definition: Obj, stage: DefinitionCondition, now: str) -> Obj:
    """The status of a definition that is being deleted."""
    before: Obj = definition.get("status") or {}
    conditions = list(before.get("conditions") or ())
    _set(conditions, TERMINATING, stage, now)
    return {**before, "conditions": conditions}


def mark_deleted(definition: Obj) -> None:
    """A definition with a deletionTimestamp stays until its objects are deleted."""
    metadata = definition["metadata"]
    finalizers = metadata.get("finalizers") or []
    if CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, CLEANUP]
    if not condition_is(definition, TERMINATING):
        definition["status"] = terminating(definition, PENDING, metadata["deletionTimestamp"])


def condition_is(definition: Obj, type: str, status: str = "True") -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == type and one.get("status") == status for one in conditions)


def _set(conditions: list[Obj], type: str, stage: DefinitionCondition, now: str) -> None:
    """Replace or add a condition.  Its time changes with its status only."""
    fresh: Obj = {
        "type": type,
        "status": stage.status,
        "lastTransitionTime": now,
        "reason": stage.reason,
        "message": stage.message,
    }
    for index, one in enumerate(conditions):
        if one.get("type") == type:
            if one.get("status") == stage.status and one.get("lastTransitionTime"):
                fresh["lastTransitionTime"] = one["lastTransitionTime"]
            conditions[index] = {**one, **fresh}
            return
    conditions.append(fresh)


# --- groups of the Kubernetes community -------------------------------------------------------------


def is_protected(group: str) -> bool:
    return any(group == domain or group.endswith(f".{domain}") for domain in PROTECTED)


def approval_state(definition: Obj) -> DefinitionCondition:
    """The approval condition of a definition in a protected group."""
    annotations: Obj = (definition.get("metadata") or {}).get("annotations") or {}
    approval: Any = annotations.get(APPROVED) or ""
    must = f"protected groups must have approval annotation {go_quote(APPROVED)}"
    if not approval:
        return DefinitionCondition("False", "MissingAnnotation", f"{must}, {SEE}")
    if approval.startswith("unapproved"):
        return DefinitionCondition("False", "UnapprovedAnnotation", f"not approved: {go_quote(approval)}")
    if _is_url(approval):
        return DefinitionCondition("True", "ApprovedAnnotation", f"approved in {approval}")
    detail = f'{must} with either a URL or a reason starting with "unapproved", {SEE}'
    return DefinitionCondition("False", "InvalidAnnotation", detail)


def _approval(definition: Obj) -> DefinitionCondition | None:
    return approval_state(definition) if is_protected(definition["spec"].get("group", "")) else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc)
