"""PersistentVolumeClaims: protection finalizers, defaults and validation."""

from __future__ import annotations

from typing import Final

from farflung.apis.core.resources import check_quantity, round_amounts
from farflung.apis.validation import (
    POSITIVE,
    Errors,
    Rules,
    check_immutable,
    check_name,
    check_present,
    check_selector,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value, required
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


def default_claim_spec(spec: Obj) -> None:
    round_amounts(spec.setdefault("resources", {}))
    spec.setdefault("volumeMode", "Filesystem")


def default_claim(claim: Obj) -> None:
    default_claim_spec(claim.setdefault("spec", {}))
    claim.setdefault("status", {}).setdefault("phase", "Pending")


def check_access_modes(modes: list[str], path: str, errors: Errors) -> None:
    for mode in modes:
        check_supported(mode, ACCESS_MODES, path, errors)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        errors.append(field_forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def check_claim_spec(spec: Obj, path: str, errors: Errors) -> None:
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    check_selector(spec.get("selector"), f"{path}.selector", errors)
    check_access_modes(modes, f"{path}.accessModes", errors)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        errors.append(required(f"{path}.resources[storage]"))
    elif parse(size).nanos <= 0:
        errors.append(invalid_value(f"{path}.resources[storage]", size, POSITIVE))
    else:
        check_quantity("storage", size, f"{path}.resources[storage]", errors)
    for member in ("storageClassName", "volumeAttributesClassName"):
        if name := spec.get(member):
            check_name(names.dns_subdomain, name, f"{path}.{member}", errors)
    if (mode := spec.get("volumeMode")) is not None:
        check_supported(mode, VOLUME_MODES, f"{path}.volumeMode", errors)
    _check_data_sources(spec, path, errors)


def _check_data_sources(spec: Obj, path: str, errors: Errors) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        _check_data_source(source, f"{path}.dataSource", errors)
    if reference is not None:
        _check_data_source(reference, f"{path}.dataSourceRef", errors)
        if namespace := reference.get("namespace"):
            check_name(names.dns_label, namespace, f"{path}.dataSourceRef.namespace", errors)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        why = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid_value(path, f"{path}.dataSource", why))
    elif any(source.get(member) != reference.get(member) for member in ("apiGroup", "kind", "name")):
        errors.append(invalid_value(path, f"{path}.dataSource", "must match dataSourceRef"))


def _check_data_source(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "name", path, errors)
    check_present(source, "kind", path, errors)
    group = source.get("apiGroup")
    if group:
        check_name(names.dns_subdomain, group, f"{path}.apiGroup", errors)
    elif source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, source.get("kind", ""), why))


# --- the kind -------------------------------------------------------------------------------------


def _prepare_create(claim: Obj) -> None:
    claim["status"] = {"phase": "Pending"}
    protect(claim, CLAIM)
    # `dataSource` and `dataSourceRef` are two spellings of one thing.
    spec = claim["spec"]
    if spec.get("dataSource") is not None and spec.get("dataSourceRef") is None:
        spec["dataSourceRef"] = dict(spec["dataSource"])
    elif spec.get("dataSourceRef") is not None and spec.get("dataSource") is None:
        reference = spec["dataSourceRef"]
        if not reference.get("namespace"):
            spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}


def _validate(claim: Obj) -> Errors:
    errors: Errors = []
    check_claim_spec(spec_of(claim), "spec", errors)
    return errors


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


def _validate_status(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    for resource, amount in ((new.get("status") or {}).get("capacity") or {}).items():
        check_quantity("", amount, f"status.capacity[{resource}]", errors)
    return errors


CLAIM_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=default_claim,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    returns_deleted=True,
)
