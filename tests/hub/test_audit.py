"""Who wrote what: the audit of a hub, and what it keeps to itself."""

from __future__ import annotations

import base64
import logging
import re

import pytest
from hub_harness import APPLY_PATCH, CONFIG_MAPS, JSON_PATCH, USER_TOKEN, LocalHub

from farflung.http.messages import Request, Response
from farflung.hub.request.audit import Audit, Line

SECRETS = "/api/v1/namespaces/default/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
#: whoever sees this in a log has found a leak
HIDDEN = "hunter2hunter2"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The audit's lines without their durations."""
    found = [record.getMessage() for record in caplog.records if record.name == "farflung.hub.request.audit"]
    assert all(re.search(r" ms=\d+\.\d from=inside$", line) for line in found), found
    return [re.sub(r" ms=.*", "", line) for line in found]


async def test_every_write_is_a_line(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.config_map("a")
    await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
    await hub.put(f"{CONFIG_MAPS}/a", {"metadata": {"name": "a"}})
    await hub.delete(f"{CONFIG_MAPS}/a")
    await hub.delete(CONFIG_MAPS)
    await hub.put("/api/v1/namespaces/default/finalize", {"metadata": {"name": "default"}})
    where = "resource=core/v1/configmaps cluster=root namespace=default"
    assert told(lines) == [
        f"audit user=admin verb=create {where} name=a code=201",
        f"audit user=admin verb=patch {where} name=a code=200",
        f"audit user=admin verb=update {where} name=a code=200",
        f"audit user=admin verb=delete {where} name=a code=200",
        f"audit user=admin verb=deletecollection {where} code=200",
        "audit user=admin verb=update resource=core/v1/namespaces/finalize cluster=root name=default code=200",
    ]


async def test_a_request_that_reads_secrets_is_a_line(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.get(SECRETS)
    await hub.get(f"{SECRETS}/a")
    await hub.get("/api/v1/namespaces/default/s%65crets/a")
    await hub.get(SECRETS, {"fieldSelector": "metadata.name=a"})
    (await hub.watch("/api/v1/secrets")).leave()
    hub.token = "wrong"
    await hub.get(SECRETS)
    where = "resource=core/v1/secrets cluster=root"
    assert told(lines) == [
        f"audit user=admin verb=list {where} namespace=default code=200",
        f"audit user=admin verb=get {where} namespace=default name=a code=404",
        f"audit user=admin verb=get {where} namespace=default name=a code=404",
        f"audit user=admin verb=list {where} namespace=default code=200",
        f"audit user=admin verb=watch {where} code=200",
        f"audit user=- verb=list {where} namespace=default code=401",
    ]


async def test_other_reads_and_questions_are_none(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.get(CONFIG_MAPS)
    await hub.post(REVIEWS, {"spec": {"token": HIDDEN}})
    await hub.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}})
    await hub.post("/healthz")
    assert told(lines) == []


async def test_a_lease_that_is_renewed_is_none_and_one_that_is_made_or_deleted_is_one(
    hub: LocalHub, lines: pytest.LogCaptureFixture
) -> None:
    made = (await hub.post(LEASES, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}})).json
    await hub.put(f"{LEASES}/a", made)
    await hub.delete(f"{LEASES}/a")
    assert [line.split()[2] + line.rpartition(" ")[2] for line in told(lines)] == [
        "verb=createcode=201",
        "verb=deletecode=200",
    ]


async def test_a_refused_request_is_logged_with_its_code(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.post(CONFIG_MAPS, {"metadata": {"name": "Not A Name"}})
    await hub.post(CONFIG_MAPS, b"{")
    await hub.delete(f"{CONFIG_MAPS}/absent")
    hub.token = USER_TOKEN
    await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})
    hub.token = "wrong"
    await hub.post(CONFIG_MAPS, {"metadata": {"name": "a"}})
    where = "resource=core/v1/configmaps cluster=root namespace=default"
    assert told(lines) == [
        f'audit user=admin verb=create {where} name="Not A Name" code=422',
        f"audit user=admin verb=create {where} code=400",
        f"audit user=admin verb=delete {where} name=absent code=404",
        f"audit user=somebody verb=create {where} code=403",
        f"audit user=- verb=create {where} code=401",
    ]


async def test_an_impersonated_user_is_logged_with_the_authenticated_one(
    hub: LocalHub, lines: pytest.LogCaptureFixture
) -> None:
    await hub.delete(f"{CONFIG_MAPS}/a", impersonate_user="jane doe", impersonate_group="system:masters")
    await hub.delete(f"{CONFIG_MAPS}/a", impersonate_group="only a group")
    where = "resource=core/v1/configmaps cluster=root namespace=default"
    assert told(lines) == [
        f'audit user="jane doe" by=admin verb=delete {where} name=a code=404',
        f"audit user=admin verb=delete {where} name=a code=400",
    ]


async def test_a_dry_run_is_said_to_be_one(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.post(CONFIG_MAPS, {"metadata": {"generateName": "a"}}, {"dryRun": "All"})
    await hub.config_map("a")
    await hub.delete(f"{CONFIG_MAPS}/a", {"dryRun": ["All"]})
    assert ["dry-run" in line for line in told(lines)] == [True, False, True]


async def test_a_name_cannot_begin_a_line_of_its_own(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    await hub.delete(f"{CONFIG_MAPS}/a%0Aaudit%20user=nobody%20code=200")
    await hub.post(CONFIG_MAPS, {"metadata": {"name": "b\n" * 1000}})
    first, second = told(lines)
    assert r'name="a\naudit user=nobody code=200" code=404' in first
    assert "\n" not in second
    assert len(second) < 1000


async def test_no_secret_and_no_token_is_ever_logged(hub: LocalHub, lines: pytest.LogCaptureFixture) -> None:
    encoded = base64.b64encode(HIDDEN.encode()).decode()
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"data":{{"p":"{encoded}"}}}}'}
    secret = {"metadata": {"name": "s", "annotations": applied}, "data": {"p": encoded}, "stringData": {"q": HIDDEN}}
    assert (await hub.post(SECRETS, secret)).status == 201
    refused = [
        await hub.post(SECRETS, secret),
        await hub.post(SECRETS, {"metadata": {"name": HIDDEN}, "data": {"p": HIDDEN + "!"}}),
        await hub.post(SECRETS, {"metadata": {"name": "t"}, "data": {HIDDEN + " /": encoded}}),
        await hub.post(SECRETS, {"metadata": {"name": "t", "labels": {"l": HIDDEN + "!"}}}),
        await hub.post(SECRETS, {"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": {"tls.crt": encoded}}),
        await hub.post(SECRETS, {"metadata": {"name": "t"}, "datum": HIDDEN}, {"fieldValidation": "Strict"}),
        await hub.post(SECRETS, b'{"data":{"p":"' + HIDDEN.encode()),
        await hub.post(SECRETS, secret, f"fieldManager={HIDDEN}&dryRun={HIDDEN}"),
        await hub.patch(f"{SECRETS}/s", [{"op": "test", "path": "/data/p", "value": HIDDEN}], JSON_PATCH),
        await hub.patch(f"{SECRETS}/s", f"data: {{p: '{HIDDEN}", APPLY_PATCH, {"fieldManager": "me"}),
        await hub.put(f"{SECRETS}/s", secret | {"type": HIDDEN}),
    ]
    assert all(answer.status >= 400 for answer in refused), [answer.status for answer in refused]
    assert (await hub.patch(f"{SECRETS}/s", {"stringData": {"p": HIDDEN}})).status == 200
    await hub.post(REVIEWS, {"spec": {"token": HIDDEN}})
    hub.token = HIDDEN
    assert (await hub.delete(f"{SECRETS}/s")).status == 401
    written = lines.text.replace(f"name={HIDDEN} ", "name=… ")  # a name is no secret
    assert HIDDEN not in written
    assert encoded not in written
    assert "verb=create resource=core/v1/secrets" in written


def test_a_record_that_waits_to_be_formatted_counts_with_what_the_client_chose() -> None:
    """Clients choose path and query, and lines wait in memory if their reader is slow."""
    written: list[tuple[Line, int]] = []
    audit = Audit(lambda line, size: written.append((line, size)))
    for path, query in (("a", ""), ("x" * 30_000, ""), ("a", "y" * 30_000)):
        audit_record = audit.begin(Request("POST", f"/api/v1/namespaces/{path}/configmaps", query, {}, b"z" * 30_000))
        assert audit_record is not None
        audit.end(audit_record, Response(403))
        assert audit_record.request is None, "its body is no longer needed"
    assert written[0][1] < 1000
    assert all(size > 30_000 for _, size in written[1:])
    assert all(line().startswith("audit ") and len(line()) < 1000 for line, _ in written)


async def test_a_request_that_is_refused_before_its_body_arrives_has_a_line(
    hub: LocalHub, lines: pytest.LogCaptureFixture
) -> None:
    assert hub.function.admit(hub.prepared("POST", CONFIG_MAPS, None, "", {})) == "/admin"
    refused = []
    for token in (USER_TOKEN, "wrong", None):
        hub.token = token
        refused.append(hub.function.admit(hub.prepared("POST", CONFIG_MAPS, None, "", {})))
    assert [answer.status for answer in refused if isinstance(answer, Response)] == [403, 401, 403]
    where = "verb=create resource=core/v1/configmaps cluster=root namespace=default"
    assert told(lines) == [
        f"audit user=somebody {where} code=403",
        f"audit user=- {where} code=401",
        f"audit user=system:anonymous {where} code=403",
    ]
