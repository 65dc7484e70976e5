"""Histories of applies and updates by several managers, against a twin that does everything the slow way."""

from __future__ import annotations

import copy
from typing import Any

import merge_twin as twins
from examples import examples
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from farflung.apis.definitions import schema
from farflung.machinery.errors import ApiError
from farflung.machinery.fields import managed
from farflung.machinery.fields.shapes import no_reference
from farflung.machinery.patch.apply import apply
from farflung.machinery.schema.model import Schema

Obj = dict[str, Any]
TEXT = {"type": "string"}

MANAGERS = st.sampled_from(["one", "two", "three"])
NAMES = st.sampled_from("xyz")
VALUES = st.sampled_from("12")


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Obj]:
    return st.fixed_dictionaries({}, optional=fields)


def entries(values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[Obj]:
    return st.dictionaries(NAMES, values, max_size=3)


def members() -> st.SearchStrategy[list[str]]:
    return st.lists(NAMES.map(lambda name: f"e.io/{name}"), unique=True, max_size=3)


def by_key(items: st.SearchStrategy[Obj], *keys: str) -> st.SearchStrategy[list[Obj]]:
    return st.lists(items, max_size=3, unique_by=lambda item: tuple(item.get(key, "TCP") for key in keys))


METADATA = some(labels=entries(), annotations=entries(), finalizers=members())


class Kind:
    """A type under test, the twin's idea of it, and objects of it."""

    def __init__(self, actual: Schema, version: str, name: str, twin: twins.Struct, empty: Obj) -> None:
        self.schema, self.version, self.name, self.twin, self.empty = actual, version, name, twin, empty

    def whole(self, metadata: Obj, rest: Obj) -> Obj:
        return {"apiVersion": self.version, "kind": self.name, "metadata": {"name": "t", **metadata}, **rest}

    def objects(self, rest: st.SearchStrategy[Obj]) -> st.SearchStrategy[Obj]:
        return st.builds(self.whole, METADATA, rest)


THING = Kind(
    Schema(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "leaf": TEXT,
                        "struct": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
                        "map": {"type": "object", "additionalProperties": TEXT},
                        "maps": {
                            "type": "object",
                            "additionalProperties": {"type": "object", "additionalProperties": TEXT},
                        },
                        "whole": {"type": "array", "items": TEXT},
                        "unit": {
                            "type": "object",
                            "additionalProperties": TEXT,
                            "x-kubernetes-map-type": "atomic",
                        },
                        "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        "items": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name", "zone"],
                            "items": {
                                "type": "object",
                                "properties": {
                                    "name": TEXT,
                                    "zone": {"type": "string", "default": "TCP"},
                                    "value": TEXT,
                                    "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                                },
                            },
                        },
                    },
                }
            },
        },
        no_reference,
    ),
    "e.io/v1",
    "Thing",
    twins.Struct(
        {
            "metadata": twins.METADATA,
            "spec": twins.Struct(
                {
                    "leaf": twins.LEAF,
                    "struct": twins.Struct({"a": twins.LEAF, "b": twins.LEAF}),
                    "map": twins.MapOf(twins.LEAF),
                    "maps": twins.MapOf(twins.MapOf(twins.LEAF)),
                    "whole": twins.LEAF,
                    "unit": twins.LEAF,
                    "set": twins.SET,
                    "free": twins.FREE,
                    "items": twins.ListBy(
                        (("name", None), ("zone", "TCP")),
                        twins.Struct({"name": twins.LEAF, "zone": twins.LEAF, "value": twins.LEAF, "tags": twins.SET}),
                    ),
                }
            ),
        }
    ),
    {"metadata": {}},
)
THINGS = THING.objects(
    some(
        spec=some(
            leaf=VALUES,
            struct=some(a=VALUES, b=VALUES),
            map=entries(),
            maps=entries(entries()),
            whole=st.lists(VALUES, max_size=2),
            unit=entries(),
            set=members().filter(bool),  # upstream forgets a struct in which an empty list is all that is left
            free=entries(entries() | VALUES | st.lists(VALUES, max_size=1)),
            items=by_key(
                st.fixed_dictionaries(
                    {"name": NAMES},
                    optional={"zone": st.sampled_from(["TCP", "a"]), "value": VALUES, "tags": members()},
                ),
                "name",
                "zone",
            ).filter(bool),
        )
    )
)

CONFIG_MAP = Kind(
    schema("io.k8s.api.core.v1.ConfigMap"),
    "v1",
    "ConfigMap",
    twins.Struct({"metadata": twins.METADATA, "data": twins.MapOf(twins.LEAF), "immutable": twins.LEAF}),
    {"metadata": {}},
)
CONFIG_MAPS = CONFIG_MAP.objects(some(data=entries(), immutable=st.booleans()))

PORT = twins.Struct({"containerPort": twins.LEAF, "protocol": twins.LEAF, "name": twins.LEAF})
CONTAINER = twins.Struct(
    {
        "name": twins.LEAF,
        "image": twins.LEAF,
        "args": twins.LEAF,
        "env": twins.ListBy((("name", None),), twins.Struct({"name": twins.LEAF, "value": twins.LEAF})),
        "ports": twins.ListBy((("containerPort", None), ("protocol", "TCP")), PORT),
    }
)
POD = twins.Struct({"containers": twins.ListBy((("name", None),), CONTAINER), "nodeSelector": twins.LEAF})
DEPLOYMENT = Kind(
    schema("io.k8s.api.apps.v1.Deployment"),
    "apps/v1",
    "Deployment",
    twins.Struct(
        {
            "metadata": twins.METADATA,
            "spec": twins.Struct(
                {
                    "replicas": twins.LEAF,
                    "paused": twins.LEAF,
                    "selector": twins.LEAF,
                    "template": twins.Struct(
                        {"metadata": twins.Struct({"labels": twins.MapOf(twins.LEAF)}), "spec": POD}
                    ),
                }
            ),
        }
    ),
    {"metadata": {}, "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}}},
)


def deployment(replicas: Obj, template: Obj, containers: list[Obj], pod: Obj) -> Obj:
    """What every Deployment must have is there."""
    return {
        "spec": {
            **replicas,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": template, "spec": {"containers": containers, **pod}},
        }
    }


CONTAINERS = by_key(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "image": VALUES,
            "args": st.lists(VALUES, min_size=1, max_size=2),
            "env": by_key(st.fixed_dictionaries({"name": NAMES}, optional={"value": VALUES}), "name"),
            "ports": by_key(
                st.fixed_dictionaries(
                    {"containerPort": st.sampled_from([80, 81])},
                    optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": VALUES},
                ),
                "containerPort",
                "protocol",
            ),
        },
    ),
    "name",
).filter(bool)
DEPLOYMENTS = DEPLOYMENT.objects(
    st.builds(
        deployment,
        some(replicas=st.integers(1, 2), paused=st.booleans()),
        some(labels=st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)),
        CONTAINERS,
        some(nodeSelector=entries()),
    )
)


class History:
    """The object under test and its twin, side by side."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.live: Obj | None = None
        self.twin = twins.Twin(kind.twin, kind.empty)
        self.clock = 0

    def step(self, verb: str, manager: str, obj: Obj) -> None:
        self.clock += 1
        now = f"2024-01-01T00:00:{self.clock:02}Z"
        note(f"{verb} {manager} {obj}")
        live, before = self.live, copy.deepcopy((self.live, obj))
        match verb:
            case "update":
                self._update(obj, manager, now)
            case "forget":
                self._forget(obj, manager, now)
            case _:
                self._apply(obj, manager, now, force=verb == "force")
        assert before == (live, obj), "an argument was changed"
        self._compare()

    def _update(self, obj: Obj, manager: str, now: str) -> None:
        owners = managed.after_update(
            obj, self.live, self.kind.schema, manager=manager, api_version=self.kind.version, now=now
        )
        self.live = {**obj, "metadata": {**obj["metadata"], **({"managedFields": owners} if owners else {})}}
        self.twin.update(obj, manager, now)

    def _forget(self, obj: Obj, manager: str, now: str) -> None:
        if self.live is None:
            return
        sent = {**obj, "metadata": {**obj["metadata"], "managedFields": [{}]}}
        assert (
            managed.after_update(
                sent, self.live, self.kind.schema, manager=manager, api_version=self.kind.version, now=now
            )
            == []
        )
        self.live = obj
        self.twin.forget(obj)

    def _apply(self, obj: Obj, manager: str, now: str, *, force: bool) -> None:
        expected = None
        try:
            self.twin.apply(obj, manager, now, force=force)
        except twins.Conflict as conflict:
            expected = {
                (f"conflict with {owner}".format(version=self.kind.version), twins.text(path))
                for owner, paths in conflict.found.items()
                for path in paths
            }
        try:
            self.live = apply(
                self.live,
                obj,
                self.kind.schema,
                manager=manager,
                force=force,
                api_version=self.kind.version,
                now=now,
                kind=self.kind.name,
            )
        except ApiError as error:
            assert error.code == 409, error.message
            assert error.details is not None
            causes = [(cause["message"], cause["field"]) for cause in error.details["causes"]]
            assert len(set(causes)) == len(causes)
            assert set(causes) == expected
        else:
            assert expected is None

    def _compare(self) -> None:
        if self.live is None:
            assert self.twin.table is None
            return
        assert twins.without_nulls(twins.flat(self.live, self.kind.twin)) == self.twin.table
        owners = {
            (one["manager"], one["operation"]): (one["fieldsV1"], one.get("time", ""))
            for one in self.live["metadata"].get("managedFields", [])
        }
        assert owners == self.twin.fields()


VERBS = st.sampled_from(["update", "update", "apply", "apply", "apply", "force", "forget"])


def histories(objects: st.SearchStrategy[Obj]) -> st.SearchStrategy[list[tuple[str, str, Obj]]]:
    return st.lists(st.tuples(VERBS, MANAGERS, objects), min_size=2, max_size=7)


def run(kind: Kind, steps: list[tuple[str, str, Obj]]) -> None:
    history = History(kind)
    for verb, manager, obj in steps:
        history.step(verb, manager, obj)


@settings(max_examples=examples(150))
@given(histories(THINGS))
@example(  # an empty struct stays although a field in it, which nobody has any more, is given up
    [
        ("apply", "two", THING.whole({}, {"spec": {"leaf": "1", "map": {"x": "1"}}})),
        ("apply", "two", THING.whole({}, {"spec": {"leaf": "1", "map": {}}})),
        ("update", "one", THING.whole({}, {})),
        ("apply", "two", THING.whole({}, {"spec": {}})),
    ]
)
def test_custom_resources_are_merged_and_owned_as_the_twin_says(steps: list[tuple[str, str, Obj]]) -> None:
    run(THING, steps)


@settings(max_examples=examples(100))
@given(histories(CONFIG_MAPS))
def test_config_maps_are_merged_and_owned_as_the_twin_says(steps: list[tuple[str, str, Obj]]) -> None:
    run(CONFIG_MAP, steps)


@settings(max_examples=examples(150))
@given(histories(DEPLOYMENTS))
def test_deployments_are_merged_and_owned_as_the_twin_says(steps: list[tuple[str, str, Obj]]) -> None:
    run(DEPLOYMENT, steps)
