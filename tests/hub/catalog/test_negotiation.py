"""Which representation a client gets."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.resource import Resource
from farflung.hub.request.negotiation import Representation, negotiate
from farflung.machinery.errors import ApiError

MAPS = next(one for one in BUILTIN if one.plural == "configmaps")
NEW_EVENTS = next(one for one in BUILTIN if one.qualified == "events.events.k8s.io")
ROLES = next(one for one in BUILTIN if one.plural == "roles")
THINGS = Resource("example.com", "v1", "things", "Thing", True, "", list_kind="ThingList", custom=True)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"
LISTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


def refused(accept, resource=MAPS, **how):
    with pytest.raises(ApiError) as error:
        negotiate(accept, resource, **how)
    assert error.value.code == 406
    assert error.value.reason == "NotAcceptable"
    return error.value


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation("json")),
        ("*/*", Representation("json")),
        ("*", Representation("json")),
        ("application/json", Representation("json")),
        ("application/yaml", Representation("yaml")),
        (PROTOBUF, Representation("protobuf")),
        (f"{PROTOBUF},application/json", Representation("protobuf")),
        (f"application/json,{PROTOBUF}", Representation("json")),
        ("text/html;q=0.9, application/json;q=0.8", Representation("json")),
        ("text/html, */*;q=0.1", Representation("json")),
        ("application/yaml;q=0.5,application/json;q=0.4", Representation("yaml")),
        ("*/*,application/yaml", Representation("yaml")),
        ("application/json; charset=utf-8", Representation("json")),
        ("application/json;stream=watch", Representation("json")),
        (f"{TABLE},application/json", Representation("json", "Table", "v1")),
        (f"application/json,{TABLE}", Representation("json")),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}", Representation("json", "Table", "v1")),
        ("application/yaml;as=Table;v=v1beta1;g=meta.k8s.io", Representation("yaml", "Table", "v1beta1")),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Representation("json")),
        (PARTIAL, Representation("json", "PartialObjectMetadata", "v1")),
    ],
)
def test_the_first_clause_that_can_be_satisfied_wins(accept, expected):
    assert negotiate(accept, MAPS) == expected


@pytest.mark.parametrize("accept", ["text/plain", "image/png", "application/*", "nonsense"])
def test_a_built_in_resource_lists_what_there_is(accept):
    error = refused(accept)
    assert error.message == f"406: Not Acceptable\n\nAvailable representations: {LISTED}"
    assert error.details == {}


def test_a_list_can_be_watched_too():
    streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    assert refused("image/png", many=True).message.endswith(f"{LISTED}, {streams}")


@pytest.mark.parametrize(
    "accept",
    [
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Table;v=v1",
        "application/json;v=v1",
        "application/json;as=Other;v=v1;g=meta.k8s.io",
        "application/json;stream=other",
    ],
)
def test_an_unknown_shape_is_not_acceptable(accept):
    assert refused(accept).message == f"only the following media types are accepted: {LISTED}"


def test_a_custom_resource_is_not_to_be_had_in_protobuf():
    assert negotiate(f"{PROTOBUF},application/json", THINGS) == Representation("json")
    assert refused(PROTOBUF, THINGS).message == f"only the following media types are accepted: {LISTED}"
    assert refused("text/plain", THINGS).message == f"only the following media types are accepted: {LISTED}"


def test_a_custom_resource_takes_any_wildcard():
    assert negotiate("application/*", THINGS) == Representation("json")


def test_metadata_of_one_object_is_not_metadata_of_a_list():
    assert refused(PARTIAL, many=True).message == (
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    )
    assert refused(f"{PARTIAL_LIST},application/json").message == (
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    )
    assert negotiate(PARTIAL_LIST, MAPS, many=True).as_ == "PartialObjectMetadataList"


def test_types_are_named_by_their_group():
    assert "(*rbac.Role)" in refused(PARTIAL_LIST, ROLES).message
    assert "(*core.Event)" in refused(PARTIAL_LIST, NEW_EVENTS).message
    assert "(*unstructured.UnstructuredList)" in refused(PARTIAL, THINGS, many=True).message


def test_a_watch_shows_one_object_after_another():
    assert negotiate(PARTIAL, MAPS, many=True, watch=True).as_ == "PartialObjectMetadata"
    assert negotiate(f"{TABLE},application/json", MAPS, many=True, watch=True).as_ == "Table"


def test_a_watch_is_in_json():
    representation = negotiate(f"{PROTOBUF},application/json", MAPS, many=True, watch=True)
    assert representation.media == "json"
    assert representation.stream_type == "application/json"
    assert "stream=watch" in refused("application/yaml", many=True, watch=True).message


def test_an_answer_carries_the_plain_content_type():
    assert negotiate(f"{TABLE},application/json", MAPS).content_type == "application/json"
    assert negotiate("application/yaml", MAPS).content_type == "application/yaml"
    assert negotiate(PROTOBUF, MAPS).content_type == "application/vnd.kubernetes.protobuf"


@given(st.text(alphabet='aj/*;,=q. 0"\x00é', max_size=40), st.booleans(), st.booleans())
@example("application/json;q=nan", False, False)
@example("application/json;q=1e999", False, False)
@example("application/json;" * 1000, True, False)
def test_any_header_gives_a_representation_or_a_refusal(accept, many, watch):
    for resource in (MAPS, THINGS):
        try:
            assert negotiate(accept, resource, many=many, watch=watch).media in ("json", "yaml", "protobuf")
        except ApiError as error:
            assert error.code == 406
