"""What becomes of an APIBinding: a function of what it asks for, of what there is, and of what it has already.

    offer found? ─► identity? ─► schemas? ─► names free? ─► Bound

A binding that was bound once stays so; resources that its export no longer offers stay bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from farflung.apis.kcp.names import CLAIM_LABEL, EXPORT_LABEL, EXTRA_ANNOTATIONS
from farflung.hub.tenancy.api_exports import ExportReference
from farflung.hub.tenancy.hashes import export_label
from farflung.hub.tenancy.status import READY_CONDITION, ConditionState, is_condition_true, merge_conditions
from farflung.machinery.errors import Obj, go_quote

BINDINGS: Final = "/apis.kcp.io/apibindings/"
BINDING: Final = "Binding"
BOUND: Final = "Bound"

EXPORT_VALID: Final = "APIExportValid"
UP_TO_DATE: Final = "BindingUpToDate"
COMPLETED: Final = "InitialBindingCompleted"
CLAIMS_APPLIED: Final = "PermissionClaimsApplied"
CLAIMS_VALID: Final = "PermissionClaimsValid"
RESOURCES_DELETED: Final = "BindingResourceDeleteSuccess"
WAITING: Final = ("WaitingForEstablished", "Waiting for API(s) to be established", "Info")
ACCEPTED: Final = "Accepted"
#: the value of that label on the bindings of the export, which its owner always sees
OWN_BINDING: Final = "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ"
SHOWN: Final = 10  #: claims that a message names
OPTIONAL: Final = ("group", "identityHash", "all", "resourceSelector")


class ResourceNames(NamedTuple):
    """What a resource is called."""

    group: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    kind: str
    list_kind: str


class ExportedResource(NamedTuple):
    """One resource of an export."""

    schema: str  #: the name of its APIResourceSchema
    uid: str
    names: ResourceNames
    stored: tuple[str, ...]  #: the versions objects are stored in


class ExportOffer(NamedTuple):
    """What an export offers."""

    cluster: str
    name: str
    identity: str
    resources: tuple[ExportedResource, ...] | None  #: None: a schema is missing, or one resource is there twice
    claims: Sequence[Obj]
    extras: Mapping[str, str]


class TakenNames(NamedTuple):
    """Names that are not free in a workspace, and what is said to whoever wants them."""

    names: ResourceNames
    of: str  #: `naming conflict with APIBinding "w" bound to …`
    overlap: str = ""  #: said instead when it is the same resource


def binding_reference(binding: Obj) -> ExportReference | None:
    """Of a binding that may be anything: None if it does not say."""
    return export_reference(_part(_part(binding, "spec"), "reference").get("export"))


def export_reference(export: Any) -> ExportReference | None:
    if type(export) is not dict:
        return None
    path, name = export.get("path") or "", export.get("name") or ""
    return ExportReference(path, name) if type(path) is str and type(name) is str else None


def _part(obj: Obj, name: str) -> Obj:
    value = obj.get(name)
    return value if type(value) is dict else {}


def omit_core_group(binding: Obj) -> None:
    """Claims of a binding that may be anything do not name the core group, which has no name."""
    found = _part(binding, "spec").get("permissionClaims")
    for claim in found if type(found) is list else ():
        if type(claim) is dict and claim.get("group") == "":
            del claim["group"]


@lru_cache(maxsize=1024)
def label_of(cluster: str, name: str) -> str:
    """What the label of a binding says of its export."""
    return export_label(cluster, name)


def names_of(group: str, names: Obj) -> ResourceNames:
    kind = names.get("kind") or ""
    return ResourceNames(
        group,
        names.get("plural") or "",
        names.get("singular") or kind.lower(),
        tuple(names.get("shortNames") or ()),
        kind,
        names.get("listKind") or f"{kind}List",
    )


# --- names ------------------------------------------------------------------------------------------


def name_conflict(wanted: Iterable[ResourceNames], taken: Iterable[TakenNames]) -> str:
    """Why names cannot be had, in kcp's words; empty if they can."""
    by_group: dict[str, list[TakenNames]] = {}
    for one in taken:
        by_group.setdefault(one.names.group, []).append(one)
    for names in wanted:
        for other in by_group.get(names.group, ()):
            if other.overlap and other.names.plural == names.plural:
                return other.overlap
            if field := _clash(names, other.names):
                return f"{other.of}, {field} is forbidden"
    return ""


def _clash(names: ResourceNames, other: ResourceNames) -> str:
    resources = {other.plural, other.singular, *other.short_names}
    for field, name in (
        ("plural", names.plural),
        ("singular", names.singular),
        *(("shortNames", name) for name in names.short_names),
    ):
        if name in resources:
            return f"spec.names.{field}={name}"
    for field, name in (("kind", names.kind), ("listKind", names.list_kind)):
        if name in (other.kind, other.list_kind):
            return f"spec.names.{field}={name}"
    return ""


def taken_by_binding(names: ResourceNames, binding: str, path: str, export: str) -> TakenNames:
    return TakenNames(names, f"naming conflict with APIBinding {go_quote(binding)} bound to APIExport {path}:{export}")


def taken_by_definition(names: ResourceNames, name: str, cluster: str) -> TakenNames:
    overlap = (
        f"cannot create CustomResourceDefinition with {go_quote(names.group)} group and {go_quote(names.plural)} "
        f"resource because it overlaps with {go_quote(name)} CustomResourceDefinition in {go_quote(cluster)} logical "
        "cluster"
    )
    return TakenNames(names, f"naming conflict with CustomResourceDefinition {go_quote(name)}", overlap)


def taken_by_hub(names: ResourceNames) -> TakenNames:
    overlap = (
        f"cannot create CustomResourceDefinition with {go_quote(names.group)} group and {go_quote(names.plural)} "
        "resource because it overlaps with a resource that every workspace has"
    )
    return TakenNames(names, "naming conflict with a resource that every workspace has", overlap)


# --- the outcome ------------------------------------------------------------------------------------


def bound_binding(binding: Obj, offer: ExportOffer | None, missing: str, clash: str, now: str) -> Obj:
    """A binding as it should be.  `missing`: what its export is called if it is not there; `clash`: why its names
    cannot be had, if they cannot.  What is as it should be keeps its times."""
    return {
        **binding,
        "metadata": _metadata(binding, offer),
        "status": _status(binding, offer, missing, clash, now),
    }


def _metadata(binding: Obj, offer: ExportOffer | None) -> Obj:
    metadata: Obj = binding["metadata"]
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if not name.startswith(CLAIM_LABEL)}
    annotations = dict(metadata.get("annotations") or {})
    if offer is not None:
        label = label_of(offer.cluster, offer.name)
        labels |= {EXPORT_LABEL: label, CLAIM_LABEL + label: OWN_BINDING}
        annotations = {name: value for name, value in annotations.items() if not name.startswith(EXTRA_ANNOTATIONS)}
        annotations |= offer.extras
    found = {**metadata, "labels": labels, "annotations": annotations}
    return {name: value for name, value in found.items() if value or name not in ("labels", "annotations")}


def _status(binding: Obj, offer: ExportOffer | None, missing: str, clash: str, now: str) -> Obj:
    before: Obj = binding.get("status") or {}
    was_completed = is_condition_true(binding, COMPLETED)
    status = {**before, "phase": before.get("phase") or BINDING}
    verdicts = [] if offer is None else _judge_claims(binding, offer, status)
    problem = _problem(before, offer, missing, clash)
    if problem is not None:
        verdicts.append(problem)
        if not was_completed:
            failed = problem if problem.type == UP_TO_DATE else ConditionState("", *WAITING)
            verdicts += [failed._replace(type=COMPLETED), ConditionState(READY_CONDITION, *WAITING)]
    else:
        assert offer is not None, "nothing is bound of what is not there"
        verdicts += [ConditionState(type) for type in (READY_CONDITION, EXPORT_VALID, UP_TO_DATE, COMPLETED)]
        status["phase"] = BOUND
        status["boundResources"] = _bound(before.get("boundResources") or (), offer)
        if not status["boundResources"]:
            del status["boundResources"]
    if offer is not None:
        status["apiExportClusterName"] = offer.cluster
    status["conditions"] = merge_conditions(before.get("conditions") or (), verdicts, now)
    return status


def _problem(before: Obj, offer: ExportOffer | None, missing: str, clash: str) -> ConditionState | None:
    if offer is None:
        return ConditionState(EXPORT_VALID, "APIExportNotFound", f"APIExport {missing} not found")
    if not offer.identity:
        return ConditionState(
            EXPORT_VALID, "MissingIdentityHash", f"APIExport {missing} is missing status.identityHash"
        )
    if any(one["schema"]["identityHash"] != offer.identity for one in before.get("boundResources") or ()):
        message = f"APIExport {missing} has another identity than when it was bound"
        return ConditionState(EXPORT_VALID, "IdentityMismatch", message)
    if offer.resources is None:
        message = "Invalid APIExport. Please contact the APIExport owner to resolve"
        return ConditionState(EXPORT_VALID, "InternalError", message)
    if clash:
        return ConditionState(UP_TO_DATE, "NamingConflicts", f"Unable to bind APIs: {clash}")
    return None


def _judge_claims(binding: Obj, offer: ExportOffer, status: Obj) -> list[ConditionState]:
    for name, value in (
        ("exportPermissionClaims", list(offer.claims)),
        ("appliedPermissionClaims", accepted_claims(binding, offer.claims)),
    ):
        if value:
            status[name] = value
        else:
            status.pop(name, None)
    wrong = unexpected_claims(binding, offer.claims)
    valid = ConditionState(CLAIMS_VALID, "InvalidPermissionClaims", wrong) if wrong else ConditionState(CLAIMS_VALID)
    return [ConditionState(CLAIMS_APPLIED), valid]


def _bound(before: Iterable[Obj], offer: ExportOffer) -> list[Obj]:
    found = {(one["group"], one["resource"]): one for one in before}
    for one in offer.resources or ():
        place = (one.names.group, one.names.plural)
        stored = list(found.get(place, {}).get("storageVersions") or ())
        found[place] = {
            "group": one.names.group,
            "resource": one.names.plural,
            "schema": {"name": one.schema, "UID": one.uid, "identityHash": offer.identity},
            "storageVersions": stored + [version for version in one.stored if version not in stored],
        }
    return list(found.values())


def terminating_binding(binding: Obj, now: str) -> Obj:
    """A binding that is being deleted, while there are objects left of what it bound."""
    status: Obj = binding.get("status") or {}
    verdict = ConditionState(RESOURCES_DELETED, "ResourcesRemaining", "Some resources are remaining", "Info")
    return {
        **binding,
        "status": {**status, "conditions": merge_conditions(status.get("conditions") or (), [verdict], now)},
    }


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


def without_state(claim: Obj) -> Obj:
    """A claim without what is empty, and without what was decided about it."""
    shown: dict[str, Any] = {name: claim[name] for name in sorted(OPTIONAL) if claim.get(name)}
    return {**shown, "resource": claim.get("resource", "")}


def permission_claims(export: Obj) -> list[Obj]:
    """What an export claims, as its bindings show it."""
    return [without_state(claim) for claim in (export.get("spec") or {}).get("permissionClaims") or ()]


def accepted_claims(binding: Obj, wanted: Sequence[Obj]) -> list[Obj]:
    """Those of an export's claims that a binding accepts, just as they are."""
    accepted = {claim_of(claim) for claim in _decided(binding) if claim.get("state") == ACCEPTED}
    return [claim for claim in wanted if claim_of(claim) in accepted]


def unexpected_claims(binding: Obj, wanted: Sequence[Obj]) -> str:
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
