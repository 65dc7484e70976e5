"""The wire table agrees with the definitions we serve, and answers what Go's JSON encoder does."""

import re

from farflung.apis import definitions, wire
from farflung.machinery.structs import LIST, MAP, SCALARS, SPECIAL

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

NOT_SERVED = re.compile(r".*(\.v\dalpha\d|\.v\dbeta\d|\.resource\.v1|kube-aggregator|pkg\.version)\.?.*")


def served() -> list[str]:
    return [name for name in definitions.names() if name not in SPECIAL and not NOT_SERVED.fullmatch(name)]


def test_every_served_definition_has_exactly_the_fields_the_table_knows() -> None:
    for name in served():
        assert wire.known(name), name
        assert set(wire.fields(name)) == set(definitions.definition(name).get("properties", {})), name


def test_every_type_a_field_names_is_in_the_table() -> None:
    for name in served():
        for field in wire.members(name):
            assert field.type in SCALARS or field.type in SPECIAL or wire.known(field.type), (name, field)


def test_every_field_but_the_type_meta_has_a_number_of_its_own() -> None:
    for name in served():
        numbers = [field.number for field in wire.members(name) if field.name not in ("TypeMeta", "kind", "apiVersion")]
        if not name.startswith((f"{META}API", f"{META}DeleteOptions", f"{META}WatchEvent")):
            assert all(numbers), name
        assert len(set(numbers)) == len(numbers), name


def test_shapes_agree_with_the_definitions() -> None:
    for name in served():
        properties = definitions.definition(name).get("properties", {})
        for field in wire.fields(name).values():
            kind = properties[field.name].get("type", "")
            wrapped = field.type == f"{META}Verbs"
            if field.shape == LIST or wrapped:
                assert "array" in kind, (name, field)
            elif field.shape == MAP:
                assert "object" in kind, (name, field)
            else:
                assert "array" not in kind, (name, field)


def test_a_field_says_its_number_type_and_whether_it_is_a_pointer() -> None:
    replicas = wire.fields("io.k8s.api.apps.v1.DeploymentSpec")["replicas"]
    assert (replicas.number, replicas.type, replicas.pointer, replicas.omitempty) == (1, "int32", True, True)
    labels = wire.fields(f"{META}ObjectMeta")["labels"]
    assert (labels.number, labels.type, labels.shape, labels.pointer) == (11, "string", MAP, False)
    containers = wire.fields(f"{CORE}PodSpec")["containers"]
    assert (containers.number, containers.type, containers.shape, containers.omitempty) == (
        2,
        f"{CORE}Container",
        LIST,
        False,
    )


def test_an_inlined_struct_is_a_member_but_json_shows_its_fields() -> None:
    assert [member.name for member in wire.members(f"{CORE}Volume")] == ["name", "VolumeSource"]
    source = wire.members(f"{CORE}Volume")[1]
    assert source.inline
    assert (source.number, source.type) == (2, f"{CORE}VolumeSource")
    assert wire.fields(f"{CORE}Volume")["configMap"].type == f"{CORE}ConfigMapVolumeSource"


def test_fields_are_in_the_order_go_writes_them() -> None:
    assert list(wire.fields(f"{CORE}ConfigMap")) == [
        "kind",
        "apiVersion",
        "metadata",
        "immutable",
        "data",
        "binaryData",
    ]


def test_a_list_that_protobuf_wraps_has_one_member_and_no_fields() -> None:
    (items,) = wire.members("io.k8s.api.authentication.v1.ExtraValue")
    assert (items.number, items.type, items.shape, items.wrapped) == (1, "string", LIST, True)
    assert not wire.fields("io.k8s.api.authentication.v1.ExtraValue")


def test_an_unknown_definition_has_pointers_without_numbers() -> None:
    spec = wire.fields("io.k8s.api.resource.v1.ResourceClaim")["spec"]
    assert (spec.number, spec.pointer, spec.omitempty) == (0, True, True)
