import gzip
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest

from farflung.apis import definitions
from farflung.apis.builtin import kinds as builtin
from farflung.apis.builtin.catalog import Catalog
from farflung.apis.resource import Resource, Subresource
from farflung.http.messages import Request, Response
from farflung.hub.catalog.openapi.enumerations import VALUES
from farflung.hub.catalog.openapi.gnostic import V2, V3, Encoder
from farflung.hub.catalog.openapi.handler import DocumentCache, OpenAPI
from farflung.hub.catalog.openapi.schemas import DESCRIPTIONS as OURS
from farflung.hub.catalog.openapi.schemas import simplified
from farflung.machinery.errors import ApiError

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PROTOBUF_V3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
SCHEMAS = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

GADGETS = Resource(
    "example.com",
    "v1",
    "gadgets",
    "Gadget",
    True,
    "com.example.v1.Gadget",
    singular="gadget",
    list_kind="GadgetList",
    subresources=(
        Subresource("status", ("get", "patch", "update"), "Gadget"),
        Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1"),
    ),
    custom=True,
)
GADGET_DEFINITIONS = {
    "com.example.v1.Gadget": {
        "type": "object",
        "description": "Gadget is a thing.",
        "required": ["spec", "size"],
        "properties": {
            "metadata": {"$ref": f"#/definitions/{META}ObjectMeta", "description": "What is known of it."},
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
            "size": {"type": "integer", "nullable": True},
        },
    },
}


@pytest.fixture(scope="module")
def everything() -> OpenAPI:
    return OpenAPI(Catalog(builtin.BUILTIN))


def got(openapi: OpenAPI, path: str, query: str = "", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = openapi.answer(Request("GET", path, query, named), path)
    assert answer is not None
    return answer


def document(openapi: OpenAPI, path: str) -> Any:
    answer = got(openapi, path)
    return orjson.loads(answer.whole())


def header(response: Response, name: str) -> str | None:
    return dict(response.headers).get(name)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every schema in a schema."""
    yield schema
    children = [*schema.get("properties", {}).values(), *schema.get("allOf", ()), *schema.get("oneOf", ())]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            children.append(schema[key])
    for child in children:
        yield from nodes(child)


# --- the index ------------------------------------------------------------------------------------


def test_the_index_names_every_document_with_the_hash_of_its_content(everything):
    answer = got(everything, "/openapi/v3")
    paths = orjson.loads(answer.whole())["paths"]
    assert answer.content_type == "text/plain; charset=utf-8"
    assert {"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "apis/autoscaling/v2", "version"} <= paths.keys()
    address, _, hashed = paths["apis/apps/v1"]["serverRelativeURL"].partition("?hash=")
    assert address == "/openapi/v3/apis/apps/v1"
    assert header(got(everything, address), "ETag") == f'"{hashed}"'


def test_addresses_stay_in_the_workspace_they_were_asked_for_in(everything):
    request = Request("GET", "/clusters/root:org/openapi/v3")
    answer = everything.answer(request, "/openapi/v3")
    address = orjson.loads(answer.whole())["paths"]["api/v1"]["serverRelativeURL"]
    assert address.startswith("/clusters/root:org/openapi/v3/api/v1?hash=")


@pytest.mark.parametrize(
    "path", ["/", "/openapi", "/openapi/v1", "/openapi/v22", "/openapi/v3/api/v9", "/openapi/v3/apis/nope/v1", "/api"]
)
def test_there_is_nothing_at_other_paths(everything, path):
    assert everything.answer(Request("GET", path), path) is None


def test_only_reading_is_possible(everything):
    with pytest.raises(ApiError) as caught:
        everything.answer(Request("POST", "/openapi/v2"), "/openapi/v2")
    assert caught.value.code == 405


# --- caching --------------------------------------------------------------------------------------


def test_a_client_that_has_the_current_document_gets_304(everything):
    tag = header(got(everything, "/openapi/v2", accept=PROTOBUF_V2), "ETag")
    assert got(everything, "/openapi/v2", accept=PROTOBUF_V2, if_none_match=f'"other", W/{tag}').status == 304
    assert got(everything, "/openapi/v2", accept=PROTOBUF_V2, if_none_match='"other"').status == 200


def test_a_document_asked_for_by_its_hash_may_be_kept_forever(everything):
    tag = header(got(everything, "/openapi/v3/apis/apps/v1"), "ETag").strip('"')
    answer = got(everything, "/openapi/v3/apis/apps/v1", f"hash={tag}&timeout=32s")
    assert header(answer, "Cache-Control") == "public, immutable"
    assert header(answer, "Vary") == "Accept"
    assert header(answer, "Expires")
    assert header(got(everything, "/openapi/v3/apis/apps/v1"), "Cache-Control") is None


def test_a_document_asked_for_by_an_old_hash_has_moved(everything):
    request = Request("GET", "/clusters/root/openapi/v3/apis/apps/v1", "hash=old")
    answer = everything.answer(request, "/openapi/v3/apis/apps/v1")
    assert answer.status == 301
    assert header(answer, "Location").startswith("/clusters/root/openapi/v3/apis/apps/v1?hash=")


def test_clients_that_can_are_sent_compressed_documents(everything):
    compressed = got(everything, "/openapi/v2", accept_encoding="gzip, deflate")
    assert header(compressed, "Content-Encoding") == "gzip"
    assert gzip.decompress(compressed.whole()) == got(everything, "/openapi/v2").whole()


def test_catalogues_share_the_documents_of_what_they_have_in_common():
    shelf = DocumentCache()
    first = OpenAPI(Catalog(builtin.HUB), shelf=shelf)
    second = OpenAPI(Catalog((*builtin.HUB, GADGETS)), lambda _: GADGET_DEFINITIONS, shelf)
    path = "/openapi/v3/apis/rbac.authorization.k8s.io/v1"
    bodies = [got(one, path, accept_encoding="gzip").whole() for one in (first, second)]
    assert bodies[0] is bodies[1]
    assert got(first, "/openapi/v2").whole() != got(second, "/openapi/v2").whole()


# --- media types ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "accept", "content_type"),
    [
        ("/openapi/v2", "", "application/json"),
        ("/openapi/v2", "*/*", "application/json"),
        ("/openapi/v2", PROTOBUF_V2, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
        ("/openapi/v3/api/v1", "application/json, */*", "application/json"),
        ("/openapi/v3/api/v1", PROTOBUF_V3, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"),
        ("/openapi/v3/api/v1", f"{PROTOBUF_V3};q=0.5, application/json", "application/json"),
    ],
)
def test_the_client_chooses_the_media_type(everything, path, accept, content_type):
    answer = got(everything, path, accept=accept)
    assert (answer.status, answer.content_type) == (200, content_type)


def test_other_media_types_are_not_to_be_had(everything):
    with pytest.raises(ApiError) as caught:
        got(everything, "/openapi/v2", accept="text/html")
    assert caught.value.code == 406


# --- paths ----------------------------------------------------------------------------------------


def test_operations_say_what_they_do_to_which_kind(everything):
    paths = document(everything, "/openapi/v3/apis/apps/v1")["paths"]
    deployments = paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert {method: deployments[method]["x-kubernetes-action"] for method in ("get", "post", "delete")} == {
        "get": "list",
        "post": "post",
        "delete": "deletecollection",
    }
    assert all(deployments[method]["x-kubernetes-group-version-kind"] == kind for method in ("get", "post", "delete"))
    assert deployments["get"]["operationId"] == "listAppsV1NamespacedDeployment"
    scale = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]
    assert scale["patch"]["x-kubernetes-group-version-kind"]["group"] == "autoscaling"


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
def test_changes_can_be_tried_and_validated(everything, path):
    whole = document(everything, path)
    patch = whole["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    named = {one.get("name") or one["$ref"].rpartition("/")[2] for one in patch["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= named
    assert set(whole.get("parameters", named)) >= named - {"body"}


def test_verbs_that_are_not_served_are_not_described(everything):
    paths = document(everything, "/openapi/v3/apis/authorization.k8s.io/v1")["paths"]
    assert paths["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"].keys() == {"post", "parameters"}
    assert "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/{name}" not in paths


def test_operations_are_called_differently(everything):
    paths = document(everything, "/openapi/v2")["paths"]
    identities = [item["operationId"] for path in paths.values() for item in path.values() if "operationId" in item]
    assert len(identities) == len(set(identities)) > 500


# --- schemas --------------------------------------------------------------------------------------


def test_every_document_has_exactly_the_definitions_it_needs(everything):
    for name in orjson.loads(got(everything, "/openapi/v3").whole())["paths"]:
        content = document(everything, f"/openapi/v3/{name}")
        used = {reference.removeprefix(SCHEMAS) for reference in references(content)}
        assert used == content["components"]["schemas"].keys(), name
    content = document(everything, "/openapi/v2")
    used = {one.removeprefix("#/definitions/") for one in references(content) if "/definitions/" in one}
    assert used == content["definitions"].keys()


def texts_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says to readers: descriptions and fields, and which of these are required."""
    fields = schema.get("properties", {})
    required = set(schema.get("required", ()))
    descriptions = {name: (field.get("description"), name in required) for name, field in fields.items()}
    return {"description": schema.get("description"), "fields": descriptions}


def test_fields_and_descriptions_are_those_of_the_installed_schemas(everything):
    """The recordings of a real server leave these out."""
    served = dict(document(everything, "/openapi/v2")["definitions"])
    for name in orjson.loads(got(everything, "/openapi/v3").whole())["paths"]:
        schemas = document(everything, f"/openapi/v3/{name}")["components"]["schemas"]
        assert all(texts_of(schema) == texts_of(served[one]) for one, schema in schemas.items() if one in served), name
        served |= schemas
    installed = served.keys() & set(definitions.names()) - OURS.keys()
    assert {"io.k8s.api.core.v1.Pod", "io.k8s.api.batch.v1.JobSpec", f"{META}ObjectMeta"} <= installed
    for name in installed:
        assert texts_of(served[name]) == texts_of(definitions.definition(name)), name


def test_types_are_those_of_openapi(everything):
    for name, schema in document(everything, "/openapi/v2")["definitions"].items():
        for node in nodes(schema):
            assert isinstance(node.get("type", ""), str), name
    for name, schema in document(everything, "/openapi/v3/api/v1")["components"]["schemas"].items():
        for node in nodes(schema):
            assert "$ref" not in node or len(node) == 1, name


def test_types_that_are_two_in_json_have_their_shape(everything):
    quantity, int_or_string = (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    )
    old = document(everything, "/openapi/v2")["definitions"]
    new = document(everything, "/openapi/v3/api/v1")["components"]["schemas"]
    assert old[quantity]["type"] == "string"
    assert (old[int_or_string]["type"], old[int_or_string]["format"]) == ("string", "int-or-string")
    assert new[quantity]["oneOf"] == [{"type": "string"}, {"type": "number"}]
    assert new[int_or_string]["oneOf"] == [{"type": "integer"}, {"type": "string"}]
    assert new[int_or_string]["format"] == "int-or-string"


def test_fields_have_their_defaults_and_enumerations(everything):
    schemas = document(everything, "/openapi/v3/api/v1")["components"]["schemas"]
    port = schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]
    assert (port["protocol"]["default"], port["protocol"]["enum"]) == ("TCP", ["SCTP", "TCP", "UDP"])
    assert port["containerPort"]["default"] == 0
    assert "default" not in port["name"]
    pod = schemas["io.k8s.api.core.v1.Pod"]["properties"]
    assert pod["metadata"]["default"] == {}
    assert pod["metadata"]["allOf"] == [{"$ref": f"{SCHEMAS}{META}ObjectMeta"}]
    assert pod["kind"].keys() == {"description", "type"}
    claim = schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]
    assert "ReadWriteOnce" in claim["accessModes"]["items"]["enum"]
    assert claim["accessModes"]["items"]["default"] == ""


def test_every_enumeration_is_of_a_field_that_exists():
    for definition, field in VALUES:
        schema = definitions.definition(definition)["properties"][field]
        element = schema.get("items") or schema.get("additionalProperties") or schema
        assert "string" in element["type"], (definition, field)


def test_definitions_are_left_as_they_are_for_others(everything):
    before = orjson.dumps(definitions.definition("io.k8s.api.core.v1.ContainerPort"))
    OpenAPI(Catalog(builtin.BUILTIN)).answer(Request("GET", "/openapi/v2"), "/openapi/v2")
    assert orjson.dumps(definitions.definition("io.k8s.api.core.v1.ContainerPort")) == before


# --- resources that bring their own definitions ---------------------------------------------------


def test_a_custom_resource_is_described_by_what_it_brings():
    openapi = OpenAPI(Catalog((*builtin.HUB, GADGETS)), lambda one: GADGET_DEFINITIONS if one.custom else {})
    new = document(openapi, "/openapi/v3/apis/example.com/v1")
    gadget = new["components"]["schemas"]["com.example.v1.Gadget"]
    assert gadget["properties"]["metadata"]["allOf"] == [{"$ref": f"{SCHEMAS}{META}ObjectMeta"}]
    assert {f"{META}ObjectMeta", "io.k8s.api.autoscaling.v1.Scale"} <= new["components"]["schemas"].keys()
    patch = new["paths"]["/apis/example.com/v1/namespaces/{namespace}/gadgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert patch["operationId"] == "patchExampleComV1NamespacedGadget"
    old = document(openapi, "/openapi/v2")["definitions"]["com.example.v1.Gadget"]
    assert old["required"] == ["spec"]
    assert "properties" not in old["properties"]["spec"]
    assert "type" not in old["properties"]["size"]


def test_version_2_says_less_where_it_would_say_too_much():
    assert simplified({"type": "string", "x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}]}) == {
        "x-kubernetes-int-or-string": True
    }
    assert simplified({"type": "object", "nullable": True, "properties": {"a": {}}}) == {}
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert simplified(plain) is plain


# --- protobuf -------------------------------------------------------------------------------------


def fields(message: bytes) -> dict[int, list[Any]]:
    """What a protobuf message holds, by number."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        match key & 7:
            case 0:
                value, at = varint(message, at)
            case 1:
                value, at = message[at : at + 8], at + 8
            case 2:
                length, at = varint(message, at)
                value, at = message[at : at + length], at + length
            case _:
                raise AssertionError(f"wire type {key & 7}")
        found.setdefault(key >> 3, []).append(value)
    assert at == len(message)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def pairs(messages: list[bytes]) -> dict[str, bytes]:
    """Repeated names and values."""
    both = (fields(message) for message in messages)
    return {one[1][0].decode(): one[2][0] for one in both}


def test_version_2_in_protobuf_says_the_same_as_in_json(everything):
    plain = document(everything, "/openapi/v2")
    encoded = fields(got(everything, "/openapi/v2", accept=PROTOBUF_V2).whole())
    assert encoded[1] == [b"2.0"]
    paths = pairs(fields(encoded[8][0])[2])
    assert paths.keys() == plain["paths"].keys()
    schemas = pairs(fields(encoded[9][0])[1])
    assert schemas.keys() == plain["definitions"].keys()
    for name, schema in schemas.items():
        described = plain["definitions"][name]
        read = fields(schema)
        properties = pairs(fields(read[25][0])[1]) if 25 in read else {}
        assert properties.keys() == described.get("properties", {}).keys(), name
        assert read.get(19, []) == [one.encode() for one in described.get("required", [])], name
        extensions = {key: orjson.loads(fields(value)[2][0]) for key, value in pairs(read.get(31, [])).items()}
        assert extensions == {key: value for key, value in described.items() if key.startswith("x-")}, name


def test_version_3_in_protobuf_says_the_same_as_in_json(everything):
    plain = document(everything, "/openapi/v3/apis/apps/v1")
    encoded = fields(got(everything, "/openapi/v3/apis/apps/v1", accept=PROTOBUF_V3).whole())
    assert encoded[1] == [b"3.0.0"]
    assert pairs(fields(encoded[4][0])[1]).keys() == plain["paths"].keys()
    schemas = pairs(fields(fields(encoded[5][0])[1][0])[1])
    assert schemas.keys() == plain["components"]["schemas"].keys()
    pod_spec = fields(fields(schemas["io.k8s.api.core.v1.PodSpec"])[1][0])
    described = plain["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pairs(fields(pod_spec[31][0])[1]).keys() == described.keys()


def test_numbers_and_flags_are_encoded_by_their_kind():
    schema = {"type": "integer", "minimum": -1.5, "maxLength": 300, "additionalProperties": False, "default": True}
    encoded = Encoder(V2).encode("Schema", schema)
    read = fields(encoded)
    assert (read[9], read[11], fields(read[21][0]), fields(read[5][0])) == (
        [b"\x00\x00\x00\x00\x00\x00\xf8\xbf"],
        [300],
        {2: [0]},
        {2: [b"true\n"]},
    )
    newer = Encoder(V3)
    assert fields(fields(newer.encode("Schema", {"default": "a"}))[33][0]) == {3: [b"a"]}
    assert fields(fields(newer.encode("Schema", {"default": True}))[33][0]) == {2: [1]}
    assert fields(newer.encode("Schema", {"default": {}}))[33] == [b""]


@pytest.mark.parametrize("name", ["x-kubernetes-list-type", "*", "x-", "$ref", "type", "ä"])
def test_any_name_is_a_name_of_a_field(name):
    encoded = Encoder(V2).encode("Schema", {"properties": {name: {"type": "string"}}})
    assert pairs(fields(fields(encoded)[25][0])[1]).keys() == {name}
