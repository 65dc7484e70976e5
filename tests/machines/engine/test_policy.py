"""Policy files, in the format of the original."""

from __future__ import annotations

import re

import pytest

from farflung.machines.engine.policy import PolicyError, default_policy, read_policy
from farflung.machines.engine.values import LabelRule, RegionChoice, SiteSelector

SHIPPED = """
predicates:
  - name: SiteAvailability
  - name: LocationAndOperator
  - name: regionandaz
  - name: Flavor
    argument: {labelsPresence: {labels: [a], presence: true}}
  - name: Volume
  - name: EipAvailability
  - name: ExclusiveSite
priorities:
  - {name: StackAffinity, weight: 1}
  - {name: Flavor, weight: 5}
  - {name: SiteResourcesLeastAllocated, weight: 0}
"""


def test_the_policy_that_the_original_ships_is_understood() -> None:
    policy = read_policy(SHIPPED)
    assert policy.filters == default_policy().filters[:7]
    assert policy.scorers == (("StackAffinity", 1), ("Flavor", 5), ("SiteResourcesLeastAllocated", 1))


FIRST = (
    SHIPPED.replace("SiteAvailability", "NodeAvailability")
    .replace("ExclusiveSite", "ExclusiveNode")
    .replace("SiteResourcesLeast", "NodeResourcesLeast")
)


def test_the_policy_of_the_first_version_says_the_same_in_other_words() -> None:
    assert FIRST.count("Node") == 3
    assert read_policy(FIRST) == read_policy(SHIPPED)
    assert read_policy("predicates: [{name: NodeResourcesFit}]").filters == ("SiteResourcesFit",)


def test_a_policy_knows_which_wishes_it_overlooks() -> None:
    wishes = SiteSelector(regions=(RegionChoice("region1"),), affinity=(LabelRule("app", "exists"),), site="az1")
    assert read_policy("{}").overlooked(wishes) == {"regions": "regionandaz", "affinity": "StackAffinity"}
    assert not default_policy().overlooked(wishes)
    assert not read_policy("{}").overlooked(SiteSelector())


def test_a_policy_may_have_nothing_to_say() -> None:
    policy = read_policy("predicates:\npriorities: []")
    assert (policy.filters, policy.scorers) == ((), ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("predicates: [{name: Luck}]", "unknown plugin 'Luck'"),
        ("predicates: 2024-13-45", "predicates is not a list"),
        (f"predicates: {'9' * 5000}", "predicates is not a list"),
        ("predicates: [{name: Price}]", "unknown plugin 'Price'"),
        ("priorities: [{name: ExclusiveSite}]", "unknown plugin 'ExclusiveSite'"),
        ("predicates: [{name: Flavor}, {name: Flavor}]", "predicates names Flavor twice"),
        ("predicates: [{name: ExclusiveNode}, {name: ExclusiveSite}]", "predicates names ExclusiveSite twice"),
        ("priorities: [{name: NodeAvailability}]", "unknown plugin 'NodeAvailability'"),
        ("priorities: [{name: Flavor}, {name: Flavor, weight: 2}]", "priorities names Flavor twice"),
        ("priorities: [{name: Flavor, weight: -1}]", "the weight of Flavor is -1"),
        ("priorities: [{name: Flavor, weight: high}]", "the weight of Flavor is 'high'"),
        ("priorities: [{name: Flavor, weight: true}]", "the weight of Flavor is True"),
        (f"priorities: [{{name: Flavor, weight: {2**60}}}]", "are too large"),
        ("predicates: Flavor", "predicates is not a list"),
        ("predicates: [Flavor]", "predicates is not a list"),
        ("predicates: [{}]", "unknown plugin None"),
        ("predicats: [{name: Flavor}]", "the file has the unknown key 'predicats'; did you mean predicates?"),
        ("priorites: []", "the file has the unknown key 'priorites'; did you mean priorities?"),
        ("{1: [], predicates: []}", "the file has the unknown key '1'; allowed are predicates, priorities"),
        (
            "predicates: [{name: Flavor}, {nmae: Flavor}]",
            "predicates[1] has the unknown key 'nmae'; did you mean name?",
        ),
        ("predicates: [{name: Flavor, weight: 1}]", "'weight'; allowed are name, argument"),
        ("priorities: [{name: Flavor, weigth: 3}]", "priorities[0] has the unknown key 'weigth'; did you mean weight?"),
        ("[]", "neither predicates nor priorities"),
        ("{", "not YAML"),
        ("predicates: []\npriorities: []\npredicates: [{name: Flavor}]", 'line 3: key "predicates" already set in map'),
        ("predicates: [{name: [a]}]", "unknown plugin"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(text: str, why: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(why)):
        read_policy(text)
