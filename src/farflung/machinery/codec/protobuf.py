"""Kubernetes' protobuf: decodes request bodies into the JSON that Go would have sent, and encodes responses.

    messages = Messages(members)                    members: the name of a definition → its Fields
    decode(body, definition, messages)              → Decoded(api_version, kind, obj)
    encode(obj, definition, messages)               → bytes

A body is `k8s\\0` and a message Unknown, which contains the type and the message of that type.  Kubernetes' messages
are Go structs, which always send a field that is no pointer.  So the reader drops fields that Go's JSON omits, and
the writer sends the same bytes as Go.

Each message is prepared once: a dict from tag (number and wire type) to the function that reads such a field,
and a list of functions that write the fields in the order of their numbers.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.codec.protobuf_bytes import (
    CUT_SHORT,
    DELIMITED,
    FIXED64,
    VARINT,
    check_tag,
    delimited,
    numbers_and_bytes,
    read_length,
    read_varint,
    signed,
    skip,
    tag_of,
    text,
    varint,
    wrong_wire,
)
from farflung.machinery.codec.protobuf_values import SPECIAL_READERS, SPECIAL_WRITERS, ReadValue, WriteValue
from farflung.machinery.errors import TOO_DEEP, ApiError, Malformed, Obj, bad_request
from farflung.machinery.structs import EXTENSIONS, LIST, MAP, SCALARS, SPECIAL, GoField

MAGIC: Final = b"k8s\x00"
DEEPEST: Final = 100  #: nested messages; only JSON schemas are recursive

Members = Callable[[str], Sequence[GoField]]


class Messages:
    """The messages of a set of structs, each prepared when it is first used."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._ready: dict[str, Message] = {}

    def __getitem__(self, definition: str) -> Message:
        message = self._ready.get(definition)
        if message is None:
            message = self._ready[definition] = Message(definition, self._members(definition), self)
        return message


# --- a message ------------------------------------------------------------------------------------

ReadSpan = Callable[[bytes, int, int, Obj, int], None]  #: span, the object to fill, depth
ReadNumber = Callable[[int, Obj], None]
Write = Callable[[Obj], bytes]


class Message:
    """The decoder and encoder of one struct."""

    def __init__(self, definition: str, members: Sequence[GoField], messages: Messages) -> None:
        self.definition = definition
        self.name = definition.rpartition(".")[2]
        self.wrapped = bool(members) and members[0].wrapped
        self._members = sorted((member for member in members if member.number), key=lambda member: member.number)
        self._messages = messages
        self._numbers: Mapping[int, ReadNumber] = {}
        self._spans: Mapping[int, ReadSpan] = {}
        self._writes: Sequence[Write] | None = None
        self._names: Mapping[int, str] | None = None

    def read(self, data: bytes, at: int, end: int, into: Obj, depth: int) -> None:
        """Fill an object from a message.  As in Go, existing fields are merged."""
        if depth > DEEPEST:
            raise Malformed(f"proto: {self.name}: more than {DEEPEST} messages in each other")
        if self._names is None:
            self._prepare_reading()
        numbers, spans = self._numbers, self._spans
        while at < end:
            tag = data[at]
            if tag < 0x80:
                at += 1
            else:
                tag, at = read_varint(data, at, end)
            if read_span := spans.get(tag):
                if at < end and data[at] < 0x80:
                    start = at + 1
                    at = start + data[at]
                    if at > end:
                        raise Malformed(CUT_SHORT)
                else:
                    start, at = read_length(data, at, end)
                read_span(data, start, at, into, depth)
            elif read_number := numbers.get(tag):
                value, at = read_double(data, at, end) if tag & 7 == FIXED64 else read_varint(data, at, end)
                read_number(value, into)
            else:
                at = self._skip_unknown(data, at, end, tag)

    def _skip_unknown(self, data: bytes, at: int, end: int, tag: int) -> int:
        check_tag(tag, self.name)
        assert self._names is not None
        if (tag >> 3) in self._names:
            raise wrong_wire(tag & 7, self._names[tag >> 3])
        return skip(data, at, end, tag & 7)

    def write(self, obj: Obj) -> bytes:
        if self._writes is None:
            self._writes = [self._writer(member) for member in self._members]
        return b"".join([write(obj) for write in self._writes])

    # --- reading

    def _prepare_reading(self) -> None:
        numbers: dict[int, ReadNumber] = {}
        spans: dict[int, ReadSpan] = {}
        for member in self._members:
            tag = member.number << 3
            if member.type in NUMBERS:
                convert, wire = NUMBERS[member.type]
                numbers[tag | wire] = number_reader(member, convert)
                if member.shape == LIST:
                    spans[tag | DELIMITED] = packed_reader(member, convert)
            else:
                spans[tag | DELIMITED] = self._span_reader(member)
        self._names = {member.number: member.name or "Items" for member in self._members}
        self._numbers, self._spans = numbers, spans

    def _span_reader(self, member: GoField) -> ReadSpan:
        if member.shape == MAP:
            return map_reader(member.name, self._value_reader(member))
        if member.shape == LIST:
            return list_reader(member.name, self._value_reader(member))
        if member.type in SCALARS or member.type in SPECIAL or self._messages[member.type].wrapped:
            return value_reader(member, self._value_reader(member))
        return message_reader(member, self._messages[member.type])

    def _value_reader(self, member: GoField) -> ReadValue:
        if member.type == "string":
            return lambda data, start, stop, depth: text(data[start:stop], member.name)
        if member.type == "bytes":
            return lambda data, start, stop, depth: b64encode(data[start:stop]).decode()
        if member.type in SPECIAL_READERS:
            return SPECIAL_READERS[member.type]
        if member.type in SCHEMA_CHOICES:
            return schema_choice_reader(member.type, self._messages)
        return object_reader(self._messages[member.type])

    # --- writing

    def _writer(self, member: GoField) -> Write:
        value_writer = self._value_writer(member.type)
        name, wire = member.name, NUMBERS[member.type][1] if member.type in NUMBERS else DELIMITED
        tag = tag_of(member.number, wire)
        if member.inline:
            inner = self._messages[member.type]
            return lambda obj: delimited(tag, inner.write(obj))
        if member.shape == MAP:
            return lambda obj: b"".join(map_entries(tag, obj.get(name), value_writer))
        if member.shape == LIST:
            return lambda obj: b"".join([tag + value_writer(value) for value in obj.get(name) or ()])
        if member.pointer or member.type == "bytes":
            return lambda obj: b"" if obj.get(name) is None else tag + value_writer(obj[name])
        zero = SCALARS[member.type] if member.type in SCALARS else SPECIAL.get(member.type, {})
        unset = tag + value_writer(zero)
        return lambda obj: unset if obj.get(name) is None else tag + value_writer(obj[name])

    def _value_writer(self, type_: str) -> WriteValue:
        """The function that writes a value after its tag."""
        if type_ in SCALAR_WRITERS:
            return SCALAR_WRITERS[type_]
        if type_ in SPECIAL_WRITERS:
            special = SPECIAL_WRITERS[type_]
            return lambda value: delimited(b"", special(value))
        if type_ in SCHEMA_CHOICES:
            choice = schema_choice_writer(type_, self._messages)
            return lambda value: delimited(b"", choice(value))
        inner = self._messages[type_]
        if inner.wrapped:
            return lambda value: delimited(b"", inner.write({"": value}))
        return lambda value: delimited(b"", inner.write(value))


NUMBERS: Final[Mapping[str, tuple[Callable[[int], Any], int]]] = {
    "bool": (bool, VARINT),
    "int32": (lambda value: signed(value, 32), VARINT),
    "int64": (lambda value: signed(value, 64), VARINT),
    "double": (lambda value: double(value), FIXED64),
}


def read_double(data: bytes, at: int, end: int) -> tuple[int, int]:
    if end - at < 8:
        raise Malformed(CUT_SHORT)
    return int.from_bytes(data[at : at + 8], "little"), at + 8


def double(bits: int) -> int | float:
    """A number as Go writes it in JSON: without a fraction if it is whole."""
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    if not isfinite(value):
        raise Malformed(f"json: unsupported value: {value}")
    return int(value) if value.is_integer() and abs(value) < 1e21 else float(value)


def drops_empty(member: GoField) -> bool:
    return member.omitempty and not member.pointer


def number_reader(member: GoField, convert: Callable[[int], Any]) -> ReadNumber:
    name, drops = member.name, drops_empty(member)
    if member.shape == LIST:
        return lambda value, into: into.setdefault(name, []).append(convert(value))

    def read(value: int, into: Obj) -> None:
        number = convert(value)
        if number or not drops:
            into[name] = number
        else:
            into.pop(name, None)

    return read


def packed_reader(member: GoField, convert: Callable[[int], Any]) -> ReadSpan:
    name = member.name

    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        values = into.setdefault(name, [])
        while start < stop:
            value, start = read_varint(data, start, stop)
            values.append(convert(value))

    return read


def value_reader(member: GoField, read_value: ReadValue) -> ReadSpan:
    """A value that replaces the previous one; an empty one is dropped where Go's JSON omits it."""
    name = member.name
    dropped: tuple[Any, ...] = (None, "", []) if drops_empty(member) and member.type not in SPECIAL else (None,)

    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        value = read_value(data, start, stop, depth)
        if value in dropped:
            into.pop(name, None)
        else:
            into[name] = value

    return read


def message_reader(member: GoField, message: Message) -> ReadSpan:
    name, inline = member.name, member.inline

    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        message.read(data, start, stop, into if inline else into.setdefault(name, {}), depth + 1)

    return read


def object_reader(message: Message) -> ReadValue:
    def read(data: bytes, start: int, stop: int, depth: int) -> Any:
        value: Obj = {}
        message.read(data, start, stop, value, depth + 1)
        return value.get("", []) if message.wrapped else value

    return read


def list_reader(name: str, read_value: ReadValue) -> ReadSpan:
    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        into.setdefault(name, []).append(read_value(data, start, stop, depth))

    return read


def map_reader(name: str, read_value: ReadValue) -> ReadSpan:
    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        key_start, key_stop, value_start, value_stop = entry(data, start, stop, name)
        value = read_value(data, value_start, value_stop, depth)
        into.setdefault(name, {})[text(data[key_start:key_stop], name)] = value

    return read


def entry(data: bytes, at: int, end: int, name: str) -> tuple[int, int, int, int]:
    """Start and end of key and value in a map entry; of a missing one they are equal."""
    key_start = key_stop = value_start = value_stop = end
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag == KEY:
            key_start, key_stop = read_length(data, at, end)
            at = key_stop
        elif tag == VALUE:
            value_start, value_stop = read_length(data, at, end)
            at = value_stop
        elif tag >> 3 in (1, 2):
            raise wrong_wire(tag & 7, name)
        else:
            check_tag(tag, name)
            at = skip(data, at, end, tag & 7)
    return key_start, key_stop, value_start, value_stop


KEY, VALUE = 1 << 3 | DELIMITED, 2 << 3 | DELIMITED


def map_entries(tag: bytes, values: Mapping[str, Any] | None, write_value: WriteValue) -> Iterator[bytes]:
    for key in sorted(values or ()):
        assert values is not None
        yield delimited(tag, delimited(b"\x0a", key.encode()) + b"\x12" + write_value(values[key]))


SCALAR_WRITERS: Final[Mapping[str, WriteValue]] = {
    "string": lambda value: delimited(b"", value.encode()),
    "bytes": lambda value: delimited(b"", b64decode(value)),
    "bool": lambda value: b"\x01" if value else b"\x00",
    "int32": varint,
    "int64": varint,
    "double": lambda value: struct.pack("<d", value),
}


_PROPS: Final = f"{EXTENSIONS}JSONSchemaProps"
#: types that are a schema or a simpler value → their struct
SCHEMA_CHOICES: Final[Mapping[str, Sequence[GoField]]] = {
    f"{EXTENSIONS}JSONSchemaPropsOrArray": (
        GoField("schema", 1, _PROPS, pointer=True),
        GoField("other", 2, _PROPS, shape=LIST),
    ),
    f"{EXTENSIONS}JSONSchemaPropsOrBool": (
        GoField("other", 1, "bool"),
        GoField("schema", 2, _PROPS, pointer=True),
    ),
    f"{EXTENSIONS}JSONSchemaPropsOrStringArray": (
        GoField("schema", 1, _PROPS, pointer=True),
        GoField("other", 2, "string", shape=LIST),
    ),
}


def schema_choice_reader(type_: str, messages: Messages) -> ReadValue:
    message = Message(type_, SCHEMA_CHOICES[type_], messages)

    def read(data: bytes, start: int, stop: int, depth: int) -> Any:
        found: Obj = {}
        message.read(data, start, stop, found, depth + 1)
        return found["schema"] if "schema" in found else found.get("other", SPECIAL[type_])

    return read


def schema_choice_writer(type_: str, messages: Messages) -> WriteValue:
    message = Message(type_, SCHEMA_CHOICES[type_], messages)
    beside_schema = True if type_.endswith("OrBool") else None  # Go sets the bool too

    def write(value: Any) -> bytes:
        if isinstance(value, dict):
            return message.write({"schema": value, "other": beside_schema})
        return message.write({"other": value})

    return write


# --- a body ---------------------------------------------------------------------------------------


class Decoded(NamedTuple):
    api_version: str  #: of the body; empty if it has none
    kind: str
    obj: Obj  #: with apiVersion and kind, if the body has them


def decode(body: bytes, definition: str, messages: Messages) -> Decoded:
    """A request body as JSON.  If its kind is not that of the definition, the object has only apiVersion and kind.

    Raises ApiError (400) for an invalid body.
    """
    package, _, expected = definition.rpartition(".")
    try:
        api_version, kind, raw = envelope(body)
    except Malformed as error:
        message = f"the object provided is unrecognized (must be of type {expected}): {error.why} ({summary(body)})"
        raise bad_request(message) from None
    obj: Obj = {}
    if kind:
        obj["kind"] = kind
    if api_version:
        obj["apiVersion"] = api_version
    if kind in ("", expected):
        try:
            messages[definition].read(raw, 0, len(raw), obj, 0)
            check_writable(obj)
        except Malformed as error:
            version = api_version.rpartition("/")[2] or package.rpartition(".")[2]
            raise unhandled(kind or expected, version, expected, error.why) from None
    return Decoded(api_version, kind, obj)


def check_writable(obj: Obj) -> None:
    """Nested messages and the JSON in them may be too deep together."""
    try:
        orjson.dumps(obj)
    except orjson.JSONEncodeError:
        raise Malformed(TOO_DEEP) from None


def unhandled(kind: str, version: str, expected: str, why: str) -> ApiError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {expected}: {why}')


def envelope(body: bytes) -> tuple[str, str, bytes]:
    """apiVersion, kind and message of a body."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    if len(body) == len(MAGIC):
        raise Malformed("empty body")
    unknown = numbers_and_bytes(body, len(MAGIC), len(body), "Unknown", {1: bytes, 2: bytes, 3: bytes, 4: bytes})
    type_meta = unknown.get(1, b"")
    names = numbers_and_bytes(type_meta, 0, len(type_meta), "TypeMeta", {1: bytes, 2: bytes})
    return text(names.get(1, b""), "apiVersion"), text(names.get(2, b""), "kind"), unknown.get(2, b"")


def summary(body: bytes, longest: int = 30) -> str:
    """The beginning of an unreadable body, for the error message."""
    if not body:
        return "<empty>"
    head = body[:longest]
    shown = head.decode(errors="replace") if body.startswith(b"{") else head.hex()
    return f"{shown} ..." if len(body) > longest else shown


def encode(obj: Obj, definition: str, messages: Messages) -> bytes:
    """The body of a response: an object of a definition, or a Status, with its apiVersion and kind."""
    return b"".join(enveloped(obj, messages[definition].write(obj), 0))


def list_frame(obj: Obj, definition: str, size: int, messages: Messages) -> tuple[bytes, bytes]:
    """What is before and after the items of a list of objects of a definition.  `obj` has no items; they have `size`
    bytes and come from `encode_items`."""
    return enveloped(obj, messages[f"{definition}List"].write(obj), size)


def encode_items(objects: Sequence[Obj], definition: str, messages: Messages) -> bytes:
    """Objects as a part of their list."""
    write = messages[definition].write
    return b"".join([delimited(ITEMS, write(obj)) for obj in objects])


ITEMS: Final = tag_of(2, DELIMITED)  #: of every list


def enveloped(obj: Obj, raw: bytes, more: int) -> tuple[bytes, bytes]:
    """The start of a body up to `raw`, which `more` bytes follow, and its end."""
    type_meta = delimited(b"\x0a", obj.get("apiVersion", "").encode()) + delimited(
        b"\x12", obj.get("kind", "").encode()
    )
    size = varint(len(raw) + more)
    return MAGIC + delimited(b"\x0a", type_meta) + b"\x12" + size + raw, b"\x1a\x00\x22\x00"
