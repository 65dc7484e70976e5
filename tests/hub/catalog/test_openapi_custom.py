"""What clients are told of custom resources."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hub_harness import LocalHub

from farflung.apis.builtin import kinds as builtin
from farflung.apis.builtin.catalog import Catalog
from farflung.apis.definitions import META
from farflung.apis.resource import Resource
from farflung.http.messages import Request
from farflung.hub.catalog.openapi.custom import published, published_schema
from farflung.hub.catalog.openapi.handler import PROTOBUF_V2, DocumentCache, OpenAPI
from farflung.machinery.errors import Obj

GADGETS = Resource(
    "example.com", "v1", "gadgets", "Gadget", True, "com.example.v1.Gadget", list_kind="GadgetList", custom=True
)
OBJECT: Obj = {"type": "object"}
SCHEMA: Obj = {
    "type": "object",
    "description": "Gadget is a thing.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size", "maybe"],
            "properties": {
                "size": {
                    "type": "integer",
                    "description": "how big",
                    "x-kubernetes-validations": [{"rule": "self > 0"}],
                },
                "maybe": {"type": "string", "nullable": True},
                "port": {"x-kubernetes-int-or-string": True},
                "template": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": OBJECT}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": OBJECT}},
                "limited": {"type": "string", "oneOf": [{"minLength": 1}], "example": "never told"},
            },
        }
    },
}
DEFINITIONS = published(GADGETS, SCHEMA)


def openapi(*custom: Resource, shelf: DocumentCache | None = None) -> OpenAPI:
    return OpenAPI(Catalog((*builtin.HUB, *custom)), lambda one: DEFINITIONS if one.custom else {}, shelf)


def document(served: OpenAPI, path: str) -> Any:
    answer = served.answer(Request("GET", path), path)
    assert answer is not None
    return orjson.loads(answer.whole())


def test_a_custom_resource_has_what_every_object_has() -> None:
    gadget = DEFINITIONS["com.example.v1.Gadget"]
    assert gadget["description"] == "Gadget is a thing."
    assert gadget["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Gadget"}]
    assert gadget["properties"]["metadata"]["$ref"].endswith("ObjectMeta")
    assert gadget["properties"]["kind"]["description"].startswith("Kind is a string value")
    listed = DEFINITIONS["com.example.v1.GadgetList"]
    assert listed["properties"]["items"]["items"] == {"$ref": "#/definitions/com.example.v1.Gadget"}
    assert listed["required"] == ["items"]


def test_version_3_tells_the_whole_schema() -> None:
    schemas = document(openapi(GADGETS), "/openapi/v3/apis/example.com/v1")["components"]["schemas"]
    fields = schemas["com.example.v1.Gadget"]["properties"]["spec"]["properties"]
    assert fields["size"] == SCHEMA["properties"]["spec"]["properties"]["size"]
    assert fields["maybe"] == {"type": "string", "nullable": True}
    assert fields["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert fields["template"]["required"] == ["kind", "apiVersion"]
    assert fields["template"]["properties"].keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert fields["limited"] == {"type": "string", "oneOf": [{"minLength": 1}]}
    assert f"{META}ObjectMeta" in schemas


def test_version_2_tells_less() -> None:
    definitions = document(openapi(GADGETS), "/openapi/v2")["definitions"]
    spec = definitions["com.example.v1.Gadget"]["properties"]["spec"]
    assert spec["required"] == ["size"]
    assert spec["properties"]["maybe"] == {}
    assert spec["properties"]["limited"] == {"type": "string"}
    assert "properties" not in spec["properties"]["free"]


@pytest.mark.parametrize("alternatives", [[{"type": "integer"}, {"type": "string"}], [{"pattern": "^x"}]])
def test_alternatives_of_an_integer_or_string_stay(alternatives: list[Obj]) -> None:
    told = published_schema({"x-kubernetes-int-or-string": True, "anyOf": alternatives})
    assert told["anyOf"] == alternatives
    assert told.get("allOf") == (
        None if alternatives[0].get("type") else [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]
    )


def test_a_recursive_schema_is_published_to_a_limited_depth() -> None:
    schema: Obj = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    assert published(GADGETS, schema)
    assert published(GADGETS, None)


def test_the_built_in_part_of_version_2_is_the_same_for_all_and_made_once() -> None:
    shelf = DocumentCache()
    plain = document(openapi(shelf=shelf), "/openapi/v2")
    extended = document(openapi(GADGETS, shelf=shelf), "/openapi/v2")
    own = {path for path in extended["paths"] if path.startswith("/apis/example.com")}
    assert own == extended["paths"].keys() - plain["paths"].keys()
    assert {path: one for path, one in extended["paths"].items() if path not in own} == plain["paths"]
    assert extended["definitions"].keys() - plain["definitions"].keys() == DEFINITIONS.keys()
    assert extended["parameters"] == plain["parameters"]


def test_the_same_in_protobuf_is_one_message_after_another() -> None:
    request = Request("GET", "/openapi/v2", headers={"accept": PROTOBUF_V2})
    shelf = DocumentCache()
    plain = openapi(shelf=shelf).answer(request, "/openapi/v2")
    extended = openapi(GADGETS, shelf=shelf).answer(request, "/openapi/v2")
    assert plain is not None and extended is not None
    assert extended.whole().startswith(plain.whole())
    assert b"com.example.v1.GadgetList" in extended.whole()[len(plain.whole()) :]


# --- a hub ------------------------------------------------------------------------------------------

DEFINITION: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}
DEFINITIONS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_documents_follow_definitions_at_once(hub: LocalHub) -> None:
    before = (await hub.get("/openapi/v3")).json["paths"]
    assert "apis/example.com/v1" not in before

    assert (await hub.request("POST", DEFINITIONS_PATH, DEFINITION)).status == 201

    after = (await hub.get("/openapi/v3")).json["paths"]
    assert after.keys() - before.keys() == {"apis/example.com", "apis/example.com/v1"}
    assert after["api/v1"] == before["api/v1"]
    old = (await hub.get("/openapi/v3/apis/example.com/v1")).json["components"]["schemas"]["com.example.v1.Gadget"]
    assert "weight" not in old["properties"]["spec"]["properties"]

    schema = f"{DEFINITIONS_PATH}/gadgets.example.com"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight"
    change = [{"op": "add", "path": path, "value": {"type": "integer"}}]
    answer = await hub.request("PATCH", schema, change, content_type="application/json-patch+json")
    assert answer.status == 200
    new = (await hub.get("/openapi/v3/apis/example.com/v1")).json["components"]["schemas"]["com.example.v1.Gadget"]
    assert new["properties"]["spec"]["properties"]["weight"] == {"type": "integer"}
    assert (await hub.get("/openapi/v3")).json["paths"]["apis/example.com/v1"] != after["apis/example.com/v1"]
