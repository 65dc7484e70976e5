"""Records exchanges: plays scenarios against a server, and writes its answers into their steps.

What changes from run to run becomes a placeholder, and a value that an earlier step saved becomes `${name}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import recorded
from comparison import ANYTHING, SHAPES, Difference, resolved, segments, visible
from exchanges import Replay, Scenario, Step, compared_headers
from servers import Reply, decoded

#: the order of a step's fields in a file
FIELDS: Final = (
    *("step", "about", "watch", "method", "path", "query", "headers", "as", "body", "body_base64", "until", "timeout"),
    *("save", "ignore", "only", "unordered", "any_order", "differs", "status", "response_headers", "response"),
    *("during", "closes", "bookmarks", "events"),
)
LAYOUTS: Final = "2006-01-02T15:04:05.000000Z 2006-01-02T15:04:05Z"  #: Go's, which messages quote


class Recorder(Replay):
    """A replay that expects nothing, and writes into the steps what the server answers."""

    quiet = 1.0

    def _differences(self, view: Step, reply: Reply, answer: Any) -> list[Difference]:
        return []

    def _answered(self, step: Step, sent: Step, view: Step, reply: Reply, answer: Any) -> None:
        generate_name = resolved(sent.get("body"), "/metadata/generateName")
        prefix = generate_name if isinstance(generate_name, str) else ""
        writer = Placeholders(self._variables, self._sent, prefix)
        step["status"], step["response_headers"] = reply.status, writer.value(compared_headers(reply))
        step["response"] = writer.response(step, visible(view, answer))

    def _events_expected(self, step: Step) -> int | None:
        return None

    def _watched(self, step: Step, reply: Reply | None, events: list[Any]) -> list[Difference]:
        if reply is None:
            return [Difference("", "an answer", None)]
        writer = Placeholders(self._variables, self._sent)
        step["status"], step["response_headers"] = reply.status, writer.value(compared_headers(reply))
        step["events"] = [writer.value(event) for event in events]
        for event in step["events"]:
            if event.get("type") == "BOOKMARK" and "metadata" in event["object"]:
                event["object"]["metadata"]["resourceVersion"] = "<rv>"
        if reply.status != 200:
            step["response"] = writer.value(decoded(reply.body))
        return []


def write(scenario: Scenario, path: Path) -> None:
    lines = [scenario.header, *map(arranged, scenario.steps)]
    recorded.write(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def arranged(step: Step) -> Step:
    """The step with its fields in the usual order."""
    if "during" in step:
        step["during"] = [arranged(inner) for inner in step["during"]]
    known = {name: step[name] for name in FIELDS if name in step}
    return known | {name: value for name, value in step.items() if name not in FIELDS}


class Placeholders:
    """Writes volatile values as placeholders, and known ones as `${name}`."""

    def __init__(self, variables: Mapping[str, str], sent: str, generate_name: str = "") -> None:
        """`sent`: all bodies of the scenario, whose values are not volatile."""
        self._sent = sent + LAYOUTS
        self._generate_name = generate_name
        self._versions: dict[str, str] = {}
        for name, value in variables.items():
            if value.isdigit():
                self._versions.setdefault(value, name)
        texts = ((value, name) for name, value in variables.items() if not value.isdigit() and len(value) > 4)
        self._names = sorted(texts, key=lambda pair: -len(pair[0]))

    def response(self, step: Step, value: Any) -> Any:
        if "only" in step:
            return {
                self._text(pointer): self._field(segments(pointer)[-1], item, {}, "") for pointer, item in value.items()
            }
        return self.value(value)

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self._text(name): self._field(name, item, value, key) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for value, name in self._names:
            text = text.replace(value, f"${{{name}}}")
        for shape in ("uid", "time", "jwt"):
            text = re.sub(SHAPES[shape], lambda found: found[0] if found[0] in self._sent else f"<{shape}>", text)  # noqa: B023
        if self._generate_name:
            text = re.sub(rf"({re.escape(self._generate_name)}){SHAPES['rand']}", r"\1<rand>", text)
        return text

    def _message(self, text: str) -> str:
        text = re.sub(r"(current: |too old resource version: \d+ \()\d+", r"\1<rv>", self._text(text))
        for value, name in self._versions.items():
            if len(value) > 1:
                text = re.sub(rf"\b{value}\b", f"${{{name}}}", text)
        text = re.sub(r"(object meta: )\d+", r"\1<rv>", text)
        return re.sub(r'(\\?"resourceVersion\\?":\\?")\d+', r"\1<rv>", text)

    def _field(self, key: str, value: Any, owner: Mapping[str, Any], owner_key: str) -> Any:
        if key == "metadata" and isinstance(value, dict) and ("items" in owner or "rows" in owner):
            return {name: self._list_field(name, item) for name, item in value.items()}
        if isinstance(value, list) and key in ("cells", "clusterIPs"):
            return [self._cell(item, is_age=key == "cells") for item in value]
        if not isinstance(value, str):
            return self.value(value, key)
        return self._string_field(key, value, owner, owner_key)

    def _list_field(self, key: str, value: Any) -> Any:
        if key == "resourceVersion" and value.isdigit():
            return "<rv>"
        return ANYTHING if key == "continue" and value else self.value(value)

    def _string_field(self, key: str, value: str, owner: Mapping[str, Any], owner_key: str) -> str:
        if key == "resourceVersion" and value.isdigit() and value != "0":
            return f"${{{self._versions[value]}}}" if value in self._versions else "<rv>"
        if key == "message":
            return self._message(value)
        if key == "continue" and owner_key == "metadata" and value:
            return ANYTHING
        if key == "clusterIP":
            return str(self._cell(value, is_age=False))
        prefix = owner.get("generateName") if key == "name" and owner_key == "metadata" else None
        if prefix and value.startswith(prefix) and "${" not in self._text(value.removeprefix(prefix)):
            return self._text(prefix) + "<rand>"
        return self._text(value)

    def _cell(self, value: Any, *, is_age: bool) -> Any:
        if not isinstance(value, str):
            return self.value(value)
        if is_age and re.fullmatch(SHAPES["age"], value):
            return "<age>"
        return "<ip>" if re.fullmatch(SHAPES["ip"], value) and value not in self._sent else self._text(value)
