"""YAML as kubectl writes it: a reader that is much faster than importing PyYAML, and a writer.

The reader supports block mappings, block lists and scalars on one line.  PyYAML reads everything else, so that both
always agree.  The writer sorts keys, does not indent lists and quotes little."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 50

_KEY = re.compile(r"([A-Za-z0-9_./-][A-Za-z0-9_./:@-]*):(?: +(.*))?")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_./(]|-[\x21-\x7e])[\x20-\x7e]*")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER_OR_DATE = re.compile(
    r"""[-+]?(?: 0x[0-9a-f_]* | 0b[01_]* | 0o[0-7_]*
               | [0-9_]*\.?[0-9_]*(?:e[-+]?[0-9]*)?
               | [0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?
               | \.(?:inf|nan) )
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[t ].*)?""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_AMBIGUOUS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<"))
_EMPTY = {"{}": dict, "[]": list}


class Unfamiliar(Exception):
    """This reader does not support the text, which may be valid YAML."""


def load(text: str) -> Any:
    """The value of one YAML or JSON document; timestamps stay strings.  Raises ValueError."""
    try:
        return read_block_yaml(text)
    except Unfamiliar:
        return _load_with_pyyaml(text)


def read_block_yaml(text: str) -> Any:
    """Like `load`; raises Unfamiliar."""
    if text.lstrip()[:1] == "{":
        return _read_json(text)
    lines = _lines(text)
    if not lines:
        return None
    value, position = _block(lines, 0, lines[0][0], 0)
    if position != len(lines):
        raise Unfamiliar
    return value


def is_ambiguous(text: str) -> bool:
    """Whether a plain scalar with this text could be read as another type."""
    return text.lower() in _AMBIGUOUS or _NUMBER_OR_DATE.fullmatch(text) is not None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise Unfamiliar from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise Unfamiliar
    return mapping


def _lines(text: str) -> list[tuple[int, str]]:
    """Indentation and content of non-empty lines."""
    found: list[tuple[int, str]] = []
    for line in text.split("\n"):
        content = line.lstrip(" ")
        stripped = content.rstrip(" ")
        if not stripped or stripped[0] == "#" or (stripped == "---" and not found):
            continue
        if not stripped.isascii() or not stripped.isprintable() or line.startswith(("---", "...", "%")):
            raise Unfamiliar
        found.append((len(line) - len(content), stripped))
    return found


def _block(lines: list[tuple[int, str]], position: int, indent: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise Unfamiliar
    content = lines[position][1]
    if content == "-" or content.startswith("- "):
        return _list(lines, position, indent, depth)
    return _mapping(lines, position, indent, depth)


def _mapping(lines: list[tuple[int, str]], position: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
    mapping: dict[str, Any] = {}
    while position < len(lines) and lines[position][0] == indent:
        match = _KEY.fullmatch(lines[position][1])
        if match is None:
            raise Unfamiliar
        key, rest = match.groups()
        if key in mapping or is_ambiguous(key):
            raise Unfamiliar
        position += 1
        if rest:
            mapping[key] = _scalar(rest)
            continue
        mapping[key] = None
        if position < len(lines):
            deeper, content = lines[position]
            if deeper > indent or (deeper == indent and content.startswith("-") and content[1:2] in ("", " ")):
                mapping[key], position = _block(lines, position, deeper, depth + 1)
    if position < len(lines) and lines[position][0] > indent:
        raise Unfamiliar
    return mapping, position


def _list(lines: list[tuple[int, str]], position: int, indent: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while position < len(lines) and lines[position][0] == indent:
        content = lines[position][1]
        if not content.startswith("- "):
            if content == "-":
                raise Unfamiliar
            break
        rest = content[2:].lstrip(" ")
        if _KEY.fullmatch(rest) or rest.startswith("- "):
            inner = indent + len(content) - len(rest)
            lines[position] = (inner, rest)
            item, position = _block(lines, position, inner, depth + 1)
        else:
            item, position = _scalar(rest), position + 1
        items.append(item)
    if position < len(lines) and lines[position][0] > indent:
        raise Unfamiliar
    return items, position


def _scalar(text: str) -> Any:
    if text in _EMPTY:
        return _EMPTY[text]()
    if text[0] == '"':
        return _double_quoted(text)
    if text[0] == "'":
        return _single_quoted(text)
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _PLAIN.fullmatch(text) or ": " in text or " #" in text or text[-1] == ":" or is_ambiguous(text):
        raise Unfamiliar
    return text


def _single_quoted(text: str) -> str:
    inner = text[1:-1]
    if len(text) < 2 or text[-1] != "'" or "'" in inner.replace("''", ""):
        raise Unfamiliar
    return inner.replace("''", "'")


def _double_quoted(text: str) -> str:
    if "\\u" in text or "\\/" in text:
        raise Unfamiliar
    try:
        value = json.loads(text)
    except ValueError:
        raise Unfamiliar from None
    assert isinstance(value, str)
    return value


def _load_with_pyyaml(text: str) -> Any:
    import yaml

    class PlainDateLoader(yaml.SafeLoader):
        """Dates stay strings, as in kubectl."""

        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return yaml.load(text, PlainDateLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


_PLAIN_TEXT = re.compile(r"(?:[A-Za-z0-9_./(]|-(?=[\x21-\x7e]))[\x21-\x7e]*(?: [\x21-\x7e]+)*")
_SIMPLE = re.compile(r"[\x20-\x7e]+")


def dump(value: Any) -> str:
    """`document`: of JSON types."""
    lines: list[str] = []
    if isinstance(value, dict) and value:
        _write_mapping(lines, value, "")
    elif isinstance(value, list) and value:
        _write_list(lines, value, "")
    else:
        lines.append(_written_scalar(value))
    return "\n".join(lines) + "\n"


def _write_mapping(lines: list[str], mapping: dict[Any, Any], indent: str) -> None:
    for key in sorted(mapping, key=str):
        value = mapping[key]
        head = f"{indent}{_written_scalar(key)}:"
        if isinstance(value, dict) and value:
            lines.append(head)
            _write_mapping(lines, value, indent + "  ")
        elif isinstance(value, list) and value:
            lines.append(head)
            _write_list(lines, value, indent)
        else:
            lines.append(f"{head} {_written_scalar(value)}")


def _write_list(lines: list[str], items: list[Any], indent: str) -> None:
    for item in items:
        start = len(lines)
        if isinstance(item, dict) and item:
            _write_mapping(lines, item, indent + "  ")
        elif isinstance(item, list) and item:
            _write_list(lines, item, indent + "  ")
        else:
            lines.append(f"{indent}  {_written_scalar(item)}")
        lines[start] = f"{indent}- {lines[start][len(indent) + 2 :]}"


def _written_scalar(value: Any) -> str:
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
        return _in_double_quotes(text)
    if _PLAIN_TEXT.fullmatch(text) and ": " not in text and " #" not in text and text[-1] != ":":
        return text
    if _SIMPLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return _in_double_quotes(text)


def _in_double_quotes(text: str) -> str:
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
