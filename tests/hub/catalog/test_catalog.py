"""Finding resources, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.resource import Resource
from farflung.machinery.names import version_order


def thing(group: str = "example.com", version: str = "v1", plural: str = "things", kind: str = "Thing") -> Resource:
    return Resource(group, version, plural, kind, True, "", singular=kind.lower(), list_kind=f"{kind}List", custom=True)


def test_a_resource_is_found_by_group_version_and_plural():
    catalog = Catalog(BUILTIN)
    pods = catalog.find("", "v1", "pods")
    assert pods is not None
    assert pods.kind == "Pod"
    assert catalog.find("apps", "v1", "pods") is None
    assert catalog.find("apps", "v2", "deployments") is None


def test_a_catalogue_lists_all_its_resources():
    catalog = Catalog(BUILTIN)
    assert len(catalog) == len(BUILTIN)
    assert set(map(id, catalog)) == set(map(id, BUILTIN))


def test_custom_groups_come_after_the_built_in_ones_by_the_alphabet():
    catalog = Catalog([thing("b.example.com"), thing("a.example.com"), *BUILTIN])
    assert catalog.groups[0] == ""
    assert catalog.groups[-2:] == ("a.example.com", "b.example.com")


def test_the_preferred_version_is_the_first():
    assert Catalog(BUILTIN).versions("autoscaling") == ("v2", "v1")
    assert Catalog(BUILTIN).versions("nope") == ()


def test_resources_of_a_version_are_sorted_by_name():
    catalog = Catalog([thing(plural="zebras"), thing(plural="apes")])
    assert [one.plural for one in catalog.resources("example.com", "v1")] == ["apes", "zebras"]
    assert catalog.resources("example.com", "v2") == ()


def test_the_later_of_two_resources_with_one_path_wins():
    first, second = thing(kind="First"), thing(kind="Second")
    catalog = Catalog([first, second])
    assert catalog.find("example.com", "v1", "things") is second
    assert catalog.resources("example.com", "v1") == (second,)


def test_an_empty_catalogue_has_no_groups():
    assert not Catalog([]).has_group("")
    assert Catalog([]).groups == ()


def test_versions_are_ordered_by_stability_and_then_by_number():
    expected = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10", "v0"]
    versions = list(reversed(expected))
    versions.sort(key=version_order)
    assert versions == expected


@pytest.mark.parametrize("version", ["v01", "v1beta", "v1gamma1", "V1", "v1 ", "v1\n", "v¹", ""])
def test_names_that_only_look_like_versions_are_last(version):
    assert sorted([version, "v1alpha1"], key=version_order) == ["v1alpha1", version]


@given(st.lists(st.text(max_size=12)))
def test_any_versions_can_be_ordered(versions):
    assert sorted(versions, key=version_order) == sorted(sorted(versions), key=version_order)
