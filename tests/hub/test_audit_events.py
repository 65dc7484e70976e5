"""Events of audit.k8s.io/v1: what they have at each level, and the bodies that no level shows."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import orjson
import pytest
from hub_harness import (
    APPLY_PATCH,
    CONFIG_MAPS,
    JSON_PATCH,
    PROTOBUF,
    STRATEGIC_PATCH,
    USER_TOKEN,
    LocalHub,
)

from farflung.apis import wire
from farflung.hub.request.audit import Audit, Line
from farflung.hub.request.audit_policy import AuditPolicy
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import Obj

SECRETS = "/api/v1/namespaces/default/secrets"
HIDDEN = "hunter2hunter2"


class AuditedHub:
    """A hub, and the events that it writes by a policy."""

    def __init__(self, hub: LocalHub, *rules: Obj, **fields: Any) -> None:
        self.hub = hub
        self.sizes: list[int] = []
        self._lines: list[Line] = []
        document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **fields}
        hub.function.audit = Audit(self._write, AuditPolicy.parse(json.dumps(document)), as_json=True)

    def _write(self, line: Line, size: int) -> None:
        self._lines.append(line)
        self.sizes.append(size)

    @property
    def text(self) -> str:
        """Formatted as late as possible, as a slow reader would have it."""
        return "\n".join(filter(None, (line() for line in self._lines)))

    @property
    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def stages(self) -> list[str]:
        return [event["stage"] for event in self.events]


COMPLETE = {"omitStages": ["RequestReceived"]}


async def test_metadata_of_a_request_is_an_event_without_bodies(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "Metadata"}, **COMPLETE)
    request = hub.prepared("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, {"fieldManager": "me"}, {})
    request.peer = "192.0.2.1:4711"
    await hub.answer(request)
    [event] = audited.events
    for moment in ("requestReceivedTimestamp", "stageTimestamp"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event.pop(moment))
    assert re.fullmatch(r"[0-9a-f-]{36}", event.pop("auditID"))
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": f"{CONFIG_MAPS}?fieldManager=me",
        "verb": "create",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["192.0.2.1"],
        "userAgent": "test/1.0",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
        "annotations": {"tenancy.kcp.io/workspace": "root", "authorization.k8s.io/decision": "allow"},
    }


async def test_the_level_decides_about_bodies(hub: LocalHub) -> None:
    sent = {"metadata": {"name": "a"}, "data": {"x": "y"}}
    for level, fields in (("Request", {"requestObject"}), ("RequestResponse", {"requestObject", "responseObject"})):
        audited = AuditedHub(hub, {"level": level}, **COMPLETE)
        answer = await hub.post(CONFIG_MAPS, sent)
        [event] = audited.events
        assert {name for name in event if name.endswith("Object")} == fields
        assert event["requestObject"] == sent
        assert event.get("responseObject", answer.json) == answer.json
        await hub.delete(f"{CONFIG_MAPS}/a")


async def test_bodies_of_every_format_are_logged_as_json(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"}, **COMPLETE)
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "one"}}
    encoded = protobuf.encode(obj, "io.k8s.api.core.v1.ConfigMap", wire.MESSAGES)
    await hub.post(CONFIG_MAPS, encoded, content_type=PROTOBUF, accept=PROTOBUF)
    await hub.patch(f"{CONFIG_MAPS}/a", [{"op": "add", "path": "/data/z", "value": "1"}], JSON_PATCH)
    await hub.patch(f"{CONFIG_MAPS}/a", {"data": {"z": None}}, STRATEGIC_PATCH)
    applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {w: v}\n"
    await hub.patch(f"{CONFIG_MAPS}/a", applied, APPLY_PATCH, {"fieldManager": "me"})
    await hub.get(f"{CONFIG_MAPS}/a", accept="application/yaml")
    await hub.delete(f"{CONFIG_MAPS}/a", b"{not json")
    created, patched, merged, server_side, read, refused = audited.events
    assert created["requestObject"] == obj
    assert created["responseObject"]["metadata"]["resourceVersion"]
    assert patched["requestObject"][0]["path"] == "/data/z"
    assert merged["requestObject"] == {"data": {"z": None}}
    assert server_side["requestObject"]["data"] == {"w": "v"}
    assert read["responseObject"]["data"] == {"x": "one", "w": "v"}
    assert "requestObject" not in refused


async def test_large_bodies_are_left_out_and_the_event_says_so(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"}, **COMPLETE)
    await hub.config_map("a", x="x" * 200_000)
    await hub.get(CONFIG_MAPS)
    for event in audited.events:
        assert event["annotations"]["audit.k8s.io/truncated"] == "true"
        assert not {"requestObject", "responseObject"} & set(event)
    assert len(audited.text) < 3000
    assert all(size < 1000 for size in audited.sizes)


async def test_bodies_that_wait_count_with_their_size(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"}, **COMPLETE)
    await hub.config_map("a", x="x" * 50_000)
    assert audited.sizes[0] > 100_000


async def test_managed_fields_can_be_omitted(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"}, omitManagedFields=True, **COMPLETE)
    await hub.config_map("a")
    await hub.get(CONFIG_MAPS)
    assert "managedFields" not in audited.text
    assert "responseObject" in audited.text


async def test_a_watch_has_an_event_when_it_begins_and_one_when_it_ends(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"})
    watch = await hub.watch(CONFIG_MAPS)
    assert audited.stages == ["RequestReceived", "ResponseStarted"]
    watch.leave()
    assert audited.stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert len({event["auditID"] for event in audited.events}) == 1
    assert {event["verb"] for event in audited.events} == {"watch"}
    assert "responseStatus" not in audited.events[0]


async def test_a_refused_request_has_the_decision_and_by_level_the_message(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "Metadata", "verbs": ["list"]}, {"level": "Request"}, **COMPLETE)
    hub.token = USER_TOKEN
    await hub.get(CONFIG_MAPS)
    await hub.delete(f"{CONFIG_MAPS}/a")
    hub.token = "wrong"
    await hub.get(CONFIG_MAPS)
    listed, deleted, unknown = audited.events
    assert listed["responseStatus"] == {"metadata": {}, "code": 403}
    assert listed["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert deleted["responseStatus"]["reason"] == "Forbidden"
    assert "cannot delete" in deleted["responseStatus"]["message"]
    assert (unknown["user"], unknown["responseStatus"]["code"]) == ({}, 401)
    assert "authorization.k8s.io/decision" not in unknown["annotations"]


async def test_both_users_of_an_impersonation_are_in_the_event_and_the_sender_selects_the_rule(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "None", "users": ["jane"]}, {"level": "Metadata"}, **COMPLETE)
    await hub.get(CONFIG_MAPS, impersonate_user="jane", impersonate_group="system:masters")
    [event] = audited.events
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"]["username"] == "jane"


async def test_paths_that_are_no_resources_are_logged_by_their_rules(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "Metadata", "nonResourceURLs": ["/version"]}, **COMPLETE)
    await hub.get("/version")
    await hub.get("/healthz")
    await hub.get(CONFIG_MAPS)
    assert [event["requestURI"] for event in audited.events] == ["/version"]


async def test_a_bug_of_the_hub_is_a_panic(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    audited = AuditedHub(hub, {"level": "Metadata"}, **COMPLETE)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(hub.assembly.authenticator, "user_of", broken)
    with pytest.raises(ZeroDivisionError):
        await hub.get(CONFIG_MAPS)
    assert [(event["stage"], event["responseStatus"]["code"]) for event in audited.events] == [("Panic", 500)]


async def test_no_secret_and_no_token_is_in_an_event_at_any_level(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"})
    encoded = base64.b64encode(HIDDEN.encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": encoded}}
    raw = protobuf.encode(secret, "io.k8s.api.core.v1.Secret", wire.MESSAGES)
    assert (await hub.post(SECRETS, secret)).status == 201
    await hub.post(SECRETS, raw, content_type=PROTOBUF)
    await hub.post(SECRETS, {**secret, "data": {"p": HIDDEN + "!"}})
    await hub.post(SECRETS, secret, f"fieldManager={HIDDEN}")
    await hub.get(SECRETS, {"labelSelector": f"p={HIDDEN}"})
    await hub.patch(f"{SECRETS}/s", {"stringData": {"p": HIDDEN}})
    for accept in ("application/json", "application/yaml", PROTOBUF):
        assert (await hub.get(f"{SECRETS}/s", accept=accept)).status == 200
        assert (await hub.get("/api/v1/secrets", accept=accept)).status == 200
    (await hub.watch(SECRETS)).leave()
    # a client that confuses the path
    await hub.post(CONFIG_MAPS, secret)
    await hub.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "List", "items": [secret]})
    await hub.post(CONFIG_MAPS, raw, content_type=PROTOBUF)
    review = {"spec": {"token": HIDDEN}}
    await hub.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    answer = await hub.post("/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
    assert answer.status == 201
    hub.token = HIDDEN
    await hub.get(f"{SECRETS}/s")
    assert len(audited.events) > 30
    for hidden in (HIDDEN, encoded, answer.json["status"]["token"]):
        assert hidden not in audited.text


async def test_a_long_user_agent_is_cut(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "Metadata"}, **COMPLETE)
    await hub.get(CONFIG_MAPS, user_agent="x" * 5000)
    assert audited.events[0]["userAgent"] == "x" * 1024 + "...TRUNCATED"
    assert audited.sizes[0] > 5000


async def test_a_name_cannot_begin_an_event_of_its_own(hub: LocalHub) -> None:
    audited = AuditedHub(hub, {"level": "RequestResponse"}, **COMPLETE)
    await hub.delete(f'{CONFIG_MAPS}/a%0A{{"kind":"Event"}}')
    await hub.post(CONFIG_MAPS, json.dumps({"metadata": {"name": "b\n"}}, indent=1))
    assert len(audited.text.splitlines()) == 2
    assert orjson.loads(audited.text.splitlines()[0])["objectRef"]["name"] == 'a\n{"kind":"Event"}'
