"""What every answer to a hostile request must be, and how good requests become hostile ones."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

from hub_harness import Collector, LocalHub
from hypothesis import strategies as st

from farflung.http.messages import Request, Stream


async def ask(hub: LocalHub, request: Request) -> int:
    """The status of the answer, which is a good one in form."""
    before = hub.store.revision
    answer = hub.function(request)
    if isinstance(answer, Awaitable):
        answer = await answer
    if isinstance(answer, Stream):
        sink = Collector(answer.stop)
        answer.start(sink)
        answer.stop()
        for line in sink.data.splitlines():
            assert json.loads(line)["type"] in ("ADDED", "BOOKMARK", "ERROR", "MODIFIED", "DELETED")
        return answer.status
    body = await answer.read()
    for name, value in answer.headers:
        assert "\n" not in name + value
        assert "\r" not in name + value
    if answer.content_type == "application/json":
        parsed = json.loads(body)
        if answer.status >= 400:
            assert parsed["kind"] == "Status"
            assert parsed["code"] == answer.status
    if answer.status >= 400:
        assert hub.store.revision == before
    if answer.status == 501:
        assert b"it needs nodes" in body
    elif answer.status == 504:
        assert b"Too large resource version" in body
    else:
        assert answer.status < 500, body
    return answer.status


NUMBERS = st.sampled_from([0, 1, -1, 3, 80, 2**31, 2**63, -(2**63), 2**64, 10**400, 0.5, 1e300, -0.0])
TEXTS = st.sampled_from(
    ["", " ", "a", "default", "..", "/", "0", "1Gi", "2024-05-01T12:00:00Z", "\ud800", "\x00", "é" * 70]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def altered(draw: st.DrawFn, value: Any, depth: int = 8) -> Any:
    """The value with something in it changed, removed, added or moved."""
    if isinstance(value, dict) and value and depth and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(sorted(value)))
        rest = {key: item for key, item in value.items() if key != name}
        match draw(st.integers(0, 8)):
            case 0:
                return rest
            case 1:
                return {**value, draw(TEXTS | st.sampled_from(sorted(value))): draw(ANYTHING)}
            case 2:
                return {**value, name: draw(ANYTHING)}
            case _:
                return {**value, name: draw(altered(value[name], depth - 1))}
    if isinstance(value, list) and value and depth and draw(st.integers(0, 3)):
        position = draw(st.integers(0, len(value) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                return value[:position] + value[position + 1 :]
            case 1:
                return [*value, draw(ANYTHING)]
            case 2:
                return [*value, value[position]]
            case _:
                return [*value[:position], draw(altered(value[position], depth - 1)), *value[position + 1 :]]
    return draw(ANYTHING)


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with some changed, missing, repeated or added."""
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(raw)))
        match draw(st.integers(0, 5)):
            case 0:
                raw = raw[:position]
            case 1:
                raw = raw[:position] + draw(st.binary(max_size=6)) + raw[position:]
            case 2:
                raw = raw[:position] + raw[position + draw(st.integers(1, 9)) :]
            case 3:
                end = draw(st.integers(position, min(len(raw), position + 40)))
                raw = raw[:end] + raw[position:end] + raw[end:]
            case _:
                raw = raw[:position] + draw(st.binary(min_size=1, max_size=2)) + raw[position + 1 :]
    return raw
