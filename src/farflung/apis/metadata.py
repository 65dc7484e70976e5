"""Validation of `metadata`, which all kinds share, with the messages and in the order of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.apis import definitions, wire
from farflung.apis.validation import IMMUTABLE, NOT_NEGATIVE, Errors, Rules, check_annotations, check_labels, check_name
from farflung.machinery import names
from farflung.machinery.errors import (
    FieldError,
    Obj,
    field_forbidden,
    go_quote,
    invalid_value,
    required,
    too_long,
    too_many,
)
from farflung.machinery.schema.conform import Conformed, compile
from farflung.machinery.schema.structural.embedded import MetadataRules

FIXED: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
OPERATIONS: Final = frozenset({"Apply", "Update"})
MANAGER_LENGTH: Final = 128


def validate_metadata(obj: Obj, rules: Rules, *, namespaced: bool) -> list[FieldError]:
    """Validation errors of an object's metadata, after name generation."""
    metadata: Obj = obj.get("metadata") or {}
    errors: Errors = []
    prefix = metadata.get("generateName")
    if prefix:
        errors += [invalid_value("metadata.generateName", prefix, wrong) for wrong in rules.name(names.masked(prefix))]
    name = metadata.get("name")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        check_name(rules.name, name, "metadata.name", errors)
    _check_content(metadata, namespaced, errors)
    finalizers = metadata.get("finalizers")
    if finalizers and not rules.short_finalizers:
        for index, finalizer in enumerate(finalizers):
            check_name(names.finalizer, finalizer, f"metadata.finalizers[{index}]", errors)
    return errors


def validate_metadata_update(new: Obj, old: Obj) -> list[FieldError]:
    """Errors of changes to immutable metadata, in addition to `validate_metadata(new, …)`.

    What an update may leave out (uid, timestamps, generation) has been filled in from the old object.
    """
    after: Obj = new.get("metadata") or {}
    before: Obj = old.get("metadata") or {}
    errors: Errors = []
    if before.get("deletionTimestamp") is not None:
        added = set(after.get("finalizers") or ()).difference(before.get("finalizers") or ())
        if added:
            listed = "[]string{" + ", ".join(map(go_quote, sorted(added))) + "}"
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            errors.append(field_forbidden("metadata.finalizers", detail))
    if after.get("generation", 0) < before.get("generation", 0):
        errors.append(invalid_value("metadata.generation", after.get("generation", 0), "must not be decremented"))
    for name in FIXED:
        if after.get(name) != before.get(name):
            errors.append(invalid_value(f"metadata.{name}", after.get(name), IMMUTABLE))
    return errors


def _check_content(metadata: Obj, namespaced: bool, errors: Errors) -> None:
    """Everything but the name."""
    namespace = metadata.get("namespace")
    if not namespaced:
        if namespace:
            errors.append(field_forbidden("metadata.namespace", "not allowed on this type"))
    elif not namespace:
        errors.append(required("metadata.namespace"))
    else:
        check_name(names.dns_label, namespace, "metadata.namespace", errors)
    if metadata.get("generation", 0) < 0:
        errors.append(invalid_value("metadata.generation", metadata["generation"], NOT_NEGATIVE))
    if labels := metadata.get("labels"):
        check_labels(labels, "metadata.labels", errors)
    if annotations := metadata.get("annotations"):
        check_annotations(annotations, "metadata.annotations", errors)
    if owners := metadata.get("ownerReferences"):
        _check_owners(owners, errors)
    if finalizers := metadata.get("finalizers"):
        _check_finalizers(finalizers, errors)
    if managed := metadata.get("managedFields"):
        _check_managed(managed, errors)


# --- owners ---------------------------------------------------------------------------------------


MAX_OWNERS: Final = 1_000  #: the garbage collector looks up each


def _check_owners(owners: Sequence[Obj], errors: Errors) -> None:
    if len(owners) > MAX_OWNERS:
        errors.append(too_many("metadata.ownerReferences", len(owners), MAX_OWNERS))
        return
    controller = ""
    for owner in owners:
        _check_owner(owner, errors)
        if owner.get("controller"):
            current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {current}"
                )
                errors.append(invalid_value("metadata.ownerReferences", [_as_go_orders(one) for one in owners], detail))
                break
            controller = current


def _check_owner(owner: Obj, errors: Errors) -> None:
    api_version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
    group, version = _parsed(api_version)
    if not version:
        errors.append(_bad_owner("apiVersion", api_version, "version must not be empty"))
    if not kind:
        errors.append(_bad_owner("kind", kind, "must not be empty"))
    if not owner.get("name"):
        errors.append(_bad_owner("name", "", "must not be empty"))
    if not owner.get("uid"):
        errors.append(_bad_owner("uid", "", "must not be empty"))
    if (group, version, kind) == ("", "v1", "Event"):
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(invalid_value("metadata.ownerReferences", _as_go_orders(owner), detail))


def _bad_owner(field: str, value: str, detail: str) -> FieldError:
    return invalid_value(f"metadata.ownerReferences.{field}", value, detail)


def _parsed(api_version: str) -> tuple[str, str]:
    """Group and version; both empty if there are too many slashes."""
    match api_version.split("/"):
        case [version]:
            return "", version
        case [group, version]:
            return group, version
        case _:
            return "", ""


def _as_go_orders(owner: Obj) -> Obj:
    return {field: owner.get(field, "") for field in OWNER_FIELDS if field in owner or field in OWNER_FIELDS[:4]}


# --- finalizers -----------------------------------------------------------------------------------


def _check_finalizers(finalizers: Sequence[str], errors: Errors) -> None:
    for finalizer in finalizers:
        check_name(names.qualified_name, finalizer, "metadata.finalizers", errors)
    if names.ORPHAN in finalizers and names.FOREGROUND in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value("metadata.finalizers", finalizers, detail))


# --- managed fields -------------------------------------------------------------------------------


def _check_managed(entries: Sequence[Obj], errors: Errors) -> None:
    for index, entry in enumerate(entries):
        operation, kind = entry.get("operation", ""), entry.get("fieldsType", "FieldsV1")
        manager = entry.get("manager", "")
        if operation not in OPERATIONS:
            detail = "must be `Apply` or `Update`"
            errors.append(invalid_value(f"metadata.managedFields[{index}].operation", operation, detail))
        if kind != "FieldsV1":
            errors.append(invalid_value(f"metadata.managedFields[{index}].fieldsType", kind, "must be `FieldsV1`"))
        if len(manager) > MANAGER_LENGTH // 4 and names.size(manager) > MANAGER_LENGTH:
            errors.append(too_long(f"metadata.managedFields[{index}].manager", MANAGER_LENGTH))
        if not manager.isprintable():
            detail = "should only contain printable characters"
            errors.append(invalid_value(f"metadata.managedFields[{index}].manager", manager, detail))


# --- The metadata of objects that are embedded in custom resources --------------------------------

_CONFORMER: Final = compile(definitions.schema(f"{definitions.META}ObjectMeta"), wire.fields)
_RULES: Final = Rules(name=names.path_segment, short_finalizers=True)


def conform(metadata: Obj) -> Conformed:
    """Conforms metadata to the type ObjectMeta; raises Malformed."""
    return _CONFORMER.conform(metadata)


def validate(metadata: Obj) -> list[FieldError]:
    """An embedded object need not have a name, and is where it says it is."""
    named = metadata if metadata.get("name") else {**metadata, "name": "anything"}
    return validate_metadata({"metadata": named}, _RULES, namespaced=bool(metadata.get("namespace")))


OBJECT_META: Final = MetadataRules(conform, validate)
