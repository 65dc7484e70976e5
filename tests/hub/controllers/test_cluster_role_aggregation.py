"""ClusterRoles that are made of others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from examples import examples
from house import House
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.machinery.errors import Obj

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def rule(*resources: str) -> Obj:
    return {"verbs": ["get"], "apiGroups": [""], "resources": list(resources)}


def labelled(name: str, *labels: str, rules: list[Obj] | None = None, of: tuple[str, ...] = ()) -> Obj:
    """A role with some labels; made of those that have one of the labels `of`."""
    role: Obj = {"metadata": {"name": name, "labels": dict.fromkeys(labels, "true")}, "rules": rules or []}
    if of:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}} for label in of]}
    return role


async def rules_of(house: House, name: str) -> list[Any]:
    await house.settle()
    return [one["resources"][0] for one in (await house.get("clusterroles", name))["rules"] or []]


async def test_rules_come_by_selector_and_name_and_each_of_them_once(house: House) -> None:
    for role in (
        labelled("b", "x", rules=[rule("pods"), rule("nodes")]),
        labelled("whole", of=("x", "y")),
        labelled("a", "y", rules=[rule("secrets"), rule("pods")]),
        labelled("c", "x", rules=[rule("events")]),
        labelled("apart", "z", rules=[rule("services")]),
    ):
        await house.client.request("POST", ROLES, role)

    assert await rules_of(house, "whole") == ["pods", "nodes", "events", "secrets"]
    role = await house.get("clusterroles", "whole")
    assert [(one["manager"], one["operation"]) for one in role["metadata"]["managedFields"]] == [
        ("clusterrole-aggregation-controller", "Apply"),
        ("test", "Update"),
    ]


async def test_they_follow_what_happens_to_their_parts(house: House) -> None:
    await house.client.request("POST", ROLES, labelled("whole", of=("x",)))
    await house.client.request("POST", ROLES, labelled("a", "x", rules=[rule("pods")]))
    await house.client.request("POST", ROLES, labelled("b", rules=[rule("nodes")]))
    assert await rules_of(house, "whole") == ["pods"]

    await house.patch("clusterroles", "b", {"metadata": {"labels": {"x": "true"}}})
    assert await rules_of(house, "whole") == ["pods", "nodes"]
    await house.patch("clusterroles", "a", {"rules": [rule("events")]})
    assert await rules_of(house, "whole") == ["events", "nodes"]
    await house.patch("clusterroles", "b", {"metadata": {"labels": {"x": "false"}}})
    assert await rules_of(house, "whole") == ["events"]
    await house.patch("clusterroles", "whole", {"rules": [rule("everything")]})
    assert await rules_of(house, "whole") == ["events"]
    await house.delete("clusterroles", "a")
    assert await rules_of(house, "whole") == []


async def test_a_change_that_makes_no_difference_writes_nothing(house: House) -> None:
    await house.client.request("POST", ROLES, labelled("whole", of=("x",)))
    await house.client.request("POST", ROLES, labelled("a", "x", rules=[rule("pods")]))
    await house.settle()
    before = (await house.get("clusterroles", "whole"))["metadata"]["resourceVersion"]

    await house.client.request("POST", ROLES, labelled("b", "x", rules=[rule("pods")]))
    await house.settle()

    assert (await house.get("clusterroles", "whole"))["metadata"]["resourceVersion"] == before


async def test_expressions_select_too(house: House) -> None:
    expressions = [{"key": "team", "operator": "In", "values": ["a", "b"]}, {"key": "off", "operator": "DoesNotExist"}]
    role = labelled("whole")
    role["aggregationRule"] = {"clusterRoleSelectors": [{"matchExpressions": expressions}]}
    await house.client.request("POST", ROLES, role)
    for name, labels in {"one": {"team": "a"}, "two": {"team": "b", "off": ""}, "three": {"team": "c"}}.items():
        controller = {"metadata": {"name": name, "labels": labels}, "rules": [rule(name)]}
        await house.client.request("POST", ROLES, controller)

    assert await rules_of(house, "whole") == ["one"]


async def test_roles_that_contain_each_other_come_to_rest(house: House) -> None:
    for at, name in enumerate("abc"):
        role = labelled(name, f"in{(at + 1) % 3}", rules=[rule(name)], of=(f"in{at}",))
        await house.client.request("POST", ROLES, role)
    await house.client.request("POST", ROLES, labelled("leaf", "in0", rules=[rule("pods")]))

    assert [await rules_of(house, name) for name in "abc"] == [["pods"]] * 3


# --- against a twin -------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d"]
LABELS = ["x", "y"]
roles = st.builds(
    lambda name, labels, resources, of: labelled(name, *labels, rules=[rule(one) for one in resources], of=tuple(of)),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(LABELS), max_size=2, unique=True),
    st.lists(st.sampled_from(["pods", "nodes", "events"]), max_size=2, unique=True),
    st.one_of(st.just([]), st.lists(st.sampled_from(LABELS), min_size=1, max_size=2, unique=True)),
)
steps = st.one_of(roles, roles, st.sampled_from(NAMES), st.integers(0, 4))


def expected(present: dict[str, Obj], name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The resources of a role: its own, or those of its parts, which are taken apart in turn."""
    role = present[name]
    if "aggregationRule" not in role:
        yield from (one["resources"][0] for one in role["rules"])
        return
    for selector in role["aggregationRule"]["clusterRoleSelectors"]:
        [label] = selector["matchLabels"]
        for controller in sorted(present):
            if label in present[controller]["metadata"]["labels"] and controller not in seen | {name}:
                yield from expected(present, controller, seen | {name})


@settings(max_examples=examples(40))
@given(st.lists(steps, max_size=14))
def test_after_any_history_and_stops_the_aggregated_roles_are_complete(history: list[Any]) -> None:
    async def run() -> None:
        async with House() as house:
            present: dict[str, Obj] = {}
            for step in history:
                if isinstance(step, int):
                    await house.restart(after=step)
                elif isinstance(step, str):
                    if present.pop(step, None) is not None:
                        await house.delete("clusterroles", step)
                else:
                    name = step["metadata"]["name"]
                    await house.client.request("PUT", f"{ROLES}/{name}", step)
                    present[name] = step
            await house.settle()
            for name in present:
                assert await rules_of(house, name) == list(dict.fromkeys(expected(present, name)))

    asyncio.run(run())


@pytest.mark.parametrize("count", [200])
async def test_many_parts_are_gathered_in_few_writes(house: House, count: int) -> None:
    await house.client.request("POST", ROLES, labelled("whole", of=("x",)))
    await house.settle()
    before = house.store.revision

    parts = [labelled(f"p{number:03}", "x", rules=[rule(f"r{number:03}")]) for number in range(count)]
    await asyncio.gather(*(house.client.request("POST", ROLES, controller) for controller in parts))

    assert len(await rules_of(house, "whole")) == count
    assert house.store.revision - before < count + 50
