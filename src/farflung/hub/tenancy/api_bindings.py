"""The state of an APIBinding as a function of its spec, its export and its previous status.

    export found? ─► identity? ─► schemas? ─► names free? ─► Bound

A bound APIBinding stays bound, also to resources that its export no longer offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from farflung.apis.kcp.names import CLAIM_LABEL, EXPORT_LABEL, EXTRA_ANNOTATIONS, ExportReference
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
#: the value of that label on the bindings of the export itself, which its owner can always read
OWN_BINDING: Final = "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ"
SHOWN_CLAIMS: Final = 10  #: claims in a message
OPTIONAL: Final = ("group", "identityHash", "all", "resourceSelector")


class ResourceNames(NamedTuple):
    group: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    kind: str
    list_kind: str


class ExportedResource(NamedTuple):
    """A resource of an export."""

    schema: str  #: the name of its APIResourceSchema
    uid: str
    names: ResourceNames
    stored: tuple[str, ...]  #: storage versions


class ExportOffer(NamedTuple):
    """The fields of an export that its bindings depend on."""

    cluster: str
    name: str
    identity: str
    resources: tuple[ExportedResource, ...] | None  #: None: a schema is missing, or two schemas define one resource
    claims: Sequence[Obj]
    extras: Mapping[str, str]


class TakenNames(NamedTuple):
    """Names that are in use in a workspace, with the messages for bindings that need them."""

    names: ResourceNames
    of: str  #: `naming conflict with APIBinding "w" bound to …`
    overlap: str = ""  #: the message if it is the same resource


def binding_reference(binding: Obj) -> ExportReference | None:
    """The export that an unvalidated binding references, or None."""
    return export_reference(_part(_part(binding, "spec"), "reference").get("export"))


def export_reference(export: Any) -> ExportReference | None:
    if type(export) is not dict:
        return None
    path, name = export.get("path") or "", export.get("name") or ""
    return ExportReference(path, name) if type(path) is str and type(name) is str else None


def bound_cluster(binding: Obj) -> str:
    """The logical cluster of the export that a binding found; empty before."""
    return _text(_part(binding, "status").get("apiExportClusterName"))


def found_path(binding: Obj) -> str:
    """The path of the workspace that was found for a reference without one; empty for other references."""
    return _text(_part(binding, "status").get("apiExportPath"))


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _part(obj: Obj, name: str) -> Obj:
    value = obj.get(name)
    return value if type(value) is dict else {}


def omit_core_group(binding: Obj) -> None:
    """Remove the empty group from the claims of an unvalidated binding."""
    found = _part(binding, "spec").get("permissionClaims")
    for claim in found if type(found) is list else ():
        if type(claim) is dict and claim.get("group") == "":
            del claim["group"]


@lru_cache(maxsize=1024)
def label_of(cluster: str, name: str) -> str:
    """The value of a binding's export label."""
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
    """kcp's message about names in use; empty if all are free."""
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


# --- status ---------------------------------------------------------------------------------------


def bound_binding(binding: Obj, offer: ExportOffer | None, missing: str, clash: str, now: str) -> Obj:
    """The binding with updated metadata and status.  `missing`: the name of the export for messages; `clash`: the
    message about names in use, or empty.  Unchanged conditions keep their times."""
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
    """A binding that is being deleted, while objects of its resources remain."""
    status: Obj = binding.get("status") or {}
    verdict = ConditionState(RESOURCES_DELETED, "ResourcesRemaining", "Some resources are remaining", "Info")
    return {
        **binding,
        "status": {**status, "conditions": merge_conditions(status.get("conditions") or (), [verdict], now)},
    }


class Claim(NamedTuple):
    """A permission claim as a comparable value."""

    group: str
    resource: str
    identity: str
    everything: bool
    selected: tuple[tuple[str, str], ...]  #: (name, namespace); empty: any

    def admits(self, namespace: str, name: str) -> bool:
        """Whether the claim includes an object."""
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
    """A claim without empty fields and without its state."""
    shown: dict[str, Any] = {name: claim[name] for name in sorted(OPTIONAL) if claim.get(name)}
    return {**shown, "resource": claim.get("resource", "")}


def permission_claims(export: Obj) -> list[Obj]:
    """The claims of an export, as in the status of its bindings."""
    return [without_state(claim) for claim in (export.get("spec") or {}).get("permissionClaims") or ()]


def accepted_claims(binding: Obj, wanted: Sequence[Obj]) -> list[Obj]:
    """The claims of an export that a binding accepts."""
    accepted = {claim_of(claim) for claim in _decided(binding) if claim.get("state") == ACCEPTED}
    return [claim for claim in wanted if claim_of(claim) in accepted]


def unexpected_claims(binding: Obj, wanted: Sequence[Obj]) -> str:
    """The message about claims in a binding that its export does not make; empty if there are none."""
    made = {claim_of(claim) for claim in wanted}
    found = [claim_of(claim) for claim in _decided(binding) if claim_of(claim) not in made]
    if not found:
        return ""
    described = ", ".join(map(_describe_claim, found[:SHOWN_CLAIMS]))
    first = min(len(found), SHOWN_CLAIMS)
    return f"{len(found)} unexpected and/or invalid permission claims (showing first {first}): {described}"


def _describe_claim(claim: Claim) -> str:
    return f"unexpected/invalid claim for {claim.resource}.{claim.group} (identity {go_quote(claim.identity)})"


def _decided(binding: Obj) -> Iterable[Obj]:
    return (binding.get("spec") or {}).get("permissionClaims") or ()
