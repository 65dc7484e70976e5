"""The values of CEL literals."""

from __future__ import annotations

import re
from typing import Final

from farflung.machinery.cel.language.ast import UnsignedInteger

MAX_DIGITS: Final = 20  #: of 2**64, the longest integer
_ESCAPES: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7][0-7])|[xX](..)|u(.{4})|U(.{8})|(.))", re.DOTALL)


def integer(text: str) -> int:
    """The value of `12`, `-0x1f`.  Raises ValueError if it does not fit into 64 bits."""
    value = _number(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("invalid int literal")
    return value


def unsigned(text: str) -> UnsignedInteger:
    value = _number(text[:-1])
    if value >= 2**64:
        raise ValueError("invalid uint literal")
    return UnsignedInteger(value)


def _number(text: str) -> int:
    negative = text.startswith("-")
    digits = text[1:] if negative else text
    base = 16 if digits.startswith("0x") else 10
    digits = digits[2:] if base == 16 else digits
    significant = digits.lstrip("0") or "0"
    magnitude = int(significant, base) if len(significant) <= MAX_DIGITS else 2**64
    return -magnitude if negative else magnitude


def double(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("invalid double literal")
    return value


def string(text: str) -> str:
    raw, content = _content(text)
    return content if raw else _ESCAPE.sub(_character, content)


def byte_string(text: str) -> bytes:
    raw, content = _content(text[1:])
    if raw:
        return content.encode(errors="surrogatepass")
    out: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(content):
        out.append(content[at : match.start()].encode(errors="surrogatepass"))
        if match[3] or match[4]:
            raise ValueError("unable to unescape string")
        out.append(bytes([_code(match)]))
        at = match.end()
    out.append(content[at:].encode(errors="surrogatepass"))
    return b"".join(out)


def _content(text: str) -> tuple[bool, str]:
    """Whether a literal is raw, and the text between its quotes."""
    raw = text[0] in "rR"
    quoted = text[1:] if raw else text
    quotes = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    return raw, quoted[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n")


def _character(match: re.Match[str]) -> str:
    code = _code(match)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError("invalid unicode code point")
    return chr(code)


def _code(match: re.Match[str]) -> int:
    octal, byte, short, long, char = match.groups()
    if octal:
        return int(octal, 8)
    if byte or short or long:
        return int(byte or short or long, 16)
    return _ESCAPES.get(char, ord(char))
