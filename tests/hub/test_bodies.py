"""Bodies: media types, unknown and duplicate fields, and texts that are no objects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hub_harness import APPLY_PATCH, CONFIG_MAPS, DEPLOYMENTS, MERGE_PATCH, PROTOBUF, LocalHub, deployment

from farflung.apis import wire
from farflung.machinery.codec import protobuf

UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
UNFIT = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
STRANGE = '{"metadata":{"name":"a","foo":1},"spec":{"x":1},"data":{"k":"1","k":"2"}}'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        ("hello", "invalid character 'h' looking for beginning of value (68656c6c6f)"),
        ('{"apiVersion":"v1",', 'unexpected end of JSON input ({"apiVersion":"v1",)'),
        (
            "[]",
            'json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\\"apiVersion,'
            'omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } (5b5d)',
        ),
    ],
)
async def test_a_text_that_is_no_object_is_shown(hub: LocalHub, body: Any, why: str) -> None:
    answer = await hub.post(CONFIG_MAPS, body)

    assert answer.status == 400
    assert answer.message == f"{UNRECOGNIZED}couldn't get version/kind; json parse error: {why}"


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "json"])
async def test_other_media_types_are_not_supported(hub: LocalHub, media: str) -> None:
    answer = await hub.post(CONFIG_MAPS, "x", content_type=media)

    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert answer.message == (
        "the body of the request was in an unknown format - accepted media types include: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )


async def test_json_yaml_and_protobuf_say_the_same(hub: LocalHub) -> None:
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "é"}}
    encoded = protobuf.encode(obj, "io.k8s.api.core.v1.ConfigMap", wire.MESSAGES)
    sent = [
        (obj, "application/json"),
        (obj, "application/json; charset=utf-8"),
        (obj, "APPLICATION/JSON"),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  k: é\n", "application/yaml"),
        (encoded, PROTOBUF),
    ]

    for body, media in sent:
        answer = await hub.post(CONFIG_MAPS, body, {"dryRun": "All"}, content_type=media)
        assert (answer.status, answer.json["data"]) == (201, {"k": "é"}), media


async def test_field_names_are_matched_without_regard_to_case(hub: LocalHub) -> None:
    answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "Data": {"k": "v"}})

    assert answer.status == 201
    assert answer.warnings == ['299 - "unknown field \\"Data\\""']


# --- field validation -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "fieldValidation=", "fieldValidation=Warn"])
async def test_strange_fields_are_warned_of(hub: LocalHub, query: str) -> None:
    answer = await hub.post(CONFIG_MAPS, STRANGE, query)

    assert answer.status == 201
    assert answer.json["data"] == {"k": "2"}
    assert "spec" not in answer.json
    assert answer.warnings == [
        '299 - "duplicate field \\"data.k\\""',
        '299 - "unknown field \\"metadata.foo\\""',
        '299 - "unknown field \\"spec\\""',
    ]


async def test_strange_fields_may_be_ignored(hub: LocalHub) -> None:
    answer = await hub.post(CONFIG_MAPS, STRANGE, "fieldValidation=Ignore")

    assert (answer.status, answer.warnings) == (201, [])


async def test_strange_fields_may_be_refused(hub: LocalHub) -> None:
    await hub.config_map("b")
    strict = "fieldValidation=Strict"

    with hub.writes_nothing():
        created = await hub.post(CONFIG_MAPS, STRANGE, strict)
        updated = await hub.put(f"{CONFIG_MAPS}/b", {"metadata": {"name": "b"}, "spec": {}}, strict)
        patched = await hub.patch(f"{CONFIG_MAPS}/b", {"spec": {}}, MERGE_PATCH, strict)

    assert created.message == (
        f'{UNFIT}strict decoding error: duplicate field "data.k", unknown field "metadata.foo", unknown field "spec"'
    )
    assert updated.message == f'{UNFIT}strict decoding error: unknown field "spec"'
    assert (patched.status, patched.message[-44:]) == (422, ': strict decoding error: unknown field "spec"'[-44:])


async def test_strange_fields_are_named_where_they_are(hub: LocalHub) -> None:
    sent = deployment("d")
    sent["spec"]["foo"] = 1
    sent["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "x": 1}]

    answer = await hub.post(DEPLOYMENTS, sent, "fieldValidation=Strict")

    assert answer.message == (
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.template.spec.containers[0].ports[0].x", unknown field "spec.foo"'
    )


async def test_another_field_validation_is_not_known(hub: LocalHub) -> None:
    answer = await hub.post(CONFIG_MAPS, STRANGE, "fieldValidation=Foo")

    assert (answer.status, answer.message) == (
        422,
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Foo": supported values: "", '
        '"Ignore", "Strict", "Warn"',
    )


async def test_warnings_do_not_fill_the_head_of_an_answer(hub: LocalHub) -> None:
    few = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}, **{f"x{n}": 1 for n in range(50)}})
    assert len(few.warnings) == 50

    many = await hub.post(CONFIG_MAPS, {"metadata": {"name": "b"}, **{f"x{n}" * 5000: 1 for n in range(500)}})
    assert many.status == 201
    assert 10 < len(many.warnings) < 20
    assert all(len(warning) < 300 for warning in many.warnings)


async def test_what_a_warning_quotes_cannot_break_out_of_its_header(hub: LocalHub) -> None:
    answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}, 'x"\r\nSet-Cookie: a=b\\': 1})

    (warning,) = answer.warnings
    assert "\r" not in warning
    assert "\n" not in warning


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"),
    [
        ("3", 201),
        ("3.0", 400),
        ("3.5", 400),
        ("1e3", 400),
        ("2147483648", 400),
        ("99999999999999999999999", 400),
        ("1" * 5000, 400),
        ("1e999", 400),
        ('"3"', 400),
        ("true", 400),
        ("-0", 201),
    ],
)
async def test_numbers_must_fit_their_type(hub: LocalHub, number: str, status: int) -> None:
    body = json.dumps(deployment("d", replicas="R")).replace('"R"', number)

    answer = await hub.post(DEPLOYMENTS, body)

    assert answer.status == status, answer.body


async def test_what_is_not_known_in_protobuf_is_neither_read_nor_written_in_it(hub: LocalHub) -> None:
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    await hub.create(classes, {"metadata": {"name": "a"}, "spec": {}})

    for path in (classes, f"{classes}/a"):
        assert (await hub.get(path, accept=PROTOBUF)).status == 406
        assert (await hub.get(path, accept=f"{PROTOBUF},application/json")).json == (await hub.get(path)).json
    with hub.writes_nothing():
        sent = protobuf.encode({"metadata": {"name": "b"}}, "io.k8s.api.core.v1.ConfigMap", wire.MESSAGES)
        assert (await hub.post(classes, sent, content_type=PROTOBUF)).status == 415


LARGE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: large}, data: {%s}}"
MANY = ", ".join(f"k{number}: 'v'" for number in range(20_000))


@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_others_are_served_while_a_large_yaml_body_is_read(hub: LocalHub, verb: str) -> None:
    if verb == "create":
        sending = hub.post(CONFIG_MAPS, LARGE % MANY, content_type="application/yaml")
    else:
        sending = hub.patch(f"{CONFIG_MAPS}/large", LARGE % MANY, APPLY_PATCH, {"fieldManager": "m"})
    large = asyncio.create_task(sending)
    await asyncio.sleep(0)
    assert (await hub.get(CONFIG_MAPS)).names == []
    assert not large.done()
    answer = await large
    assert answer.status == 201, answer.body[:1000]
    assert answer.json["data"] == {f"k{number}": "v" for number in range(20_000)}


async def test_a_large_yaml_body_is_refused_with_the_same_words_as_a_small_one(hub: LocalHub) -> None:
    with hub.writes_nothing():
        for rest in ("", " " * 50_000):
            answer = await hub.post(CONFIG_MAPS, "a: [" + rest, content_type="application/yaml")
            assert answer.status == 400
            assert "yaml: line 1: did not find expected node content" in answer.message
            applied = await hub.patch(f"{CONFIG_MAPS}/a", "a: [" + rest, APPLY_PATCH, {"fieldManager": "m"})
            assert "yaml: line 1: did not find expected node content" in applied.message
    hub.token = None
    assert (await hub.post(CONFIG_MAPS, LARGE % MANY, content_type="application/yaml")).status in (401, 403)
