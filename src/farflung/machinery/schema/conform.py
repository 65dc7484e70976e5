"""The effect of decoding an object into Go types and encoding it again: type checks, pruning, canonical values.

    conformer = compile(schema, wire.fields)      once for a kind
    obj, problems = conformer.conform(body)       for every write

Kubernetes decodes an object into Go structs and encodes it again.  This drops unknown fields, and empty values of
fields that are no pointers.  It adds the fields that are always written, and brings quantities, times and bytes into
one form.  The fields have Go's order, and errors and problems Go's words.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Set
from typing import Any, Final, NamedTuple

from farflung.machinery import quantity, times
from farflung.machinery.errors import NAMES, TOO_DEEP, Malformed, Obj
from farflung.machinery.schema.model import (
    ANY,
    BOOLEAN,
    INT_OR_STRING,
    INTEGER,
    LIST,
    MAP,
    NUMBER,
    OBJECT,
    QUANTITY,
    STRING,
    Schema,
)
from farflung.machinery.schema.walk import (
    Convert,
    FieldWalk,
    Items,
    Make,
    Mismatch,
    ObjectWalk,
    Path,
    Problems,
    list_walk,
    map_walk,
    steps_of,
    unchanged,
    unknown_fields,
)
from farflung.machinery.structs import GoField

Fields = Callable[[str], Mapping[str, GoField]]  #: the name of a definition → its fields, in Go's order


class GoType(NamedTuple):
    """The conversion of values of one Go type."""

    go: str  #: its name in Go's messages
    convert: Convert  #: of a value that is not null
    zero: Make  #: the JSON of an unset value
    exact: type | None = None  #: values of this Python type need no conversion
    nilable: bool = False  #: its zero is nil: a list, a map, bytes


class Conformed(NamedTuple):
    obj: Obj  #: new, but it may share parts with the body
    problems: list[str]  #: `unknown field "spec.x"`, in the order of the body


class Conformer:
    """One kind, compiled."""

    def __init__(self, root: GoStruct) -> None:
        self._root = root

    def conform(self, obj: Obj) -> Conformed:
        """Raises Malformed if a value does not fit its type."""
        unknown: Problems = []
        try:
            conformed = self._root.convert(obj, None, unknown)
        except Mismatch as mismatch:
            raise Malformed(str(mismatch)) from None
        except RecursionError:
            raise Malformed(TOO_DEEP) from None
        return Conformed(conformed, _described(obj, unknown) if unknown else [])


def compile(schema: Schema, fields: Fields) -> Conformer:
    return Conformer(TypeCompiler(fields).struct(schema))


# --- structs ------------------------------------------------------------------------------------------


class GoStruct(ObjectWalk):
    """A Go struct.  Its fields are compiled with the first value, so types may be recursive."""

    __slots__ = ("_compile", "_fields", "go")

    def __init__(self, schema: Schema, compile_fields: Callable[[Schema], list[FieldWalk]]) -> None:
        self.go = _go_name(schema)
        super().__init__(_refuse(self.go), schema.go_name)
        self._compile: Callable[[], list[FieldWalk]] = lambda: compile_fields(schema)
        self._fields: dict[str, FieldWalk] | None = None

    def declared(self) -> dict[str, FieldWalk]:
        if self._fields is None:
            self._fields = {field.name: field for field in self._compile()}
        return self._fields

    def known(self) -> Set[str]:
        return self.declared().keys()

    def closed(self) -> bool:
        return True

    def fields(self, names: tuple[str, ...]) -> list[FieldWalk]:
        present = set(names)
        return [field for field in self.declared().values() if field.name in present or field.unset is not None]

    def empty(self) -> Obj:
        """The JSON of the struct without any field set."""
        empty: Obj = self.convert({}, None, [])
        return empty


# --- compiling ----------------------------------------------------------------------------------------


class TypeCompiler:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._structs: dict[str, GoStruct] = {}

    def struct(self, schema: Schema) -> GoStruct:
        struct = self._structs.get(schema.name)
        if struct is None:
            struct = self._structs[schema.name] = GoStruct(schema, self._fields_of)
        return struct

    def _fields_of(self, schema: Schema) -> list[FieldWalk]:
        return [self._field(schema.member(name), field) for name, field in self._fields(schema.name).items()]

    def _field(self, schema: Schema | None, field: GoField) -> FieldWalk:
        assert schema is not None, f"{field.name} is in the Go type and not in OpenAPI"
        type_ = self._type(schema)
        if field.pointer:
            unset = None if field.omitempty else _always(None)
            return FieldWalk(field.name, type_.exact, keep=True, unset=unset, convert=type_.convert)
        droppable = field.omitzero or (field.omitempty and not self._is_struct(schema, type_))
        unset = None if droppable else type_.zero
        return FieldWalk(field.name, type_.exact, keep=not droppable, unset=unset, convert=type_.convert)

    @staticmethod
    def _is_struct(schema: Schema, type_: GoType) -> bool:
        """Whether omitempty does nothing, as with Go's structs."""
        return not type_.nilable and (schema.kind in (OBJECT, QUANTITY, INT_OR_STRING, ANY) or schema.name != "")

    def _type(self, schema: Schema) -> GoType:
        if special := self._special(schema):
            return special
        if schema.kind == OBJECT:
            struct = self.struct(schema)
            return GoType(struct.go, struct.convert, struct.empty)
        if schema.kind == LIST:
            return list_of(self._type(schema.items))
        if schema.kind == MAP:
            return map_of(self._type(schema.values))
        if schema.kind == STRING and schema.format == "byte":
            return BYTES
        if schema.kind == INTEGER and schema.format == "int32":
            return INT32
        return SCALARS[schema.kind]

    def _special(self, schema: Schema) -> GoType | None:
        """A type with its own JSON decoder."""
        match schema.name.rpartition(".")[2]:
            case "Time":
                return TIME
            case "MicroTime":
                return MICRO_TIME
            case "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray":
                return GoType(_go_name(schema), self._schema_or_more(schema), _always(None))
            case _:
                return None

    def _schema_or_more(self, schema: Schema) -> Convert:
        """A schema, or a simpler value.  Unknown fields of such a schema are not reported."""
        nested = self.struct(schema.definition_named(schema.name.rpartition("Or")[0]))

        def convert(value: Any, path: Path, problems: Problems) -> Any:
            if type(value) is dict:
                return nested.convert(value, path, [])
            if type(value) is list:
                return [convert(item, path, problems) for item in value]
            return value

        return convert


def _go_name(schema: Schema) -> str:
    """`v1.ObjectMeta`"""
    return ".".join(schema.name.split(".")[-2:])


# --- lists and maps -----------------------------------------------------------------------------------


def list_of(item: GoType) -> GoType:
    go = f"[]{item.go}"
    return GoType(go, list_walk(_items(item), _refuse(go)), _always(None), nilable=True)


def map_of(values: GoType) -> GoType:
    go = "v1.ResourceList" if values is QUANTITY_TYPE else f"map[string]{values.go}"
    return GoType(go, map_walk(_items(values), _refuse(go), sort=True), _always(None), nilable=True)


def _items(type_: GoType) -> Items:
    """Kubernetes' storage turns nil bytes in a list or a map into empty bytes."""
    return Items(type_.exact, type_.convert, _always("") if type_ is BYTES else type_.zero)


def _always(value: Any) -> Make:
    return lambda: value


def _refuse(go: str) -> Convert:
    def convert(value: Any, path: Path, problems: Problems) -> Any:
        raise Mismatch(NAMES[type(value)], go, path)

    return convert


# --- scalars ------------------------------------------------------------------------------------------


def _exactly(type_: type, go: str) -> Convert:
    def convert(value: Any, path: Path, problems: Problems) -> Any:
        if type(value) is type_:
            return value
        raise Mismatch(NAMES[type(value)], go, path)

    return convert


def _integer(go: str, bits: int) -> Convert:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any, path: Path, problems: Problems) -> int:
        if type(value) is int:
            if least <= value <= most:
                return value
        elif type(value) is not float:
            raise Mismatch(NAMES[type(value)], go, path)
        raise Mismatch(f"number {value}", go, path)

    return convert


def _float(value: Any, path: Path, problems: Problems) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise Mismatch(NAMES[type(value)], "float64", path)


def _int_or_string(value: Any, path: Path, problems: Problems) -> int | str:
    if type(value) is str:
        return value
    number: int = _int32(value, None, problems)
    return number


def _quantity(value: Any, path: Path, problems: Problems) -> str:
    if type(value) is bool or type(value) is list or type(value) is dict:
        raise Malformed(quantity.FORMAT_WRONG)
    try:
        return quantity.canonical(value.strip() if type(value) is str else str(value))
    except quantity.QuantityError as error:
        raise Malformed(str(error)) from None


def _time(canonical: Callable[[str], str | None]) -> Convert:
    def convert(value: Any, path: Path, problems: Problems) -> str | None:
        if type(value) is not str:
            raise Malformed(f"json: cannot unmarshal {NAMES[type(value)]} into Go value of type string")
        try:
            return canonical(value)
        except times.TimeError as error:
            raise Malformed(str(error)) from None

    return convert


def _bytes(value: Any, path: Path, problems: Problems) -> str:
    if type(value) is not str:
        raise Mismatch(NAMES[type(value)], "[]uint8", path)
    try:
        return _reencoded(value)
    except ValueError:  # Go ignores line ends
        try:
            return _reencoded(value.replace("\n", "").replace("\r", ""))
        except ValueError:
            raise Malformed(f"illegal base64 data at input byte {illegal_base64(value)}") from None


def _reencoded(text: str) -> str:
    """Raises ValueError if it is not base64."""
    canonical = binascii.b2a_base64(binascii.a2b_base64(text, strict_mode=True), newline=False).decode()
    if len(canonical) != len(text):
        raise binascii.Error("too much padding")
    return canonical


BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def illegal_base64(text: str) -> int:
    """The position of the first byte that Go refuses in invalid base64."""
    digits = 0
    data = text.encode("utf-8", "surrogatepass")
    for position, byte in enumerate(data):
        if byte in b"\r\n":
            continue
        if byte in BASE64:
            digits += 1
        elif byte == ord("=") and digits % 4 >= 2:
            return _illegal_padding(data, position, digits % 4)
        else:
            return position
    return len(data) - digits % 4


def _illegal_padding(data: bytes, position: int, digits: int) -> int:
    rest = [index for index in range(position + 1, len(data)) if data[index] not in b"\r\n"]
    if digits == 2:
        if not rest:
            return len(data)
        if data[rest[0]] != ord("="):
            return rest[0] - 1
        rest = rest[1:]
    return rest[0] if rest else len(data)


_int32: Final = _integer("int32", 32)
INT32: Final = GoType("int32", _int32, _always(0))
INT64: Final = GoType("int64", _integer("int64", 64), _always(0))
BYTES: Final = GoType("[]uint8", _bytes, _always(None), nilable=True)
TIME: Final = GoType("v1.Time", _time(times.canonical_seconds), _always(None))
MICRO_TIME: Final = GoType("v1.MicroTime", _time(times.canonical_micros), _always(None))
QUANTITY_TYPE: Final = GoType("resource.Quantity", _quantity, _always("0"))

#: by the kind of a schema
SCALARS: Final[Mapping[str, GoType]] = {
    STRING: GoType("string", _exactly(str, "string"), _always(""), str),
    BOOLEAN: GoType("bool", _exactly(bool, "bool"), _always(False), bool),
    INTEGER: INT64,
    NUMBER: GoType("float64", _float, _always(0), float),
    QUANTITY: QUANTITY_TYPE,
    INT_OR_STRING: GoType("intstr.IntOrString", _int_or_string, _always(0)),
    ANY: GoType("interface {}", unchanged, _always(None)),
}


# --- problems -----------------------------------------------------------------------------------------


def _described(obj: Obj, unknown: Problems) -> list[str]:
    """Unknown fields in the order of the body, without duplicates."""
    positions: dict[int, dict[str, int]] = {}

    def place(problem: tuple[Path, str]) -> list[int]:
        place: list[int] = []
        container: Any = obj
        for step in (*steps_of(problem[0]), problem[1]):
            if type(step) is int:
                place.append(step)
            else:
                if id(container) not in positions:
                    positions[id(container)] = {key: index for index, key in enumerate(container)}
                place.append(positions[id(container)][str(step)])
            container = container[step]
        return place

    ordered = sorted(unknown, key=place) if len(unknown) > 1 else unknown
    return unknown_fields(ordered)
