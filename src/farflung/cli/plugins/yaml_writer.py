"""Writes YAML like kubectl: sorted keys, unindented lists, minimal quotes."""

from __future__ import annotations

import re
from typing import Any

from farflung.cli.plugins.yaml_reader import is_ambiguous

_PLAIN = re.compile(r"(?:[A-Za-z0-9_./(]|-(?=[\x21-\x7e]))[\x21-\x7e]*(?: [\x21-\x7e]+)*")
_SIMPLE = re.compile(r"[\x20-\x7e]+")


def dump(value: Any) -> str:
    """`document`: of JSON types."""
    lines: list[str] = []
    if isinstance(value, dict) and value:
        _mapping(lines, value, "")
    elif isinstance(value, list) and value:
        _list(lines, value, "")
    else:
        lines.append(_scalar(value))
    return "\n".join(lines) + "\n"


def _mapping(lines: list[str], mapping: dict[Any, Any], indent: str) -> None:
    for key in sorted(mapping, key=str):
        value = mapping[key]
        head = f"{indent}{_scalar(key)}:"
        if isinstance(value, dict) and value:
            lines.append(head)
            _mapping(lines, value, indent + "  ")
        elif isinstance(value, list) and value:
            lines.append(head)
            _list(lines, value, indent)
        else:
            lines.append(f"{head} {_scalar(value)}")


def _list(lines: list[str], items: list[Any], indent: str) -> None:
    for item in items:
        start = len(lines)
        if isinstance(item, dict) and item:
            _mapping(lines, item, indent + "  ")
        elif isinstance(item, list) and item:
            _list(lines, item, indent + "  ")
        else:
            lines.append(f"{indent}  {_scalar(item)}")
        lines[start] = f"{indent}- {lines[start][len(indent) + 2 :]}"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    return "{}" if isinstance(value, dict) else "[]"


def _text(text: str) -> str:
    if is_ambiguous(text) or not text:
        return _double_quoted(text)
    if _PLAIN.fullmatch(text) and ": " not in text and " #" not in text and text[-1] != ":":
        return text
    if _SIMPLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return _double_quoted(text)


def _double_quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    code = ord(character)
    if 0x20 <= code < 0x7F or (code >= 0xA0 and character.isprintable()):
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
