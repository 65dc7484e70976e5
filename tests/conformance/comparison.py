"""Compares what a server answers with what was recorded: JSON pointers, placeholders, and lists without an order."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: placeholders of volatile values, and the shape that such a value has
SHAPES: Final = {
    "uid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "rv": r"[1-9][0-9]*",
    "time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z",
    "age": r"(?:[0-9]+[smhdy])+",
    "rand": r"[bcdfghjklmnpqrstvwxz2456789]{5}",
    "ip": r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}",
    "jwt": r"eyJ[\w-]+\.[\w-]+\.[\w-]+",
    "cluster": r"[0-9a-z][0-9a-z-]{5,62}",
    "server": r"https?://[^/\s\"]+",
    "host": r"[^/\s\"]+",
    "any": r"(?s:.*)",
}
PLACEHOLDER: Final = re.compile(f"<({'|'.join(SHAPES)})>")
ANYTHING: Final = "<any>"
VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
REPEATED: Final = re.compile(r"\$\((.+?)\*(\d+)\)")


class Absent:
    """What a pointer finds where there is nothing."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = Absent()


@dataclass(frozen=True)
class Difference:
    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.path}\n  expected {shortened(self.expected)}\n  got      {shortened(self.got)}"


def shortened(value: Any, limit: int = 1500) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[:limit] + "…"


# --- values ---------------------------------------------------------------------------------------


def substituted(value: Any, variables: Mapping[str, str]) -> Any:
    """The value with every `${name}` replaced, in keys too; `$(text*1000)` is the text a thousand times."""
    if isinstance(value, str):
        repeated = REPEATED.sub(lambda found: found[1] * int(found[2]), value)
        return VARIABLE.sub(lambda found: variables.get(found[1], found[0]), repeated)
    if isinstance(value, list):
        return [substituted(item, variables) for item in value]
    if isinstance(value, dict):
        return {substituted(key, variables): substituted(item, variables) for key, item in value.items()}
    return value


def variables_in(value: Any) -> set[str]:
    return set(VARIABLE.findall(json.dumps(value)))


def segments(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def resolved(value: Any, pointer: str) -> Any:
    """What a JSON pointer points at, or ABSENT.  On a list, `metadata.name=x` picks the item with that name."""
    for segment in segments(pointer):
        if isinstance(value, list) and "=" in segment:
            key, wanted = segment.split("=", 1)
            inner = "/" + key.replace(".", "/")
            value = next((item for item in value if resolved(item, inner) == wanted), ABSENT)
        elif isinstance(value, list) and segment.isdigit() and int(segment) < len(value):
            value = value[int(segment)]
        elif isinstance(value, dict) and segment in value:
            value = value[segment]
        else:
            return ABSENT
    return value


def remove(value: Any, path: list[str]) -> None:
    """Remove what the segments point at, in place; `*` is any key or item."""
    head, *rest = path
    keys: Collection[Any] = ()
    if isinstance(value, list):
        keys = range(len(value))
    elif isinstance(value, dict):
        keys = list(value)
    for key in keys:
        if head not in ("*", str(key)):
            continue
        if rest:
            remove(value[key], rest)
        elif isinstance(value, dict):
            del value[key]
        else:
            value[key] = ANYTHING


def visible(step: Mapping[str, Any], answer: Any) -> Any:
    """The part of an answer that the step compares."""
    if "only" in step:
        found = {pointer: resolved(answer, pointer) for pointer in step["only"]}
        return {pointer: "(absent)" if value is ABSENT else value for pointer, value in found.items()}
    answer = json.loads(json.dumps(answer))
    for pointer in step.get("ignore", ()):
        if pointer == "":
            return ANYTHING
        remove(answer, segments(pointer))
    return answer


# --- comparing ------------------------------------------------------------------------------------


def same_text(expected: str, got: str) -> bool:
    """Whether the text is as expected; placeholders in it stand for any text of their shape."""
    if expected == got:
        return True
    return PLACEHOLDER.search(expected) is not None and re.fullmatch(_pattern(expected), got) is not None


def _pattern(text: str) -> str:
    pattern, end = "", 0
    for found in PLACEHOLDER.finditer(text):
        pattern += re.escape(text[end : found.start()]) + SHAPES[found[1]]
        end = found.end()
    return pattern + re.escape(text[end:])


def compared(expected: Any, got: Any, path: str = "", unordered: Collection[str] = ()) -> Iterator[Difference]:
    """Wherever the two differ.  `unordered`: the paths of lists whose order has no meaning."""
    if expected == ANYTHING and got is not ABSENT:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        left = dict(got)
        for name, value in expected.items():
            key = name if name in left else next((other for other in left if same_text(name, other)), None)
            yield from compared(value, left.pop(key, ABSENT), f"{path}/{name}", unordered)
        for name, value in left.items():
            yield Difference(f"{path}/{name}", ABSENT, value)
    elif isinstance(expected, list) and isinstance(got, list):
        expected, got = _in_order(path, expected, unordered), _in_order(path, got, unordered)
        for index in range(max(len(expected), len(got))):
            wanted, found = (items[index] if index < len(items) else ABSENT for items in (expected, got))
            yield from compared(wanted, found, f"{path}/{index}", unordered)
    elif isinstance(expected, str) and isinstance(got, str):
        if not same_text(expected, got):
            yield Difference(path, expected, got)
    elif expected is not got and (type(expected) is not type(got) or expected != got):
        yield Difference(path, expected, got)


def _in_order(path: str, value: list[Any], unordered: Collection[str]) -> list[Any]:
    """managedFields are sorted by a time with the resolution of a second: their order has no meaning."""
    if path.endswith("/managedFields"):
        names = ("operation", "manager", "subresource", "apiVersion")
        return sorted(value, key=lambda entry: [str(entry.get(name)) for name in names])
    return sorted(value, key=_as_text) if path in unordered else value


def errors_sorted(value: Any, key: str = "") -> Any:
    """Some validators find errors in any order: sort causes, the parts of a message and warnings."""
    if isinstance(value, dict):
        return {name: errors_sorted(item, name) for name, item in value.items()}
    if isinstance(value, list) and key in ("causes", "Warning"):
        return sorted(value, key=_as_text)
    if isinstance(value, str) and segments("/" + key)[-1] == "message":
        return ", ".join(sorted(re.sub(r"\[|\]", "", value).split("is invalid: ")[-1].split(", ")))
    return value


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
