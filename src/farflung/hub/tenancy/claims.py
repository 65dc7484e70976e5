"""Permission claims: what the owner of an export wants to see beside what it exports, and who has accepted that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import Obj, go_quote

ACCEPTED: Final = "Accepted"
CLAIM_LABEL: Final = "claimed.internal.apis.kcp.io/"  #: followed by the hash of an export
#: the value of that label on the bindings of the export, which its owner always sees
REFLEXIVE: Final = "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ"
SHOWN: Final = 10  #: claims that a message names
OPTIONAL: Final = ("group", "identityHash", "all", "resourceSelector")


class Claim(NamedTuple):
    """A claim, in a form that can be compared."""

    group: str
    resource: str
    identity: str
    everything: bool
    selected: tuple[tuple[str, str], ...]  #: (name, namespace); an empty one is any

    def admits(self, namespace: str, name: str) -> bool:
        """Whether it is about an object."""
        return self.everything or any(
            (not wanted or wanted == name) and (not within or within == namespace) for wanted, within in self.selected
        )


def claim_of(claim: Obj) -> Claim:
    selectors: Sequence[Obj] = claim.get("resourceSelector") or ()
    return Claim(
        claim.get("group") or "",
        claim.get("resource") or "",
        claim.get("identityHash") or "",
        bool(claim.get("all")),
        tuple((one.get("name") or "", one.get("namespace") or "") for one in selectors),
    )


def plain(claim: Obj) -> Obj:
    """A claim without what is empty, and without what was decided about it."""
    shown: dict[str, Any] = {name: claim[name] for name in sorted(OPTIONAL) if claim.get(name)}
    return {**shown, "resource": claim.get("resource", "")}


def wishes(export: Obj) -> list[Obj]:
    """What an export claims, as its bindings show it."""
    return [plain(claim) for claim in (export.get("spec") or {}).get("permissionClaims") or ()]


def granted(binding: Obj, wanted: Sequence[Obj]) -> list[Obj]:
    """Those of an export's claims that a binding accepts, just as they are."""
    accepted = {claim_of(claim) for claim in _decided(binding) if claim.get("state") == ACCEPTED}
    return [claim for claim in wanted if claim_of(claim) in accepted]


def unexpected(binding: Obj, wanted: Sequence[Obj]) -> str:
    """What a binding says about claims that its export does not make; empty if there are none."""
    made = {claim_of(claim) for claim in wanted}
    found = [claim_of(claim) for claim in _decided(binding) if claim_of(claim) not in made]
    if not found:
        return ""
    told = ", ".join(map(_told, found[:SHOWN]))
    first = min(len(found), SHOWN)
    return f"{len(found)} unexpected and/or invalid permission claims (showing first {first}): {told}"


def _told(claim: Claim) -> str:
    return f"unexpected/invalid claim for {claim.resource}.{claim.group} (identity {go_quote(claim.identity)})"


def _decided(binding: Obj) -> Iterable[Obj]:
    return (binding.get("spec") or {}).get("permissionClaims") or ()
