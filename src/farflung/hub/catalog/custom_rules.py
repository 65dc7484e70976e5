"""The rules of a custom resource, by its schema, validation rules and /scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from farflung.apis.apiextensions.kinds import ScalePaths
from farflung.apis.autoscaling import a_scale
from farflung.apis.resource import Resource
from farflung.apis.validation import Rules, no_change, no_changes
from farflung.machinery import go_text, names
from farflung.machinery.errors import FieldError, Obj, bad_request, invalid, invalid_value
from farflung.machinery.fields.sets import path
from farflung.machinery.schema.structural.structural import Structural

if TYPE_CHECKING:
    from farflung.machinery.cel.validation import Validations

STATUS: Final = "status"


def rules_of(
    resource: Resource,
    structural: Structural,
    validations: Callable[[], Validations | None],
    scaling: CustomScaling | None,
) -> Rules:
    """Decoding has set the defaults before these rules run."""
    has_status = resource.has_status
    scaled = no_errors if scaling is None else scaling.validate
    scaled_status = no_errors if scaling is None else scaling.validate_status

    def checked(errors: list[FieldError], new: Obj, old: Obj | None) -> list[FieldError]:
        expressions = validations()
        if expressions is None:
            return errors
        if is_nameless(new) or any(is_blocking(error) for error in errors):
            return [*errors, UNCHECKED]
        return [*errors, *expressions.check(new, old)]

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


#: expressions are not evaluated after such an error: the object violates their types, or the bounds of their costs
BLOCKING: Final = frozenset({"Unsupported value", "Required value", "Too long", "Too many"})


def is_blocking(error: FieldError) -> bool:
    return error.what in BLOCKING or error.reason == "FieldValueTypeInvalid"


def is_nameless(obj: Obj) -> bool:
    """Validation refuses it; expressions are not evaluated either."""
    return not (obj.get("metadata") or {}).get("name")


#: reported once instead of evaluating the expressions
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
    """A function that sets the status of a new object to the default of its schema."""
    default = structural.default_status
    if default is None:
        return drop_status

    def reset(obj: Obj) -> None:
        obj[STATUS] = default()

    return reset


def keep_status(new: Obj, old: Obj) -> None:
    if STATUS in old:
        new[STATUS] = old[STATUS]
    else:
        new.pop(STATUS, None)


def keep_all_but_status(new: Obj, old: Obj) -> None:
    """Of the metadata, only managedFields may change with the status."""
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
    """Whether anything but metadata differs."""
    return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()) - {"metadata"})


MAX_REPLICAS: Final = 2**31 - 1


class CustomScaling:
    def __init__(self, resource: Resource, paths: ScalePaths) -> None:
        self._resource = resource
        self._paths = paths
        self._wanted = names_of(paths.spec_replicas)
        self._present = names_of(paths.status_replicas)
        self._selector = names_of(paths.selector)
        self.replicas = path(*self._wanted)

    def validate(self, obj: Obj) -> Iterator[FieldError]:
        yield from _check_number(obj, self._paths.spec_replicas, self._wanted)
        yield from self.validate_status(obj)

    def validate_status(self, obj: Obj) -> Iterator[FieldError]:
        yield from _check_number(obj, self._paths.status_replicas, self._present)
        if self._selector:
            wrong = mistyped(obj, self._selector, str)
            if wrong:
                yield invalid_value(self._paths.selector, "", wrong)

    def scale(self, obj: Obj) -> Obj:
        wanted = value_at(obj, self._wanted)
        if type(wanted) is not int:
            raise bad_request(f'the spec replicas field "{self._paths.spec_replicas}" does not exist')
        present = value_at(obj, self._present)
        status: Obj = {"replicas": present if type(present) is int else 0}
        selector = value_at(obj, self._selector) if self._selector else None
        if selector and isinstance(selector, str):
            status["selector"] = selector
        return a_scale(obj, wanted, status)

    def apply(self, obj: Obj, scale: Obj) -> None:
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            wrong = invalid_value(self._paths.spec_replicas, replicas, "should be a non-negative integer")
            raise invalid(self._resource.group, self._resource.kind, obj["metadata"]["name"], [wrong])
        *parents, last = self._wanted
        place = obj
        for name in parents:
            below = place.get(name)
            if type(below) is not dict:
                below = place[name] = {}
            place = below
        place[last] = replicas


def names_of(text: str) -> tuple[str, ...]:
    """`.spec.replicas` → its names."""
    return tuple(filter(None, text.split(".")))


def value_at(obj: Obj, names: tuple[str, ...]) -> Any:
    value: Any = obj
    for name in names:
        if type(value) is not dict:
            return None
        value = value.get(name)
    return value


def _check_number(obj: Obj, field: str, names: tuple[str, ...]) -> Iterator[FieldError]:
    wrong = mistyped(obj, names, int)
    if wrong:
        yield invalid_value(field, 0, wrong)
        return
    number = value_at(obj, names) or 0
    if number < 0:
        yield invalid_value(field, number, "should be a non-negative integer")
    elif number > MAX_REPLICAS:
        yield invalid_value(field, number, f"should be less than or equal to {MAX_REPLICAS}")


def mistyped(obj: Obj, names: tuple[str, ...], wanted: type) -> str:
    """The type error at a path; empty if the value has the type or does not exist."""
    value: Any = obj
    for at, name in enumerate(names):
        if value is None:
            return ""
        if type(value) is not dict:
            return _misfit(names[:at], value, dict)
        if name not in value:
            return ""
        value = value[name]
    return "" if type(value) is wanted else _misfit(names, value, wanted)


def _misfit(names: tuple[str, ...], value: Any, wanted: type) -> str:
    where, expected = "".join(f".{name}" for name in names), go_text.type_name(wanted())
    return (
        f"{where} accessor error: {go_text.plain(value)} is of the type {go_text.type_name(value)}, expected {expected}"
    )
