from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis import definitions, wire
from farflung.machinery.errors import Malformed, Obj, strict_text
from farflung.machinery.schema.conform import Conformer, compile, illegal_base64

KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Pod": "io.k8s.api.core.v1.Pod",
    "Service": "io.k8s.api.core.v1.Service",
    "Lease": "io.k8s.api.coordination.v1.Lease",
    "Role": "io.k8s.api.rbac.v1.Role",
    "TokenReview": "io.k8s.api.authentication.v1.TokenReview",
    "CustomResourceDefinition": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
}
CONFORMERS = {kind: compile(definitions.schema(name), wire.fields) for kind, name in KINDS.items()}


def conform(kind: str, obj: Obj) -> Obj:
    return CONFORMERS[kind].conform(obj).obj


def problems(kind: str, obj: Obj) -> list[str]:
    return CONFORMERS[kind].conform(obj).problems


def why(kind: str, obj: Any) -> str:
    with pytest.raises(Malformed) as refused:
        CONFORMERS[kind].conform(obj)
    return refused.value.why


# --- the round trip ---------------------------------------------------------------------------------


def test_structs_that_are_no_pointers_are_always_there() -> None:
    obj = {
        "kind": "Deployment",
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    assert conform("Deployment", obj) == {
        "kind": "Deployment",
        "metadata": {},
        "spec": {
            "selector": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}},
            "strategy": {},
        },
        "status": {},
    }


def test_fields_without_omitempty_are_always_there() -> None:
    assert conform("Role", {}) == {"metadata": {}, "rules": None}
    assert conform("Role", {"rules": []}) == {"metadata": {}, "rules": []}
    assert conform("Pod", {})["spec"] == {"containers": None}


@pytest.mark.parametrize(
    ("definition", "field", "value"),
    [
        ("core.v1.ServicePort", "targetPort", 0),
        ("core.v1.ServicePort", "port", 0),
        ("core.v1.Container", "name", ""),
        ("core.v1.Container", "resources", {}),
        ("core.v1.Event", "eventTime", None),
        ("core.v1.ResourceFieldSelector", "divisor", "0"),
        ("core.v1.ServiceStatus", "loadBalancer", {}),
        (
            "batch.v1.CronJobSpec",
            "jobTemplate",
            {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"containers": None}}}},
        ),
    ],
)
def test_the_encoded_value_of_an_unset_field(definition: str, field: str, value: object) -> None:
    conformer = compile(definitions.schema(f"io.k8s.api.{definition}"), wire.fields)
    assert conformer.conform({}).obj[field] == value


def test_empty_values_vanish_unless_they_are_pointers() -> None:
    spec = {"containers": [], "hostNetwork": False, "nodeName": "", "volumes": [], "nodeSelector": {}}
    assert conform("Pod", {"spec": spec})["spec"] == {"containers": []}
    pointers = {"terminationGracePeriodSeconds": 0, "securityContext": {}, "automountServiceAccountToken": False}
    assert conform("Pod", {"spec": pointers})["spec"] == {"containers": None, **pointers}


def test_null_means_unset() -> None:
    obj = {"metadata": {"name": None, "labels": None, "creationTimestamp": None}, "data": None, "immutable": None}
    assert conform("ConfigMap", obj) == {"metadata": {}}


def test_null_in_a_list_or_map_is_the_zero_value() -> None:
    assert conform("ConfigMap", {"data": {"a": None}})["data"] == {"a": ""}
    assert conform("ConfigMap", {"binaryData": {"a": None}})["binaryData"] == {"a": ""}
    assert conform("Service", {"spec": {"ports": [None]}})["spec"]["ports"] == [{"port": 0, "targetPort": 0}]
    assert conform("Pod", {"spec": {"containers": [{"args": [None, "a"]}]}})["spec"]["containers"][0]["args"] == [
        "",
        "a",
    ]


def test_quantities_times_and_bytes_get_their_canonical_form() -> None:
    limits = {"cpu": "1000m", "memory": "1024Mi", "pods": 0.5, "x": 5000, "y": None, "z": " 1 "}
    pod = conform("Pod", {"spec": {"containers": [{"resources": {"limits": limits}}]}})
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "1",
        "memory": "1Gi",
        "pods": "500m",
        "x": "5k",
        "y": "0",
        "z": "1",
    }
    lease = {
        "metadata": {"creationTimestamp": "2020-01-01T02:00:00+02:00"},
        "spec": {"renewTime": "2020-01-01T00:00:00.500000Z"},
    }
    assert conform("Lease", lease) == {
        "metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"renewTime": "2020-01-01T00:00:00.500000Z"},
    }
    assert conform("ConfigMap", {"binaryData": {"a": "AA\nEC\r\n", "b": "YR=="}})["binaryData"] == {
        "a": "AAEC",
        "b": "YQ==",
    }


def test_a_zero_time_is_no_time() -> None:
    assert conform("ConfigMap", {"metadata": {"deletionTimestamp": "0001-01-01T00:00:00Z"}}) == {"metadata": {}}


def test_lists_in_maps_are_kept() -> None:
    user = {"extra": {"a": ["b"], "c": []}}
    assert conform("TokenReview", {"status": {"user": user}})["status"]["user"] == user


def test_fields_come_in_the_order_of_go() -> None:
    obj = {"data": {"a": "1"}, "metadata": {"labels": {"x": "y"}, "name": "n"}, "apiVersion": "v1", "kind": "ConfigMap"}
    assert orjson.dumps(conform("ConfigMap", obj)) == (
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","labels":{"x":"y"}},"data":{"a":"1"}}'
    )


def test_schemas_in_schemas_lose_unknown_fields_without_a_word() -> None:
    nested = {"type": "object", "unknown": 1, "additionalProperties": {"type": "string", "nonsense": 1}}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": nested}}, "additionalProperties": True}
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    conformed = CONFORMERS["CustomResourceDefinition"].conform(crd)
    assert conformed.problems == []
    assert conformed.obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
        "additionalProperties": True,
    }


# --- unknown fields ---------------------------------------------------------------------------------


def test_unknown_fields_are_dropped_and_reported_in_the_order_of_the_body() -> None:
    container = {"name": "c", "bar": 1, "ports": [{"containerPort": 80, "x": 1}]}
    obj = {"zzz": 1, "spec": {"foo": 1, "template": {"spec": {"containers": [{}, container]}}}, "metadata": {"q": 1}}
    assert problems("Deployment", obj) == [
        'unknown field "zzz"',
        'unknown field "spec.foo"',
        'unknown field "spec.template.spec.containers[1].bar"',
        'unknown field "spec.template.spec.containers[1].ports[0].x"',
        'unknown field "metadata.q"',
    ]
    assert "foo" not in conform("Deployment", obj)["spec"]


def test_names_are_case_sensitive() -> None:
    assert problems("ConfigMap", {"Data": {"a": "1"}}) == ['unknown field "Data"']


def test_a_hundred_problems_are_enough() -> None:
    assert len(problems("ConfigMap", {f"f{index}": 1 for index in range(1000)})) == 100


def test_a_strict_reader_lists_them() -> None:
    assert strict_text(['unknown field "x"', 'duplicate field "y"']) == (
        'strict decoding error: unknown field "x", duplicate field "y"'
    )
    assert strict_text(["line 7: key false already set in map", 'unknown field "x"']) == (
        'strict decoding error: yaml: unmarshal errors:\n  line 7: key false already set in map, unknown field "x"'
    )


# --- wrong types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        ("ConfigMap", {"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
        ("ConfigMap", {"data": []}, "array into Go struct field ConfigMap.data of type map[string]string"),
        ("ConfigMap", {"metadata": []}, "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        (
            "ConfigMap",
            {"metadata": {"labels": {"a": True}}},
            "bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "Deployment",
            {"spec": {"replicas": "x"}},
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            {"spec": {"replicas": 2**31}},
            "number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            {"spec": {"replicas": 1.5}},
            "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Pod",
            {"spec": {"containers": [{}, {"args": [{}]}]}},
            "object into Go struct field Container.spec.containers.args of type string",
        ),
        (
            "Pod",
            {"spec": {"containers": {}}},
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        ("Service", {"spec": {"ports": [{"targetPort": True}]}}, "bool into Go value of type int32"),
        ("Lease", {"spec": {"renewTime": 5}}, "number into Go value of type string"),
        ("ConfigMap", [], "array into Go value of type v1.ConfigMap"),
    ],
)
def test_wrong_types_are_refused_with_the_words_of_go(kind: str, obj: Any, expected: str) -> None:
    assert why(kind, obj) == f"json: cannot unmarshal {expected}"


def test_wrong_quantities_times_and_bytes_are_refused() -> None:
    pod = {"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}
    assert why("Pod", pod).startswith("quantities must match the regular expression")
    assert why("Lease", {"spec": {"renewTime": "yesterday"}}).startswith('parsing time "yesterday" as')
    assert why("ConfigMap", {"binaryData": {"a": "***"}}) == "illegal base64 data at input byte 0"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("***", 0),
        ("not base64!", 3),
        ("AAE", 0),
        ("AAECA", 4),
        ("AA=A", 2),
        ("AA=", 3),
        ("AA==A", 4),
        ("A===", 1),
        ("é", 0),
        ("AAEC==", 4),
        ("AAEC====", 4),
    ],
)
def test_bad_base64_is_refused_at_the_byte_go_names(text: str, position: int) -> None:
    assert illegal_base64(text) == position
    assert why("ConfigMap", {"binaryData": {"a": text}}) == f"illegal base64 data at input byte {position}"


def test_recursive_types_end_somewhere() -> None:
    schema: Obj = {}
    for _ in range(5000):
        schema = {"not": schema}
    crd = {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}
    assert why("CustomResourceDefinition", crd) == "exceeded max depth"


# --- laws -------------------------------------------------------------------------------------------

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "1Gi", "0.5", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000000Z", "AAEC"])
    | st.text(max_size=3)
)


@st.composite
def values_for(draw: st.DrawFn, name: str, depth: int = 0) -> Any:
    """A value that has a chance to fit a type: of a struct a few of its fields, now and then with a wrong value."""
    if draw(st.integers(0, 30)) == 0:
        return draw(leaves)
    fields = wire.fields(name) if name.startswith("io.") else {}
    if not fields:
        return draw(fitting(name))
    value = {}
    for field in draw(st.lists(st.sampled_from([*fields, "unknown"]), max_size=4 - depth // 2, unique=True)):
        fact = fields.get(field)
        value[field] = draw(in_shape(fact.shape, values_for(fact.type, depth + 1)) if fact else leaves)
    return value


def fitting(type_: str) -> st.SearchStrategy[Any]:
    match type_.rpartition(".")[2]:
        case "string":
            return st.sampled_from(["", "a"])
        case "int32" | "int64":
            return st.integers(-2, 2)
        case "bool":
            return st.booleans()
        case "Quantity":
            return st.sampled_from(["1000m", "0", "1.5Gi", 3, 0.25])
        case "Time":
            return st.sampled_from(["2020-01-01T00:00:00Z", "2020-01-01T01:00:00.5+01:00", "0001-01-01T00:00:00Z"])
        case "MicroTime":
            return st.just("2020-01-01T00:00:00.000001Z")
        case _:
            return st.sampled_from(["AAEC", "", None])


def in_shape(shape: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    match shape:
        case "list":
            return st.lists(values | st.none(), max_size=2)
        case "map":
            return st.dictionaries(st.sampled_from("ab"), values | st.none(), max_size=2)
        case _:
            return values


objects = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), values_for(KINDS[kind]).filter(lambda obj: type(obj) is dict))
)


@given(objects)
def test_conforming_twice_changes_nothing_more(case: tuple[str, Any]) -> None:
    kind, obj = case
    try:
        once = CONFORMERS[kind].conform(orjson.loads(orjson.dumps(obj))).obj
    except Malformed:
        return
    encoded = orjson.dumps(once)
    twice = CONFORMERS[kind].conform(once)
    assert orjson.dumps(twice.obj) == encoded
    assert twice.problems == []


@given(
    st.sampled_from(list(CONFORMERS.values())),
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["metadata", "spec", "status", "data", "containers", "ports", "rules", "x"]),
                inner,
                max_size=4,
            )
        ),
    ),
)
def test_any_json_conforms_or_is_refused(conformer: Conformer, value: Any) -> None:
    if value is None:
        return
    try:
        orjson.dumps(conformer.conform(value).obj)
    except Malformed as refused:
        assert refused.code == 400


def test_what_is_compiled_for_many_shapes_stays_bounded() -> None:
    conformer = CONFORMERS["Pod"]
    for number in range(2000):
        fields = [name for bit, name in enumerate(wire.fields("io.k8s.api.core.v1.PodSpec")) if number >> bit & 1]
        assert set(conformer.conform({"spec": dict.fromkeys(fields)}).obj["spec"]) == {"containers"}
