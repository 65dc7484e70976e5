"""Protobuf bodies: what kubectl really sends, hand-made messages of every kind of field, and every kind of damage."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.wire import MESSAGES, known
from farflung.machinery.codec.protobuf import MAGIC, decode, encode, encode_items, list_frame
from farflung.machinery.codec.protobuf_bytes import delimited, tag_of, varint
from farflung.machinery.errors import ApiError

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"

#: what kubectl 1.33 sent for `create deployment` and its like, and the JSON it printed for the same objects
SENT = [json.loads(line) for line in Path(__file__).with_name("protobuf_bodies.jsonl").read_text().splitlines()]


def enveloped(raw: bytes, api_version: str = "v1", kind: str = "ConfigMap") -> bytes:
    names = delimited(b"\x0a", api_version.encode()) + delimited(b"\x12", kind.encode())
    return MAGIC + delimited(b"\x0a", names) + delimited(b"\x12", raw) + b"\x1a\x00\x22\x00"


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return tag_of(number, 0) + varint(content)
    return delimited(tag_of(number, 2), content)


def read(raw: bytes, definition: str = f"{CORE}ConfigMap") -> dict[str, Any]:
    kind = definition.rpartition(".")[2]
    obj = decode(enveloped(raw, "v1", kind), definition, MESSAGES).obj
    assert (obj.pop("kind"), obj.pop("apiVersion")) == (kind, "v1")
    return obj


def refusal(body: bytes, definition: str = f"{CORE}ConfigMap") -> str:
    with pytest.raises(ApiError) as caught:
        decode(body, definition, MESSAGES)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    return caught.value.message


# --- real bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", SENT, ids=lambda case: f"{case['object']['kind']}-{case['object']['metadata'].get('name')}"
)
def test_what_kubectl_sends_is_read_and_written_back_to_the_byte(case: dict[str, Any]) -> None:
    body = base64.b64decode(case["body"])
    decoded = decode(body, case["definition"], MESSAGES)
    assert decoded.obj == case["object"]
    assert (decoded.api_version, decoded.kind) == (case["object"]["apiVersion"], case["object"]["kind"])
    assert encode(decoded.obj, case["definition"], MESSAGES) == body


def test_delete_options_of_a_client() -> None:
    options = field(1, 0) + field(2, field(1, b"some-uid")) + field(4, b"Background") + field(5, b"All")
    assert read(options, f"{META}DeleteOptions") == {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "some-uid"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_a_status_is_written_as_go_writes_it() -> None:
    status = ApiError(404, "NotFound", "no", {"name": "n", "kind": "configmaps"}).status()
    details = field(1, b"n") + field(2, b"") + field(3, b"configmaps") + field(5, 0) + field(6, b"")
    metadata = field(1, b"") + field(2, b"") + field(3, b"")
    raw = (
        field(1, metadata)
        + field(2, b"Failure")
        + field(3, b"no")
        + field(4, b"NotFound")
        + field(5, details)
        + field(6, 404)
    )
    assert encode(status, f"{META}Status", MESSAGES) == enveloped(raw, "v1", "Status")


def test_a_list_carries_its_items_in_order() -> None:
    items = [{"metadata": {"name": name}, "data": {"k": name}} for name in ("b", "a")]
    written = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}
    assert decode(encode(written, f"{CORE}ConfigMapList", MESSAGES), f"{CORE}ConfigMapList", MESSAGES).obj == written


def test_an_empty_list_of_items_is_no_field() -> None:
    written = encode(
        {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}, f"{CORE}ConfigMapList", MESSAGES
    )
    assert "items" not in decode(written, f"{CORE}ConfigMapList", MESSAGES).obj


# --- kinds of fields ------------------------------------------------------------------------------


def test_empty_strings_numbers_and_lists_are_dropped_where_go_drops_them() -> None:
    assert read(field(2, b"") + field(5, b""), f"{CORE}Container") == {}
    assert read(field(1, b""), f"{CORE}Container") == {"name": ""}


def test_an_empty_value_behind_a_pointer_stays() -> None:
    assert read(field(1, 0), "io.k8s.api.apps.v1.DeploymentSpec") == {"replicas": 0}
    assert read(field(4, 0), f"{CORE}ConfigMap") == {"immutable": False}
    assert read(field(14, b""), f"{CORE}PodSpec") == {"securityContext": {}}


def test_the_last_of_several_values_wins_and_messages_are_merged() -> None:
    assert read(field(1, b"a") + field(1, b"b"), f"{CORE}Container") == {"name": "b"}
    assert read(field(2, b"a") + field(2, b""), f"{CORE}Container") == {}
    assert read(field(1, field(1, b"n")) + field(1, field(3, b"ns"))) == {"metadata": {"name": "n", "namespace": "ns"}}


def test_an_inlined_message_is_dissolved() -> None:
    source = field(19, field(1, field(1, b"cm")) + field(4, 1))  # configMap{name, optional}
    volume = read(field(1, b"v") + field(2, source), f"{CORE}Volume")
    assert volume == {"name": "v", "configMap": {"name": "cm", "optional": True}}
    written = encode({"kind": "Volume", "apiVersion": "v1", **volume}, f"{CORE}Volume", MESSAGES)
    assert decode(written, f"{CORE}Volume", MESSAGES).obj == {"kind": "Volume", "apiVersion": "v1", **volume}


def test_maps_of_texts_bytes_quantities_and_lists() -> None:
    assert read(field(2, field(1, b"k") + field(2, "ü".encode()))) == {"data": {"k": "ü"}}
    assert read(field(3, field(1, b"k") + field(2, b"\x00\xff"))) == {"binaryData": {"k": "AP8="}}
    assert read(field(1, field(1, b"cpu") + field(2, field(1, b"100m"))), f"{CORE}ResourceRequirements") == {
        "limits": {"cpu": "100m"}
    }
    user = field(4, field(1, b"scopes") + field(2, field(1, b"a") + field(1, b"b")))
    assert read(user, "io.k8s.api.authentication.v1.UserInfo") == {"extra": {"scopes": ["a", "b"]}}


def test_an_entry_of_a_map_may_lack_its_key_or_value_and_have_more() -> None:
    assert read(field(2, b"")) == {"data": {"": ""}}
    assert read(field(2, field(2, b"v"))) == {"data": {"": "v"}}
    assert read(field(2, field(2, b"v") + field(9, 1) + field(1, b"k"))) == {"data": {"k": "v"}}
    assert read(field(1, field(1, b"cpu")), f"{CORE}ResourceRequirements") == {"limits": {"cpu": "0"}}


def test_numbers_that_are_negative_too_large_or_packed() -> None:
    assert read(field(2, (1 << 64) - 5), "io.k8s.api.scheduling.v1.PriorityClass") == {"value": -5}
    assert read(field(2, (7 << 32) + 3), "io.k8s.api.scheduling.v1.PriorityClass") == {"value": 3}
    groups = f"{CORE}PodSecurityContext"
    assert read(field(4, 1) + field(4, 2), groups) == {"supplementalGroups": [1, 2]}
    assert read(field(4, varint(1) + varint(300)) + field(4, 7), groups) == {"supplementalGroups": [1, 300, 7]}


def test_times_to_the_second_and_to_the_microsecond() -> None:
    moment = field(1, 1_600_000_000) + field(2, 123_456_789)
    assert read(field(8, moment), f"{META}ObjectMeta") == {"creationTimestamp": "2020-09-13T12:26:40Z"}
    assert read(field(4, moment), "io.k8s.api.coordination.v1.LeaseSpec") == {
        "renewTime": "2020-09-13T12:26:40.123456Z"
    }
    assert read(field(8, b""), f"{META}ObjectMeta") == {}
    assert read(field(8, field(1, -62_135_596_800)), f"{META}ObjectMeta") == {}
    assert read(field(8, field(1, 0)), f"{META}ObjectMeta") == {"creationTimestamp": "1970-01-01T00:00:00Z"}


def test_times_are_written_with_their_zone_resolved() -> None:
    meta = encode({"creationTimestamp": "2020-09-13T14:26:40+02:00"}, f"{META}ObjectMeta", MESSAGES)
    assert field(8, field(1, 1_600_000_000) + field(2, 0)) in meta
    lease = encode({"renewTime": "2020-09-13T12:26:40.123456Z"}, "io.k8s.api.coordination.v1.LeaseSpec", MESSAGES)
    assert field(4, field(1, 1_600_000_000) + field(2, 123_456_000)) in lease


def test_a_number_or_a_text() -> None:
    definition = "io.k8s.api.policy.v1.PodDisruptionBudgetSpec"
    assert read(field(1, field(1, 0) + field(2, 3) + field(3, b"")), definition) == {"minAvailable": 3}
    assert read(field(1, field(1, 1) + field(2, 0) + field(3, b"50%")), definition) == {"minAvailable": "50%"}
    assert read(field(1, b""), definition) == {"minAvailable": 0}


def test_json_in_a_message_is_part_of_the_object() -> None:
    entry = field(1, b"m") + field(7, field(1, b'{"f:data":{}}'))
    assert read(entry, f"{META}ManagedFieldsEntry") == {"manager": "m", "fieldsV1": {"f:data": {}}}
    assert read(field(2, field(1, b"[1]")), "io.k8s.api.apps.v1.ControllerRevision") == {"data": [1]}


def test_a_custom_resource_definition_with_every_choice_in_its_schema() -> None:
    properties = {
        "a": {"type": "array", "items": {"type": "string"}, "minimum": 1, "maximum": 2.5, "default": {"x": [1]}},
        "b": {"type": "object", "additionalProperties": {"type": "string"}, "enum": ["x", 1]},
        "c": {
            "additionalProperties": False,
            "items": [{"type": "string"}],
            "dependencies": {"d": ["e"], "f": {"type": "string"}},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"properties": properties}}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "g.example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    status = {"acceptedNames": {"plural": "", "kind": ""}}
    obj = {
        "kind": "CustomResourceDefinition",
        "apiVersion": "v1",
        "metadata": {"name": "n"},
        "spec": spec,
        "status": status,
    }
    assert decode(encode(obj, CRD, MESSAGES), CRD, MESSAGES).obj == obj


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    unknown = field(900, 5) + field(901, b"xyz") + tag_of(902, 1) + b"8" * 8 + tag_of(903, 5) + b"4444"
    group = tag_of(904, 3) + tag_of(1, 3) + field(2, 1) + tag_of(1, 4) + tag_of(904, 4)
    assert read(unknown + field(4, 1) + group) == {"immutable": True}


# --- envelopes ------------------------------------------------------------------------------------


def test_another_kind_is_named_and_not_read() -> None:
    decoded = decode(enveloped(b"\xff", "v1", "Foo"), f"{CORE}ConfigMap", MESSAGES)
    assert decoded == ("v1", "Foo", {"kind": "Foo", "apiVersion": "v1"})


def test_a_body_that_does_not_say_what_it_is_is_what_the_path_says() -> None:
    assert decode(MAGIC + field(2, field(4, 1)), f"{CORE}ConfigMap", MESSAGES) == ("", "", {"immutable": True})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty data (<empty>)"),
        (MAGIC, "empty body (6b387300)"),
        (b"k8s", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6b3873)"),
        (
            b'{"kind": "ConfigMap", "apiVersion": "v1"}',
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] "
            '({"kind": "ConfigMap", "apiVers ...)',
        ),
        (MAGIC + b"\x0a\x7f", "unexpected EOF (6b3873000a7f)"),
        (MAGIC + b"\x08\x01", "proto: wrong wireType = 0 for field Unknown (6b3873000801)"),
        (MAGIC + b"\x00\x01", "proto: Unknown: illegal tag 0 (wire type 0) (6b3873000001)"),
    ],
)
def test_a_body_without_a_readable_envelope(body: bytes, why: str) -> None:
    assert refusal(body) == f"the object provided is unrecognized (must be of type ConfigMap): {why}"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x0a\x05abc", "unexpected EOF"),
        (b"\x0a", "unexpected EOF"),
        (b"\x0a\x80", "unexpected EOF"),
        (b"\x20", "unexpected EOF"),
        (b"\x20" + b"\xff" * 11, "proto: integer overflow"),
        (b"\x0a" + varint(-1), "proto: negative length found during unmarshaling"),
        (b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
        (b"\x02\x00", "proto: ConfigMap: illegal tag 0 (wire type 2)"),
        (b"\x08\x01", "proto: wrong wireType = 0 for field Metadata"),
        (b"\x22\x00", "proto: wrong wireType = 2 for field Immutable"),
        (b"\xf9\x07abc", "unexpected EOF"),
        (b"\xfb\x07", "unexpected EOF"),
        (b"\xfe\x07", "proto: illegal wireType 6"),
        (field(2, field(1, b"\xff")), "proto: field data: string field contains invalid UTF-8"),
        (field(2, field(2, 1)), "proto: wrong wireType = 0 for field Data"),
        (field(1, field(8, field(1, 1 << 60))), "Time.MarshalJSON: year outside of range [0,9999]"),
        (field(1, field(8, field(1, b""))), "proto: wrong wireType = 2 for field Time"),
        (field(1, field(17, field(7, field(1, b"{")))), "unexpected end of JSON input"),
        (field(1, field(17, field(7, field(1, b"[" * 5000)))), "exceeded max depth"),
    ],
)
def test_a_message_that_is_damaged(raw: bytes, why: str) -> None:
    assert refusal(enveloped(raw)) == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {why}'


def test_the_version_in_a_refusal_is_without_the_group() -> None:
    message = refusal(enveloped(b"\x0a", "apps/v1", "Deployment"), "io.k8s.api.apps.v1.Deployment")
    assert message == 'Deployment in version "v1" cannot be handled as a Deployment: unexpected EOF'


@pytest.mark.parametrize("nested", [150, 20_000])
def test_schemas_in_schemas_have_a_bottom(nested: int) -> None:
    schema = b""
    for _ in range(nested):
        schema = field(28, schema)  # not
    definition = CRD.replace("CustomResourceDefinition", "JSONSchemaProps")
    kind = "JSONSchemaProps"
    message = refusal(enveloped(schema, "v1", kind), definition)
    assert (
        message
        == f'{kind} in version "v1" cannot be handled as a {kind}: proto: {kind}: more than 100 messages in each other'
    )


def test_deep_json_at_the_bottom_of_deep_messages_is_refused() -> None:
    schema = field(8, field(1, b"[" * 250 + b"]" * 250))  # default
    for _ in range(90):
        schema = field(28, schema)
    definition = CRD.replace("CustomResourceDefinition", "JSONSchemaProps")
    assert refusal(enveloped(schema, "v1", "JSONSchemaProps"), definition).endswith("exceeded max depth")


def test_every_truncation_of_a_real_body_is_refused_or_read() -> None:
    for case in SENT:
        body = base64.b64decode(case["body"])
        for length in range(len(body)):
            try:
                decode(body[:length], case["definition"], MESSAGES)
            except ApiError as error:
                assert error.code == 400


# --- lists ----------------------------------------------------------------------------------------


def test_a_list_in_pieces_is_the_list() -> None:
    listable = {resource.definition for resource in BUILTIN if "list" in resource.verbs}
    for definition in filter(known, listable):
        shell = {"kind": "AList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
        items = [{"metadata": {"name": name}} for name in "abc"]
        pieces = [encode_items(part, definition, MESSAGES) for part in (items[:2], items[2:])]
        whole = encode({**shell, "items": items}, f"{definition}List", MESSAGES)
        start, end = list_frame(shell, definition, sum(map(len, pieces)), MESSAGES)
        assert b"".join([start, *pieces, end]) == whole
