"""Random definitions, schemas, rules and objects: refused or served, never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from definitions import DEFINITIONS, THINGS, definition, thing, version
from examples import examples
from hostile import altered, ask
from hub_harness import ADMIN_TOKEN, APPLY_PATCH, JSON_PATCH, MERGE_PATCH, TABLE, LocalHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structural_strategies import around, schemas, values

from farflung.http.messages import Request
from farflung.machinery.errors import Obj

EXAMPLES = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
THE_DEFINITION = f"{DEFINITIONS}/things.example.com"

FULL: Obj = definition(
    {
        "name": "v1",
        "served": True,
        "storage": True,
        "deprecated": True,
        "deprecationWarning": "old",
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.size",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
            {"name": "First", "type": "string", "jsonPath": ".spec.parts[0].name"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "x-kubernetes-validations": [
                            {"rule": "self.size < 10", "messageExpression": "'too ' + 'large'"}
                        ],
                        "required": ["size"],
                        "properties": {
                            "size": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
                            "colour": {"type": "string", "enum": ["red", "blue"], "maxLength": 10},
                            "when": {"type": "string", "format": "date-time"},
                            "either": {"x-kubernetes-int-or-string": True},
                            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            "pod": {
                                "type": "object",
                                "x-kubernetes-embedded-resource": True,
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                            "parts": {
                                "type": "array",
                                "maxItems": 5,
                                "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["name"],
                                "items": {
                                    "type": "object",
                                    "required": ["name"],
                                    "properties": {"name": {"type": "string", "pattern": "^[a-z]*$"}},
                                },
                            },
                        },
                    },
                    "status": {
                        "type": "object",
                        "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}},
                    },
                },
            }
        },
    },
    scope="Namespaced",
    conversion={"strategy": "None"},
    preserveUnknownFields=False,
)
GOOD: Obj = {
    **thing("a"),
    "spec": {
        "size": 2,
        "colour": "red",
        "when": "2024-05-01T12:00:00Z",
        "either": "5",
        "free": {"x": [1, {"y": None}]},
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "more": 1},
        "tags": ["x", "y"],
        "parts": [{"name": "wheel"}, {"name": "door"}],
    },
    "status": {"size": 1, "selector": "a=b"},
}


def request(method: str, path: str, body: Any = None, query: str = "", media: str = "application/json") -> Request:
    raw = b"" if body is None else json.dumps(body).encode(errors="surrogatepass")
    headers = {"authorization": f"Bearer {ADMIN_TOKEN}", "content-type": media}
    return Request(method, path, query, headers, raw)


def run(test: Callable[[LocalHub], Awaitable[None]]) -> None:
    async def whole() -> None:
        hub = await LocalHub.in_memory().furnish()
        await test(hub)
        for path in ("/apis", "/openapi/v3/apis/example.com/v1", DEFINITIONS, THE_DEFINITION):
            assert await ask(hub, request("GET", path)) in (200, 404)
        assert hub.watches.count == 0

    asyncio.run(whole())


@EXAMPLES
@given(st.data())
def test_altered_definitions_are_refused_or_served(data: st.DataObject) -> None:
    async def test(hub: LocalHub) -> None:
        await ask(hub, request("POST", DEFINITIONS, data.draw(altered(FULL, 14))))
        if await ask(hub, request("GET", THE_DEFINITION)) == 404:
            assert await ask(hub, request("POST", DEFINITIONS, FULL)) in (201, 409)
        live = (await hub.get(THE_DEFINITION)).json
        for _ in range(2):
            await ask(hub, request("PUT", THE_DEFINITION, data.draw(altered(live, 14))))
        await ask(
            hub, request("PATCH", THE_DEFINITION, data.draw(altered({"spec": live["spec"]}, 14)), "", MERGE_PATCH)
        )
        await ask(hub, request("PUT", f"{THE_DEFINITION}/status", data.draw(altered(live, 14))))
        await ask(hub, request("POST", THINGS, GOOD))
        for accept in (TABLE, "application/yaml"):
            assert (await hub.get(THINGS, accept=accept)).status in (200, 404)

    run(test)


@EXAMPLES
@given(st.data())
def test_altered_objects_of_a_rich_definition_are_refused_or_stored(data: st.DataObject) -> None:
    async def test(hub: LocalHub) -> None:
        await hub.create(DEFINITIONS, FULL)
        assert await ask(hub, request("POST", THINGS, GOOD)) == 201
        await ask(hub, request("POST", THINGS, data.draw(altered({**GOOD, "metadata": {"name": "b"}}))))
        live = (await hub.get(f"{THINGS}/a")).json
        for _ in range(2):
            await ask(hub, request("PUT", f"{THINGS}/a", data.draw(altered(live))))
            await ask(hub, request("PUT", f"{THINGS}/a/status", data.draw(altered(live))))
            part = {"spec": GOOD["spec"]}
            await ask(hub, request("PATCH", f"{THINGS}/a", data.draw(altered(part)), "", MERGE_PATCH))
            applied = {**thing("a"), **part}
            query = "fieldManager=m&force=1"
            await ask(hub, request("PATCH", f"{THINGS}/a", data.draw(altered(applied)), query, APPLY_PATCH))
            scale = {"spec": {"replicas": data.draw(st.integers(-2, 200))}}
            await ask(hub, request("PATCH", f"{THINGS}/a/scale", scale, "", MERGE_PATCH))
        for accept in (TABLE, "application/yaml", "application/json"):
            assert (await hub.get(THINGS, accept=accept)).status == 200

    run(test)


ATOMS = st.sampled_from(
    [
        "self",
        "oldSelf",
        "self.a",
        "self.b",
        "self.x",
        "self[0]",
        "1",
        "-1",
        "'x'",
        "null",
        "true",
        "[1, 2]",
        "{'a': 1}",
        "2.5",
    ]
)
TEMPLATES = st.sampled_from(
    [
        *("{0} == {1}", "{0} < {1}", "{0} + {1} > {1}", "!({0})", "has({0})", "{0} in {1}", "size({0}) < 3"),
        *("{0}.all(i, i == {1})", "{0}.exists(i, i > {1})", "{0}.map(i, i)", "{0}.filter(i, true) == {1}"),
        *(
            "{0} ? {1} : {0}",
            "{0} || {1}",
            "{0} && {1}",
            "{0}.matches('^x')",
            "string({0}) == ''",
            "int({0}) / {1} == 0",
        ),
        *(
            "{0}.startsWith({1})",
            "{0}.split(',').size() > 0",
            "isURL({0})",
            "quantity({0}).isInteger()",
            "dyn({0}) == {1}",
        ),
        *(
            "{0}.orValue({1})",
            "optional.of({0}).hasValue()",
            "{0}",
            "{0} {1}",
            "({0}",
            "{0}.{1}",
            "cel.bind(v, {0}, v == {1})",
        ),
    ]
)
RULES = st.recursive(
    ATOMS,
    lambda inner: st.builds(lambda template, one, other: template.format(one, other), TEMPLATES, inner, inner),
    max_leaves=6,
)


#: type of a schema → rules that compile for it, and often fail or break down when they are asked
SENSIBLE = {
    "string": ["self != 'x'", "size(self) > 1", "self.matches('^x')", "int(self) > 0", "self.split('')[1] == 'y'"],
    "integer": ["self > 2", "10 / self > 1", "self % 2 == 0", "self + 9223372036854775807 > 0", "self >= oldSelf"],
    "number": ["self < 2.0", "1.0 / self > 0.0", "int(self) == 1", "self != oldSelf"],
    "boolean": ["self", "!self", "self == oldSelf"],
    "array": ["size(self) < 2", "self[0] == self[1]", "self.all(one, one == self[0])", "self == oldSelf"],
    "object": [
        "has(self.a)",
        "has(self.a) || has(self.b)",
        "size(self) > 0",
        "self == oldSelf",
        "self.all(key, key != 'x')",
    ],
}


@st.composite
def with_rules(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with rules wherever chance puts them."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: draw(with_rules(inner)) for name, inner in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        result["items"] = draw(with_rules(schema["items"]))
    if schema.get("type") and not draw(st.integers(0, 2)):
        rules = st.sampled_from(SENSIBLE[schema["type"]])
        rule: Obj = {"rule": draw(rules if draw(st.integers(0, 3)) else RULES)}
        if not draw(st.integers(0, 5)):
            rule["messageExpression"] = draw(RULES)
        result["x-kubernetes-validations"] = [rule]
    return result


@EXAMPLES
@given(st.data())
def test_random_schemas_rules_and_objects(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    ruled = data.draw(with_rules(schema))
    objects = data.draw(st.lists(values(schema), min_size=1, max_size=4))

    async def test(hub: LocalHub) -> None:
        for described in (ruled, schema, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}):
            wanted = definition({**version(), "schema": {"openAPIV3Schema": around(described)}})
            status = await ask(hub, request("POST", DEFINITIONS, wanted))
            if status == 201:
                break
            assert status in (400, 422)
        for spec in objects:
            body = {**thing("a"), "spec": spec}
            await ask(hub, request("POST", THINGS, body))
            await ask(hub, request("PUT", f"{THINGS}/a", body))
            await ask(hub, request("PATCH", f"{THINGS}/a", body, "fieldManager=m&force=1", APPLY_PATCH))
            operation = [{"op": "replace", "path": "/spec", "value": spec}]
            await ask(hub, request("PATCH", f"{THINGS}/a", operation, "", JSON_PATCH))
        await what_is_served_can_be_stored_again(hub, "oldSelf" in json.dumps(ruled))
        assert (await hub.get(THINGS, accept=TABLE)).status == 200

    run(test)


async def what_is_served_can_be_stored_again(hub: LocalHub, transitions: bool) -> None:
    """Without a change, and so without a write; only a rule about changes may refuse it."""
    live = await hub.get(f"{THINGS}/a")
    if live.status == 404:
        return
    with hub.writes_nothing():
        again = await hub.put(f"{THINGS}/a", live.json)
    assert again.status == 200 or transitions, again.body
    if again.status == 200:
        assert again.json == live.json
