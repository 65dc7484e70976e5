"""Whatever a question says and whatever a cluster returns: it is answered or refused, and neither is large."""

from __future__ import annotations

from typing import Any

import orjson
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.collector_results import LARGEST_RESULT, CollectorResult
from farflung.controllers.status_summarizer.collectors import InvalidQueryError, parse_query
from farflung.controllers.status_summarizer.health import DestinationRow
from farflung.placement.types import CopyDestination

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
)
KEYS = st.sampled_from(["a", "b", "status", "name", ""])
JSON = st.recursive(SCALARS, lambda part: st.lists(part, max_size=4) | st.dictionaries(KEYS, part, max_size=4))

EXPRESSIONS = [
    "returned",
    "returned.status.a",
    "returned.?status.?a",
    "returned.status.map(x, x)",
    "[returned.status, returned.status].map(x, [x, x, x, x])",
    "returned.status.a + returned.status.b",
    "returned.status.a < returned.status.b",
    "double(returned.status.a) / 3.0",
    "string(returned.status.a)",
    "returned.status.a.size() * 1000",
    "returned.status.a == returned.status.b ? returned.status : obj",
    "propagation.lastReturnedUpdateTimestamp",
]
SELECTING = parse_query({"select": [{"name": str(at), "def": text} for at, text in enumerate(EXPRESSIONS)]})
EACH = [parse_query({"select": [{"name": "it", "def": text}]}) for text in EXPRESSIONS]
COMBINING = [
    parse_query(
        {
            "groupBy": [{"name": "group", "def": text}],
            "combinedFields": [
                {"name": kind, "type": kind, "subject": "returned.status.a"} for kind in ("SUM", "AVG", "MIN", "MAX")
            ],
        }
    )
    for text in EXPRESSIONS[:3]
]

SPECS = st.fixed_dictionaries(
    {},
    optional={
        "filter": JSON | st.sampled_from(EXPRESSIONS),
        "select": JSON | st.lists(st.fixed_dictionaries({"name": JSON, "def": JSON | st.sampled_from(EXPRESSIONS)})),
        "groupBy": JSON | st.lists(st.fixed_dictionaries({"name": st.text(), "def": st.text()})),
        "combinedFields": JSON | st.lists(st.fixed_dictionaries({"name": JSON, "type": JSON, "subject": JSON})),
        "limit": JSON,
    },
)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(JSON, JSON, st.text(max_size=3)), max_size=4))
def test_whatever_is_returned_an_answer_is_json_of_bounded_size(found: list[tuple[Any, Any, str]]) -> None:
    for question in (SELECTING, *EACH, *COMBINING):
        answering = CollectorResult("it", question)
        for at, (returned, obj, when) in enumerate(found):
            propagation = {"lastReturnedUpdateTimestamp": when, "stale": False}
            given = {"inventory": {}, "obj": obj, "returned": {"status": returned}, "propagation": propagation}
            answering.put(f"m{at}", DestinationRow(CopyDestination("c", "l", f"t{at}"), given))
        written = orjson.dumps(answering.body())
        assert len(written) <= LARGEST_RESULT + 20 * 2048
        for at in range(len(found)):
            answering.remove(f"m{at}")
        assert "errors" not in answering.body()


@settings(max_examples=examples(60))
@given(SPECS)
def test_whatever_is_asked_is_understood_or_refused_in_words(spec: dict[str, Any]) -> None:
    try:
        parse_query(spec)
    except InvalidQueryError as error:
        assert error.errors
        assert all(each.startswith("spec") and len(each) <= 1024 for each in error.errors)
