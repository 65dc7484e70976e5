"""Discovery documents, and which paths have one."""

from __future__ import annotations

import orjson
import pytest

from farflung.apis.builtin.catalog import Catalog
from farflung.apis.builtin.kinds import BUILTIN, HUB
from farflung.apis.resource import Resource, Subresource
from farflung.http.messages import Request
from farflung.hub.catalog.discovery import AGGREGATED, Documents
from farflung.machinery.errors import ApiError

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
CHANGE = ("get", "patch", "update")
THINGS = Resource(
    "example.com",
    "v1",
    "things",
    "Thing",
    True,
    "",
    singular="thing",
    list_kind="ThingList",
    short_names=("th",),
    verbs=CUSTOM_VERBS,
    subresources=(
        Subresource("status", CHANGE, "Thing"),
        Subresource("scale", CHANGE, "Scale", "autoscaling", "v1"),
    ),
    custom=True,
)
DOCUMENTS = Documents(Catalog([*BUILTIN, THINGS]))


def answer(path, method="GET", accept="", documents=DOCUMENTS, **headers):
    request = Request(method, path, headers={"accept": accept, "host": "hub:6443", **headers})
    return documents.answer(request, path)


def document(path, **more):
    response = answer(path, **more)
    assert response is not None
    assert response.status == 200
    return orjson.loads(response.body)


def listed(path, name):
    return next(one for one in document(path)["resources"] if one["name"] == name)


# --- legacy --------------------------------------------------------------------------------------


def test_the_core_versions_have_no_api_version_and_say_where_the_server_is():
    assert document("/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "hub:6443"}],
    }


def test_the_group_list_names_versions_and_the_preferred_one():
    groups = {one["name"]: one for one in document("/apis")["groups"]}
    assert "" not in groups
    assert groups["autoscaling"] == {
        "name": "autoscaling",
        "versions": [
            {"groupVersion": "autoscaling/v2", "version": "v2"},
            {"groupVersion": "autoscaling/v1", "version": "v1"},
        ],
        "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"},
    }


def test_a_group_document_is_its_entry_with_a_kind():
    entry = next(one for one in document("/apis")["groups"] if one["name"] == "apps")
    assert document("/apis/apps") == {"kind": "APIGroup", "apiVersion": "v1", **entry}


def test_the_resources_of_a_group_say_what_can_be_done_with_them():
    made = document("/apis/apps/v1")
    assert list(made) == ["kind", "apiVersion", "groupVersion", "resources"]
    assert listed("/apis/apps/v1", "deployments") == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "categories": ["all"],
        "storageVersionHash": "8aSe+NMegvE=",
    }


def test_the_core_resources_come_without_an_api_version():
    assert list(document("/api/v1")) == ["kind", "groupVersion", "resources"]


def test_subresources_are_listed_after_their_resource():
    names = [one["name"] for one in document("/api/v1")["resources"]]
    assert names == sorted(names)
    assert listed("/api/v1", "pods/eviction") == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert "group" not in listed("/api/v1", "pods/status")


def test_a_resource_without_storage_has_no_hash():
    assert listed("/api/v1", "componentstatuses") == {
        "name": "componentstatuses",
        "singularName": "componentstatus",
        "namespaced": False,
        "kind": "ComponentStatus",
        "verbs": ["get", "list"],
        "shortNames": ["cs"],
    }


def test_custom_resources_are_listed_like_the_others():
    names = [one["name"] for one in document("/apis/example.com/v1")["resources"]]
    assert names == ["things", "things/status", "things/scale"]


@pytest.mark.parametrize("path", ["/api/", "/apis/", "/apis/apps/", "/apis/apps/v1/", "/api/v1/"])
def test_a_trailing_slash_changes_nothing(path):
    assert document(path) == document(path[:-1])


@pytest.mark.parametrize(
    "path", ["/apis/nope", "/apis/nope/v1", "/apis/apps/v2", "/nope", "/apis//v1", "/apis/apps/v1//"]
)
def test_there_is_nothing_at_other_paths(path):
    assert answer(path) is None


@pytest.mark.parametrize("path", ["/api/v2", "/api//v1", "/api/../apis", "/api/v1//"])
def test_below_the_core_group_the_server_says_that_it_found_nothing(path):
    with pytest.raises(ApiError) as refused:
        answer(path)
    assert refused.value.code == 404


OPEN_ENDED = Documents(Catalog([*HUB, THINGS]), open_ended=True)


@pytest.mark.parametrize("group_version", ["nosuch.io/v1", "apps/v1", "example.com/v9"])
def test_where_kinds_may_come_from_elsewhere_a_version_is_empty_until_they_do(group_version):
    assert document(f"/apis/{group_version}", documents=OPEN_ENDED) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [],
    }


@pytest.mark.parametrize("path", ["/apis/rbac.authorization.k8s.io/v9", "/apis/events.k8s.io/v1beta1", "/api/v2"])
def test_where_kinds_may_come_from_elsewhere_built_in_groups_still_have_their_versions_alone(path):
    with pytest.raises(ApiError) as refused:
        answer(path, documents=OPEN_ENDED)
    assert refused.value.code == 404


@pytest.mark.parametrize("path", ["/apis/nosuch.io", "/apis/apps", "/apis/nosuch.io/v1/things/x"])
def test_where_kinds_may_come_from_elsewhere_a_group_without_any_is_not_there(path):
    assert answer(path, documents=OPEN_ENDED) is None


def test_group_lists_answer_any_method_and_resource_lists_do_not():
    assert document("/apis", method="POST")["kind"] == "APIGroupList"
    with pytest.raises(ApiError) as refused:
        answer("/apis/apps/v1", method="POST")
    assert refused.value.code == 405


def test_the_root_lists_paths():
    paths = document("/")["paths"]
    assert {"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version"} <= set(paths)
    assert paths == sorted(set(paths))


def test_workspaces_list_the_reviews_of_kcp_and_no_others():
    documents = Documents(Catalog(HUB), open_ended=True)
    found = orjson.loads(answer("/apis/authentication.k8s.io/v1", documents=documents).body)
    assert [one["name"] for one in found["resources"]] == ["tokenreviews"]
    plain = orjson.loads(answer("/apis/authentication.k8s.io/v1").body)
    assert [one["name"] for one in plain["resources"]] == ["selfsubjectreviews", "tokenreviews"]


def test_a_workspace_without_workloads_does_not_show_them():
    documents = Documents(Catalog(HUB))
    assert answer("/apis/apps", documents=documents) is None
    names = {one["name"] for one in orjson.loads(answer("/api/v1", documents=documents).body)["resources"]}
    assert "configmaps" in names
    assert "pods" not in names


# --- aggregated ----------------------------------------------------------------------------------


def aggregated(path):
    response = answer(path, accept=AGGREGATED)
    assert response.content_type == AGGREGATED
    return orjson.loads(response.body)


def test_aggregated_core_is_one_group_without_a_name():
    made = aggregated("/api")
    assert (made["kind"], made["apiVersion"], made["metadata"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
        {},
    )
    (group,) = made["items"]
    assert group["metadata"] == {}
    assert list(group["versions"][0]) == ["version", "resources", "freshness"]
    assert group["versions"][0]["freshness"] == "Current"


def test_built_in_resources_leave_out_their_own_group_and_version():
    (version,) = aggregated("/api")["items"][0]["versions"]
    namespaces = next(one for one in version["resources"] if one["resource"] == "namespaces")
    own = {"group": "", "version": "", "kind": "Namespace"}
    assert namespaces == {
        "resource": "namespaces",
        "responseKind": own,
        "scope": "Cluster",
        "singularResource": "namespace",
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "shortNames": ["ns"],
        "subresources": [
            {"subresource": "finalize", "responseKind": own, "verbs": ["update"]},
            {"subresource": "status", "responseKind": own, "verbs": ["get", "patch", "update"]},
        ],
    }


def test_custom_resources_say_their_group_and_version():
    (things,) = aggregated("/apis")["items"][-1]["versions"][0]["resources"]
    own = {"group": "example.com", "version": "v1", "kind": "Thing"}
    assert things["responseKind"] == own
    assert [one["responseKind"] for one in things["subresources"]] == [
        own,
        {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    ]


def test_the_groups_are_the_same_in_either_form_and_order():
    assert [one["metadata"]["name"] for one in aggregated("/apis")["items"]] == [
        one["name"] for one in document("/apis")["groups"]
    ]


def test_a_client_that_knows_the_document_need_not_load_it_again():
    tag = dict(answer("/apis", accept=AGGREGATED).headers)["ETag"]
    again = answer("/apis", accept=AGGREGATED, **{"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")
    assert answer("/api", accept=AGGREGATED, **{"if-none-match": tag}).status == 200


def test_the_older_aggregated_form_falls_back_to_the_plain_one():
    older = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    response = answer("/apis", accept=older)
    assert response.content_type == "application/json"
    assert orjson.loads(response.body)["kind"] == "APIGroupList"


@pytest.mark.parametrize(
    "accept", ["application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList", "text/plain", "image/*"]
)
def test_what_cannot_be_had_is_not_acceptable(accept):
    with pytest.raises(ApiError) as refused:
        answer("/apis", accept=accept)
    assert refused.value.code == 406
    assert refused.value.message == (
        "only the following media types are accepted: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
