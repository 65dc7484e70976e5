"""Answers for people are indented, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hub_harness import CONFIG_MAPS, LocalHub
from hypothesis import given
from hypothesis import strategies as st

from farflung.http.messages import Response, StreamedBody
from farflung.hub.request.indentation import Indentation, indented

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.integers(1, 9))
def test_a_document_in_pieces_is_indented_as_a_whole_one(value: Any, size: int) -> None:
    compact = orjson.dumps(value)
    indentation = Indentation()
    pieces = [indentation.add(compact[start : start + size]) for start in range(0, len(compact), size)]
    assert b"".join([*pieces, indentation.end()]) == orjson.dumps(value, option=orjson.OPT_INDENT_2)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_large_body_is_indented_while_its_client_reads_it(streamed: bool) -> None:
    value = {"items": [{"data": {"x": "y" * 3000}, "number": number} for number in range(200)]}
    compact = orjson.dumps(value)
    piece: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    piece.set_result(compact[100_000:])
    pieces = (compact[:70_000], memoryview(compact)[70_000:100_000], piece)
    body = StreamedBody(lambda holder: iter(pieces), len(compact))
    answer = indented(Response(200, body if streamed else compact))
    assert isinstance(answer.body, StreamedBody)
    assert answer.body.size is None
    assert await answer.read() == orjson.dumps(value, option=orjson.OPT_INDENT_2)


@pytest.mark.parametrize(
    ("query", "agent", "is_indented"),
    [
        ("", "curl/8.5.0", True),
        ("", "Wget/1.21", True),
        ("", "Mozilla/5.0 (X11; Linux x86_64)", True),
        ("", "kubectl/v1.33.0", False),
        ("pretty=true", "kubectl/v1.33.0", True),
        ("pretty=1", "", True),
        ("pretty=false", "curl/8.5.0", False),
        ("pretty=yes", "curl/8.5.0", False),
        ("pretty=", "curl/8.5.0", True),
    ],
)
async def test_json_is_indented_for_people(hub: LocalHub, query: str, agent: str, is_indented: bool) -> None:
    await hub.config_map("a", x="1")
    for path in (f"{CONFIG_MAPS}/a", CONFIG_MAPS, f"{CONFIG_MAPS}/none", "/api"):
        answer = await hub.request("GET", path, query=query, **{"user-agent": agent})
        assert answer.body.startswith(b'{\n  "kind": ' if is_indented else b'{"kind":')


async def test_yaml_stays_as_it_is(hub: LocalHub) -> None:
    await hub.config_map("a", x="1")
    answer = await hub.request("GET", f"{CONFIG_MAPS}/a", query="pretty=true", accept="application/yaml")
    assert answer.body.startswith(b"apiVersion: v1\n")
