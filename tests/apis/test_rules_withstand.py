"""Whatever fits the types of a kind, its rules neither fail on it nor disagree with themselves."""

import copy
from functools import cache
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis import definitions, wire
from farflung.apis.builtin import kinds as builtin
from farflung.apis.builtin.rules import rules_for
from farflung.apis.metadata import validate_metadata, validate_metadata_update
from farflung.apis.resource import Resource
from farflung.machinery.errors import Obj, invalid
from farflung.machinery.schema import conform, model
from farflung.machinery.schema.model import Schema

WRITABLE = [
    resource
    for resource in builtin.EVERYTHING
    if {"create", "update"} <= set(resource.verbs) and resource.group != "apiextensions.k8s.io"
]
TEXTS = st.sampled_from(
    ["", "a", "A b", "a.b.c", "x/y", "..", "é", "1", "*", "True", "Service", "User", "10.0.0.1", "::1"]
)
DEPTH = 6


def values(schema: Schema, depth: int = DEPTH) -> st.SearchStrategy[Any]:
    """Values that fit a type."""
    match schema.kind:
        case model.OBJECT:
            return objects(schema, depth)
        case model.MAP:
            return st.dictionaries(TEXTS, values(schema.values, depth - 1), max_size=2) if depth else st.just({})
        case model.LIST:
            return st.lists(values(schema.items, depth - 1), max_size=2) if depth else st.just([])
        case model.INTEGER:
            return st.sampled_from([-1, 0, 1, 15, 80, 70000])
        case model.NUMBER:
            return st.sampled_from([-1.5, 0.0, 2.0])
        case model.BOOLEAN:
            return st.booleans()
        case model.QUANTITY:
            return st.sampled_from(["0", "-1", "100m", "1Gi", "1.5"])
        case model.INT_OR_STRING:
            return st.sampled_from([-1, 0, 80, "http", "25%", "x y"])
        case model.ANY:
            return st.sampled_from([{}, {"a": 1}])
    return {
        "date-time": st.just("2020-01-01T00:00:00.000000Z"),
        "byte": st.sampled_from(["", "AAEC", "e30=", "W10="]),
    }.get(schema.format, TEXTS)


def objects(schema: Schema, depth: int) -> st.SearchStrategy[Obj]:
    if not depth:
        return st.just({})
    members = {name: schema.member(name) for name in schema.property_names}
    return st.fixed_dictionaries(
        {},
        optional={
            name: st.deferred(lambda m=member: values(m, depth - 1)) for name, member in members.items() if member
        },
    )


@cache
def strategy(name: str) -> st.SearchStrategy[Obj]:
    return objects(definitions.schema(name), DEPTH)


@cache
def conformer(name: str) -> conform.Conformer:
    return conform.compile(definitions.schema(name), wire.fields)


def conformed(resource: Resource, obj: Obj) -> Obj:
    obj["metadata"] = {
        "name": "a",
        **({"namespace": "n"} if resource.namespaced else {}),
        **(obj.get("metadata") or {}),
    }
    for member in ("creationTimestamp", "deletionTimestamp", "managedFields"):
        obj["metadata"].pop(member, None)
    return conformer(resource.definition).conform(obj).obj


@pytest.mark.slow
@pytest.mark.parametrize("resource", WRITABLE, ids=lambda resource: f"{resource.kind}.{resource.group}")
def test_rules_withstand_everything_that_has_the_right_types(resource: Resource) -> None:
    rules = rules_for(resource.group, resource.kind)

    @settings(max_examples=examples(20), database=None)
    @given(strategy(resource.definition), strategy(resource.definition))
    def withstand(first: Obj, second: Obj) -> None:
        old, new = conformed(resource, first), conformed(resource, second)
        for obj in (old, new):
            rules.default(obj)
        again = copy.deepcopy(old)
        rules.default(again)
        assert again == old, "defaulting twice changes nothing"
        rules.prepare_create(old)
        errors = validate_metadata(old, rules, namespaced=resource.namespaced)
        errors += rules.validate(old) + rules.validate_create(old)
        status = copy.deepcopy(new)
        rules.prepare_update(new, old)
        errors += validate_metadata_update(new, old) + rules.validate(new) + rules.validate_update(new, old)
        rules.prepare_status(status, old)
        errors += rules.validate_status(status, old)
        rules.warnings(new, old)
        assert invalid(resource.group, resource.kind, "a", errors).status()["code"] == 422

    withstand()
