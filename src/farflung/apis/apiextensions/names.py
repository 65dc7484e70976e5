"""Which names of a definition are its own, and which another definition of the group has already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

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
    """What a definition gets of the names it asks for.  `others`: the other definitions of its group and cluster.

    Names that it has are never lost.  Of several conflicts the last one is told.
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
            reason, message = reason_of_conflict, _told(conflicts)
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


def _told(conflicts: Sequence[str]) -> str:
    texts = [f"{go_quote(name)} is already in use" for name in conflicts]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _as_written(names: Obj) -> Obj:
    """Plural and kind are there even if they are empty."""
    always = {"plural": names.get("plural") or "", "kind": names.get("kind") or ""}
    found = {**names, **always}
    return {member: found[member] for member in MEMBERS if found.get(member) or member in always}
