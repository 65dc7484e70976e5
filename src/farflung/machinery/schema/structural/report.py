"""Validation errors of a value against its schema, with the messages and in the order of Kubernetes.

This is the slow path, for values that `quick_check.py` refused.  In large values only the invalid parts are visited.
Kubernetes lists the errors of an object's fields in random order; here they have the order of the object.

An update is not refused for errors that the stored object already has (ratcheting): unchanged parts are skipped
(`old`).  Parts correlate by field name, and by key in lists of type map.  Other lists count as one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from farflung.machinery.errors import (
    MAX_ERROR_TEXT,
    FieldError,
    Obj,
    Place,
    duplicate,
    go_quote,
    invalid_value,
    not_supported,
    place_text,
    required,
    too_long,
    too_many,
)
from farflung.machinery.patch.apply import go_json
from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.json_values import (
    OF_TYPE,
    by_key,
    identical,
    is_multiple,
    is_number,
    key_of,
    kind_of,
    limit_text,
    plain,
    same,
    unchanged,
)
from farflung.machinery.schema.structural.node import NodeValue, SchemaNode, member
from farflung.machinery.schema.structural.quick_check import QuickCheck

UNKNOWN: Final = object()  #: the old value is unknown
NOWHERE: Final = "<nil>"  #: the field of an error about the whole object
MAX_ERRORS: Final = 1000  #: errors of one list or object; a malicious one could have millions
ALL: Final = 2000  #: visited values, valid or not; they decide which alternative is reported
WRONG: Final = 5000  #: invalid values that are reported in detail


class ValueErrors(NamedTuple):
    """The errors of a value, by text, and the number of valid parts."""

    errors: dict[str, FieldError]
    matches: int  #: decides which of several alternatives is reported


class ErrorReport:
    """The errors of one value.  `base` is its path, if it is not the whole object."""

    def __init__(self, quick_check: QuickCheck, base: str = "") -> None:
        self._quick_check = quick_check
        self._base = base
        self._seen = 0
        self._described = 0  #: characters of the names in errors

    def errors(self, node: SchemaNode, value: Any, old: Any = UNKNOWN) -> list[FieldError]:
        if self._quick_check.fits(node, value):
            return []
        return list(self._found(node, value, None, old).errors.values())

    # --- fields and errors ------------------------------------------------------------------------

    def _name(self, place: Place) -> str:
        """The path of a value in the text of an error."""
        name = place_text(place)
        self._described += len(name)
        return name

    def _field(self, place: Place) -> str:
        name = place_text(place).removeprefix(".")
        return ".".join(filter(None, (self._base, name))) or NOWHERE

    def _suffices(self, errors: dict[str, FieldError]) -> bool:
        """Whether the errors of a list or object are enough for a response."""
        return len(errors) > MAX_ERRORS or (bool(errors) and self._described > MAX_ERROR_TEXT)

    def _invalid(self, place: Place, value: Any, what: str) -> tuple[str, FieldError]:
        text = f"{self._name(place)} in body {what}"
        return text, FieldError("Invalid value", self._field(place), value, text)

    def _wrong_type(self, place: Place, expected: str, actual: str) -> tuple[str, FieldError]:
        text = f"{self._name(place)} in body must be of type {expected}: {go_quote(actual)}"
        return text, FieldError("Invalid value", self._field(place), actual, text, "FieldValueTypeInvalid")

    def _about_all(self, place: Place, what: str) -> tuple[str, FieldError]:
        text = f"{go_quote(self._name(place))} {what}"
        return text, FieldError("Invalid value", self._base or NOWHERE, "", text)

    # --- the steps of a schema ----------------------------------------------------------------------

    def _found(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        if old is not UNKNOWN and unchanged(old, value):
            return ValueErrors({}, 1)
        self._seen += 1
        if self._seen > ALL and self._quick_check.fits(node, value):
            return ValueErrors({}, 1)
        if self._seen > ALL + WRONG:
            return ValueErrors(dict([self._invalid(place, "", "is wrong")]), 0)
        if value is None:
            return ValueErrors(dict([*self._types(node, None, place), *self._enumerated(node, None, place)]), 1)
        errors: dict[str, FieldError] = {}
        matches = 1
        if node.types or node.format:
            wrong = dict(self._types(node, value, place))
            errors |= wrong
            matches += 1 if wrong else 2
        for step in self._steps(node, value, place, old):
            errors = {**errors, **step.errors} if step.errors else errors
            matches += step.matches
        return ValueErrors(errors, matches)

    def _steps(self, node: SchemaNode, value: Any, place: Place, old: Any) -> Iterator[ValueErrors]:
        yield self._junctors(node, value, place, old)
        if type(value) is str:
            yield ValueErrors(dict(self._strings(node, value, place)), 1)
            if node.format:
                yield ValueErrors(dict(self._formats(node, value, place)), 1)
        if is_number(value):
            yield ValueErrors(dict(self._numbers(node, value, place)), 2)
        if type(value) is list:
            yield self._lists(node, value, place, old)
        yield ValueErrors(dict(self._enumerated(node, value, place)), 1)
        if type(value) is dict:
            yield self._objects(node, value, place, old)

    # --- types ------------------------------------------------------------------------------------

    def _types(self, node: SchemaNode, value: Any, place: Place) -> Iterator[tuple[str, FieldError]]:
        if value is None:
            if node.types and not node.nullable:
                yield self._wrong_type(place, node.type_text, "null")
        elif any(OF_TYPE[one](value) for one in node.types):
            return
        elif node.format and type(value) not in (str, list):
            yield self._wrong_type(place, node.format, NUMBER_FORMATS.get(kind_of(value), ""))
        elif node.types:
            yield self._wrong_type(place, node.type_text, kind_of(value))

    # --- junctors ---------------------------------------------------------------------------------

    def _junctors(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        errors: dict[str, FieldError] = {}
        matches = 2
        for step in (self._any_of, self._one_of, self._all_of, self._none_of):
            found = step(node, value, place, old)
            errors |= found.errors
            matches += found.matches
        return ValueErrors(errors, matches)

    def _any_of(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        best: ValueErrors | None = None
        for one in node.any_of:
            found = self._found(one, value, place, old)
            if not found.errors:
                return found
            if best is None or found.matches > best.matches:
                best = found
        if best is None:
            return NOTHING
        error = self._about_all(place, "must validate at least one schema (anyOf)")
        return ValueErrors(dict([error, *best.errors.items()]), best.matches)

    def _one_of(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        if not node.one_of:
            return NOTHING
        found = [self._found(one, value, place, old) for one in node.one_of]
        good = [one for one in found if not one.errors]
        if len(good) == 1:
            return good[0]
        what = "must validate one and only one schema (oneOf). "
        if good:
            return ValueErrors(dict([self._about_all(place, f"{what}Found {len(good)} valid alternatives")]), 0)
        best = max(found, key=lambda one: one.matches)
        return ValueErrors(
            dict([self._about_all(place, f"{what}Found none valid"), *best.errors.items()]), best.matches
        )

    def _all_of(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        if not node.all_of:
            return NOTHING
        found = [self._found(one, value, place, old) for one in node.all_of]
        errors = {text: error for one in found for text, error in one.errors.items()}
        if errors:
            none = "" if any(not one.errors for one in found) else ". None validated"
            errors |= dict([self._about_all(place, f"must validate all the schemas (allOf){none}")])
        return ValueErrors(errors, sum(one.matches for one in found))

    def _none_of(self, node: SchemaNode, value: Any, place: Place, old: Any) -> ValueErrors:
        if node.none_of is None or self._found(node.none_of, value, place, old).errors:
            return NOTHING
        return ValueErrors(dict([self._about_all(place, "must not validate the schema (not)")]), 0)

    # --- scalars ----------------------------------------------------------------------------------

    def _strings(self, node: SchemaNode, value: str, place: Place) -> Iterator[tuple[str, FieldError]]:
        """Reports at most one error per string."""
        if node.max_length is not None and len(value) > node.max_length:
            yield f"{self._name(place)} in body should be at most", too_long(self._field(place), node.max_length)
        elif node.min_length is not None and len(value) < node.min_length:
            yield self._invalid(place, value, f"should be at least {node.min_length} chars long")
        elif node.pattern is not None and not node.pattern.matches(value):
            why = f", but pattern is invalid: {node.pattern.why}" if node.pattern.why else ""
            yield self._invalid(place, value, f"should match '{node.pattern.text}{why}'")

    def _formats(self, node: SchemaNode, value: str, place: Place) -> Iterator[tuple[str, FieldError]]:
        if not formats.check_of(node.format)(value):
            yield self._wrong_type(place, node.format, value)

    def _numbers(self, node: SchemaNode, value: int | float, place: Place) -> Iterator[tuple[str, FieldError]]:
        step, least, most = node.multiple_of, node.minimum, node.maximum
        if step is not None and not is_multiple(value, step):
            yield self._invalid(place, plain(value), f"should be a multiple of {limit_text(step, value)}")
        if least is not None and (value < least or (node.exclusive_minimum and value == least)):
            how = "greater than" if node.exclusive_minimum else "greater than or equal to"
            yield self._invalid(place, plain(value), f"should be {how} {limit_text(least, value)}")
        if most is not None and (value > most or (node.exclusive_maximum and value == most)):
            how = "less than" if node.exclusive_maximum else "less than or equal to"
            yield self._invalid(place, plain(value), f"should be {how} {limit_text(most, value)}")

    def _enumerated(self, node: SchemaNode, value: Any, place: Place) -> Iterator[tuple[str, FieldError]]:
        if node.enum is None or any(same(value, one) for one in node.enum):
            return
        allowed = [one if isinstance(one, str) else go_json(one) for one in node.enum]
        shown = "null" if value is None else plain(value)
        yield f"{self._name(place)} in body should be one of", not_supported(self._field(place), shown, allowed)

    # --- containers -------------------------------------------------------------------------------

    def _lists(self, node: SchemaNode, value: list[Any], place: Place, old: Any) -> ValueErrors:
        errors: dict[str, FieldError] = {}
        matches = 2
        if node.items is not None:
            before = _items_before(node, value, old)
            for index, item in enumerate(value):
                found = self._found(node.items, item, (place, f"[{index}]"), before(item))
                errors |= found.errors
                matches += found.matches
                if self._suffices(errors):
                    break
        if node.min_items is not None and len(value) < node.min_items:
            errors |= [self._invalid(place, len(value), f"should have at least {node.min_items} items")]
        if node.max_items is not None and len(value) > node.max_items:
            error = too_many(self._field(place), len(value), node.max_items)
            errors[f"{self._name(place)} in body should have at most items"] = error
        if node.unique_items and len({identical(item) for item in value}) < len(value):
            errors |= [self._invalid(place, "", "shouldn't contain duplicates")]
        return ValueErrors(errors, matches)

    def _objects(self, node: SchemaNode, value: dict[str, Any], place: Place, old: Any) -> ValueErrors:
        size, least, most = len(value), node.min_properties, node.max_properties
        if least is not None and size < least:
            return ValueErrors(dict([self._invalid(place, size, f"should have at least {least} properties")]), 1)
        if most is not None and size > most:
            return ValueErrors(
                {f"{self._name(place)} in body should have at most": too_many(self._field(place), size, most)}, 1
            )
        errors: dict[str, FieldError] = {}
        matches = 1
        for found in self._fields(node, value, place, old):
            errors |= found.errors
            matches += found.matches
            if self._suffices(errors):
                break
        for key in node.required:
            if key not in value:
                missing = (place, f".{key}")
                errors[f"{self._name(missing)} in body is required"] = required(self._field(missing))
        return ValueErrors(errors, matches)

    def _fields(self, node: SchemaNode, value: dict[str, Any], place: Place, old: Any) -> Iterator[ValueErrors]:
        before = old if type(old) is dict else {}
        for key, item in value.items():
            one = node.properties.get(key)
            if one is not None:
                fixed = place is None and key in ("apiVersion", "kind")
                yield self._found(one, item, member(place, key), UNKNOWN if fixed else before.get(key, UNKNOWN))
            elif node.values is not None:
                yield self._found(node.values, item, (place, f".{key}"), before.get(key, UNKNOWN))


NOTHING: Final = ValueErrors({}, 0)
#: the name in messages of a value with a format that is no string
NUMBER_FORMATS: Final = {"integer": "int64", "number": "float64"}


def _items_before(node: SchemaNode, value: list[Any], old: Any) -> Callable[[Any], Any]:
    """A function from an item to its former value, for lists of type map."""
    if type(old) is not list or node.list_type != "map":
        return lambda item: UNKNOWN
    index = by_key(old, node.list_keys)
    return lambda item: index.get(key_of(item, node.list_keys), UNKNOWN)


# --- lists of type set and map ------------------------------------------------------------------


MAX_DUPLICATES: Final = 1000  #: errors of one list


def duplicates(found: NodeValue) -> Iterator[FieldError]:
    """Errors for duplicates in a list of type set or map."""
    node, value, _ = found
    if type(value) is not list:
        return
    if node.list_type == "map":
        yield from _map_errors(value, found, node)
        return
    for index in _second_times([identical(item) for item in value]):
        yield duplicate(f"{found.path}[{index}]", ordered(value[index]))


def _map_errors(value: list[Any], found: NodeValue, node: SchemaNode) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and type(item) is not dict:
            detail = "must be an object for an array of list-type map"
            yield invalid_value(f"{found.path}[{index}]", item, detail)
            return
    keys = [key_of(item, node.list_keys) for item in value]
    for index in _second_times(keys):
        fields: Obj = value[index] or {}
        key = {name: fields[name] for name in sorted(node.list_keys) if name in fields}
        yield duplicate(f"{found.path}[{index}]", ordered(key))


def _second_times(keys: list[Any]) -> list[int]:
    """Indexes of the second occurrences; further ones are not reported."""
    if len(set(keys)) == len(keys):
        return []
    times: dict[Any, int] = {}
    found: list[int] = []
    for index, key in enumerate(keys):
        times[key] = times.get(key, 0) + 1
        if times[key] == 2:
            found.append(index)
    return found[:MAX_DUPLICATES]


def ordered(value: Any) -> Any:
    """With sorted keys, as Go prints objects."""
    if type(value) is dict:
        return {name: ordered(value[name]) for name in sorted(value)}
    if type(value) is list:
        return [ordered(item) for item in value]
    return value
