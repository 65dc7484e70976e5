"""Laws of the rules of workloads, for everything that has the right types."""

import copy
from functools import cache
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis import definitions, wire
from farflung.apis.builtin.rules import RULES
from farflung.apis.core.pods import check_pod_spec, check_template, default_pod_spec
from farflung.apis.core.services import NotAvailable, allocate_service
from farflung.hub.admission.pod_admission import admit_pod
from farflung.machinery.errors import ApiError, FieldError, Obj, invalid
from farflung.machinery.schema import conform, model
from farflung.machinery.schema.model import Schema

GROUPS = ("", "apps", "batch", "networking.k8s.io", "policy")
FORMATTED = ("ConfigMap", "Event")  #: have base64 and microseconds, which `values` does not generate
DEFINITIONS = {
    ("autoscaling", "HorizontalPodAutoscaler"): "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    **{
        (group, kind): f"io.k8s.api.{group.split('.')[0] or 'core'}.v1.{kind}"
        for group, kind in RULES
        if group in GROUPS and kind not in FORMATTED
    },
}
WORDS = "a b A_b a/b ../x /x é 25% 10.0.0.1 ::1 10.0.0.0/8 None Always ClientIP NodePort LoadBalancer ExternalName"
MORE_WORDS = "RollingUpdate OnDelete Indexed In Exists Localhost Never Bound Deployment apps/v1 @hourly True"
TEXTS = st.sampled_from(["", "A b", "1 1 1 1 1", *WORDS.split(), *MORE_WORDS.split()])
NUMBERS = st.sampled_from([-1, 0, 1, 80, 256, 70000])
QUANTITIES = st.sampled_from(["0", "-1", "100m", "1Gi", "1"])
MIXED = st.sampled_from([-1, 0, 80, "http", "25%", "0%", "x y", ""])
DEPTH = 9


def values(schema: Schema, depth: int) -> st.SearchStrategy[Any]:
    match schema.kind:
        case model.OBJECT:
            return objects(schema, depth)
        case model.MAP:
            return st.dictionaries(TEXTS, values(schema.values, depth - 1), max_size=2)
        case model.LIST:
            return st.lists(values(schema.items, depth - 1), max_size=2) if depth > 0 else st.just([])
        case model.INTEGER:
            return NUMBERS
        case model.BOOLEAN:
            return st.booleans()
        case model.QUANTITY:
            return QUANTITIES
        case model.INT_OR_STRING:
            return MIXED
        case model.ANY:
            return st.just({"a": 1})
    return st.just("2020-01-01T00:00:00Z") if schema.format == "date-time" else TEXTS


def objects(schema: Schema, depth: int) -> st.SearchStrategy[Obj]:
    """A few of its members: a wide type would otherwise hold a little of everything and go nowhere deep."""
    members = sorted(schema.property_names)
    if depth <= 0 or not members:
        return st.just({})

    @st.composite
    def draw_some(draw: Any) -> Obj:
        chosen = draw(st.lists(st.sampled_from(members), max_size=5, unique=True))
        for member in ("spec", "template", "containers"):
            if member in members and member not in chosen:
                chosen.append(member)
        return {name: draw(_member(schema, name, depth - 1)) for name in chosen}

    return draw_some()


def _member(schema: Schema, name: str, depth: int) -> st.SearchStrategy[Any]:
    child = schema.member(name)
    assert child is not None
    return values(child, depth)


@cache
def conformer(definition: str) -> conform.Conformer:
    return conform.compile(definitions.schema(definition), wire.fields)


def conformed(key: tuple[str, str], drawn: Obj) -> Obj:
    drawn.pop("metadata", None)
    obj = conformer(DEFINITIONS[key]).conform(drawn).obj
    obj["metadata"] = {"name": "a", "namespace": "n", "uid": "u"}
    return obj


class Plenty:
    """Pools that never run out."""

    def take_address(self, wanted: str) -> str:
        if wanted == "10.0.0.1":
            raise NotAvailable("provided IP is already allocated")
        return wanted or "10.0.0.2"

    def take_port(self, wanted: int) -> int:
        return wanted or 30000

    def release_address(self, address: str) -> None: ...

    def release_port(self, number: int) -> None: ...


def admitted(key: tuple[str, str], obj: Obj) -> Obj | None:
    """An object as it comes to validation, or None if it was refused before."""
    try:
        if key == ("", "Pod"):
            admit_pod(obj, account={}, priority_class=None, suffix="abcde")
        RULES[key].prepare_create(obj)
        if key == ("", "Service"):
            allocate_service(obj, None, Plenty())
    except ApiError:
        return None
    return obj


@pytest.mark.parametrize("key", DEFINITIONS, ids=lambda key: key[1])
def test_rules_never_fail_and_defaults_are_final(key: tuple[str, str]) -> None:
    rules, schema = RULES[key], definitions.schema(DEFINITIONS[key])

    @settings(max_examples=examples(5), database=None)
    @given(objects(schema, DEPTH), objects(schema, DEPTH))
    def hold(first: Obj, second: Obj) -> None:
        old, new = conformed(key, first), conformed(key, second)
        for obj in (old, new):
            rules.default(obj)
            again = copy.deepcopy(obj)
            rules.default(again)
            assert again == obj
        created = admitted(key, old)
        if created is None:
            return
        errors = [*rules.validate(created), *rules.validate_create(created)]
        again = copy.deepcopy(created)
        rules.default(again)
        assert [str(error) for error in [*rules.validate(again), *rules.validate_create(again)]] == list(
            map(str, errors)
        )
        rules.prepare_status(status := copy.deepcopy(new), created)
        errors += rules.validate_status(status, created)
        rules.prepare_update(new, created)
        errors += [*rules.validate(new), *rules.validate_update(new, created)]
        rules.warnings(new, created)
        assert invalid(*key, "a", errors).status()["code"] == 422
        assert rules.validate_update(copy.deepcopy(created), created) == []

    hold()


POD_SPEC = "io.k8s.api.core.v1.PodSpec"
SPECS = st.fixed_dictionaries(
    {"containers": st.just([{"name": "a", "image": "b"}]) | _member(definitions.schema(POD_SPEC), "containers", 3)},
    optional={
        name: _member(definitions.schema(POD_SPEC), name, 3) for name in ("volumes", "restartPolicy", "hostNetwork")
    },
)


@settings(max_examples=examples(40))
@given(SPECS)
def test_a_cached_template_is_checked_like_a_new_one(drawn: Obj) -> None:
    spec = conformer(POD_SPEC).conform(drawn).obj
    default_pod_spec(spec)
    expected: list[FieldError] = []
    check_pod_spec(spec, "template.spec", expected)
    for _ in range(2):
        errors: list[FieldError] = []
        check_template({"spec": copy.deepcopy(spec)}, "template", errors)
        assert list(map(str, errors)) == list(map(str, expected))
