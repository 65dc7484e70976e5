"""Whether the defaults of a structural schema are values that it allows."""

from __future__ import annotations

from typing import Any

from farflung.hub.admission.definitions.findings import Findings, Place, place, text_of
from farflung.machinery.errors import FieldError, Obj
from farflung.machinery.schema.structural.node import IDENTITY, Node, read
from farflung.machinery.schema.structural.report import Report


def default_problems(schema: Obj, path: str) -> list[FieldError]:
    """`schema` is the structural schema of a whole object, at `path`."""
    findings = Findings()
    _check(read(schema), place(path), findings, root=True)
    return findings.errors


def _check(node: Node, at: Place, findings: Findings, *, root: bool = False, in_meta: bool = False) -> None:
    if findings.full:
        return
    in_meta = in_meta and not node.embedded
    if node.has_default and node.default is not None:
        if not in_meta and has_unknown(node, node.default):
            findings.invalid(at, ".default", node.default, "must not have unknown fields")
        for error in Report(f"{text_of(at)}.default").errors(node, node.default):
            findings.add(error)
    if node.items is not None:
        _check(node.items, (at, ".items"), findings, in_meta=in_meta)
    if node.values is not None:
        _check(node.values, (at, ".additionalProperties"), findings, in_meta=in_meta)
    for name, one in node.properties.items():
        identity = name in IDENTITY and (root or node.embedded)
        _check(one, (at, f".properties[{name}]"), findings, in_meta=in_meta or identity)


def has_unknown(node: Node, value: Any, *, kept: bool = False) -> bool:
    """Whether pruning would change a value.  `kept`: a list around keeps what is unknown."""
    if type(value) is list:
        kept = kept or node.preserving
        if node.items is None:
            return not kept and _has_members(value)
        return any(has_unknown(node.items, item, kept=kept) for item in value)
    if type(value) is not dict:
        return False
    return any(_is_unknown(node, name, item, kept or node.preserving) for name, item in value.items())


def _is_unknown(node: Node, name: str, item: Any, kept: bool) -> bool:
    if node.embedded and name in IDENTITY:
        return False
    known = node.field(name)
    if known is not None:
        return has_unknown(known, item)
    return _has_members(item) if node.open else not kept


def _has_members(value: Any) -> bool:
    """Whether an object somewhere in nested lists has anything in it."""
    waiting = [value]
    for one in waiting:
        if type(one) is dict and one:
            return True
        if type(one) is list:
            waiting += one
    return False
