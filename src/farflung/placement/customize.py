"""Customize copies: replace parameters, and apply the replacements of a Customizer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.jsonpath import PathError
from farflung.machinery.jsonpath_edit import DEEPEST, Allowance, AssignmentPath, depth, parse

PREFIXES: Final = ("edge.kcp.io/", "edge.kubestellar.io/")  #: of the annotations; the first one has precedence
EXPAND: Final = "expand-parameters"
CUSTOMIZER: Final = "customizer"
MAX_REPLACEMENTS: Final = 1000  #: of a Customizer
MAX_UNKNOWN: Final = 20  #: names that are reported
NO_NAME: Final = "…"  #: replaces invalid names
T = TypeVar("T")
Parameters = Mapping[str, str]
_PARAMETER: Final = re.compile(r"%(?:%|\(([^)]*)\)?)")  # without `)`, the rest is the name
_JSON_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z|\\\Z)|[^"]+', re.DOTALL)
_KEY: Final = re.compile(r"[\w./-]{1,317}", re.ASCII)


class CustomizerReference(NamedTuple):
    """The Customizer that an object names."""

    namespace: str
    name: str
    problem: str = ""  #: why the reference is invalid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Value(NamedTuple):
    value: Any
    size: int  #: in bytes


class Replacement(NamedTuple):
    where: str  #: for messages
    path: str
    value: str  #: JSON
    parsed_path: AssignmentPath | None = None  #: None: it has parameters
    parsed_value: Value | None = None  #: None: it has parameters


class Customizer(NamedTuple):
    name: str  #: with its namespace
    expands: bool = False
    replacements: tuple[Replacement, ...] = ()
    problem: str = ""  #: why it is invalid


class Customized(NamedTuple):
    obj: Obj  #: shares values with the source: must not be changed
    problem: str = ""  #: why it failed; then `obj` is unchanged
    unknown: tuple[str, ...] = ()  #: unknown parameters, sorted; they are not replaced
    unused: tuple[str, ...] = ()  #: paths that do not exist


# --- annotations ----------------------------------------------------------------------------------


def expands(obj: Mapping[str, Any]) -> bool:
    """Whether parameters in this object, or in this Customizer, are replaced."""
    return _annotation(obj, EXPAND) == "true"


def reference_of(obj: Mapping[str, Any]) -> CustomizerReference | None:
    """None if the object names no Customizer."""
    text = _annotation(obj, CUSTOMIZER)
    if not text:
        return None
    namespace, slash, name = text.rpartition("/")
    if slash and namespace and name and "/" not in namespace:
        return CustomizerReference(namespace, name)
    if slash:
        return CustomizerReference("", text, f"{_where(obj)}: {go_quote(text)} is neither NAME nor NAMESPACE/NAME")
    namespace = obj["metadata"].get("namespace") or ""
    if not namespace:
        return CustomizerReference(
            "", text, f"{_where(obj)}: an object without a namespace names a Customizer as NAMESPACE/NAME"
        )
    return CustomizerReference(namespace, text)


def _annotation(obj: Mapping[str, Any], name: str) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    found = next((annotations[prefix + name] for prefix in PREFIXES if prefix + name in annotations), "")
    return found if isinstance(found, str) else ""


def _where(obj: Mapping[str, Any]) -> str:
    annotations = obj["metadata"]["annotations"]
    return f"metadata.annotations[{next(one for one in PREFIXES if one + CUSTOMIZER in annotations)}{CUSTOMIZER}]"


# --- parameters -----------------------------------------------------------------------------------


def parameters_of(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    location: str,
    cluster: str = "",
    workspace: str = "",
) -> dict[str, str]:
    """The parameters of a destination: labels of the Location, then its annotations, then `location.name`,
    `cluster.name` (of the SyncTarget) and `workspace` (of the Location), unless they are empty."""
    always = {"location.name": location, "cluster.name": cluster, "workspace": workspace}
    return {**{name: text for name, text in always.items() if text}, **annotations, **labels}


def expand(text: str, parameters: Parameters) -> tuple[str, tuple[str, ...]]:
    """The text with `%(name)` and `%%` replaced, and the unknown names, which are not replaced."""
    expansion = ParameterExpansion(parameters, Allowance())
    return expansion.text(text), expansion.unknown()


class ParameterExpansion:
    """Replaces parameters in one object for one destination.  Raises PathError if the result is too large."""

    def __init__(self, parameters: Parameters, allowance: Allowance) -> None:
        self._parameters = parameters
        self._allowance = allowance
        self._unknown: set[str] = set()

    def unknown(self) -> tuple[str, ...]:
        return tuple(sorted(self._unknown)[:MAX_UNKNOWN])

    def text(self, text: str) -> str:
        return _PARAMETER.sub(self._plain, text) if "%" in text else text

    def json(self, text: str) -> str:
        """In JSON.  Values in a string are escaped."""
        return _JSON_PARTS.sub(self._json_part, text) if "%" in text else text

    def document(self, node: Any, level: int = 0) -> Any:
        """In all strings except keys."""
        if level > DEEPEST:
            raise PathError(f"the object has more than {DEEPEST} levels")
        if type(node) is dict:
            return self._map(node, level)
        if type(node) is list:
            return self._list(node, level)
        return self.text(node) if type(node) is str else node

    def _map(self, node: dict[str, Any], level: int) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for key, before in node.items():
            if type(before) is str:
                if "%" in before:
                    changed[key] = self.text(before)
            elif type(before) is dict or type(before) is list:
                after = self.document(before, level + 1)
                if after is not before:
                    changed[key] = after
        return {**node, **changed} if changed else node

    def _list(self, node: list[Any], level: int) -> list[Any]:
        items = [self.document(item, level + 1) for item in node]
        return node if all(map(is_, items, node)) else items

    def _plain(self, found: re.Match[str]) -> str:
        return self._value(found, found[1])

    def _escaped(self, found: re.Match[str]) -> str:
        text = self._value(found, found[1])
        return text if text == found[0] else json.dumps(text, ensure_ascii=False)[1:-1]

    def _json_part(self, found: re.Match[str]) -> str:
        inside = found[0].startswith('"')
        return _PARAMETER.sub(self._escaped if inside else self._plain, found[0])

    def _value(self, found: re.Match[str], name: str | None) -> str:
        if name is None:
            return "%"
        value = self._parameters.get(name)
        if value is None:
            self._unknown.add(name if _KEY.fullmatch(name) else NO_NAME)
            return found[0]
        self._allowance.grow(len(value))
        return value


# --- Customizers ----------------------------------------------------------------------------------


class _ProblemError(ValueError):
    """The message begins with the path."""


def parse_customizer(obj: Mapping[str, Any]) -> Customizer:
    """Paths and values without parameters are parsed here, once."""
    metadata = obj["metadata"]
    name = str(CustomizerReference(metadata.get("namespace") or "", metadata["name"]))
    try:
        does = expands(obj)
        return Customizer(name, does, tuple(_replacements(obj.get("replacements"), does)))
    except _ProblemError as problem:
        return Customizer(name, problem=f"Customizer {name}: {problem}")


def _replacements(found: Any, does_expand: bool) -> list[Replacement]:
    if not isinstance(found or [], list):
        raise _ProblemError("replacements: must be a list")
    if len(found or ()) > MAX_REPLACEMENTS:
        raise _ProblemError(f"replacements: must be no more than {MAX_REPLACEMENTS}")
    return [_replacement(f"replacements[{at}]", one, does_expand) for at, one in enumerate(found or ())]


def _replacement(where: str, one: Any, does_expand: bool) -> Replacement:
    path, value = (one.get("path"), one.get("value")) if isinstance(one, dict) else (None, None)
    if not isinstance(path, str) or not isinstance(value, str):
        raise _ProblemError(f"{where}: must have a path and a value, which are strings")
    return Replacement(
        where,
        path,
        value,
        None if does_expand and "%" in path else _path(where, path),
        None if does_expand and "%" in value else _value(where, value, ""),
    )


def _path(where: str, text: str) -> AssignmentPath:
    try:
        return parse(text)
    except PathError as error:
        raise _ProblemError(f"{where}.path: {go_quote(text[:200])} is no path: {error}") from None


def _value(where: str, text: str, after: str) -> Value:
    encoded = text.encode("utf-8", "surrogatepass")
    try:
        value = orjson.loads(encoded)
    except orjson.JSONDecodeError as error:
        raise _ProblemError(f"{where}.value: {after}this is no JSON, from character {error.pos + 1} on") from None
    if depth(value) > DEEPEST:
        raise _ProblemError(f"{where}.value: this has more than {DEEPEST} levels")
    return Value(value, len(encoded))


# --- customizing ----------------------------------------------------------------------------------


def customized(obj: Obj, customizer: Customizer | None, parameters: Parameters) -> Customized:
    """The object for one destination.  `customizer`: the one of its `reference_of`; None if it does not exist."""
    does_expand, reference = expands(obj), reference_of(obj)
    if not does_expand and reference is None:
        return Customized(obj)
    allowance = Allowance()
    expansion = ParameterExpansion(parameters, allowance)
    try:
        after = _with_path("", lambda: expansion.document(obj)) if does_expand else obj
        unused: tuple[str, ...] = ()
        if reference is not None:
            after, unused = _replaced(after, _found(obj, reference, customizer), expansion, allowance)
        _check(obj, after)
    except _ProblemError as problem:
        return Customized(obj, str(problem), expansion.unknown())
    return Customized(after, "", expansion.unknown(), unused)


def _found(obj: Obj, reference: CustomizerReference, customizer: Customizer | None) -> Customizer:
    if reference.problem:
        raise _ProblemError(reference.problem)
    if customizer is None:
        raise _ProblemError(f"{_where(obj)}: there is no Customizer {reference}")
    if customizer.problem:
        raise _ProblemError(customizer.problem)
    return customizer


def _replaced(
    obj: Obj, customizer: Customizer, expansion: ParameterExpansion, allowance: Allowance
) -> tuple[Obj, tuple[str, ...]]:
    unused: list[str] = []
    try:
        for one in customizer.replacements:
            obj, places = _assigned(obj, one, expansion, allowance)
            if not places:
                unused.append(one.path)
    except _ProblemError as problem:
        raise _ProblemError(f"Customizer {customizer.name}: {problem}") from None
    return obj, tuple(unused)


def _assigned(obj: Obj, one: Replacement, expansion: ParameterExpansion, allowance: Allowance) -> tuple[Obj, int]:
    path = one.parsed_path or _path(one.where, _with_path(f"{one.where}.path: ", lambda: expansion.text(one.path)))
    value = one.parsed_value
    if value is None:
        text = _with_path(f"{one.where}.value: ", lambda: expansion.json(one.value))
        value = _value(one.where, text, "with the parameters of this place ")
    if path.is_root and type(value.value) is not dict:
        raise _ProblemError(f"{one.where}.value: what replaces the whole object must be a map")
    found = _with_path(f"{one.where}: ", lambda: path.assigned(obj, value.value, allowance, value.size))
    return found.document, found.places


def _with_path(where: str, attempt: Callable[[], T]) -> T:
    try:
        return attempt()
    except PathError as error:
        raise _ProblemError(f"{where}{error}") from None


def _check(before: Obj, after: Obj) -> None:
    """Raises _ProblemError if identity or metadata became invalid."""
    for name in ("apiVersion", "kind"):
        _check_same(name, before.get(name), after.get(name))
    metadata = after.get("metadata")
    if type(metadata) is not dict:
        raise _ProblemError("metadata: after the customization this is no map")
    for name in ("name", "namespace"):
        _check_same(f"metadata.{name}", before["metadata"].get(name), metadata.get(name))
    for name in ("labels", "annotations"):
        _check_texts(f"metadata.{name}", metadata.get(name))
    if (after["apiVersion"], after["kind"]) == ("v1", "Secret"):
        for name in ("data", "stringData"):
            _check_texts(name, after.get(name))


def _check_texts(path: str, texts: Any) -> None:
    if texts is not None and (type(texts) is not dict or any(type(text) is not str for text in texts.values())):
        raise _ProblemError(f"{path}: after the customization this is no map of strings")


def _check_same(path: str, before: Any, after: Any) -> None:
    if before != after:
        raise _ProblemError(f"{path}: a customization must not change it")
