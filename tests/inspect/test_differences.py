"""What differs between two objects: everything that does, and never a value of a Secret."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.cli.plan_output import line
from farflung.inspect.differences import differences
from farflung.inspect.results import as_document
from farflung.machinery.errors import Obj

KEYS = st.sampled_from(["a", "b-c", "d.e", 'f"g'])
LEAVES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
STEP = re.compile(r"\.?([A-Za-z_][\w-]*)|\[([^\]]*)\]")


def obj(spec: Any, kind: str = "Thing", **metadata: Any) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec}


def steps(path: str) -> list[Any]:
    return [name or orjson.loads(quoted) for name, quoted in STEP.findall(path)]


def changed(before: Any, found: list[Obj]) -> Any:
    """With all differences: what has to be removed from lists last goes first."""
    after = deepcopy(before)
    for one in [
        *(each for each in found if "after" in each),
        *(each for each in reversed(found) if "after" not in each),
    ]:
        *way, last = steps(one["path"])
        at = after
        for step in way:
            at = at[step]
        if "after" not in one:
            del at[last]
        elif isinstance(at, list) and last == len(at):
            at.append(one["after"])
        else:
            at[last] = one["after"]
    return after


@example([True], [1])
@given(VALUES, VALUES)
def test_the_differences_lead_from_the_one_to_the_other(before: Any, after: Any) -> None:
    found = differences(obj(before), obj(after))
    assert _alike(changed(obj(before), as_document(found))["spec"], after)
    assert all(line(one) for one in found)


def _alike(one: Any, other: Any) -> bool:
    """But for the order of keys."""
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


@given(st.dictionaries(KEYS, st.just("hidden")), st.dictionaries(KEYS, st.sampled_from(["hidden", "hidden too"])))
def test_of_a_secret_there_are_only_keys(before: dict[str, str], after: dict[str, str]) -> None:
    found = differences(obj(None, "Secret") | {"data": before}, obj(None, "Secret") | {"data": after})
    assert bool(found) == (before != after)
    assert "hidden" not in "".join(map(line, found)) + str(found)


def test_what_we_or_kubectl_note_is_no_difference() -> None:
    noted = {"edge.kcp.io/projection": "{}", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert differences(obj(1), obj(1, annotations=noted, uid="u", resourceVersion="7")) == []


def test_lines_say_what_is_added_changed_and_removed() -> None:
    before, after = obj({"a": 1, "b": [1], "c": "x" * 200}), obj({"a": 2, "b": [1, {"d": None}]})
    assert [line(one) for one in differences(before, after)] == [
        "spec.a: 1 → 2",
        'spec.b[1]: {"d":null} added',
        f'spec.c: "{"x" * 99}… removed',
    ]
