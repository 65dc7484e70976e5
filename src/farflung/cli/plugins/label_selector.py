"""A label selector as people type it, as the object that the API has."""

from __future__ import annotations

import re
from typing import Any

from farflung.cli.plugins.errors import CommandError

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_EQUAL = re.compile(rf"\s*({_KEY})\s*(!=|==|=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_COMMA = re.compile(r",(?![^(]*\))")


def parse_label_selector(text: str) -> dict[str, Any]:
    """`a=b,c in (d, e),!f` as matchLabels and matchExpressions."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for term in _COMMA.split(text):
        if match := _EQUAL.fullmatch(term):
            key, operator, value = match.groups()
            if operator == "!=":
                expressions.append({"key": key, "operator": "NotIn", "values": [value]})
            else:
                labels[key] = value
        elif match := _SET.fullmatch(term):
            values = [value.strip() for value in match[3].split(",")]
            operator = "In" if match[2] == "in" else "NotIn"
            expressions.append({"key": match[1], "operator": operator, "values": values})
        elif match := _EXISTS.fullmatch(term):
            expressions.append({"key": match[2], "operator": "DoesNotExist" if match[1] else "Exists"})
        else:
            raise CommandError(f'unable to parse the label selector "{text}"')
    selector: dict[str, Any] = {}
    if labels:
        selector["matchLabels"] = labels
    if expressions:
        selector["matchExpressions"] = expressions
    return selector
