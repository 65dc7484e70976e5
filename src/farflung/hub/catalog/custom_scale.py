"""The `scale` subresource of custom resources: where the numbers are, the definition says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from farflung.apis.apiextensions.kinds import ScalePaths
from farflung.apis.autoscaling.scale import a_scale
from farflung.apis.resource import Resource
from farflung.machinery import go_text
from farflung.machinery.errors import FieldError, Obj, bad_request, invalid, invalid_value
from farflung.machinery.fields.sets import path

MOST: Final = 2**31 - 1


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


def _check_number(obj: Obj, said: str, names: tuple[str, ...]) -> Iterator[FieldError]:
    wrong = mistyped(obj, names, int)
    if wrong:
        yield invalid_value(said, 0, wrong)
        return
    number = value_at(obj, names) or 0
    if number < 0:
        yield invalid_value(said, number, "should be a non-negative integer")
    elif number > MOST:
        yield invalid_value(said, number, f"should be less than or equal to {MOST}")


def mistyped(obj: Obj, names: tuple[str, ...], wanted: type) -> str:
    """What keeps from finding a value of some type; empty if it is there, or is not there at all."""
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
