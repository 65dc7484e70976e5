"""The rules of a custom resource: those of every object, those of its schema, and its schema's own expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from farflung.apis.resource import Resource
from farflung.apis.validation import Rules, no_change, no_changes
from farflung.hub.catalog.custom_scale import CustomScaling
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value
from farflung.machinery.schema.structural.structural import Structural

if TYPE_CHECKING:
    from farflung.machinery.cel.validation import Validations

STATUS: Final = "status"


def rules_of(
    resource: Resource, structural: Structural, validations: Validations | None, scaling: CustomScaling | None
) -> Rules:
    """Defaults are in when these rules are asked: they belong to decoding."""
    has_status = resource.subresource(STATUS) is not None
    scaled = no_errors if scaling is None else scaling.validate
    scaled_status = no_errors if scaling is None else scaling.validate_status

    def checked(errors: list[FieldError], new: Obj, old: Obj | None) -> list[FieldError]:
        if validations is None:
            return errors
        if is_nameless(new) or any(is_blocking(error) for error in errors):
            return [*errors, UNCHECKED]
        return [*errors, *validations.check(new, old)]

    return Rules(
        name=names.dns_subdomain,
        prepare_create=first_status(structural) if has_status else no_change,
        prepare_update=keep_status if has_status else no_changes,
        prepare_status=keep_all_but_status,
        validate_create=lambda new: checked([*structural.validate(new), *scaled(new)], new, None),
        validate_update=lambda new, old: checked([*structural.validate(new, old), *scaled(new)], new, old),
        validate_status=lambda new, old: checked(
            [*structural.validate_status(new, old), *scaled_status(new)], new, old
        ),
        unconditional_update=False,
        generation=True,
        another_generation=None if has_status else differs,
        short_finalizers=True,
    )


#: an object with such an error is not what the types of the expressions say, or is larger than their costs allow for
BLOCKING: Final = frozenset({"Unsupported value", "Required value", "Too long", "Too many"})


def is_blocking(error: FieldError) -> bool:
    return error.what in BLOCKING or error.reason == "FieldValueTypeInvalid"


def is_nameless(obj: Obj) -> bool:
    """Which is refused before a schema is asked, and blocks the same way."""
    return not (obj.get("metadata") or {}).get("name")


#: said once when an expression might trip over what is wrong already
UNCHECKED: Final = invalid_value(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)


def no_errors(obj: Obj) -> Iterable[FieldError]:
    return ()


def drop_status(obj: Obj) -> None:
    obj.pop(STATUS, None)


def first_status(structural: Structural) -> Callable[[Obj], None]:
    """What gives a new object the status that its schema has for it, whatever the client sent."""
    if not structural.status_has_default:
        return drop_status

    def reset(obj: Obj) -> None:
        drop_status(obj)
        structural.default(obj)

    return reset


def keep_status(new: Obj, old: Obj) -> None:
    if STATUS in old:
        new[STATUS] = old[STATUS]
    else:
        new.pop(STATUS, None)


def keep_all_but_status(new: Obj, old: Obj) -> None:
    """Of the metadata, only who owns what may change with the status."""
    for name in new.keys() - old.keys() - {STATUS}:
        del new[name]
    for name, value in old.items():
        if name not in (STATUS, "metadata"):
            new[name] = value
    owners = new["metadata"].get("managedFields")
    new["metadata"] = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
    if owners:
        new["metadata"]["managedFields"] = owners


def differs(new: Obj, old: Obj) -> bool:
    """In anything but metadata."""
    return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()) - {"metadata"})
