"""Summaries have good names that differ, and there are some of what has a status."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.controllers.status_summarizer.decide import (
    Summarized,
    is_summarized,
    summary_labels,
    summary_name,
    summary_namespace,
)
from farflung.machinery.names import dns_subdomain, label_value
from farflung.placement.names import GroupResource, ObjectRef

DEPLOYMENTS = GroupResource("apps", "deployments")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")
PODS = GroupResource("", "pods")
ROLES = GroupResource("rbac.authorization.k8s.io", "roles")
WIDGETS = GroupResource("example.com", "widgets")
NEVER, ALWAYS, IF_REPORTING = Summarized.NEVER, Summarized.ALWAYS, Summarized.IF_REPORTING


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "resource", "name", "expected"),
    [
        ("edge-placement-s", DEPLOYMENTS, "speciald", "edge-placement-s.deployments.apps.speciald"),
        ("all", PODS, "one", "all.pods.one"),
        ("all", WIDGETS, "one", "all.widgets.example.com.one"),
    ],
)
def test_a_summary_is_called_after_its_placement_and_its_object(
    placement: str, resource: GroupResource, name: str, expected: str
) -> None:
    assert summary_name(placement, ObjectRef(resource, "default", name)) == expected


def test_a_name_that_is_too_long_is_cut_and_has_a_hash_of_the_whole_one() -> None:
    full = f"all.pods.{'x' * 250}"
    name = summary_name("all", ObjectRef(PODS, "default", "x" * 250))
    assert name == f"{full[:242]}-{hashlib.sha256(full.encode()).hexdigest()[:10]}"
    assert len(name) == 253


def test_a_name_that_just_fits_is_not_cut() -> None:
    assert summary_name("all", ObjectRef(PODS, "default", "x" * 244)) == f"all.pods.{'x' * 244}"


def test_what_no_name_may_hold_is_replaced() -> None:
    assert summary_name("all", ObjectRef(ROLES, "", "System:Node_x")).startswith(
        "all.roles.rbac.authorization.k8s.io.system-node-x-"
    )


def test_dots_do_not_make_two_objects_share_a_summary() -> None:
    named = [
        summary_name("a", ObjectRef(PODS, "default", "pods.b")),
        summary_name("a.pods", ObjectRef(PODS, "default", "b")),
        summary_name("a", ObjectRef(GroupResource("pods", "pods"), "default", "b")),
        summary_name("a", ObjectRef(DEPLOYMENTS, "default", "my.app")),
        summary_name("a", ObjectRef(GroupResource("apps.my", "deployments"), "default", "app")),
    ]
    assert len(set(named)) == len(named)


words = st.text(st.sampled_from("abz09AZ-.:_/ äß\n"), min_size=1, max_size=12) | st.text(min_size=1, max_size=300)
plain_words = st.text("ab-.", min_size=1, max_size=4).filter(lambda text: not dns_subdomain(text))
kinds = st.sampled_from([DEPLOYMENTS, PODS, ROLES, WIDGETS, GroupResource("b", "pods"), GroupResource("b.a", "pods")])


@given(words, kinds, words)
def test_names_and_labels_are_always_good(placement: str, resource: GroupResource, name: str) -> None:
    ref = ObjectRef(resource, "", name)
    assert not dns_subdomain(summary_name(placement, ref))
    assert not [value for value in summary_labels(placement, ref).values() if label_value(value)]


@given(*[st.tuples(plain_words | words, kinds, plain_words | words)] * 2)
def test_other_objects_have_other_summaries(
    one: tuple[str, GroupResource, str], other: tuple[str, GroupResource, str]
) -> None:
    names = [summary_name(placement, ObjectRef(resource, "", name)) for placement, resource, name in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_a_summary_is_where_its_object_is() -> None:
    assert summary_namespace(ObjectRef(PODS, "default", "one")) == "default"
    assert summary_namespace(ObjectRef(WIDGETS, "", "one")) == "edge-status"


def test_labels_tell_what_a_summary_is_about() -> None:
    assert summary_labels("edge-placement-s", ObjectRef(DEPLOYMENTS, "specialstuff", "speciald")) == {
        "edge.kcp.io/summary-placement": "edge-placement-s",
        "edge.kcp.io/summary-group": "apps",
        "edge.kcp.io/summary-resource": "deployments",
        "edge.kcp.io/summary-name": "speciald",
    }


def test_a_label_has_the_beginning_and_a_hash_of_what_does_not_fit() -> None:
    long = [f"{'x' * 80}{end}" for end in "ab"]
    found = [summary_labels("all", ObjectRef(PODS, "", name))["edge.kcp.io/summary-name"] for name in long]
    assert found[0] != found[1]
    assert all(len(value) == 63 and value.startswith("x" * 52 + "-") for value in found)


# --- which objects --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "builtin", "expected"),
    [
        (DEPLOYMENTS, True, ALWAYS),
        (DEPLOYMENTS, False, ALWAYS),
        (GroupResource("apps", "statefulsets"), True, ALWAYS),
        (GroupResource("apps", "daemonsets"), True, ALWAYS),
        (GroupResource("apps", "replicasets"), True, ALWAYS),
        (GroupResource("apps", "controllerrevisions"), True, NEVER),
        (GroupResource("batch", "jobs"), True, ALWAYS),
        (GroupResource("batch", "cronjobs"), True, ALWAYS),
        (PODS, True, ALWAYS),
        (GroupResource("", "replicationcontrollers"), True, ALWAYS),
        (GroupResource("", "services"), True, ALWAYS),
        (GroupResource("", "persistentvolumeclaims"), True, ALWAYS),
        (GroupResource("", "serviceaccounts"), True, NEVER),
        (INGRESSES, True, NEVER),
        (GroupResource("autoscaling", "horizontalpodautoscalers"), True, NEVER),
        (WIDGETS, False, IF_REPORTING),
        (GroupResource("", "namespaces"), True, NEVER),
        (GroupResource("", "configmaps"), True, NEVER),
        (GroupResource("", "secrets"), True, NEVER),
        (GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), True, NEVER),
        (ROLES, False, NEVER),
        (GroupResource("apis.kcp.io", "apibindings"), False, NEVER),
        (GroupResource("edge.kcp.io", "statussummaries"), False, NEVER),
    ],
)
def test_workloads_are_summarized_and_custom_resources_that_report(
    resource: GroupResource, builtin: bool, expected: Summarized
) -> None:
    assert is_summarized(resource, None, builtin=builtin) is expected


@pytest.mark.parametrize("annotation", ["false", " False "])
def test_a_placement_can_do_without_summaries(annotation: str) -> None:
    found = {is_summarized(resource, annotation, builtin=False) for resource in (DEPLOYMENTS, PODS, WIDGETS)}
    assert found == {NEVER}


@pytest.mark.parametrize(
    "annotation", [None, "", "true", "yes", ",", "deployments", ".apps", "Deployments.apps", "a.-b"]
)
def test_what_lists_no_kind_means_the_default(annotation: str | None) -> None:
    assert is_summarized(DEPLOYMENTS, annotation, builtin=True) is ALWAYS
    assert is_summarized(INGRESSES, annotation, builtin=True) is NEVER
    assert is_summarized(WIDGETS, annotation, builtin=False) is IF_REPORTING


def test_a_list_stands_instead_of_the_default() -> None:
    annotation = "deployments.apps, ingresses.networking.k8s.io,secrets,roles.rbac.authorization.k8s.io"
    asked = {
        resource: is_summarized(resource, annotation, builtin=resource is not WIDGETS)
        for resource in (DEPLOYMENTS, INGRESSES, PODS, WIDGETS, ROLES, GroupResource("", "secrets"))
    }
    assert {resource for resource, found in asked.items() if found is ALWAYS} == {DEPLOYMENTS, INGRESSES}
    assert IF_REPORTING not in asked.values()


def test_a_list_can_name_kinds_of_the_core_group_and_custom_ones() -> None:
    assert is_summarized(PODS, "pods,widgets.example.com", builtin=True) is ALWAYS
    assert is_summarized(WIDGETS, "pods,widgets.example.com", builtin=False) is ALWAYS
