"""The values of CEL at run time.

Python's own types where possible: bool, int (64 bits, checked by the operators), float, str, bytes, list, dict and
None.  The others are here.  Values are immutable and shared.

    EvaluationError     raised by an expression without a value; the texts are cel-go's
    UInt                an unsigned integer of 64 bits
    Timestamp, Duration nanoseconds since 1970, nanoseconds
    OptionalValue       `optional.of(x)`, NONE
    TypeValue           `int` in `type(x) == int`
    SetList, MapList    lists of x-kubernetes-list-type set and map, which are equal in any order
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Any, Final

from farflung.machinery.cel.language.types import Type, TypeKind
from farflung.machinery.quantity import Quantity

LEAST_INT: Final = -(1 << 63)
MAX_INT: Final = (1 << 63) - 1
MAX_UINT: Final = (1 << 64) - 1

NANOS: Final = 1_000_000_000  #: in a second
FIRST_NANO: Final = -62_135_596_800 * NANOS  #: 0001-01-01T00:00:00Z
LAST_NANO: Final = 253_402_300_800 * NANOS - 1  #: 9999-12-31T23:59:59.999999999Z

NO_SUCH_OVERLOAD: Final = "no such overload"


class EvaluationError(Exception):
    """An expression has no value; `&&`, `||` and the conditional may not need it."""


def no_such_overload() -> EvaluationError:
    return EvaluationError(NO_SUCH_OVERLOAD)


def no_such_key(key: Any) -> EvaluationError:
    return EvaluationError(f"no such key: {shown_key(key)}")


def shown_key(key: Any) -> str:
    """A key or index as Go prints it."""
    return str(key).lower() if key is True or key is False else str(key)


class UInt(int):
    """An unsigned integer.  Arithmetic on it gives plain ints: operators check the range and wrap the result."""

    __slots__ = ()


class Moment:
    """Nanoseconds, ordered and hashed as their number."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __lt__(self, other: Moment) -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: Moment) -> bool:
        return self.nanos <= other.nanos

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nanos})"


class Timestamp(Moment):
    __slots__ = ()


class Duration(Moment):
    __slots__ = ()


def checked_timestamp(nanos: int) -> Timestamp:
    if not FIRST_NANO <= nanos <= LAST_NANO:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos)


def checked_duration(nanos: int) -> Duration:
    if not LEAST_INT <= nanos <= MAX_INT:
        raise EvaluationError("duration overflow")
    return Duration(nanos)


class OptionalValue:
    """A value that may be missing; NONE is the missing one."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "optional.none()" if self is NONE else f"optional.of({self.value!r})"


NONE: Final = OptionalValue(None)


class TypeValue:
    """A type as a value; two are equal if their names are."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return type(other) is TypeValue and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"TypeValue({self.name!r})"


class SetList(list[Any]):
    """A list of scalars without order."""

    __slots__ = ()


class MapList(list[Any]):
    """A list of objects without order, identified by some of their properties."""

    __slots__ = ("keys",)

    def __init__(self, elements: Iterable[Any], keys: tuple[str, ...]) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> Any:
        """The key of an element, hashable if the value fits the schema."""
        if not isinstance(element, dict):
            raise EvaluationError("unexpected data format for element of array with x-kubernetes-list-type=map")
        return tuple(map(element.get, self.keys))


# --- the type of a value --------------------------------------------------------------------------

#: names of types at run time that differ from those of the checker
RUN_TIME_NAMES: Final = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "null": "null_type",
}

KINDS: Final[dict[type, TypeKind]] = {
    NoneType: TypeKind.NULL,
    bool: TypeKind.BOOL,
    int: TypeKind.INT,
    UInt: TypeKind.UINT,
    float: TypeKind.DOUBLE,
    str: TypeKind.STRING,
    bytes: TypeKind.BYTES,
    Timestamp: TypeKind.TIMESTAMP,
    Duration: TypeKind.DURATION,
    TypeValue: TypeKind.TYPE,
    list: TypeKind.LIST,
    SetList: TypeKind.LIST,
    MapList: TypeKind.LIST,
    dict: TypeKind.MAP,
    OptionalValue: TypeKind.OPAQUE,
}

LISTS: Final = frozenset({list, SetList, MapList})
NUMBERS: Final = frozenset({int, UInt, float})

_NAMES_OF_KINDS: Final = {
    TypeKind.NULL: "null_type",
    TypeKind.BOOL: "bool",
    TypeKind.INT: "int",
    TypeKind.UINT: "uint",
    TypeKind.DOUBLE: "double",
    TypeKind.STRING: "string",
    TypeKind.BYTES: "bytes",
    TypeKind.TIMESTAMP: "google.protobuf.Timestamp",
    TypeKind.DURATION: "google.protobuf.Duration",
    TypeKind.TYPE: "type",
    TypeKind.LIST: "list",
    TypeKind.MAP: "map",
    TypeKind.OPAQUE: "optional_type",
}


def type_name(value: Any) -> str:
    """The name of a value's type.  A class of Kubernetes' own values has it as TYPE_NAME."""
    kind = KINDS.get(type(value))
    if kind is not None:
        return _NAMES_OF_KINDS[kind]
    return "kubernetes.Quantity" if type(value) is Quantity else str(type(value).TYPE_NAME)


def type_value(of: Type) -> TypeValue:
    """The value of an identifier that denotes a type; objects are maps at run time."""
    if of.kind is TypeKind.OBJECT:
        return TypeValue("map")
    return TypeValue(RUN_TIME_NAMES.get(of.name, of.name))


def has_type(value: Any, of: Type) -> bool:
    """Whether a value fits a declared type, without its elements."""
    expected = of.kind
    if expected is TypeKind.DYN or expected is TypeKind.PARAMETER:
        return True
    kind = KINDS.get(type(value))
    if kind is None or kind is TypeKind.OPAQUE:
        return expected is TypeKind.OPAQUE and type_name(value) == of.name
    return kind is expected or (kind is TypeKind.MAP and expected is TypeKind.OBJECT)
