"""Laws of server-side apply, over random objects of a type with every kind of list and map."""

from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.machinery.fields import managed
from farflung.machinery.fields.shapes import no_reference
from farflung.machinery.patch.apply import apply
from farflung.machinery.schema.model import Schema

Obj = dict[str, Any]

LEAF = {"type": "string"}
THING = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "leaf": LEAF,
                    "struct": {"type": "object", "properties": {"a": LEAF, "b": LEAF}},
                    "map": {"type": "object", "additionalProperties": LEAF},
                    "whole": {"type": "array", "items": LEAF},
                    "set": {"type": "array", "items": LEAF, "x-kubernetes-list-type": "set"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "items": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": LEAF,
                                "value": LEAF,
                                "tags": {"type": "array", "items": LEAF, "x-kubernetes-list-type": "set"},
                            },
                        },
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                },
            }
        },
    },
    no_reference,
)

FEW = st.sampled_from("xyz")
SCALAR = st.sampled_from("12")
SOME_OF_A_SET = st.lists(FEW, unique=True, min_size=1)


def specs(scalar: st.SearchStrategy[str]) -> st.SearchStrategy[Obj]:
    """Specs without nulls and empty containers."""
    item = st.fixed_dictionaries({"name": FEW}, optional={"value": scalar, "tags": SOME_OF_A_SET})
    return st.fixed_dictionaries(
        {},
        optional={
            "leaf": scalar,
            "struct": st.dictionaries(st.sampled_from("ab"), scalar, min_size=1),
            "map": st.dictionaries(FEW, scalar, min_size=1),
            "whole": scalar.map(lambda value: [value]),
            "set": SOME_OF_A_SET,
            "free": st.dictionaries(FEW, st.dictionaries(FEW, scalar, min_size=1), min_size=1),
            "items": st.lists(item, unique_by=lambda one: one["name"], min_size=1),
        },
    )


SPECS = specs(SCALAR)
AGREEING = specs(st.just("1"))  #: no two of these are in conflict


def thing(spec: Obj) -> Obj:
    obj: Obj = {"apiVersion": "e/v1", "kind": "Thing", "metadata": {"name": "t"}}
    return {**obj, "spec": spec} if spec else obj


def applied(live: Obj | None, spec: Obj, by: str, *, force: bool = True, now: str = "now") -> Obj:
    return apply(live, thing(spec), THING, manager=by, force=force, api_version="e/v1", now=now)


def created(spec: Obj, by: str) -> Obj:
    obj = thing(spec)
    obj["metadata"]["managedFields"] = managed.after_update(
        obj, None, THING, manager=by, api_version="e/v1", now="then"
    )
    return obj


def unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unordered(item) for name, item in sorted(value.items()) if name != "managedFields"}
    return sorted(map(unordered, value), key=str) if isinstance(value, list) else value


def owners(obj: Obj) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"].get("managedFields", [])}


@settings(max_examples=examples(60))
@given(SPECS, SPECS)
def test_applying_twice_is_applying_once(base: Obj, spec: Obj) -> None:
    once = applied(created(base, "other"), spec, "one")
    assert applied(once, spec, "one", force=False, now="later") == once


@settings(max_examples=examples(60))
@given(SPECS, SPECS)
def test_what_is_applied_is_there_and_owned(base: Obj, spec: Obj) -> None:
    result = applied(created(base, "other"), spec, "one")
    again = applied(result, spec, "witness", force=False)
    assert unordered(again) == unordered(result)
    assert owners(again).get("witness") == owners(result).get("one")


@settings(max_examples=examples(60))
@given(AGREEING, AGREEING)
def test_giving_everything_up_removes_exactly_what_was_only_yours(base: Obj, spec: Obj) -> None:
    before = created(base, "other")
    after = applied(applied(before, spec, "one", force=False), {}, "one", force=False)
    assert unordered(after) == unordered(before)
    assert owners(after) == owners(before)


@settings(max_examples=examples(60))
@given(AGREEING, AGREEING, AGREEING)
def test_appliers_that_agree_commute(base: Obj, first: Obj, second: Obj) -> None:
    before = created(base, "other")
    one_way = applied(applied(before, first, "one", force=False), second, "two", force=False)
    other_way = applied(applied(before, second, "two", force=False), first, "one", force=False)
    assert unordered(one_way) == unordered(other_way)
    assert owners(one_way) == owners(other_way)


@settings(max_examples=examples(60))
@given(SPECS, SPECS, SPECS)
def test_a_later_configuration_replaces_an_earlier_one(base: Obj, first: Obj, second: Obj) -> None:
    """Nothing of the first is left that the second or another owner does not want."""
    live = applied(applied(None, first, "one"), base, "other", force=True)
    through = applied(live, second, "one")
    direct = applied(applied(None, base, "other"), second, "one")
    assert unordered(through) == unordered(direct)
    assert owners(through) == owners(direct)


@settings(max_examples=examples(60))
@given(SPECS, SPECS)
def test_a_create_and_applying_the_same_leave_nothing_unowned(base: Obj, spec: Obj) -> None:
    live = applied(applied(None, base, "one"), spec, "two")
    emptied = applied(applied(live, {}, "one"), {}, "two")
    assert emptied == thing({})
