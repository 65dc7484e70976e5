"""Kubernetes' protobuf: request bodies into the JSON that Go would have sent, and answers from JSON.

    messages = Messages(members)                    members: the name of a definition → its Fields
    decode(body, definition, messages)              → Decoded(api_version, kind, obj)
    encode(obj, definition, messages)               → bytes

A body is `k8s\\0` and a message Unknown, which names the type and carries the message of that type.  Kubernetes'
messages are Go structs: a field that is no pointer is always sent, empty or not, so the reader drops what Go's JSON
would leave out, and the writer sends what Go would send, to the byte.

Per message the work is prepared once: a dict from tag (number and wire type) to the function that reads such a field,
and a list of functions that write the fields in the order of their numbers.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from farflung.machinery import times
from farflung.machinery.codec import json
from farflung.machinery.codec.malformed import Malformed
from farflung.machinery.errors import ApiError, Obj, bad_request

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
DEEPEST: Final = 100  #: messages in messages; only JSON schemas nest without an end

# --- facts about a struct -------------------------------------------------------------------------

ONE: Final = ""
LIST: Final = "list"
MAP: Final = "map"

#: types that are not messages → the JSON of one that was never set
SCALARS: Final[Mapping[str, Any]] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "double": 0,
    "bytes": None,
    "any": None,
}

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

#: messages whose JSON is no object of their fields → the JSON of one that was never set
SPECIAL: Final[Mapping[str, Any]] = {
    f"{_META}Time": None,
    f"{_META}MicroTime": None,
    f"{_META}FieldsV1": None,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": None,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "0",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": 0,
    f"{_EXTENSIONS}JSON": None,
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": None,
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": False,
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": None,
}


class Field(msgspec.Struct, frozen=True):
    """One field of a Go struct, as its tags and its type say."""

    name: str  #: in JSON; of an inlined struct its Go name
    number: int  #: in protobuf; 0 if it is not there
    type: str  #: of the value, or of the values of a list or map: one of SCALARS, or the name of a definition
    shape: str = ONE  #: ONE, LIST or MAP
    pointer: bool = False
    omitempty: bool = False
    omitzero: bool = False
    inline: bool = False  #: JSON shows this struct's fields among those of the struct it is in
    wrapped: bool = False  #: the only field of a message that JSON shows as a bare list


Members = Callable[[str], Sequence[Field]]


class Messages:
    """The messages of a set of structs, each made ready when it is first met."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._ready: dict[str, Message] = {}

    def __getitem__(self, definition: str) -> Message:
        message = self._ready.get(definition)
        if message is None:
            message = self._ready[definition] = Message(definition, self._members(definition), self)
        return message


# --- bytes ----------------------------------------------------------------------------------------

VARINT, FIXED64, DELIMITED, GROUP, GROUP_END, FIXED32 = range(6)
_MASK: Final = (1 << 64) - 1
CUT_SHORT: Final = "unexpected EOF"


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while shift < 64:
        if at >= end:
            raise Malformed(CUT_SHORT)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7
    raise Malformed("proto: integer overflow")


def read_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A length-delimited value: where it starts and where it stops."""
    if at < end and data[at] < 0x80:  # most are short
        length, start = data[at], at + 1
    else:
        length, start = read_varint(data, at, end)
    if length >> 63:
        raise Malformed("proto: negative length found during unmarshaling")
    if length > end - start:
        raise Malformed(CUT_SHORT)
    return start, start + length


def skip(data: bytes, at: int, end: int, wire: int) -> int:
    """The place after a value nobody reads; groups are long gone, but still may be sent."""
    groups = 0
    while True:
        if wire == VARINT:
            _, at = read_varint(data, at, end)
        elif wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        elif wire == DELIMITED:
            _, at = read_length(data, at, end)
        elif wire == GROUP:
            groups += 1
        elif wire == GROUP_END:
            groups -= 1
        else:
            raise Malformed(f"proto: illegal wireType {wire}")
        if at > end:
            raise Malformed(CUT_SHORT)
        if groups == 0:
            return at
        tag, at = read_varint(data, at, end)
        wire = tag & 7


def pairs(data: bytes, at: int, end: int, name: str) -> Iterator[tuple[int, Any]]:
    """The fields of a small message: number and value, a number or bytes."""
    while at < end:
        tag, at = read_varint(data, at, end)
        check_tag(tag, name)
        if tag & 7 == VARINT:
            value, at = read_varint(data, at, end)
            yield tag >> 3, value
        elif tag & 7 == DELIMITED:
            start, at = read_length(data, at, end)
            yield tag >> 3, data[start:at]
        else:
            at = skip(data, at, end, tag & 7)


def check_tag(tag: int, name: str) -> None:
    if tag & 7 == GROUP_END:
        raise Malformed(f"proto: {name}: wiretype end group for non-group")
    if not 0 < (tag >> 3) & 0xFFFFFFFF < 1 << 31:
        raise Malformed(f"proto: {name}: illegal tag {signed(tag >> 3, 32)} (wire type {tag & 7})")


def wrong_wire(wire: int, name: str) -> Malformed:
    return Malformed(f"proto: wrong wireType = {wire} for field {name[:1].upper()}{name[1:]}")


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed(f"proto: field {name}: string field contains invalid UTF-8") from None


def varint(value: int) -> bytes:
    """A number as it is sent; a negative one takes ten bytes."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= _MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL: Final = tuple(bytes([value]) for value in range(0x80))


def delimited(tag: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (tag, varint(len(content)), content)


def tag_of(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


# --- a message ------------------------------------------------------------------------------------

ReadSpan = Callable[[bytes, int, int, Obj, int], None]  #: span, the object to fill, depth
ReadNumber = Callable[[int, Obj], None]
ReadValue = Callable[[bytes, int, int, int], Any]  #: span, depth → JSON
Write = Callable[[Obj], bytes]
WriteValue = Callable[[Any], bytes]


class Message:
    """How one struct is read and written."""

    def __init__(self, definition: str, members: Sequence[Field], messages: Messages) -> None:
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
        """Fill an object from a message.  What is there already is added to, as Go does."""
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

    def _span_reader(self, member: Field) -> ReadSpan:
        if member.shape == MAP:
            return map_reader(member.name, self._value_reader(member))
        if member.shape == LIST:
            return list_reader(member.name, self._value_reader(member))
        if member.type in SCALARS or member.type in SPECIAL or self._messages[member.type].wrapped:
            return value_reader(member, self._value_reader(member))
        return message_reader(member, self._messages[member.type])

    def _value_reader(self, member: Field) -> ReadValue:
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

    def _writer(self, member: Field) -> Write:
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
        never_set = tag + value_writer(self._never_set(member.type))
        return lambda obj: never_set if obj.get(name) is None else tag + value_writer(obj[name])

    def _never_set(self, type_: str) -> Any:
        if type_ in SCALARS:
            return SCALARS[type_]
        return SPECIAL.get(type_, {})

    def _value_writer(self, type_: str) -> WriteValue:
        """What comes after the tag."""
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
    """A number as Go writes it in JSON: a whole one without a fraction."""
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    if not isfinite(value):
        raise Malformed(f"json: unsupported value: {value}")
    return int(value) if value.is_integer() and abs(value) < 1e21 else float(value)


def drops_empty(member: Field) -> bool:
    return member.omitempty and not member.pointer


def number_reader(member: Field, convert: Callable[[int], Any]) -> ReadNumber:
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


def packed_reader(member: Field, convert: Callable[[int], Any]) -> ReadSpan:
    name = member.name

    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        values = into.setdefault(name, [])
        while start < stop:
            value, start = read_varint(data, start, stop)
            values.append(convert(value))

    return read


def value_reader(member: Field, read_value: ReadValue) -> ReadSpan:
    """A value that replaces the one before it; an empty one goes where Go's JSON drops it."""
    name = member.name
    dropped: tuple[Any, ...] = (None, "", []) if drops_empty(member) and member.type not in SPECIAL else (None,)

    def read(data: bytes, start: int, stop: int, into: Obj, depth: int) -> None:
        value = read_value(data, start, stop, depth)
        if value in dropped:
            into.pop(name, None)
        else:
            into[name] = value

    return read


def message_reader(member: Field, message: Message) -> ReadSpan:
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
    """Where in an entry of a map the key and the value start and stop; what is missing is empty."""
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


# --- messages that are no objects in JSON ---------------------------------------------------------


def numbers_and_bytes(data: bytes, start: int, stop: int, name: str, kinds: Mapping[int, type]) -> dict[int, Any]:
    """A small message as a dict; a field of another kind than it should be is an error."""
    found: dict[int, Any] = {}
    for number, value in pairs(data, start, stop, name):
        if number in kinds:
            if not isinstance(value, kinds[number]):
                raise wrong_wire(VARINT if isinstance(value, int) else DELIMITED, name)
            found[number] = value
    return found


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(data: bytes, start: int, stop: int, depth: int) -> str | None:
    """To the second, whatever comes after it."""
    moment = read_moment(data, start, stop, "Time")
    return None if moment is None else times.format_seconds(moment)


def read_micro_time(data: bytes, start: int, stop: int, depth: int) -> str | None:
    moment = read_moment(data, start, stop, "MicroTime")
    return None if moment is None else times.format_micros(moment)


def read_moment(data: bytes, start: int, stop: int, name: str) -> datetime | None:
    """Go's zero time is an empty message, and null in JSON."""
    found = numbers_and_bytes(data, start, stop, name, {1: int, 2: int})
    if not found:
        return None
    microseconds = signed(found.get(2, 0), 32) // 1000 if name == "MicroTime" else 0
    try:
        moment = EPOCH + timedelta(seconds=signed(found.get(1, 0), 64), microseconds=microseconds)
    except OverflowError:
        raise Malformed(f"{name}.MarshalJSON: year outside of range [0,9999]") from None
    return None if moment == times.ZERO_TIME else moment


def write_time(value: str | None) -> bytes:
    return b"" if value is None else timestamp(times.parse(value), nanoseconds=False)


def write_micro_time(value: str | None) -> bytes:
    return b"" if value is None else timestamp(times.parse(value), nanoseconds=True)


def timestamp(moment: datetime, *, nanoseconds: bool) -> bytes:
    since = moment - EPOCH
    seconds = since.days * 86400 + since.seconds
    return b"\x08" + varint(seconds) + b"\x10" + varint(since.microseconds * 1000 if nanoseconds else 0)


def read_quantity(data: bytes, start: int, stop: int, depth: int) -> str:
    found = numbers_and_bytes(data, start, stop, "Quantity", {1: bytes})
    return text(found.get(1, b""), "string") or "0"


def read_int_or_string(data: bytes, start: int, stop: int, depth: int) -> int | str:
    found = numbers_and_bytes(data, start, stop, "IntOrString", {1: int, 2: int, 3: bytes})
    if found.get(1, 0) == 0:
        return signed(found.get(2, 0), 32)
    return text(found.get(3, b""), "strVal")


def write_int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00" + delimited(b"\x1a", value.encode())
    return b"\x08\x00\x10" + varint(value) + b"\x1a\x00"


def read_json(data: bytes, start: int, stop: int, depth: int) -> Any:
    raw = numbers_and_bytes(data, start, stop, "Raw", {1: bytes}).get(1)
    return json.parse(raw, typed=False).value if raw else None


def write_json(value: Any) -> bytes:
    return b"" if value is None else delimited(b"\x0a", orjson.dumps(value))


SPECIAL_READERS: Final[Mapping[str, ReadValue]] = {
    f"{_META}Time": read_time,
    f"{_META}MicroTime": read_micro_time,
    f"{_META}FieldsV1": read_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": read_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": read_quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": read_int_or_string,
    f"{_EXTENSIONS}JSON": read_json,
}
SPECIAL_WRITERS: Final[Mapping[str, WriteValue]] = {
    f"{_META}Time": write_time,
    f"{_META}MicroTime": write_micro_time,
    f"{_META}FieldsV1": write_json,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": write_json,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda value: delimited(b"\x0a", str(value).encode()),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": write_int_or_string,
    f"{_EXTENSIONS}JSON": write_json,
}

_PROPS: Final = f"{_EXTENSIONS}JSONSchemaProps"
#: either a schema or something else → how that is a struct
SCHEMA_CHOICES: Final[Mapping[str, Sequence[Field]]] = {
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": (
        Field("schema", 1, _PROPS, pointer=True),
        Field("other", 2, _PROPS, shape=LIST),
    ),
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": (
        Field("other", 1, "bool"),
        Field("schema", 2, _PROPS, pointer=True),
    ),
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": (
        Field("schema", 1, _PROPS, pointer=True),
        Field("other", 2, "string", shape=LIST),
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
    api_version: str  #: as the body says; empty if it does not
    kind: str
    obj: Obj  #: with apiVersion and kind, if the body says them


def decode(body: bytes, definition: str, messages: Messages) -> Decoded:
    """A request body as JSON.  If it says it is of another kind than the definition, only that is in the object.

    Raises ApiError (400) for anything that is not such a message.
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
    """Messages in messages and JSON in them may be deeper together than either may be."""
    try:
        orjson.dumps(obj)
    except orjson.JSONEncodeError:
        raise Malformed(json.TOO_DEEP) from None


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
    """The beginning of a body nobody can read, for its sender."""
    if not body:
        return "<empty>"
    head = body[:longest]
    shown = head.decode(errors="replace") if body.startswith(b"{") else head.hex()
    return f"{shown} ..." if len(body) > longest else shown


def encode(obj: Obj, definition: str, messages: Messages) -> bytes:
    """An answer: an object of a definition, a list of them, or a Status, with its apiVersion and kind."""
    type_meta = delimited(b"\x0a", obj.get("apiVersion", "").encode()) + delimited(
        b"\x12", obj.get("kind", "").encode()
    )
    raw = messages[definition].write(obj)
    return MAGIC + delimited(b"\x0a", type_meta) + delimited(b"\x12", raw) + b"\x1a\x00\x22\x00"
