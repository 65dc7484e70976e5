"""Values from objects of the API.

What the schema lets through and nobody can understand is a problem that the value carries: it says where and why, and
harms nothing else.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from farflung.controllers.edge_scheduler import where
from farflung.controllers.edge_scheduler.fitness import UNSCHEDULABLE
from farflung.controllers.edge_scheduler.values import (
    Effect,
    Key,
    Location,
    Placement,
    Taint,
    Target,
    Toleration,
)
from farflung.controllers.selector_reading import ProblemError, Selector, check_key, misfit, understood
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.selectors import EVERYTHING, LabelSelector

CLUSTER: Final = "kcp.io/cluster"  #: the annotation that says which logical cluster an object is in
UNSEEN_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
UNSEEN_STATUS: Final = ("lastSyncerHeartbeatTime",)  #: changes all the time and means nothing here


class _Metadata(msgspec.Struct):
    name: str
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class _Toleration(msgspec.Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _PlacementSpec(msgspec.Struct, rename="camel"):
    location_selectors: list[Selector] | None = None
    number_of_locations: int | None = None
    spread_by: list[str] | None = None
    tolerations: list[_Toleration] | None = None
    where: str | None = None


class _Taint(msgspec.Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _LocationSpec(msgspec.Struct, rename="camel"):
    instance_selector: msgspec.Raw = msgspec.Raw(b"null")
    taints: list[_Taint] | None = None


class _TargetSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)
_PLACEMENT: Final = msgspec.json.Decoder(_PlacementSpec | None)
_LOCATION: Final = msgspec.json.Decoder(_LocationSpec | None)
_TARGET: Final = msgspec.json.Decoder(_TargetSpec | None)
_SELECTOR: Final = msgspec.json.Decoder(Selector | None)
_STATUS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def parse_placement(obj: Obj | bytes, cluster: str = "") -> Placement:
    """An EdgePlacement.  The cluster is read from the object if it is not given.  msgspec.ValidationError if it is
    nothing that an API gives."""
    found, key = _read(obj, cluster)
    identity: dict[str, Any] = {"key": key, "uid": found.metadata.uid, "generation": found.metadata.generation}
    try:
        return Placement(**identity, **_placement(_PLACEMENT.decode(found.spec) or _PlacementSpec()))
    except ProblemError as problem:
        return Placement(**identity, problem=str(problem))
    except msgspec.ValidationError as error:
        return Placement(**identity, problem=misfit("spec", error))


def parse_location(obj: Obj | bytes, cluster: str = "") -> Location:
    found, key = _read(obj, cluster)
    labels, document = found.metadata.labels or {}, _document(found)
    try:
        spec = _LOCATION.decode(found.spec) or _LocationSpec()
    except msgspec.ValidationError as error:
        return Location(key, labels, None, misfit("spec", error), document=document)
    taints = tuple(_taints(spec.taints))
    try:
        return Location(key, labels, _instances(spec), "", taints, document)
    except ProblemError as problem:
        return Location(key, labels, None, str(problem), taints, document)


def parse_target(obj: Obj | bytes, cluster: str = "") -> Target:
    """A SyncTarget.  One whose spec makes no sense takes no new work."""
    found, key = _read(obj, cluster)
    try:
        spec = _TARGET.decode(found.spec) or _TargetSpec()
    except msgspec.ValidationError:
        spec = _TargetSpec(unschedulable=True)
    taints = (*((UNSCHEDULABLE,) if spec.unschedulable else ()), *_taints(spec.taints))
    return Target(key, found.metadata.uid, found.metadata.labels or {}, taints, _document(found))


def _read(obj: Obj | bytes, cluster: str) -> tuple[_Object, Key]:
    found = _OBJECT.decode(obj if isinstance(obj, bytes) else msgspec.json.encode(obj))
    return found, Key(cluster or (found.metadata.annotations or {}).get(CLUSTER, ""), found.metadata.name)


def _document(found: _Object) -> bytes:
    """What expressions see of an object: no part of it is missing."""
    annotations = dict(found.metadata.annotations or {})
    for name in UNSEEN_ANNOTATIONS:
        annotations.pop(name, None)
    try:
        status = _STATUS.decode(found.status) or {}
    except msgspec.ValidationError:
        status = {}
    for name in UNSEEN_STATUS:
        status.pop(name, None)
    metadata = {"name": found.metadata.name, "labels": found.metadata.labels or {}, "annotations": annotations}
    spec = {} if bytes(found.spec) == b"null" else found.spec
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})


# --- parts ----------------------------------------------------------------------------------------


def _placement(spec: _PlacementSpec) -> dict[str, Any]:
    number = spec.number_of_locations
    if number is not None and number < 0:
        raise ProblemError(f"spec.numberOfLocations: Invalid value: {number}: must be greater than or equal to 0")
    for at, label in enumerate(spec.spread_by or ()):
        check_key(label, f"spec.spreadBy[{at}]")
    return {
        "selectors": tuple(
            understood(one, f"spec.locationSelectors[{at}]") for at, one in enumerate(spec.location_selectors or ())
        ),
        "number": number,
        "spread_by": tuple(dict.fromkeys(spec.spread_by or ())),
        "tolerations": tuple(
            _toleration(one, f"spec.tolerations[{at}]") for at, one in enumerate(spec.tolerations or ())
        ),
        "where": None if spec.where is None else _where(spec.where),
    }


def _where(text: str) -> where.Where:
    try:
        return where.compiled(text)
    except where.InvalidWhereError as error:
        raise ProblemError(f"spec.where: Invalid value: {go_quote(text)}: {error}") from None


def _toleration(one: _Toleration, path: str) -> Toleration:
    effect = _effect(one.effect)
    if one.effect and effect is None:
        supported = ", ".join(go_quote(effect) for effect in Effect)
        raise ProblemError(f"{path}.effect: Unsupported value: {go_quote(one.effect)}: supported values: {supported}")
    match one.operator or "Equal":
        case "Equal" if not one.key:
            raise ProblemError(
                f"{path}.operator: Invalid value: {go_quote(one.operator)}: must be Exists without a key"
            )
        case "Equal":
            return Toleration(one.key, one.value, effect)
        case "Exists" if one.value:
            raise ProblemError(
                f"{path}.value: Invalid value: {go_quote(one.value)}: must be empty if operator is Exists"
            )
        case "Exists":
            return Toleration(one.key, None, effect)
        case operator:
            why = 'supported values: "Equal", "Exists"'
            raise ProblemError(f"{path}.operator: Unsupported value: {go_quote(operator)}: {why}")


def _taints(taints: list[_Taint] | None) -> list[Taint]:
    """Those whose effect is known."""
    found = [(taint, _effect(taint.effect)) for taint in taints or ()]
    return [Taint(taint.key, taint.value, effect) for taint, effect in found if effect is not None]


def _effect(text: str) -> Effect | None:
    return Effect(text) if text in Effect._value2member_map_ else None


def _instances(spec: _LocationSpec) -> LabelSelector:
    path = "spec.instanceSelector"
    try:
        selector = _SELECTOR.decode(spec.instance_selector)
    except msgspec.ValidationError as error:
        raise ProblemError(misfit(path, error)) from None
    return EVERYTHING if selector is None else understood(selector, path)
