"""Any set of policies decides as a naive reading of it does, before and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from examples import examples
from hub_harness import LocalHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from policies import BINDINGS, POLICIES, binding, policy, rule

from farflung.hub.catalog import objects

Labels = dict[str, str]

#: expression → what it is of (name, labels): a value, or None for an error
EXPRESSIONS: dict[str, Callable[[str, Labels], bool | None]] = {
    "true": lambda name, labels: True,
    "false": lambda name, labels: False,
    "object.metadata.name == 'a'": lambda name, labels: name == "a",
    "request.name != 'b'": lambda name, labels: name != "b",
    "has(object.metadata.labels) && 'x' in object.metadata.labels": lambda name, labels: "x" in labels,
    "object.metadata.labels['x'] == '1'": lambda name, labels: labels["x"] == "1" if "x" in labels else None,
    "variables.one == '1'": lambda name, labels: labels["x"] == "1" if "x" in labels else None,
    "variables.two || request.name == 'c'": lambda name, labels: (
        True if name == "c" or labels.get("x") == "1" else (False if "x" in labels else None)
    ),
}
VARIABLES = [
    {"name": "one", "expression": "object.metadata.labels['x']"},
    {"name": "two", "expression": "variables.one == '1'"},
]
PLURALS = ("configmaps", "secrets")


@dataclass(frozen=True)
class Bound:
    actions: tuple[str, ...]
    names: tuple[str, ...]
    selector: tuple[str, ...]  #: wanted values of the label x; none: everything


@dataclass(frozen=True)
class CustomKind:
    plurals: tuple[str, ...]
    operations: tuple[str, ...]
    excluded: tuple[str, ...]
    conditions: tuple[str, ...]
    validations: tuple[str, ...]
    fails: bool
    bindings: tuple[Bound, ...]


expressions = st.sampled_from(sorted(EXPRESSIONS))
conditions = st.sampled_from(sorted(text for text in EXPRESSIONS if "variables" not in text))
some_names = st.lists(st.sampled_from("abc"), unique=True, max_size=2).map(tuple)
bounds = st.builds(
    Bound,
    st.sampled_from([("Deny",), ("Warn",), ("Audit",), ("Deny", "Audit")]),
    some_names,
    st.lists(st.sampled_from("12"), unique=True, max_size=2).map(tuple),
)
policies = st.builds(
    CustomKind,
    st.lists(st.sampled_from((*PLURALS, "*")), unique=True, min_size=1, max_size=1).map(tuple),
    st.sampled_from([("*",), ("CREATE",), ("UPDATE",)]),
    some_names,
    st.lists(conditions, max_size=2).map(tuple),
    st.lists(expressions, min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.lists(bounds, max_size=3).map(tuple),
)
requests = st.tuples(
    st.sampled_from(PLURALS), st.sampled_from("abc"), st.sampled_from([{}, {"x": "1"}, {"x": "2"}, {"y": "1"}])
)


def objections(one: CustomKind, name: str, labels: Labels) -> int:
    held = [EXPRESSIONS[text](name, labels) for text in one.conditions]
    if False in held:
        return 0
    if None in held:
        return 1 if one.fails else 0
    values = [EXPRESSIONS[text](name, labels) for text in one.validations]
    return sum(value is False or (value is None and one.fails) for value in values)


def expected(described: list[CustomKind], plural: str, name: str, labels: Labels) -> tuple[str, int]:
    """The policy and binding that refuse a creation, and the number of warnings."""
    refuser, warnings = "", set()
    for index, one in enumerate(described):
        if not {plural, "*"} & set(one.plurals) or not {"CREATE", "*"} & set(one.operations) or name in one.excluded:
            continue
        for at, bound in enumerate(one.bindings):
            if (bound.names and name not in bound.names) or (bound.selector and labels.get("x") not in bound.selector):
                continue
            count = objections(one, name, labels)
            if count and "Deny" in bound.actions:
                refuser = refuser or f"ValidatingAdmissionPolicy 'p{index}' with binding 'p{index}-{at}'"
            if count and "Warn" in bound.actions:
                warnings.add((index, at))
    return refuser, len(warnings)


async def write(hub: LocalHub, described: list[CustomKind]) -> None:
    for index, one in enumerate(described):
        match: dict[str, Any] = {"resourceRules": [rule(*one.plurals, operations=one.operations)]}
        if one.excluded:
            match["excludeResourceRules"] = [rule("*", resourceNames=list(one.excluded))]
        spec: dict[str, Any] = {"variables": VARIABLES, "failurePolicy": "Fail" if one.fails else "Ignore"}
        spec["matchConditions"] = [
            {"name": f"c{at}", "expression": expression} for at, expression in enumerate(one.conditions)
        ]
        await hub.create(POLICIES, policy(f"p{index}", *one.validations, match=match, **spec))
        for at, bound in enumerate(one.bindings):
            resources: dict[str, Any] = {}
            if bound.names:
                resources["resourceRules"] = [rule("*", resourceNames=list(bound.names))]
            if bound.selector:
                wanted = {"key": "x", "operator": "In", "values": list(bound.selector)}
                resources["objectSelector"] = {"matchExpressions": [wanted]}
            await hub.create(BINDINGS, binding(f"p{index}-{at}", f"p{index}", *bound.actions, matchResources=resources))


async def decided(hub: LocalHub, plural: str, name: str, labels: Labels) -> tuple[str, set[str]]:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    answer = await hub.post(f"/api/v1/namespaces/default/{plural}", {"metadata": metadata}, {"dryRun": "All"})
    warned = {warning.rpartition("': ")[0] for warning in answer.warnings}
    if answer.status == 201:
        return "", warned
    assert answer.status == 422, answer.body
    return answer.message.partition(" is forbidden: ")[2].partition(" denied")[0], warned


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(policies, max_size=4), st.lists(requests, min_size=1, max_size=6))
def test_a_set_of_policies_decides_as_a_naive_reading_does(
    described: list[CustomKind], asked: list[tuple[str, str, Labels]]
) -> None:
    async def check() -> None:
        store = MemoryStore(stamp=objects.stamp)
        hub = await LocalHub(store).furnish()
        await write(hub, described)
        again = LocalHub(store)
        for plural, name, labels in asked:
            refuser, warnings = await decided(hub, plural, name, labels)
            assert (refuser, len(warnings)) == expected(described, plural, name, labels)
            assert await decided(again, plural, name, labels) == (refuser, warnings)

    asyncio.run(check())
