"""APIResourceSchemas: validation, and conversion to CustomResourceDefinitions.

As in kcp, admission checks them, so errors are Forbidden.  Only errors of their own schema are Invalid.
"""

from __future__ import annotations

import re
from typing import Final

from farflung.apis.apiextensions.conditions import APPROVED, approval_state, is_protected
from farflung.apis.apiextensions.schemas import too_large
from farflung.apis.apiextensions.validation import MAX_VERSIONS, check_names, check_version
from farflung.apis.kcp import kinds as kcp
from farflung.apis.kcp.names import APIS_GROUP
from farflung.apis.validation import Errors
from farflung.hub.catalog.kinds import builtin_shape
from farflung.machinery import names
from farflung.machinery.errors import (
    ApiError,
    FieldError,
    Malformed,
    Obj,
    field_forbidden,
    forbidden,
    invalid_value,
    required,
    too_many,
)

PLURAL: Final = "apiresourceschemas"
CORE: Final = "core"  #: the empty group in names
PREFIX: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_SHOWN: Final = 100  #: errors in a message
JSON_SCHEMA: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def resource_name(spec: Obj) -> str:
    """`widgets.ex.test`, with which the name of a schema ends; `pods.core` in the core group."""
    return f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group') or CORE}"


def group_resource(resource: str) -> tuple[str, str]:
    """Group and plural of such a name."""
    plural, _, group = resource.partition(".")
    return "" if group == CORE else group, plural


def as_definition(schema: Obj) -> Obj:
    """The equivalent CustomResourceDefinition.  Raises Malformed for an invalid schema."""
    definition = as_raw_definition(schema)
    definition["spec"]["versions"] = list(map(conformed_version, schema["spec"]["versions"]))
    return definition


def as_raw_definition(schema: Obj) -> Obj:
    """The same, whose versions are not conformed yet.  Its names count as accepted, because conflicts are checked when
    it is bound."""
    spec = schema["spec"]
    names_given: Obj = spec["names"]
    accepted = {"singular": names_given.get("kind", "").lower(), **names_given}
    accepted.setdefault("listKind", f"{names_given.get('kind', '')}List")
    return {
        "metadata": schema["metadata"],
        "spec": {**spec, "names": accepted},
        "status": {"acceptedNames": accepted},
    }


def conformed_version(version: Obj) -> Obj:
    """The kind APIResourceSchema allows any object as schema."""
    shape = builtin_shape("apiextensions.k8s.io", "apiextensions.k8s.io/v1", "JSONSchemaProps", JSON_SCHEMA)
    return {**version, "schema": {"openAPIV3Schema": shape.conformer.conform(version.get("schema") or {}).obj}}


def stored_versions(schema: Obj) -> list[str]:
    return [version["name"] for version in schema["spec"]["versions"] if version.get("storage")]


#: groups of the hub's own kinds
RESERVED: Final = frozenset(one.group for one in kcp.KINDS.values())


def check_definition(definition: Obj) -> None:
    """Check a CustomResourceDefinition of a workspace.  Raises 403 for a reserved group."""
    group = (definition.get("spec") or {}).get("group", "")
    if group in RESERVED or group.endswith(f".{APIS_GROUP}"):
        name = definition["metadata"].get("name", "")
        raise forbidden("apiextensions.k8s.io", "customresourcedefinitions", name, f"{group} is a reserved group")


# --- validation -----------------------------------------------------------------------------------


def check_new(schema: Obj) -> None:
    """Raises 403."""
    _refuse(schema, schema_errors(schema))


def check_change(new: Obj, old: Obj) -> None:
    """Schemas are immutable.  Raises 403."""
    if new.get("spec") != old.get("spec"):
        _refuse(new, [FieldError("Invalid value", "spec", "object", "is immutable")])


def _refuse(schema: Obj, errors: list[FieldError]) -> None:
    if errors:
        raise schema_forbidden(schema["metadata"].get("name", ""), errors)


def schema_forbidden(name: str, errors: list[FieldError]) -> ApiError:
    messages = list(dict.fromkeys(map(str, errors[:MAX_SHOWN])))
    if len(errors) > MAX_SHOWN:
        messages.append(f"and {len(errors) - MAX_SHOWN} errors more")
    return forbidden(APIS_GROUP, PLURAL, name, f"[{' '.join(messages)}]")


def schema_errors(schema: Obj) -> list[FieldError]:
    """The errors of a schema that conforms to its kind."""
    spec, metadata = schema.get("spec"), schema["metadata"]
    if not spec:
        return [required("spec")]
    versions = spec.get("versions") or ()
    if len(versions) > MAX_VERSIONS:
        return [too_many("spec.versions", len(versions), MAX_VERSIONS)]
    try:
        definition = as_definition({"metadata": metadata, "spec": {"names": {}, **spec, "versions": list(versions)}})
    except Malformed as error:
        return [invalid_value("spec.versions", "array", error.why)]
    if large := too_large(definition["spec"]["versions"]):
        return [field_forbidden("spec.versions", large)]
    errors: Errors = []
    if spec.get("group") == CORE:
        return [invalid_value("spec.group", CORE, "must be empty string for the core group")]
    _check_name(metadata.get("name", ""), resource_name(spec), errors)
    _check_group(spec.get("group", ""), schema, errors)
    _check_versions(definition["spec"]["versions"], errors)
    for member in ("plural", "singular", "kind", "listKind"):
        if not definition["spec"]["names"].get(member):
            errors.append(required(f"spec.names.{member}"))
    check_names(definition["spec"]["names"], "spec.names", errors)
    return errors


def _check_name(name: str, resource: str, errors: Errors) -> None:
    if not name.endswith(f".{resource}"):
        errors.append(invalid_value("metadata.name", name, f"must end in .{resource}"))
    elif not re.fullmatch(PREFIX[1:-1], name.removesuffix(f".{resource}")):
        errors.append(invalid_value("metadata.name", name, f"must match {PREFIX} in front of .{resource}"))


def _check_group(group: str, schema: Obj, errors: Errors) -> None:
    if not group:
        return
    if wrong := names.dns_subdomain(group):
        errors.append(invalid_value("spec.group", group, ",".join(wrong)))
    annotations = schema["metadata"].get("annotations") or {}
    if not is_protected(group):
        return
    state = approval_state(schema)
    if state.reason == "MissingAnnotation":
        errors.append(required(f"metadata.annotations[{APPROVED}]", state.message))
    elif state.reason == "InvalidAnnotation":
        errors.append(invalid_value(f"metadata.annotations[{APPROVED}]", annotations[APPROVED], state.message))


def _check_versions(versions: list[Obj], errors: Errors) -> None:
    if len({version.get("name") for version in versions}) < len(versions):
        errors.append(invalid_value("spec.versions", "array", "must contain unique version names"))
    if sum(1 for version in versions if version.get("storage")) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", "array", detail))
    for index, version in enumerate(versions):
        found: Errors = []
        check_version(version, f"spec.versions[{index}]", found)
        errors += sorted(found, key=lambda error: error.what != "Unsupported value")  # kcp reports unknown types first
