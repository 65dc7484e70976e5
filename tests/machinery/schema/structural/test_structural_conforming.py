"""What becomes of the fields of a custom resource before anybody looks at them."""

from typing import Any

import orjson
import pytest

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.errors import Malformed
from farflung.machinery.schema.structural.structural import Structural, compile_structural

X = {"type": "object", "properties": {"x": {"type": "string", "default": "X"}, "y": {"type": "string"}}}
SPEC: dict[str, Any] = {
    "type": "object",
    "default": {},
    "properties": {
        "a": {"type": "string", "default": "A"},
        "n": {"type": "integer"},
        "nested": {**X, "default": {}},
        "bare": X,
        "list": {"type": "array", "items": X},
        "map": {"type": "object", "additionalProperties": X},
        "open": {"type": "object", "additionalProperties": True},
        "nullable": {"type": "string", "nullable": True, "default": "N"},
        "strict": {"type": "string"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "half": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": X}},
        "several": {
            "type": "array",
            "x-kubernetes-preserve-unknown-fields": True,
            "items": {"type": "object", "properties": {"known": X}},
        },
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": X}},
    },
}


@pytest.fixture(scope="module")
def structural() -> Structural:
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    return compile_structural({"type": "object", "properties": {"spec": SPEC, "status": status}}, OBJECT_META)


def conformed(structural: Structural, spec: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Without what is always defaulted."""
    obj = {"spec": spec}
    problems = structural.conform(obj)
    always = {"a": "A", "nested": {"x": "X"}, "nullable": "N"}
    return {name: value for name, value in obj["spec"].items() if always.get(name) != value}, problems


def test_defaults_come_from_nothing_at_all(structural: Structural) -> None:
    obj: dict[str, Any] = {}
    assert structural.conform(obj) == []
    assert obj == {"spec": {"a": "A", "nested": {"x": "X"}, "nullable": "N"}}


def test_defaults_are_not_shared_between_objects(structural: Structural) -> None:
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    structural.conform(one)
    one["spec"]["nested"]["x"] = "changed"
    structural.conform(other)
    assert other["spec"]["nested"] == {"x": "X"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"bare": {}}, {"bare": {"x": "X"}}),
        ({"list": [{}, {"x": "y"}]}, {"list": [{"x": "X"}, {"x": "y"}]}),
        ({"map": {"k": {}}}, {"map": {"k": {"x": "X"}}}),
        ({"a": None, "strict": None, "nested": None}, {}),
        ({"nullable": None}, {"nullable": None}),
        ({"map": {"k": None}}, {"map": {}}),
        ({"free": {"any": [1, None, {"x": None}]}}, {"free": {"any": [1, None, {"x": None}]}}),
        ({"list": [], "map": {}, "free": {}}, {"list": [], "map": {}, "free": {}}),
        ({"several": [{"other": 1}]}, {"several": [{"other": 1}]}),
    ],
)
def test_nulls_go_and_defaults_come(structural: Structural, spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert conformed(structural, spec) == (expected, [])


@pytest.mark.parametrize(
    ("spec", "expected", "unknown"),
    [
        ({"zzz": 1, "A": 2}, {}, ["spec.A", "spec.zzz"]),
        (
            {"zzz": 1, "nested": {"q": 1}, "list": [{"q": 1}], "map": {"k": {"q": 1}}},
            {"list": [{"x": "X"}], "map": {"k": {"x": "X"}}},
            ["spec.list[0].q", "spec.map.k.q", "spec.nested.q", "spec.zzz"],
        ),
        (
            {"half": {"other": {"x": 1}, "known": {"x": "1", "z": 2}}},
            {"half": {"other": {"x": 1}, "known": {"x": "1"}}},
            ["spec.half.known.z"],
        ),
        (
            {"several": [{"other": 1, "known": {"z": 2}}]},
            {"several": [{"other": 1, "known": {"x": "X"}}]},
            ["spec.several[0].known.z"],
        ),
        (
            {"open": {"a": 1, "b": {"c": 1}, "d": [[{"e": 1}]]}},
            {"open": {"a": 1, "b": {}, "d": [[{}]]}},
            ["spec.open.b.c", "spec.open.d[0][0].e"],
        ),
    ],
)
def test_unknown_fields_go_and_are_named(
    structural: Structural, spec: dict[str, Any], expected: dict[str, Any], unknown: list[str]
) -> None:
    assert conformed(structural, spec) == (expected, [f'unknown field "{path}"' for path in unknown])


def test_identity_stays_at_the_root_alone(structural: Structural) -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "foo": 1, "status": {"phase": "x", "q": 1}}
    assert structural.prune(obj) == ['unknown field "foo"', 'unknown field "status.q"']
    assert obj == {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "status": {"phase": "x"}}


def test_the_metadata_of_an_embedded_object_has_the_fields_of_every_objects(structural: Structural) -> None:
    metadata = {"name": "n", "foo": 1, "creationTimestamp": None}
    embedded = {"apiVersion": "v1", "kind": "X", "metadata": metadata, "spec": {"z": 1}, "other": 1}
    spec, problems = conformed(structural, {"embedded": embedded})
    assert spec == {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {"x": "X"}}}
    assert problems == [
        'unknown field "spec.embedded.other"',
        'unknown field "spec.embedded.spec.z"',
        'unknown field "spec.embedded.metadata.foo"',
    ]


@pytest.mark.parametrize(
    ("embedded", "why"),
    [
        ({"kind": 5}, "spec.embedded.kind: Invalid value: 5: must be a string"),
        ({"metadata": {"labels": {"a": 1}}}, "json: cannot unmarshal number into Go struct field ObjectMeta.labels"),
    ],
)
def test_an_embedded_object_whose_identity_cannot_be_read_is_malformed(
    structural: Structural, embedded: dict[str, Any], why: str
) -> None:
    with pytest.raises(Malformed, match=why.replace("[", r"\[")):
        structural.conform({"spec": {"embedded": embedded}})


def test_the_status_of_a_new_object_is_the_default_with_the_defaults_inside() -> None:
    status = {"type": "object", "default": {"y": "Y"}, "properties": X["properties"]}
    make = compile_structural({"type": "object", "properties": {"status": status}}, OBJECT_META).default_status
    assert make is not None
    assert make() == {"y": "Y", "x": "X"}
    assert make() is not make()


def test_a_status_without_default_is_left_out(structural: Structural) -> None:
    assert structural.default_status is None


def test_a_default_number_is_written_as_go_writes_it() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "default": 1.0}}}
    obj: dict[str, Any] = {}
    compile_structural(schema, OBJECT_META).conform(obj)
    assert orjson.dumps(obj) == b'{"n":1}'


def test_numbers_are_written_as_go_writes_them(structural: Structural) -> None:
    body = b'{"n":1.0,"free":{"e":1e3,"s":0.1,"neg":-0.0,"big":12345678901234567890,"in":[2.0,{"x":9007199254740993}]}}'
    spec, _ = conformed(structural, orjson.loads(body))
    assert orjson.dumps(spec) == (
        b'{"n":1,"free":{"e":1000,"s":0.1,"neg":0,"big":12345678901234567000,"in":[2,{"x":9007199254740993}]}}'
    )
