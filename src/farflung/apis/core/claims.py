"""PersistentVolumeClaims: protection finalizers, defaults and validation."""

from __future__ import annotations

from typing import Final

from farflung.apis.core.resources import POSITIVE_AMOUNT, check_quantity, round_amounts
from farflung.apis.rows import (
    ITSELF,
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    Format,
    Optional,
    Pointer,
    Refused,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unless,
    Validation,
    When,
)
from farflung.apis.validation import Errors, Rules, check_immutable, check_selector, keep_spec, keep_status, spec_of
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value
from farflung.machinery.quantity import ZERO, Quantity, parse

CLAIM: Final = "kubernetes.io/pvc-protection"
VOLUME: Final = "kubernetes.io/pv-protection"


def protect(obj: Obj, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


# --- PersistentVolumeClaims: the part that pods and StatefulSets embed, and the kind --------------

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
ONLY_REQUESTS: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"
)


def round_claim(spec: Obj) -> None:
    round_amounts(spec["resources"])


DEFAULT_CLAIM_SPEC: Final = Defaults(Default("resources", {}), round_claim, Default("volumeMode", "Filesystem"))
default_claim: Final = Defaults(
    Default("spec", {}), Struct("spec", DEFAULT_CLAIM_SPEC), Default("status.phase", "Pending")
)


def check_exclusive_mode(modes: list[str], field: str, errors: Errors) -> None:
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        errors.append(field_forbidden(field, "may not use ReadWriteOncePod with other access modes"))


def check_same_source(spec: Obj, path: str, errors: Errors) -> None:
    """`dataSource` and `dataSourceRef` are two spellings of one thing."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        why = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid_value(path, f"{path}.dataSource", why))
    elif any(source.get(member) != reference.get(member) for member in ("apiGroup", "kind", "name")):
        errors.append(invalid_value(path, f"{path}.dataSource", "must match dataSourceRef"))


CHECK_MODES: Final = Table(
    Each("accessModes", Enum(*ACCESS_MODES), indexed=False), Optional("accessModes", check_exclusive_mode)
)
ONLY_CLAIMS: Final = Refused("must be 'PersistentVolumeClaim' when referencing the default apiGroup")
DATA_SOURCE: Final = Table(
    Required("name"),
    Required("kind"),
    Optional("apiGroup", Format(names.dns_subdomain)),
    When("apiGroup", ("", None), Unless("kind", "PersistentVolumeClaim", Always("kind", ONLY_CLAIMS, named=ITSELF))),
)
CLAIM_SPEC: Final = Table(
    Required("accessModes", detail="at least 1 access mode is required"),
    Optional("selector", check_selector),
    CHECK_MODES,
    RequiredPointer("resources.requests.storage", POSITIVE_AMOUNT, named="resources[storage]"),
    Optional("storageClassName", Format(names.dns_subdomain)),
    Optional("volumeAttributesClassName", Format(names.dns_subdomain)),
    Pointer("volumeMode", Enum(*VOLUME_MODES)),
    Struct("dataSource", DATA_SOURCE),
    Struct("dataSourceRef", DATA_SOURCE, Optional("namespace", Format(names.dns_label))),
    Check(check_same_source),
)


# --- the kind -------------------------------------------------------------------------------------


def _prepare_create(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}
    protect(claim, CLAIM)
    spec = claim["spec"]
    if spec.get("dataSource") is not None and spec.get("dataSourceRef") is None:
        spec["dataSourceRef"] = dict(spec["dataSource"])
    elif spec.get("dataSourceRef") is not None and spec.get("dataSource") is None:
        reference = spec["dataSourceRef"]
        if not reference.get("namespace"):
            spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}


def _size(holder: Obj, member: str) -> Quantity:
    text = (holder.get(member) or {}).get("storage")
    return parse(text) if text else ZERO


def _validate_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    if _frozen(fresh, former, new) != _frozen(former, former, new):
        errors.append(field_forbidden("spec", ONLY_REQUESTS))
    wanted = _size(fresh.get("resources") or {}, "requests")
    shrinks = wanted < _size(former.get("resources") or {}, "requests")
    if shrinks and wanted <= _size(old.get("status") or {}, "capacity"):
        why = "field can not be less than status.capacity"
        errors.append(field_forbidden("spec.resources.requests.storage", why))
    check_immutable(fresh.get("volumeMode"), former.get("volumeMode"), "volumeMode", errors)
    return errors


def _frozen(spec: Obj, former: Obj, new: Obj) -> Obj:
    """The immutable part of a spec."""
    free = set()
    if not former.get("volumeName"):
        free.add("volumeName")
    if former.get("storageClassName") is None:
        free.add("storageClassName")
    frozen = {key: value for key, value in spec.items() if key not in free}
    if (new.get("status") or {}).get("phase") == "Bound":
        frozen.pop("volumeAttributesClassName", None)
        resources = dict(frozen.get("resources") or {})
        resources["requests"] = {k: v for k, v in (resources.get("requests") or {}).items() if k != "storage"}
        frozen["resources"] = resources
    return frozen


def check_capacity(amounts: Obj, path: str, errors: Errors) -> None:
    for resource, amount in amounts.items():
        check_quantity("", amount, f"{path}[{resource}]", errors)


CLAIM_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=default_claim,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(Always("spec", CLAIM_SPEC, zero={})),
    validate_update=_validate_update,
    validate_status=Validation(Optional("status.capacity", check_capacity)),
    returns_deleted=True,
)
