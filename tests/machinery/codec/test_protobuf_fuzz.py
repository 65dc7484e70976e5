"""Protobuf, by chance: any object of the table survives the journey, and no bytes bring the reader down."""

import base64
import json
from pathlib import Path
from typing import Any

from examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from farflung.apis import wire
from farflung.machinery.codec.protobuf import MAGIC, decode, encode
from farflung.machinery.codec.protobuf_bytes import delimited
from farflung.machinery.errors import ApiError
from farflung.machinery.structs import LIST, MAP, SPECIAL, GoField

SENT = [json.loads(line) for line in Path(__file__).with_name("protobuf_bodies.jsonl").read_text().splitlines()]
BODIES = [(case["definition"], base64.b64decode(case["body"])) for case in SENT]

KINDS = [
    *sorted({case["definition"] for case in SENT}),
    "io.k8s.api.core.v1.ConfigMapList",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.discovery.v1.EndpointSlice",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
]

texts = st.text(max_size=6)
moments = st.datetimes().filter(lambda moment: moment.year > 1)
json_values = st.recursive(
    st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
SCALARS = {
    "string": texts,
    "bool": st.booleans(),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.binary(max_size=5).map(lambda content: base64.b64encode(content).decode()),
}
SPECIALS = {
    "Time": moments.map(lambda moment: moment.isoformat(timespec="seconds") + "Z"),
    "MicroTime": moments.map(lambda moment: moment.isoformat(timespec="microseconds") + "Z"),
    "Quantity": st.sampled_from(["0", "1", "100m", "1Gi", "-5k"]),
    "IntOrString": st.integers(-(1 << 31), (1 << 31) - 1) | texts,
    "FieldsV1": json_values,
    "RawExtension": json_values,
    "JSON": json_values,
}


@st.composite
def structs(draw: st.DrawFn, definition: str, depth: int) -> dict[str, Any]:
    """An object as Go would print it: what cannot be empty is there, of the rest now and then a field."""
    obj: dict[str, Any] = {}
    members = [member for member in wire.members(definition) if member.number]
    chosen = draw(st.sets(st.sampled_from(members), max_size=4)) if members else set()
    for member in members:
        if member.inline:
            obj |= draw(structs(member.type, depth))
        elif always_there(member) or (member in chosen and depth < 6):
            value = draw(values(member, depth))
            if always_there(member) or member.pointer or value not in ("", 0, [], {}):
                obj[member.name] = value
    return obj


def always_there(member: GoField) -> bool:
    """Whether Go sends the field whatever it holds, and JSON shows it."""
    if member.pointer or member.shape in (LIST, MAP) or member.type == "bytes":
        return False
    if member.type in SCALARS:
        return not member.omitempty
    return SPECIAL.get(member.type, {}) is not None


def values(member: GoField, depth: int) -> st.SearchStrategy[Any]:
    one = value_of(member.type, depth + 1)
    if member.shape == LIST:
        return st.lists(one, min_size=1, max_size=2)
    if member.shape == MAP:
        return st.dictionaries(texts, one, min_size=1, max_size=2)
    return one


def value_of(type_: str, depth: int) -> st.SearchStrategy[Any]:
    name = type_.rpartition(".")[2]
    if type_ in SCALARS:
        return SCALARS[type_]
    if name in SPECIALS and type_ in SPECIAL:
        return SPECIALS[name]
    if type_ in SPECIAL:
        return schema_choices(type_, name, depth)
    if wire.members(type_) and wire.members(type_)[0].wrapped:
        return st.lists(texts, min_size=1, max_size=2)
    return structs(type_, depth)


def schema_choices(type_: str, name: str, depth: int) -> st.SearchStrategy[Any]:
    schema = structs(type_.partition("Or")[0], depth)
    other = {
        "Array": st.lists(schema, min_size=1, max_size=2),
        "Bool": st.booleans(),
        "StringArray": st.lists(texts, min_size=1),
    }
    return schema | other[name.partition("Or")[2]]


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    definition = draw(st.sampled_from(KINDS))
    type_meta = {"kind": definition.rpartition(".")[2], "apiVersion": draw(st.sampled_from(["v1", "apps/v1"]))}
    return definition, type_meta | draw(structs(definition, 0))


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(objects())
def test_an_object_that_is_written_and_read_is_the_same(case: tuple[str, dict[str, Any]]) -> None:
    definition, obj = case
    body = encode(obj, definition, wire.MESSAGES)
    decoded = decode(body, definition, wire.MESSAGES)
    assert decoded.obj == obj
    assert encode(decoded.obj, definition, wire.MESSAGES) == body


def read_anything(body: bytes, definition: str) -> None:
    """Either a clear refusal, or an object that can be written and then stays as it is."""
    try:
        obj = decode(body, definition, wire.MESSAGES).obj
    except ApiError as error:
        assert (error.code, error.reason) == (400, "BadRequest")
        json.dumps(error.status()).encode()
        return
    if obj.get("kind", "") in ("", definition.rpartition(".")[2]):
        settled = decode(encode(obj, definition, wire.MESSAGES), definition, wire.MESSAGES).obj
        assert decode(encode(settled, definition, wire.MESSAGES), definition, wire.MESSAGES).obj == settled


@settings(max_examples=examples(150))
@given(st.binary(max_size=200), st.sampled_from(KINDS))
@example(b"\x0a\x02\x0a\x00", "io.k8s.api.core.v1.ConfigMapList")
def test_any_bytes_at_all_are_refused_or_read(content: bytes, definition: str) -> None:
    read_anything(content, definition)
    read_anything(MAGIC + content, definition)
    read_anything(MAGIC + delimited(b"\x12", content), definition)


@settings(max_examples=examples(200))
@given(
    st.sampled_from(BODIES),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=4),
)
def test_a_real_body_with_bytes_changed_added_or_cut_is_refused_or_read(
    case: tuple[str, bytes], changes: list[tuple[int, int, bytes]]
) -> None:
    definition, body = case
    for place, removed, added in changes:
        at = len(MAGIC) + place % (len(body) - len(MAGIC) + 1)
        body = body[:at] + added + body[at + removed :]
    read_anything(body, definition)
