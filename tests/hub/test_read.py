"""get and list: pages, the past, selectors and representations."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
import yaml
from hub_harness import CONFIG_MAPS, PARTIAL, PARTIAL_LIST, PROTOBUF, TABLE, LocalHub

from farflung.apis import wire
from farflung.machinery.codec import protobuf

EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def token(**fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()


# --- get ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [f"{CONFIG_MAPS}/nope", "/api/v1/namespaces/nowhere/configmaps/nope"])
async def test_what_is_not_there_is_not_found(hub: LocalHub, path: str) -> None:
    answer = await hub.get(path)

    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'configmaps "nope" not found')
    assert answer.json["details"] == {"name": "nope", "kind": "configmaps"}


@pytest.mark.parametrize("path", ["endpoints", "endpoints/nope"])
async def test_every_answer_about_a_deprecated_resource_says_so(hub: LocalHub, path: str) -> None:
    answer = await hub.get(f"/api/v1/namespaces/default/{path}")
    assert answer.warnings == ['299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"']


async def test_the_group_is_part_of_what_was_not_found(hub: LocalHub) -> None:
    answer = await hub.get("/apis/apps/v1/namespaces/default/deployments/d")

    assert answer.message == 'deployments.apps "d" not found'
    assert answer.json["details"] == {"name": "d", "group": "apps", "kind": "deployments"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/foos",
        "/api/v1/namespaces/default/foos/a",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/nodes/a",
        "/api/v1/configmaps/a",
        "/apis/apps/v1/foos",
        "/api/v1/namespaces/default/configmaps/a/foo",
        "/api/v1/namespaces/default/configmaps/a/status",
        "/api/v1/watch/namespaces/default/pods/a/status",
    ],
)
async def test_a_resource_that_is_not_served_is_not_found(hub: LocalHub, path: str) -> None:
    answer = await hub.get(path)

    assert (answer.status, answer.message) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_methods_that_mean_nothing_are_refused(hub: LocalHub, method: str) -> None:
    await hub.config_map("a")
    path = {"POST": f"{CONFIG_MAPS}/a", "DELETE": "/api/v1/configmaps"}.get(method, CONFIG_MAPS)

    answer = await hub.request(method, path, {"metadata": {"name": "a"}})

    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
    assert answer.message == "the server does not allow this method on the requested resource"


async def test_a_get_may_name_a_version_that_has_happened(hub: LocalHub) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"{CONFIG_MAPS}/a", "resourceVersion=0")).status == 200
    assert (await hub.get(f"{CONFIG_MAPS}/a", f"resourceVersion={hub.store.revision}")).status == 200
    future = await hub.get(f"{CONFIG_MAPS}/a", "resourceVersion=999")
    assert (future.status, future.reason) == (504, "Timeout")
    wrong = await hub.get(f"{CONFIG_MAPS}/a", "resourceVersion=abc")
    assert wrong.status == 400


@pytest.mark.parametrize("encoded", ["%61", "a/", "%61/"])
async def test_paths_may_be_percent_encoded_and_end_with_a_slash(hub: LocalHub, encoded: str) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"{CONFIG_MAPS}/{encoded}")).status == 200
    assert (await hub.get("/api/v1/namespaces%2Fdefault%2Fconfigmaps/a")).status == 200


@pytest.mark.parametrize("part", ["a%2F%2Fb", "%00", "%ff%fe", "..", "%2e%2e", "a%00b", "%25", "%zz"])
async def test_strange_names_are_not_found(any_hub: LocalHub, part: str) -> None:
    for path in (f"{CONFIG_MAPS}/{part}", f"/api/v1/namespaces/{part}/configmaps/a"):
        assert (await any_hub.get(path)).status == 404
    listed = await any_hub.get(f"/api/v1/namespaces/{part}/configmaps", "resourceVersion=1&resourceVersionMatch=Exact")
    assert listed.status in (200, 404)


# --- pages ----------------------------------------------------------------------------------------


async def five(hub: LocalHub) -> None:
    for number in range(5):
        await hub.config_map(f"c{number}", {"parity": "odd" if number % 2 else "even"}, i=str(number))


async def test_pages_show_one_state_despite_writes_between_them(any_hub: LocalHub) -> None:
    await five(any_hub)
    whole = await any_hub.get(CONFIG_MAPS)

    first = await any_hub.get(CONFIG_MAPS, "limit=2")
    assert first.names == ["c0", "c1"]
    assert first.json["metadata"]["remainingItemCount"] == 3

    await any_hub.patch(f"{CONFIG_MAPS}/c4", {"data": {"i": "new"}})
    await any_hub.delete(f"{CONFIG_MAPS}/c2")
    await any_hub.config_map("c3a")

    second = await any_hub.get(CONFIG_MAPS, {"limit": 2, "continue": first.json["metadata"]["continue"]})
    assert second.names == ["c2", "c3"]
    assert second.json["metadata"]["remainingItemCount"] == 1
    third = await any_hub.get(CONFIG_MAPS, {"limit": 2, "continue": second.json["metadata"]["continue"]})
    assert not third.json["metadata"].keys() & {"continue", "remainingItemCount"}
    assert first.version == second.version == third.version == whole.version
    assert first.json["items"] + second.json["items"] + third.json["items"] == whole.json["items"]


async def test_a_page_of_a_selection_does_not_know_how_many_remain(hub: LocalHub) -> None:
    await five(hub)

    first = await hub.get(CONFIG_MAPS, "limit=2&labelSelector=parity%3Deven")
    assert first.names == ["c0", "c2"]
    assert "remainingItemCount" not in first.json["metadata"]
    query = {"limit": 2, "labelSelector": "parity=even", "continue": first.json["metadata"]["continue"]}
    assert (await hub.get(CONFIG_MAPS, query)).names == ["c4"]


@pytest.mark.parametrize("limit", ["0", "-1", ""])
async def test_no_limit_is_no_limit(hub: LocalHub, limit: str) -> None:
    await five(hub)

    assert len((await hub.get(CONFIG_MAPS, {"limit": limit})).names) == 5


async def test_a_page_that_ends_with_the_list_has_no_token(hub: LocalHub) -> None:
    await five(hub)

    assert "continue" not in (await hub.get(CONFIG_MAPS, "limit=5")).json["metadata"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "invalid character 'i' looking for beginning of value"),
        (token(v="x"), "server does not recognize this encoded version x"),
        (token(v="meta.k8s.io/v1", start="a\0"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
    ],
)
async def test_a_token_that_is_none_is_refused(hub: LocalHub, text: str, message: str) -> None:
    answer = await hub.get(CONFIG_MAPS, {"continue": text})

    assert answer.status == 400
    assert answer.message == f"invalid continue token: continue key is not valid: {message}"


@pytest.mark.parametrize(
    "text",
    [
        "!",
        "é",
        "A",
        token(v="meta.k8s.io/v1", rv=-5, start="a\0"),
        token(v="meta.k8s.io/v1", rv=10**30, start="a\0"),
        token(v="meta.k8s.io/v1", rv=2, start="../../secrets/root/default/a\0"),
        token(v="meta.k8s.io/v1", rv=2, start=""),
        token(v="meta.k8s.io/v1", rv=2, start=7),
        token(v="meta.k8s.io/v1", rv="2", start="a\0"),
        base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":2,"start":"\\ud800"}').decode(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
async def test_no_token_does_harm(any_hub: LocalHub, text: str) -> None:
    await five(any_hub)

    answer = await any_hub.get(CONFIG_MAPS, {"continue": text, "limit": "2"})

    assert answer.status in (400, 410, 504), answer.body


async def test_a_token_of_a_forgotten_state_is_expired_and_brings_another(any_hub: LocalHub) -> None:
    await five(any_hub)
    first = await any_hub.get(CONFIG_MAPS, "limit=1")
    await any_hub.config_map("c1a")
    await any_hub.store.compact(any_hub.store.revision)

    expired = await any_hub.get(CONFIG_MAPS, {"limit": 1, "continue": first.json["metadata"]["continue"]})

    assert (expired.status, expired.reason, expired.message) == (410, "Expired", EXPIRED_TOKEN)
    again = expired.json["metadata"]["continue"]
    names = []
    while again:
        page = await any_hub.get(CONFIG_MAPS, {"limit": 2, "continue": again})
        assert len(page.names) <= 2
        assert page.version == any_hub.store.revision
        names += page.names
        again = page.json["metadata"].get("continue")
    assert names == ["c1", "c1a", "c2", "c3", "c4"]


# --- the past -------------------------------------------------------------------------------------


async def test_an_exact_version_shows_the_past(any_hub: LocalHub) -> None:
    await five(any_hub)
    before = await any_hub.get(CONFIG_MAPS)
    await any_hub.delete(f"{CONFIG_MAPS}/c2")
    await any_hub.patch(f"{CONFIG_MAPS}/c3", {"data": {"i": "new"}})

    exact = await any_hub.get(CONFIG_MAPS, {"resourceVersion": before.version, "resourceVersionMatch": "Exact"})
    limited = await any_hub.get(CONFIG_MAPS, {"resourceVersion": before.version, "limit": "9"})
    assert exact.body == limited.body == before.body

    present = await any_hub.get(CONFIG_MAPS)
    for query in ({"resourceVersion": before.version}, {"resourceVersion": "0", "limit": "9"}):
        assert (await any_hub.get(CONFIG_MAPS, query)).body == present.body
    newer = {"resourceVersion": before.version, "resourceVersionMatch": "NotOlderThan", "limit": "9"}
    assert (await any_hub.get(CONFIG_MAPS, newer)).body == present.body


async def test_a_forgotten_past_is_expired(any_hub: LocalHub) -> None:
    await five(any_hub)
    await any_hub.store.compact(any_hub.store.revision)

    answer = await any_hub.get(CONFIG_MAPS, "resourceVersion=2&resourceVersionMatch=Exact")

    assert (answer.status, answer.reason) == (410, "Expired")
    assert answer.message == "The resourceVersion for the provided list is too old."
    assert (await any_hub.get(CONFIG_MAPS, "resourceVersion=2")).status == 200


@pytest.mark.parametrize("match", ["", "Exact", "NotOlderThan"])
async def test_a_future_version_is_a_timeout(any_hub: LocalHub, match: str) -> None:
    answer = await any_hub.get(CONFIG_MAPS, {"resourceVersion": "99999999999", "resourceVersionMatch": match})

    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message == (f"Timeout: Too large resource version: 99999999999, current: {any_hub.store.revision}")
    assert answer.json["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


OPTIONS = 'ListOptions.meta.k8s.io "" is invalid: '
FORBIDDEN = "resourceVersionMatch: Forbidden: resourceVersionMatch"


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"limit": "abc"}, 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"limit": "9" * 5000}, 400, f'strconv.ParseInt: parsing "{"9" * 5000}": value out of range'),
        (
            {"resourceVersionMatch": "Exact"},
            422,
            f"{OPTIONS}{FORBIDDEN} is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            422,
            f'{OPTIONS}{FORBIDDEN} "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Foo", "resourceVersion": "1"},
            422,
            f'{OPTIONS}resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            {"resourceVersion": "abc"},
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": '
            "invalid syntax",
        ),
        (
            {"continue": token(v="meta.k8s.io/v1", rv=2, start="a\0"), "resourceVersion": "2"},
            400,
            "specifying resource version is not allowed when using continue",
        ),
        (
            {"sendInitialEvents": "true"},
            422,
            f"{OPTIONS}sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        ({"labelSelector": "a in b"}, 400, "unable to parse requirement: found 'b' expected: '('"),
        (
            {"fieldSelector": "spec.x=1"},
            400,
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
async def test_options_that_make_no_sense_are_refused(
    hub: LocalHub, query: dict[str, str], status: int, message: str
) -> None:
    answer = await hub.get(CONFIG_MAPS, query)

    assert (answer.status, answer.message) == (status, message)


# --- representations ------------------------------------------------------------------------------


async def test_a_list_is_spliced_from_what_gets_answer(hub: LocalHub) -> None:
    await five(hub)

    listed = await hub.get(CONFIG_MAPS)

    assert list(listed.json) == ["kind", "apiVersion", "metadata", "items"]
    for item in listed.json["items"]:
        one = (await hub.get(f"{CONFIG_MAPS}/{item['metadata']['name']}")).json
        assert one == {"kind": "ConfigMap", "apiVersion": "v1", **item}
    empty = await hub.get("/api/v1/namespaces/default/secrets")
    assert empty.json == {
        "kind": "SecretList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(hub.store.revision)},
        "items": [],
    }


@pytest.mark.parametrize("count", [0, 1, 128, 129, 300])
async def test_a_list_says_the_same_however_it_is_cut_and_encoded(hub: LocalHub, count: int) -> None:
    for number in range(count):
        await hub.config_map(f"c{number:03}", key=f"items: []\n- {number}")
    expected = (await hub.get(CONFIG_MAPS)).json
    assert len(expected["items"]) == count

    in_yaml = yaml.load((await hub.get(CONFIG_MAPS, accept="application/yaml")).body, Loader=yaml.CSafeLoader)
    assert in_yaml == expected
    body = (await hub.get(CONFIG_MAPS, accept=PROTOBUF)).body
    definition = "io.k8s.api.core.v1.ConfigMapList"
    assert protobuf.decode(body, definition, wire.MESSAGES).obj.get("items", []) == [
        item | {"metadata": dict(item["metadata"])} for item in expected["items"]
    ]
    rows = (await hub.get(CONFIG_MAPS, accept=TABLE)).json["rows"]
    assert [row["object"]["metadata"] for row in rows] == [item["metadata"] for item in expected["items"]]
    metadata = (await hub.get(CONFIG_MAPS, accept=PARTIAL_LIST)).json["items"]
    assert [one["metadata"] for one in metadata] == [item["metadata"] for item in expected["items"]]


@pytest.mark.parametrize("accept", [TABLE, PARTIAL_LIST, "application/yaml", PROTOBUF])
async def test_others_are_served_while_a_long_list_is_encoded(hub: LocalHub, accept: str) -> None:
    for number in range(300):
        await hub.config_map(f"c{number}")

    listing = asyncio.create_task(hub.get(CONFIG_MAPS, accept=accept))
    await asyncio.sleep(0)
    await hub.config_map("between")

    assert not listing.done()
    assert b"between" not in (await listing).body


async def test_yaml_says_the_same_as_json(hub: LocalHub) -> None:
    await hub.config_map("a", k="yes", n="1", e="é\n\t")

    for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/a"):
        answer = await hub.get(path, accept="application/yaml")
        assert answer.content_type == "application/yaml"
        assert yaml.safe_load(answer.body) == (await hub.get(path)).json


async def test_protobuf_says_the_same_as_json(hub: LocalHub) -> None:
    await hub.config_map("a", {"l": "m"}, k="v")
    definition = "io.k8s.api.core.v1.ConfigMap"

    one = await hub.get(f"{CONFIG_MAPS}/a", accept=PROTOBUF)
    assert one.content_type == PROTOBUF
    assert protobuf.decode(one.body, definition, wire.MESSAGES).obj["data"] == {"k": "v"}
    many = await hub.get(CONFIG_MAPS, accept=f"{PROTOBUF},application/json")
    listed = protobuf.decode(many.body, f"{definition}List", wire.MESSAGES).obj
    assert listed["items"][0]["metadata"]["labels"] == {"l": "m"}
    missing = await hub.get(f"{CONFIG_MAPS}/b", accept=PROTOBUF)
    status = protobuf.decode(missing.body, "io.k8s.apimachinery.pkg.apis.meta.v1.Status", wire.MESSAGES).obj
    assert (missing.status, status["message"]) == (404, 'configmaps "b" not found')


async def test_a_table_has_columns_and_a_row_for_each_object(hub: LocalHub) -> None:
    await hub.config_map("a", x="1", y="2")
    hub.later(65)

    table = (await hub.get(CONFIG_MAPS, accept=f"{TABLE},application/json")).json

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": str(hub.store.revision)}
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    (row,) = table["rows"]
    assert row["cells"] == ["a", 2, "65s"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    one = (await hub.get(f"{CONFIG_MAPS}/a", "includeObject=Object", accept=TABLE)).json
    assert one["rows"][0]["object"]["data"] == {"x": "1", "y": "2"}


async def test_metadata_alone_may_be_asked_for(hub: LocalHub) -> None:
    await hub.config_map("a", k="v")

    one = (await hub.get(f"{CONFIG_MAPS}/a", accept=PARTIAL)).json
    assert (one["kind"], one["apiVersion"], list(one)) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        ["kind", "apiVersion", "metadata"],
    )
    many = (await hub.get(CONFIG_MAPS, accept=PARTIAL_LIST)).json
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [one]


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        (
            CONFIG_MAPS,
            PARTIAL,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            f"{CONFIG_MAPS}/a",
            PARTIAL_LIST,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
        (
            f"{CONFIG_MAPS}/a",
            "text/plain",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        ),
    ],
)
async def test_what_cannot_be_had_is_not_acceptable(hub: LocalHub, path: str, accept: str, message: str) -> None:
    await hub.config_map("a")

    answer = await hub.get(path, accept=accept)

    assert (answer.status, answer.reason, answer.message) == (406, "NotAcceptable", message)


@pytest.mark.parametrize("accept", ["*/*", "text/html;q=0.9, application/json;q=0.8", "text/html, */*;q=0.1", ""])
async def test_what_browsers_and_scripts_accept_is_json(hub: LocalHub, accept: str) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"{CONFIG_MAPS}/a", accept=accept)).content_type == "application/json"


async def test_a_list_of_all_namespaces_is_in_order(hub: LocalHub) -> None:
    for namespace in ("b", "a", "a-b"):
        await hub.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        await hub.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "x"}})

    pages, query = [], {"limit": "1"}
    while True:
        page = await hub.get("/api/v1/configmaps", query)
        pages += [item["metadata"]["namespace"] for item in page.json["items"]]
        if "continue" not in page.json["metadata"]:
            break
        query = {"limit": "1", "continue": page.json["metadata"]["continue"]}
    whole = await hub.get("/api/v1/configmaps")
    assert pages == [item["metadata"]["namespace"] for item in whole.json["items"]]
    assert sorted(pages) == ["a", "a-b", "b"]
    assert (await hub.get("/api/v1/namespaces/a/configmaps")).names == ["x"]
