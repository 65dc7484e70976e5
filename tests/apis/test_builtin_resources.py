"""What the catalogue of built-in resources says of them."""

from __future__ import annotations

import pytest

from farflung.apis import definitions
from farflung.apis.builtin.kinds import BUILTIN, GROUPS, HUB, WORKLOADS
from farflung.apis.resource import ALL_VERBS, Resource, storage_version_hash

BY_NAME = {f"{one.qualified}/{one.version}": one for one in BUILTIN}


def test_every_resource_has_a_definition():
    assert {one.definition for one in BUILTIN} <= set(definitions.names())


def test_every_definition_is_of_its_resources_kind():
    for one in BUILTIN:
        said = definitions.definition(one.definition)["x-kubernetes-group-version-kind"]
        assert {"group": one.group, "version": one.version, "kind": one.kind} in said


def test_no_two_resources_share_a_path():
    assert len(BY_NAME) == len(BUILTIN)


def test_names_are_unambiguous_within_the_core_group():
    core = [one for one in BUILTIN if one.group == ""]
    names = [name for one in core for name in {one.plural, one.singular, *one.short_names}]
    assert len(names) == len(set(names))


def test_every_workspace_has_the_kinds_of_a_hub_and_no_workloads():
    hub = {one.qualified for one in HUB}
    assert {"configmaps", "namespaces", "secrets", "serviceaccounts", "events.events.k8s.io"} <= hub
    assert {"leases.coordination.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"} <= hub
    assert {"pods", "services", "deployments.apps", "nodes"} <= {one.qualified for one in WORKLOADS}
    assert not hub & {one.qualified for one in WORKLOADS}


def test_groups_are_in_the_order_of_a_real_server():
    assert GROUPS[:4] == ("", "apiregistration.k8s.io", "apps", "events.k8s.io")
    assert GROUPS[-1] == "flowcontrol.apiserver.k8s.io"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pods/v1", "xPOwRZ+Yhw8="),
        ("deployments.apps/v1", "8aSe+NMegvE="),
        ("leases.coordination.k8s.io/v1", "gqkMMb/YqFM="),
        ("events.events.k8s.io/v1", "r2yiGXH7wu8="),
        ("events/v1", "r2yiGXH7wu8="),
        ("customresourcedefinitions.apiextensions.k8s.io/v1", "jfWCUB31mvA="),
        ("tokenreviews.authentication.k8s.io/v1", ""),
        ("componentstatuses/v1", ""),
    ],
)
def test_storage_version_hashes_are_those_of_a_real_server(name, expected):
    assert BY_NAME[name].storage_version_hash == expected


def test_both_versions_of_autoscalers_are_stored_in_the_later_one():
    hashes = {
        BY_NAME[f"horizontalpodautoscalers.autoscaling/{version}"].storage_version_hash for version in ("v1", "v2")
    }
    assert hashes == {storage_version_hash("autoscaling", "v2", "HorizontalPodAutoscaler")}


def test_namespaces_cannot_be_deleted_all_at_once():
    assert set(ALL_VERBS) - set(BY_NAME["namespaces/v1"].verbs) == {"deletecollection"}


def test_subresources_say_what_they_take():
    eviction = BY_NAME["pods/v1"].subresource("eviction")
    assert eviction is not None
    assert (eviction.group, eviction.version, eviction.kind, eviction.verbs) == (
        "policy",
        "v1",
        "Eviction",
        ("create",),
    )
    assert BY_NAME["pods/v1"].subresource("nope") is None


def test_only_events_share_the_storage_of_another_group():
    assert [one.qualified for one in BUILTIN if one.storage_group is not None] == ["events.events.k8s.io"]


# --- field selectors -----------------------------------------------------------------------------

POD = {
    "spec": {"nodeName": "n", "hostNetwork": True, "restartPolicy": "Never"},
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


@pytest.mark.parametrize(
    ("name", "field", "obj", "expected"),
    [
        ("pods/v1", "spec.nodeName", POD, "n"),
        ("pods/v1", "spec.host", POD, "n"),
        ("pods/v1", "spec.hostNetwork", POD, "true"),
        ("pods/v1", "spec.hostNetwork", {}, "false"),
        ("pods/v1", "status.phase", POD, "Running"),
        ("pods/v1", "status.nominatedNodeName", POD, ""),
        ("secrets/v1", "type", {"type": "Opaque"}, "Opaque"),
        ("namespaces/v1", "status.phase", {"status": None}, ""),
        ("nodes/v1", "spec.unschedulable", {"spec": {"unschedulable": True}}, "true"),
        ("replicationcontrollers/v1", "status.replicas", {}, "0"),
        ("jobs.batch/v1", "status.successful", {"status": {"succeeded": 3}}, "3"),
        ("events/v1", "source", {"source": {"component": "a"}, "reportingComponent": "b"}, "a"),
        ("events/v1", "source", {"reportingComponent": "b"}, "b"),
        ("events.events.k8s.io/v1", "regarding.name", {"involvedObject": {"name": "x"}}, "x"),
        ("events.events.k8s.io/v1", "reportingController", {"reportingComponent": "c"}, "c"),
    ],
)
def test_selectable_fields_read_the_stored_object(name, field, obj, expected):
    assert BY_NAME[name].selectable[field](obj) == expected


def test_a_kind_without_selectable_fields_says_which_two_every_kind_has():
    expected = '"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert BY_NAME["deployments.apps/v1"].unselectable("spec.replicas") == expected


def test_a_kind_with_selectable_fields_only_says_no():
    assert BY_NAME["pods/v1"].unselectable("spec.foo") == "field label not supported: spec.foo"


def test_a_custom_kind_only_says_no():
    custom = Resource("example.com", "v1", "things", "Thing", True, "", custom=True)
    assert custom.unselectable("spec.a") == "field label not supported: spec.a"
