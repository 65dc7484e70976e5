"""Health, version, metrics, discovery, and who may read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from definitions import DEFINITIONS, STRING, definition, struct, version
from hub_harness import ADMIN_TOKEN, CONFIG_MAPS, DEPLOYMENTS, USER_TOKEN, LocalHub
from long_turns import no_long_turns

from farflung.http.messages import Request
from farflung.hub.catalog.openapi import handler
from farflung.hub.request.media_types import JSON

FIRST_OF_MAY = datetime(2024, 5, 1, tzinfo=UTC)  # when the hubs of these tests live


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
async def test_health_is_one_word_or_a_line_for_each_check(hub: LocalHub, endpoint: str) -> None:
    hub.token = None

    answer = await hub.get(f"/{endpoint}")
    assert (answer.status, answer.body, answer.content_type) == (200, b"ok", "text/plain; charset=utf-8")
    assert (await hub.get(f"/{endpoint}/ping")).body == b"ok"
    assert (await hub.get(f"/{endpoint}/nothing")).status == 404
    verbose = (await hub.get(f"/{endpoint}", "verbose")).body.decode()
    assert verbose.startswith("[+]ping ok\n")
    assert verbose.endswith(f"{endpoint} check passed\n")


async def test_anybody_may_ask_for_the_version(hub: LocalHub) -> None:
    hub.token = None

    version = (await hub.get("/version")).json

    assert version["major"] == "1"
    assert version["gitVersion"].startswith("v1.")


async def test_metrics_count_answers_and_watches(hub: LocalHub) -> None:
    await hub.get(CONFIG_MAPS)
    await hub.get(f"{CONFIG_MAPS}/nope")
    await hub.request("BREW", CONFIG_MAPS)
    watch = await hub.watch(CONFIG_MAPS)

    text = (await hub.get("/metrics")).body.decode()

    assert 'farflung_requests_total{code="200",method="GET"} 2.0' in text
    assert 'farflung_requests_total{code="404",method="GET"} 1.0' in text
    assert 'farflung_requests_total{code="405",method="other"} 1.0' in text
    assert "BREW" not in text
    assert "farflung_watches 1.0" in text
    watch.leave()
    assert "farflung_watches 0.0" in (await hub.get("/metrics")).body.decode()


async def test_what_discovery_lists_is_served(hub: LocalHub) -> None:
    groups = [(f"/apis/{group['name']}", group) for group in (await hub.get("/apis")).json["groups"]]
    documents = ["/api/v1"]
    for path, group in groups:
        assert (await hub.get(path)).json["name"] == group["name"]
        documents += [f"/apis/{version['groupVersion']}" for version in group["versions"]]

    for document in documents:
        for resource in (await hub.get(document)).json["resources"]:
            plural, _, subresource = resource["name"].partition("/")
            if subresource or "list" not in resource["verbs"]:
                continue
            answer = await hub.get(f"{document}/{plural}")
            assert (answer.status, answer.json["kind"]) == (200, f"{resource['kind']}List"), document
            if resource["namespaced"]:
                assert (await hub.get(f"{document}/namespaces/default/{plural}")).status == 200


@pytest.mark.parametrize("path", ["/foo", "/apis/nope.example.com/v1", "/apis/nope.example.com/v1/things", "//", "*"])
async def test_other_paths_are_not_there(hub: LocalHub, path: str) -> None:
    assert (await hub.get(path)).status == 404


async def test_the_root_workspace_is_the_default_one(hub: LocalHub) -> None:
    await hub.config_map("a")

    assert (await hub.get(f"/clusters/root{CONFIG_MAPS}/a")).body == (await hub.get(f"{CONFIG_MAPS}/a")).body
    assert (await hub.get("/clusters/root/healthz")).body == b"ok"
    assert (await hub.get(f"/clusters/other{CONFIG_MAPS}")).status == 403
    assert (await hub.get(f"/clusters/root%2Fx{CONFIG_MAPS}")).status == 403


# --- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Bearer", "Basic YTpi", "", "\xff", "Bearer " + "x" * 10_000]
)
async def test_wrong_credentials_are_refused_everywhere(hub: LocalHub, header: str) -> None:
    for path in ("/healthz", "/api", CONFIG_MAPS, "/foo"):
        answer = await hub.get(path, authorization=header)
        assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("header", [f"Bearer {ADMIN_TOKEN}", f"bearer {ADMIN_TOKEN}", f"Bearer  {ADMIN_TOKEN} "])
async def test_the_right_token_opens(hub: LocalHub, header: str) -> None:
    assert (await hub.get(CONFIG_MAPS, authorization=header)).status == 200


async def test_who_says_nothing_sees_nothing(hub: LocalHub) -> None:
    hub.token = None

    with hub.writes_nothing():
        for path in ("/metrics", "/apis", CONFIG_MAPS, f"{CONFIG_MAPS}/a", "/foo"):
            assert (await hub.get(path)).status in (401, 403)
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})).status in (401, 403)


async def test_a_user_learns_the_missing_permission(hub: LocalHub) -> None:
    await hub.furnish_roles()
    hub.token = USER_TOKEN
    user = 'User "somebody" cannot'

    assert (await hub.get("/apis")).status == 200
    listed = await hub.get(CONFIG_MAPS)
    assert (listed.status, listed.message) == (
        403,
        f'configmaps is forbidden: {user} list resource "configmaps" in API group "" in the namespace "default"',
    )
    one = await hub.get(f"{DEPLOYMENTS}/d/scale")
    assert one.message == (
        f'deployments.apps "d" is forbidden: {user} get resource "deployments/scale" in API group "apps" in the '
        'namespace "default"'
    )
    with hub.writes_nothing():
        assert (await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 403
    assert (await hub.get("/metrics")).message == f'forbidden: {user} get path "/metrics"'


def certificate(hub: LocalHub, *names: x509.NameAttribute[str], start: datetime = FIRST_OF_MAY) -> bytes:
    """Of the hub's authority, good for a day."""
    signer = hub.certificates.current
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(
        signer.ca.subject, x509.Name(names), key.public_key(), 1, start, start + timedelta(days=1)
    )
    return builder.sign(signer.ca_key, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "status"),
    [
        ({NameOID.COMMON_NAME: "admin", NameOID.ORGANIZATION_NAME: "system:masters"}, 200),
        ({NameOID.COMMON_NAME: "system:masters"}, 403),
        ({NameOID.ORGANIZATION_NAME: "system:masters"}, 401),
        ({}, 401),
    ],
)
async def test_a_certificate_names_its_user_and_groups(
    hub: LocalHub, names: dict[x509.ObjectIdentifier, str], status: int
) -> None:
    hub.token = None
    request = hub.prepared("GET", CONFIG_MAPS, None, "", {})
    request.certificate = certificate(hub, *(x509.NameAttribute(oid, text) for oid, text in names.items()))

    answer = await hub.answer(request)

    assert answer.status == status


async def test_a_certificate_is_good_between_its_dates_however_long_its_connection_lasts(hub: LocalHub) -> None:
    hub.token = None
    masters = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")
    request = hub.prepared("GET", CONFIG_MAPS, None, "", {})
    request.certificate = certificate(hub, x509.NameAttribute(NameOID.COMMON_NAME, "admin"), masters)
    early = hub.prepared("GET", CONFIG_MAPS, None, "", {})
    tomorrow = FIRST_OF_MAY + timedelta(days=1)
    early.certificate = certificate(hub, x509.NameAttribute(NameOID.COMMON_NAME, "admin"), masters, start=tomorrow)

    assert [(await hub.answer(one)).status for one in (request, early)] == [200, 401]
    hub.later(86400)
    assert [(await hub.answer(one)).status for one in (request, early)] == [401, 200]


async def test_a_token_counts_more_than_a_certificate(hub: LocalHub) -> None:
    masters = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")
    request = hub.prepared("GET", CONFIG_MAPS, None, "", {"authorization": "Bearer wrong"})
    request.certificate = certificate(hub, x509.NameAttribute(NameOID.COMMON_NAME, "admin"), masters)

    assert (await hub.answer(request)).status == 401


async def test_only_administrators_may_impersonate(hub: LocalHub) -> None:
    as_somebody = await hub.get(CONFIG_MAPS, impersonate_user="other")
    assert as_somebody.status == 403
    assert 'User "other" cannot list resource "configmaps"' in as_somebody.message
    assert (await hub.get(CONFIG_MAPS, impersonate_user="other", impersonate_group="system:masters")).status == 200

    hub.token = USER_TOKEN
    refused = await hub.get(CONFIG_MAPS, impersonate_user="admin", impersonate_group="system:masters")
    assert refused.status == 403


@pytest.mark.parametrize(
    "headers", [{"impersonate_group": "nobodies"}, {"impersonate_uid": "1"}, {"impersonate_user": ""}]
)
async def test_an_impersonation_without_a_name_is_refused(hub: LocalHub, headers: dict[str, str]) -> None:
    with hub.writes_nothing():
        answer = await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}}, **headers)

    assert (answer.status, answer.message) == (400, "requested impersonation without impersonating a user")


async def test_an_administrator_can_see_what_anybody_may(hub: LocalHub) -> None:
    await hub.furnish_roles()
    assert (await hub.get("/version", impersonate_user="system:anonymous")).status == 200
    assert (await hub.get("/apis", impersonate_user="system:anonymous")).status == 403
    assert (await hub.get("/apis", impersonate_user="other")).status == 200


async def test_a_store_that_closes_is_unavailable_and_says_when_to_come_back(any_hub: LocalHub) -> None:
    await any_hub.store.close()

    answer = await any_hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})

    assert (answer.status, answer.reason) == (503, "ServiceUnavailable")
    assert ("Retry-After", "1") in answer.headers
    assert (await any_hub.get(CONFIG_MAPS)).status == 200


async def test_the_list_of_openapi_documents_of_many_definitions_never_holds_the_event_loop(hub: LocalHub) -> None:
    """The list has the hash of each document, so it makes all of them."""
    fields = {f"p{number}": struct(a=STRING, b=STRING) for number in range(40)}
    for number in range(60):
        described = definition(version(**fields))
        described["metadata"]["name"] = f"things.g{number}.example.com"
        described["spec"]["group"] = f"g{number}.example.com"
        await hub.create(DEFINITIONS, described)
    async with no_long_turns():
        answer = await hub.get("/openapi/v3")
    assert answer.status == 200
    assert len([path for path in answer.json["paths"] if path.endswith(".example.com/v1")]) == 60
    document = await hub.get("/openapi/v3/apis/g7.example.com/v1")
    assert "/apis/g7.example.com/v1/namespaces/{namespace}/things" in document.json["paths"]


GROUP = "/openapi/v3/apis/example.com/v1"


@pytest.mark.parametrize(
    ("path", "accept"),
    [("/openapi/v2", JSON), ("/openapi/v2", handler.PROTOBUF_V2), (GROUP, JSON), (GROUP, handler.PROTOBUF_V3)],
)
async def test_a_worker_makes_the_document_that_the_hub_would_make(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, path: str, accept: str
) -> None:
    await hub.create(DEFINITIONS, definition(version(a=STRING), version("v2", storage=False, b=STRING)))
    await hub.create(DEFINITIONS, definition(version(a=STRING), plural="others", kind="Other"))
    openapi = hub.assembly.kinds.of("root").openapi
    here = openapi.answer(Request("GET", path, headers={"accept": accept}), path)
    assert here is not None
    monkeypatch.setattr(openapi, "_kept", {})
    monkeypatch.setattr(openapi, "_shelf", handler.DocumentCache())
    monkeypatch.setattr(handler, "LARGE", 0)
    answer = await hub.get(path, accept=accept)
    assert hub.assembly.workers.finished > 0
    assert (answer.status, answer.body) == (200, here.whole())
    assert dict(answer.headers)["ETag"] == dict(here.headers)["ETag"]
