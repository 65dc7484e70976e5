"""Whether rules allow what others do, against a twin that counts every combination out."""

from __future__ import annotations

import rbac_twin as twin
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.auth import escalation
from farflung.hub.auth.escalation import describe_uncovered, uncovered
from farflung.hub.auth.rbac import rule_of
from farflung.machinery.errors import Obj

Atom = tuple[str, ...]


def atoms(rule: Obj) -> set[Atom]:
    """(group, resource, verb, name) or (path, verb)."""
    if "nonResourceURLs" in rule:
        return {(path, verb) for path in rule["nonResourceURLs"] for verb in rule["verbs"]}
    return {
        (group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    }


def covers(owner: Obj, atom: Atom, *, named: bool) -> bool:
    def has(words: list[str], word: str) -> bool:
        return "*" in words or word in words

    if len(atom) == 2:
        path, verb = atom
        urls = owner.get("nonResourceURLs", ())
        covered = any(url == path or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls)
        return covered and has(owner["verbs"], verb)
    group, resource, verb, name = atom
    resources, names = owner.get("resources", []), owner.get("resourceNames")
    _, slash, subresource = resource.partition("/")
    return (
        has(owner.get("apiGroups", []), group)
        and (has(resources, resource) or bool(slash and f"*/{subresource}" in resources))
        and has(owner["verbs"], verb)
        and (not names or (named and name in names))
    )


rule_lists = st.lists(st.one_of(twin.resource_rules(), twin.path_rules()), max_size=5)


@given(rule_lists, rule_lists)
def test_what_is_missing_is_what_no_single_rule_covers(owned: list[Obj], wanted: list[Obj]) -> None:
    expected = [
        {atom for atom in atoms(rule) if not any(covers(one, atom, named="resourceNames" in rule) for one in owned)}
        for rule in wanted
    ]

    found = uncovered([rule_of(rule) for rule in owned], [rule_of(rule) for rule in wanted])

    left = [set() if not boxes else set.union(*map(all_of, boxes)) for _, boxes in found]
    assert left == [one for one in expected if one]


def all_of(box: escalation.Box) -> set[Atom]:
    combined: set[Atom] = {()}
    for side in box:
        combined = {(*atom, word) for atom in combined for word in side}
    return combined


@given(rule_lists)
def test_rules_cover_themselves(rules: list[Obj]) -> None:
    compiled = [rule_of(rule) for rule in rules]

    assert uncovered(compiled, compiled) == []


@given(rule_lists, rule_lists, twin.requests())
def test_nothing_is_allowed_by_covered_rules_that_is_not_allowed_by_the_others(
    owned: list[Obj], wanted: list[Obj], asked: twin.Attributes
) -> None:
    """What coverage is for.  It looks at words, not at meanings: a star in a rule is covered by a star alone."""
    if not uncovered([rule_of(rule) for rule in owned], [rule_of(rule) for rule in wanted]):
        given = any(twin.rule_allows(rule, asked) for rule in wanted)
        assert not given or any(twin.rule_allows(rule, asked) for rule in owned)


def test_missing_rights_are_listed_by_resource_with_ordered_verbs() -> None:
    owned = [rule_of({"verbs": ["list"], "apiGroups": ["*"], "resources": ["pods"]})]
    wanted = [
        {"verbs": ["watch", "list", "get"], "apiGroups": [""], "resources": ["pods", "secrets"]},
        {"verbs": ["delete"], "apiGroups": [""], "resources": ["secrets"]},
        {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["b", "a"]},
        {"verbs": ["get", "put"], "nonResourceURLs": ["/x/*"]},
    ]

    assert describe_uncovered(uncovered(owned, [rule_of(rule) for rule in wanted])) == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch" "get"]}',
        '{APIGroups:[""], Resources:["secrets"], Verbs:["watch" "list" "get" "delete"]}',
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["get"]}',
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["b"], Verbs:["get"]}',
        '{NonResourceURLs:["/x/*"], Verbs:["get"]}',
        '{NonResourceURLs:["/x/*"], Verbs:["put"]}',
    ]


def test_rules_that_are_made_to_be_expensive_are_not_covered_and_not_listed_in_full() -> None:
    words = [f"w{number}" for number in range(3000)]
    wanted = rule_of({"verbs": words, "apiGroups": words, "resources": words, "resourceNames": words})
    owned = [
        rule_of({"verbs": [word], "apiGroups": words, "resources": words, "resourceNames": words})
        for word in words[:100]
    ]

    lacking = uncovered(owned, [wanted])

    assert lacking
    assert len(describe_uncovered(lacking)) <= escalation.MAX_LINES
