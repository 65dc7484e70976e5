"""The wire format of protobuf: numbers, lengths and tags, and messages of nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from farflung.machinery.errors import Malformed

VARINT, FIXED64, DELIMITED, GROUP, GROUP_END, FIXED32 = range(6)
_MASK: Final = (1 << 64) - 1
CUT_SHORT: Final = "unexpected EOF"


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
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
    """Start and end of a length-delimited value."""
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
    """The position after a skipped value.  Groups are deprecated, but clients may still send them."""
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
    """An encoded number; a negative one takes ten bytes."""
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


def numbers_and_bytes(data: bytes, start: int, stop: int, name: str, kinds: Mapping[int, type]) -> dict[int, Any]:
    """A small message as a dict.  A field of another type is an error."""
    found: dict[int, Any] = {}
    for number, value in pairs(data, start, stop, name):
        if number in kinds:
            if not isinstance(value, kinds[number]):
                raise wrong_wire(VARINT if isinstance(value, int) else DELIMITED, name)
            found[number] = value
    return found
