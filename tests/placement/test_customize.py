"""What is different in each place: parameters, and the replacements of Customizers."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.placement.customize import (
    Customized,
    Customizer,
    CustomizerReference,
    customized,
    expand,
    expands,
    parameters_of,
    parse_customizer,
    reference_of,
)

EXPAND = "edge.kcp.io/expand-parameters"
NAMES = "edge.kcp.io/customizer"
PLACE = {"env": "prod", "city": "Wien", "n": "3", "quoted": 'a "b" \\ \n', "json": '{"x": [1]}', "empty": ""}


def configured(annotations: dict[str, str] | None = None, **data: Any) -> Obj:
    metadata: Obj = {"name": "c", "namespace": "shop", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def customizer(*replacements: tuple[str, str], expanding: bool = False) -> Customizer:
    annotations = {EXPAND: "true"} if expanding else {}
    return parse_customizer(
        {
            "metadata": {"name": "cu", "namespace": "shop", "annotations": annotations},
            "replacements": [{"path": path, "value": value} for path, value in replacements],
        }
    )


def replaced(*replacements: tuple[str, str], expanding: bool = False, obj: Obj | None = None) -> Customized:
    obj = obj or configured({NAMES: "cu"}, a="1", b="2")
    before = deepcopy(obj)
    found = customized(obj, customizer(*replacements, expanding=expanding), PLACE)
    assert obj == before
    if found.problem:
        assert found.obj is obj
    return found


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expanded", "unknown"),
    [
        ("%(env)", "prod", ()),
        ("in %(city), %(env)!", "in Wien, prod!", ()),
        ("%(empty)", "", ()),
        ("%(nothing)", "%(nothing)", ("nothing",)),
        ("%(b) %(a) %(b)", "%(b) %(a) %(b)", ("a", "b")),
        ("100%%", "100%", ()),
        ("%%(env)", "%(env)", ()),
        ("%%%(env)", "%prod", ()),
        ("%%%%", "%%", ()),
        ("50 %", "50 %", ()),
        ("%d %s", "%d %s", ()),
        ("%(env", "prod", ()),
        ("%(nothing", "%(nothing", ("nothing",)),
        ("%()", "%()", ("…",)),
        ("%(a secret)", "%(a secret)", ("…",)),
        ("%(location.name)", "%(location.name)", ("location.name",)),
        ("", "", ()),
    ],
)
def test_parameters_in_a_text(text: str, expanded: str, unknown: tuple[str, ...]) -> None:
    assert expand(text, PLACE) == (expanded, unknown)


def test_what_is_put_in_is_not_expanded_again() -> None:
    assert expand("%(a)%(b)", {"a": "%", "b": "(a)%%"}) == ("%(a)%%", ())


def naively(text: str, parameters: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    out, unknown, at = "", set(), 0
    while at < len(text):
        if text[at : at + 2] == "%%":
            out, at = out + "%", at + 2
        elif text[at : at + 2] == "%(":
            end = text.find(")", at)
            end = len(text) if end < 0 else end
            name = text[at + 2 : end]
            if name in parameters:
                out += parameters[name]
            else:
                out += text[at : end + 1]
                unknown.add(name or "…")
            at = end + 1
        else:
            out, at = out + text[at], at + 1
    return out, tuple(sorted(unknown))


@given(st.text(alphabet="%()ab"), st.dictionaries(st.text(alphabet="ab", max_size=2), st.text(alphabet="%()ab")))
def test_texts_are_expanded_as_one_does_it_by_hand(text: str, parameters: dict[str, str]) -> None:
    expanded, unknown = naively(text, parameters)
    told = tuple(sorted({name if set(name) <= set("ab…") else "…" for name in unknown}))
    assert expand(text, parameters) == (expanded, told)


def test_labels_count_before_annotations_and_both_before_what_every_place_has() -> None:
    found = parameters_of(
        {"env": "label", "workspace": "mine"},
        {"env": "annotation", "color": "red", "location.name": "theirs"},
        location="florin",
        cluster="florin-1",
        workspace="1x2y",
    )
    assert found == {
        "env": "label",
        "color": "red",
        "workspace": "mine",
        "location.name": "theirs",
        "cluster.name": "florin-1",
    }
    assert parameters_of({}, {}, location="florin") == {"location.name": "florin"}


def test_every_text_of_an_object_is_expanded_and_no_key() -> None:
    obj = configured({EXPAND: "true", "note": "%(city)"}, **{"%(env)": "%(env)", "n": ["%(n)", {"deep": "%(n)%%"}, 7]})
    found = customized(obj, None, PLACE)
    assert found.problem == ""
    assert found.obj["metadata"]["annotations"] == {EXPAND: "true", "note": "Wien"}
    assert found.obj["data"] == {"%(env)": "prod", "n": ["3", {"deep": "3%"}, 7]}


@pytest.mark.parametrize("annotations", [None, {EXPAND: "false"}, {EXPAND: "True"}, {EXPAND: ""}, {"other": "true"}])
def test_an_object_that_does_not_ask_for_it_is_left_alone(annotations: dict[str, str] | None) -> None:
    obj = configured(annotations, a="%(env)")
    assert customized(obj, None, PLACE) == Customized(obj)
    assert customized(obj, None, PLACE).obj is obj


def test_unknown_parameters_stay_and_are_reported() -> None:
    found = customized(configured({EXPAND: "true"}, a="%(x) %(env) %(w)"), None, PLACE)
    assert (found.obj["data"]["a"], found.problem, found.unknown) == ("%(x) prod %(w)", "", ("w", "x"))


def test_the_later_names_of_the_annotations_count_too() -> None:
    assert expands(configured({"edge.kubestellar.io/expand-parameters": "true"}))
    assert reference_of(configured({"edge.kubestellar.io/customizer": "x"})) == CustomizerReference("shop", "x")
    assert reference_of(configured({"edge.kubestellar.io/customizer": "x", NAMES: "y"})) == CustomizerReference(
        "shop", "y"
    )


def test_an_object_cannot_become_too_large_by_its_parameters() -> None:
    obj = configured({EXPAND: "true"}, a="%(big)" * 10_000)
    found = customized(obj, None, {"big": "x" * 10_000})
    assert found.problem == "the object would become larger than 3 MiB"
    assert found.obj is obj


# --- which Customizer -----------------------------------------------------------------------------


def test_a_customizer_is_in_the_namespace_of_the_object_or_in_one_that_is_named() -> None:
    assert reference_of(configured()) is None
    assert reference_of(configured({NAMES: ""})) is None
    assert reference_of(configured({NAMES: "x"})) == CustomizerReference("shop", "x")
    assert reference_of(configured({NAMES: "else/x"})) == CustomizerReference("else", "x")


@pytest.mark.parametrize("name", ["/x", "x/", "a/b/c", "/"])
def test_a_name_that_is_none_is_a_problem(name: str) -> None:
    found = customized(configured({NAMES: name}), None, PLACE)
    assert found.problem == (
        f'metadata.annotations[edge.kcp.io/customizer]: "{name}" is neither NAME nor NAMESPACE/NAME'
    )


def test_an_object_without_a_namespace_must_say_the_customizers() -> None:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "annotations": {NAMES: "x"}}}
    assert customized(obj, customizer(), PLACE).problem == (
        "metadata.annotations[edge.kcp.io/customizer]: an object without a namespace names a Customizer as "
        "NAMESPACE/NAME"
    )
    obj["metadata"]["annotations"][NAMES] = "shop/cu"  # type: ignore[index]
    assert customized(obj, customizer(("$.spec", "{}")), PLACE).obj["spec"] == {}


def test_an_object_whose_customizer_is_missing_does_not_go() -> None:
    obj = configured({NAMES: "cu", EXPAND: "true"}, a="%(env)")
    found = customized(obj, None, PLACE)
    assert found.problem == "metadata.annotations[edge.kcp.io/customizer]: there is no Customizer shop/cu"
    assert found.obj is obj


def test_a_customizer_that_is_not_named_does_nothing() -> None:
    obj = configured(a="1")
    assert customized(obj, customizer(("$.data.a", '"2"')), PLACE).obj is obj


# --- replacements ---------------------------------------------------------------------------------


def test_replacements_are_made_in_their_order() -> None:
    found = replaced(("$.data", '{"x": "1"}'), ("$.data.y", '"2"'), ("$..y", '"3"'))
    assert found.obj["data"] == {"x": "1", "y": "3"}


def test_the_object_is_expanded_before_the_replacements() -> None:
    obj = configured({NAMES: "cu", EXPAND: "true"}, a="%(env)", b="%(city)")
    found = replaced(("$.data.a", '"%(env)"'), obj=obj)
    assert found.obj["data"] == {"a": "%(env)", "b": "Wien"}


def test_paths_and_values_of_a_customizer_are_expanded_if_it_asks_for_it() -> None:
    replacements = [("$.data.%(env)", '"in %(city)"'), ("$.data.n", "%(n)"), ("$.data.j", "%(json)")]
    found = replaced(*replacements, expanding=True)
    assert found.obj["data"] == {"a": "1", "b": "2", "prod": "in Wien", "n": 3, "j": {"x": [1]}}
    assert replaced(replacements[1]).problem == (
        "Customizer shop/cu: replacements[0].value: this is no JSON, from character 1 on"
    )
    assert replaced(replacements[0]).problem.startswith(
        'Customizer shop/cu: replacements[0].path: "$.data.%(env)" is no path: at character 8: expected a name'
    )


def test_a_parameter_in_a_json_string_stays_in_that_string() -> None:
    found = replaced(("$.data.a", '{"%(env)": "<%(quoted)>%%"}'), expanding=True)
    assert found.obj["data"]["a"] == {"prod": '<a "b" \\ \n>%'}


@given(st.text(), st.text())
def test_no_parameter_breaks_out_of_a_json_string(one: str, other: str) -> None:
    obj = configured({NAMES: "cu"})
    template = json.dumps([f"{one}%(x)", {"k": "%(x)"}])
    found = customized(obj, customizer(("$.data.a", template), expanding=True), {"x": other})
    assert found.problem == ""
    if "%" not in one:
        assert found.obj["data"]["a"] == [one + other, {"k": other}]


def test_a_text_that_no_server_can_have_is_a_problem() -> None:
    obj, half = configured({NAMES: "cu"}), "\ud800"
    found = customized(obj, customizer(("$.data.a", '"%(x)"'), expanding=True), {"x": half})
    assert "this is no JSON" in found.problem


def test_what_is_no_json_in_one_place_is_a_problem_in_that_place() -> None:
    bad = customizer(("$.data.n", "%(n)"), expanding=True)
    obj = configured({NAMES: "cu"})
    assert customized(obj, bad, {"n": "3"}).problem == ""
    found = customized(obj, bad, {"n": "three"})
    assert found.problem == (
        "Customizer shop/cu: replacements[0].value: with the parameters of this place this is no JSON, from "
        "character 1 on"
    )
    assert found.obj is obj


def test_a_problem_holds_back_all_replacements() -> None:
    found = replaced(("$.data.a", '"new"'), ("$.data.b", "%(empty)"), expanding=True)
    assert found.problem
    assert found.obj["data"] == {"a": "1", "b": "2"}


def test_missing_maps_are_made_on_the_way() -> None:
    found = replaced(("$.metadata.labels['example.com/env']", '"%(env)"'), expanding=True)
    assert found.obj["metadata"]["labels"] == {"example.com/env": "prod"}


def test_paths_that_do_not_exist_are_reported() -> None:
    found = replaced(("$.spec.containers[0].image", '"x"'), ("$.data.a", '"2"'), ("$..nothing", "1"))
    assert found.problem == ""
    assert found.unused == ("$.spec.containers[0].image", "$..nothing")


def test_an_environment_variable_as_in_the_first_example() -> None:
    container = {"name": "httpd", "env": [{"name": "EXAMPLE_VAR", "value": "example value"}]}
    obj = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "commond", "namespace": "shop", "annotations": {NAMES: "cu"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    found = replaced(("$.spec.template.spec.containers.0.env.0.value", '"env is %(env)"'), expanding=True, obj=obj)
    assert found.obj["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "env is prod"


def test_the_whole_object_can_be_replaced_by_one_that_is_still_the_same() -> None:
    whole = configured({NAMES: "cu"}, a="other")
    assert replaced(("$", json.dumps(whole))).obj == whole
    assert replaced(("$", "[]")).problem == (
        "Customizer shop/cu: replacements[0].value: what replaces the whole object must be a map"
    )


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("$.metadata.name", '"other"', "metadata.name: a customization must not change it"),
        ("$.metadata.namespace", '"other"', "metadata.namespace: a customization must not change it"),
        ("$.kind", '"Secret"', "kind: a customization must not change it"),
        ("$.apiVersion", '"v2"', "apiVersion: a customization must not change it"),
        ("$.metadata", "null", "metadata: after the customization this is no map"),
        ("$.metadata.labels", "[]", "metadata.labels: after the customization this is no map of strings"),
        ("$.metadata.labels.a", "1", "metadata.labels: after the customization this is no map of strings"),
        ("$.metadata.annotations.a", "{}", "metadata.annotations: after the customization this is no map of strings"),
    ],
)
def test_an_object_stays_the_same_one(path: str, value: str, problem: str) -> None:
    assert replaced((path, value)).problem == problem


@pytest.mark.parametrize("section", ["data", "stringData"])
def test_what_a_secret_keeps_stays_texts(section: str) -> None:
    secret = {**configured({NAMES: "cu"}), "kind": "Secret"}
    for value in ("[]", '{"a": 1}'):
        problem = replaced((f"$.{section}", value), obj=secret).problem
        assert problem == f"{section}: after the customization this is no map of strings"
    assert replaced((f"$.{section}.a", '"b"'), obj=secret).problem == ""
    assert replaced((f"$.{section}", "[]")).problem == ""


@pytest.mark.parametrize(
    ("replacements", "problem"),
    [
        ({"a": 1}, "replacements: must be a list"),
        ([7], "replacements[0]: must have a path and a value, which are strings"),
        ([{"path": "$"}], "replacements[0]: must have a path and a value, which are strings"),
        ([{"path": "$", "value": 7}], "replacements[0]: must have a path and a value, which are strings"),
        ([{"path": "$.a", "value": "1"}] * 1001, "replacements: must be no more than 1000"),
        ([{"path": "$.a", "value": "[" * 300 + "]" * 300}], "replacements[0].value: this has more than 254 levels"),
        ([{"path": "$.a", "value": "[" * 99999}], "replacements[0].value: this is no JSON, from character "),
        ([{"path": "$.a", "value": '"hidden'}], "replacements[0].value: this is no JSON, from character "),
        ([{"path": "$.a", "value": '"\ud800"'}], "replacements[0].value: this is no JSON, from character "),
    ],
)
def test_a_customizer_that_makes_no_sense_says_where(replacements: Any, problem: str) -> None:
    found = parse_customizer({"metadata": {"name": "cu", "namespace": "shop"}, "replacements": replacements})
    assert found.problem.startswith(f"Customizer shop/cu: {problem}")
    assert "hidden" not in found.problem
    assert customized(configured({NAMES: "cu"}), found, PLACE).problem == found.problem


def test_no_replacements_are_none() -> None:
    for replacements in ({}, {"replacements": None}, {"replacements": []}):
        found = parse_customizer({"metadata": {"name": "cu", "namespace": "shop"}, **replacements})
        assert (found.problem, found.replacements) == ("", ())


def test_replacements_cannot_make_an_object_huge() -> None:
    rows = json.dumps([0] * 100)
    found = replaced(("$.data.a", rows), ("$.data.a[*]", rows), ("$.data.a[*][*]", rows), ("$.data.a[*][*][*]", rows))
    assert found.problem == "Customizer shop/cu: replacements[3]: the object would become larger than 3 MiB"


def test_no_problem_has_a_value_of_a_secret() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "shop", "annotations": {NAMES: "cu", EXPAND: "true"}},
        "stringData": {"password": "hunter2 %(hunter2 hunter2"},
    }
    for replacement in (("$.stringData.password.x[0]", "1"), ("$.metadata", "1"), ("$", '"hunter2"'), ("$.a", "{")):
        found = customized(secret, customizer(replacement), PLACE)
        assert "hunter2" not in repr((found.problem, found.unknown, found.unused))


# --- against a naive twin -------------------------------------------------------------------------

WORDS = st.sampled_from(["%(a)", "%(b)", "%(nope)", "%%", "%", "x", " "])
TEXTS = st.lists(WORDS, max_size=4).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def everywhere(value: Any, parameters: dict[str, str]) -> Any:
    if isinstance(value, str):
        return naively(value, parameters)[0]
    if isinstance(value, list):
        return [everywhere(one, parameters) for one in value]
    if isinstance(value, dict):
        return {key: everywhere(one, parameters) for key, one in value.items()}
    return value


@given(
    st.dictionaries(TEXTS, VALUES, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), st.text()), st.booleans()
)
def test_whole_objects_are_expanded_and_replaced_as_one_does_it_by_hand(
    data: dict[str, Any], parameters: dict[str, str], expanding: bool
) -> None:
    obj = configured({EXPAND: "true", NAMES: "cu"}, **data)
    before = deepcopy(obj)
    found = customized(obj, customizer(("$.data.added", '"%(a) and %(b)"'), expanding=expanding), parameters)
    added = "%(a) and %(b)"
    wanted = everywhere(data, parameters) | {"added": everywhere(added, parameters) if expanding else added}
    assert found.problem == ""
    assert found.obj["data"] == wanted
    assert obj == before
