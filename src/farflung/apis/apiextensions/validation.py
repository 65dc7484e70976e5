"""Defaults, preparation and validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from farflung.apis.admissionregistration.validation import check_webhook_service, check_webhook_url
from farflung.apis.apiextensions import conditions
from farflung.apis.apiextensions.conditions import (
    APPROVED,
    ESTABLISHED,
    MEMBERS,
    approval_state,
    condition_is,
    is_protected,
)
from farflung.apis.apiextensions.schema_validation import check_root, check_schema, place, structural_problems
from farflung.apis.apiextensions.schemas import (
    MAX_DEFAULT_WORK,
    VALIDATIONS,
    TooDeep,
    check_selectable,
    default_work,
    everything_in,
    schema_of,
    shown_versions,
    too_large,
)
from farflung.apis.metadata import OBJECT_META
from farflung.apis.rows import Check, CheckFunction, Each, Enum, InvalidIf, Optional, Required, Struct, Table
from farflung.apis.validation import Deletion, Errors, Rules, check_immutable, keep_spec
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, go_quote, invalid_value, required, too_many
from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.defaults import check_defaults

WEBHOOK_PORT: Final = 443


def default(definition: Obj) -> None:
    spec = definition.setdefault("spec", {})
    spec["names"] = _default_names(spec.get("names") or {})
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    client = (spec["conversion"].get("webhook") or {}).get("clientConfig") or {}
    if client.get("service") is not None:
        client["service"].setdefault("port", WEBHOOK_PORT)
    status = definition.get("status")
    if status and not status.get("storedVersions"):
        status["storedVersions"] = _stored(spec, [])


def _default_names(names: Obj) -> Obj:
    kind = names.get("kind", "")
    found = dict(names)
    if not found.get("singular") and kind:
        found["singular"] = kind.lower()
    if not found.get("listKind") and kind:
        found["listKind"] = f"{kind}List"
    return {member: found[member] for member in MEMBERS if member in found}


def prepare_create(definition: Obj) -> None:
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _stored(definition["spec"], []),
    }


def prepare_update(new: Obj, old: Obj) -> None:
    """A status is not written with the rest; the version that is stored from now on is noted in it."""
    status = dict(old.get("status") or {})
    status["storedVersions"] = _stored(new["spec"], status.get("storedVersions") or [])
    new["status"] = status


def _stored(spec: Obj, before: list[str]) -> list[str] | None:
    """The new storedVersions: the old ones, and the first version with `storage: true`."""
    for version in spec.get("versions") or ():
        if version.get("storage"):
            name: str = version.get("name", "")
            return before if name in before else [*before, name]
    return before or None


# --- What a version says beside its schema: columns, subresources, deprecation --------------------

COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MAX_COLUMNS: Final = 200
LONGEST_WARNING: Final = 256


def check_deprecation(version: Obj, path: str, errors: Errors) -> None:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    wrong = _wrong_with(warning) if version.get("deprecated") else ["can only be set for deprecated versions"]
    errors += [invalid_value(f"{path}.deprecationWarning", warning, why) for why in wrong]


def _wrong_with(warning: str) -> list[str]:
    wrong = []
    if names.size(warning) > LONGEST_WARNING:
        wrong.append("must be <= 256 characters long")
    if not warning:
        wrong.append("must not be an empty string")
    if not warning.isprintable():
        at = next(index for index, char in enumerate(warning) if not char.isprintable())
        where = f"non-printable character found at index {names.size(warning[:at])}"
        wrong.append(f"must only contain printable UTF-8 characters; {where}")
    return wrong


def _check_simple(text: str, field: str, errors: Errors) -> bool:
    if text.startswith("."):
        return True
    errors.append(invalid_value(field, text, "must be a simple json path starting with ."))
    return False


def below(*roots: str) -> CheckFunction:
    """A simple path below one of these fields."""
    prefixes = tuple(f"{root}." for root in roots)
    detail = f"should be a json path under {'either ' if len(roots) > 1 else ''}{' or '.join(roots)}"

    def check(text: str, field: str, errors: Errors) -> None:
        if _check_simple(text, field, errors) and not text.startswith(prefixes):
            errors.append(invalid_value(field, text, detail))

    return check


def one_of(*choices: str) -> InvalidIf:
    return InvalidIf(f"{{v}} not in {choices!r}", f"must be one of {','.join(choices)}")


SUBRESOURCES: Final = Table(
    Struct(
        "subresources.scale",
        Required("specReplicasPath", below(".spec")),
        Required("statusReplicasPath", below(".status")),
        Optional("labelSelectorPath", below(".spec", ".status")),
    )
)
COLUMNS: Final = Table(
    Each(
        "additionalPrinterColumns",
        Required("name"),
        Required("type", one_of(*COLUMN_TYPES), detail=f"must be one of {','.join(COLUMN_TYPES)}"),
        Optional("format", one_of(*COLUMN_FORMATS)),
        Required("jsonPath", _check_simple, named="JSONPath"),
        most=MAX_COLUMNS,
    )
)


# --- What is refused in a definition, in Kubernetes' words and order ------------------------------

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
UNREADABLE: Final = frozenset(("id", "$schema", "$ref", "patternProperties", "dependencies", "definitions"))
MAX_VERSIONS: Final = 100


class DefinitionSpec:
    """A definition's spec, and which members all its versions have in common."""

    def __init__(self, spec: Obj) -> None:
        self.spec = spec
        self.versions: Sequence[Obj] = spec.get("versions") or ()
        self._shared = {member for member in SHARED if self.versions and self._is_shared(member)}
        if "schema" not in self._shared:
            self._shared.discard("selectableFields")

    def _is_shared(self, member: str) -> bool:
        forms = {orjson.dumps(one.get(member), option=orjson.OPT_SORT_KEYS) for one in self.versions}
        return len(forms) == 1

    def is_shared(self, member: str) -> bool:
        return member in self._shared

    def shared(self, member: str) -> Any:
        """The common value of all versions; None if they differ."""
        return self.versions[0].get(member) if member in self._shared else None

    def shown(self) -> Any:
        """The versions as messages show them."""
        return shown_versions(self.spec.get("versions"), hoisted=self.is_shared)


# --- the rules ------------------------------------------------------------------------------------


def validate_create(definition: Obj) -> list[FieldError]:
    spec: Obj = definition["spec"]
    name = (definition.get("metadata") or {}).get("name", "")
    errors: Errors = []
    if name != f"{_names(spec).get('plural', '')}.{spec.get('group', '')}":
        errors.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += _spec_errors(spec)
    return errors + _status_errors(definition) + _stored_errors(definition) + _policy_errors(definition, None)


def validate_update(new: Obj, old: Obj) -> list[FieldError]:
    after, before = new["spec"], old["spec"]
    errors = _spec_errors(after)
    if condition_is(old, ESTABLISHED):
        check_immutable(after.get("scope"), before.get("scope"), "spec.scope", errors)
        check_immutable(_names(after).get("kind"), _names(before).get("kind"), "spec.names.kind", errors)
    check_immutable(after.get("group"), before.get("group"), "spec.group", errors)
    check_immutable(_names(after).get("plural"), _names(before).get("plural"), "spec.names.plural", errors)
    return errors + _status_errors(new) + _stored_errors(new) + _policy_errors(new, old)


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    return _status_errors(new)


def _names(spec: Obj) -> Obj:
    return spec.get("names") or {}


# --- spec -----------------------------------------------------------------------------------------


def _spec_errors(spec: Obj) -> Errors:
    if len(spec.get("versions") or ()) > MAX_VERSIONS:
        return [too_many("spec.versions", len(spec["versions"]), MAX_VERSIONS)]
    if large := too_large(spec.get("versions") or ()):
        return [field_forbidden("spec.versions", large)]
    definition = DefinitionSpec(spec)
    errors: Errors = []
    IDENTITY(spec, "spec", errors)
    for index, version in enumerate(definition.versions):
        if schema_of(version) is None:
            errors.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    if spec.get("preserveUnknownFields") and any(map(_has_defaults, definition.versions)):
        detail = "must be false in order to use defaults in the schema"
        errors.append(invalid_value("spec.preserveUnknownFields", True, detail))
    for index, version in enumerate(definition.versions):
        _check_version(definition, version, f"spec.versions[{index}]", errors)
    _check_version_names(definition, errors)
    REQUIRED_NAMES(spec, "spec", errors)
    check_names(_names(spec), "spec.names", errors)
    _check_shared(definition, errors)
    strategy = (spec.get("conversion") or {}).get("strategy", "")
    if spec.get("preserveUnknownFields") and strategy != "None":
        detail = "must be None if spec.preserveUnknownFields is true"
        errors.append(invalid_value("spec.conversion.strategy", strategy, detail))
    _check_conversion(definition, errors)
    return errors


def _check_group(group: str, field: str, errors: Errors) -> None:
    if wrong := names.dns_subdomain(group):
        errors.append(invalid_value(field, group, ",".join(wrong)))
    elif "." not in group:
        errors.append(invalid_value(field, group, "should be a domain with at least one dot"))


IDENTITY: Final = Table(Required("group", _check_group), Required("scope", Enum("Cluster", "Namespaced")))


def _has_defaults(version: Obj) -> bool:
    return any(part.get("default") is not None for part in everything_in(schema_of(version) or {}))


def _check_label(text: str, field: str, errors: Errors, *, shown: str = "", prefix: str = "") -> None:
    if wrong := names.dns_1035_label(text):
        errors.append(invalid_value(field, shown or text, prefix + ",".join(wrong)))


def check_version(version: Obj, path: str, errors: Errors) -> None:
    """A version that has nothing in common with others."""
    _check_label(version.get("name", ""), f"{path}.name", errors)
    check_deprecation(version, path, errors)
    _check_validation(version, _has_status(version), f"{path}.schema", errors)
    SUBRESOURCES(version, path, errors)
    COLUMNS(version, path, errors)


def _check_version(definition: DefinitionSpec, version: Obj, path: str, errors: Errors) -> None:
    _check_label(version.get("name", ""), f"{path}.name", errors)
    check_deprecation(version, path, errors)
    if not definition.is_shared("schema"):
        _check_validation(version, _has_status(version), f"{path}.schema", errors)
    if not definition.is_shared("subresources"):
        SUBRESOURCES(version, path, errors)
    if not definition.is_shared("additionalPrinterColumns"):
        COLUMNS(version, path, errors)
    fields = version.get("selectableFields")
    if fields and not definition.is_shared("selectableFields"):
        _check_selectable(fields, schema_of(version), f"{path}.selectableFields", errors)


def _check_shared(definition: DefinitionSpec, errors: Errors) -> None:
    """The common members of all versions."""
    if definition.is_shared("schema"):
        _check_validation(definition.versions[0], any(map(_has_status, definition.versions)), "spec.validation", errors)
    if definition.is_shared("subresources"):
        SUBRESOURCES(definition.versions[0], "spec", errors)
    if definition.is_shared("additionalPrinterColumns"):
        COLUMNS(definition.versions[0], "spec", errors)
    if fields := definition.shared("selectableFields"):
        _check_selectable(fields, schema_of(definition.versions[0]), "spec.selectableFields", errors)


def _check_selectable(fields: Sequence[Obj], schema: Obj | None, path: str, errors: Errors) -> None:
    if schema is None:
        errors.append(invalid_value(path, "", "may only be set when validations.schema is included"))
    else:
        check_selectable(fields, schema, path, errors)


def _has_status(version: Obj) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _check_version_names(definition: DefinitionSpec, errors: Errors) -> None:
    versions = definition.versions
    if len({version.get("name", "") for version in versions}) < len(versions):
        errors.append(invalid_value("spec.versions", definition.shown(), "must contain unique version names"))
    if sum(1 for version in versions if version.get("storage")) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", definition.shown(), detail))
    if versions and versions[0].get("name"):
        _check_label(versions[0]["name"], "spec.version", errors)


def _check_cased_label(text: str, field: str, errors: Errors) -> None:
    _check_label(text.lower(), field, errors, shown=text, prefix="may have mixed case, but should otherwise match: ")


def _check_list_kind(given: Obj, path: str, errors: Errors) -> None:
    if given.get("kind") and given["kind"] == given.get("listKind"):
        errors.append(invalid_value(f"{path}.listKind", given["kind"], "kind and listKind may not be the same"))


REQUIRED_NAMES: Final = Table(*(Required(f"names.{member}") for member in ("plural", "singular", "kind", "listKind")))
#: names that are present
check_names: Final = Table(
    Optional("plural", _check_label),
    Optional("singular", _check_label),
    Optional("kind", _check_cased_label),
    Optional("listKind", _check_cased_label),
    Each("shortNames", _check_label),
    Check(_check_list_kind),
    Each("categories", _check_label),
)


# --- schemas --------------------------------------------------------------------------------------


def _check_validation(version: Obj, has_status: bool, path: str, errors: Errors) -> None:
    schema = schema_of(version)
    if schema is None:
        return
    where, parts = f"{path}.openAPIV3Schema", list(everything_in(schema))
    found = check_root(schema, where, has_status=has_status)
    if not any(map(_is_unreadable, parts)):
        found += structural_problems(schema, place(where)) or _default_problems(schema, parts, where)
    found += check_schema(schema, where)
    if not found and any(part.get("$schema") for part in parts):
        found.append(invalid_value(where, "", "OpenAPIV3Schema 'schema' is not supported"))
    if not found and any(VALIDATIONS in part for part in parts):
        from farflung.machinery.cel.crd import compile_validations  # CEL is loaded with the first rule

        found += compile_validations(schema, where)[1]
    errors += found


def _default_problems(schema: Obj, parts: Sequence[Obj], where: str) -> Errors:
    if not any("default" in part for part in parts):
        return []
    if default_work(schema) > MAX_DEFAULT_WORK:
        return [field_forbidden(where, "defaults that are so many and so deep within each other are not supported")]
    return check_defaults(schema, where, OBJECT_META)


def _is_unreadable(schema: Obj) -> bool:
    """Whether it has members that nothing structural can be made of; those are complained about anyway."""
    return (
        any(schema.get(member) for member in UNREADABLE.intersection(schema))
        or schema.get("additionalItems") is not None
        or type(schema.get("items")) is list
        or schema.get("x-kubernetes-preserve-unknown-fields") is False
    )


# --- conversion -----------------------------------------------------------------------------------


STRATEGY: Final = Table(Required("strategy", Enum("None", "Webhook")))


def _check_conversion(definition: DefinitionSpec, errors: Errors) -> None:
    conversion: Obj = definition.spec.get("conversion") or {}
    webhook: Obj = conversion.get("webhook") or {}
    path, client, versions = "spec.conversion", webhook.get("clientConfig"), webhook.get("conversionReviewVersions")
    STRATEGY(conversion, path, errors)
    if conversion.get("strategy") != "Webhook":
        detail = "should not be set when strategy is not set to Webhook"
        if client is not None:
            errors.append(field_forbidden(f"{path}.webhookClientConfig", detail))
        if versions:
            errors.append(field_forbidden(f"{path}.conversionReviewVersions", detail))
        return
    _check_client(client, f"{path}.webhookClientConfig", errors)
    _check_review_versions(versions or (), f"{path}.conversionReviewVersions", errors)
    if len(definition.versions) > 1:
        detail = "this server calls no webhooks: objects can be converted between versions by strategy None only"
        errors.append(field_forbidden(f"{path}.strategy", detail))


def _check_client(client: Obj | None, path: str, errors: Errors) -> None:
    if client is None:
        errors.append(required(path, "required when strategy is set to Webhook"))
        return
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        errors.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        check_webhook_url(url, f"{path}.url", errors)
    elif service is not None:
        check_webhook_service(service, f"{path}.service", errors)


def _check_review_versions(versions: Sequence[str], path: str, errors: Errors) -> None:
    if not versions:
        errors.append(required(path))
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            errors.append(invalid_value(f"{path}[{index}]", version, "duplicate version"))
            continue
        seen.add(version)
        _check_label(version, f"{path}[{index}]", errors)
    if seen.isdisjoint(REVIEW_VERSIONS):
        errors.append(invalid_value(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))


# --- status and policy ------------------------------------------------------------------------------


def _status_errors(definition: Obj) -> Errors:
    errors: Errors = []
    check_names((definition.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames", errors)
    return errors


def _stored_errors(definition: Obj) -> Errors:
    """Versions that there may be objects of must stay."""
    field = "status.storedVersions"
    stored: list[str] | None = (definition.get("status") or {}).get("storedVersions")
    if not stored:
        return [invalid_value(field, stored, "must have at least one stored version")]
    versions = definition["spec"].get("versions") or ()
    errors: Errors = [
        invalid_value(field, stored, f"must have the storage version {version.get('name', '')}")
        for version in versions
        if version.get("storage") and version.get("name", "") not in stored
    ]
    there = {version.get("name", "") for version in versions}
    for index, name in enumerate(stored):
        if name not in there:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and removes "
                f"{name} from status.storedVersions"
            )
            errors.append(invalid_value(f"{field}[{index}]", name, detail))
    return errors


def _policy_errors(new: Obj, old: Obj | None) -> Errors:
    return _approval_errors(new, old) + _preserve_errors(new["spec"], old)


def _approval_errors(new: Obj, old: Obj | None) -> Errors:
    if not is_protected(new["spec"].get("group", "")):
        return []
    state = approval_state(new)
    if state.reason in ("ApprovedAnnotation", "UnapprovedAnnotation"):
        return []
    if old is not None and approval_state(old).reason == state.reason:
        return []
    field = f"metadata.annotations[{APPROVED}]"
    if state.reason == "MissingAnnotation":
        return [required(field, state.message)]
    return [invalid_value(field, new["metadata"]["annotations"][APPROVED], state.message)]


def _preserve_errors(spec: Obj, old: Obj | None) -> Errors:
    if not spec.get("preserveUnknownFields") or (old is not None and old["spec"].get("preserveUnknownFields")):
        return []
    detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    return [invalid_value("spec.preserveUnknownFields", True, detail)]


# --- The rules of CustomResourceDefinitions, put together -----------------------------------------

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "CustomResourceDefinition"
#: formats that are notes to the reader, and known as such
NOTES: Final = frozenset({"int32", "int64", "float", "double"})


def warnings(new: Obj, old: Obj | None) -> list[str]:
    """Warnings about unknown formats, which validate nothing.  An update warns only of new ones."""
    before = _unknown_formats(old) if old is not None else {}
    return [f"unrecognized format {go_quote(name)}" for name in _unknown_formats(new) if name not in before]


def _unknown_formats(definition: Obj) -> dict[str, None]:
    found: dict[str, None] = {}
    for version in definition["spec"].get("versions") or ():
        try:
            named = [part.get("format") for part in everything_in(schema_of(version) or {})]
        except TooDeep:
            continue
        found |= {name: None for name in named if name and name not in NOTES and not formats.known(name)}
    return found


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, KIND): Rules(
        name=names.dns_subdomain,
        default=default,
        prepare_create=prepare_create,
        prepare_update=prepare_update,
        prepare_status=keep_spec,
        prepare_delete=conditions.mark_deleted,
        deletion=Deletion.MARKED,
        validate_create=validate_create,
        validate_update=validate_update,
        validate_status=validate_status,
        warnings=warnings,
        unconditional_update=False,
        short_finalizers=True,
        generation=True,
    )
}
