"""serviceaccounts/NAME/token, TokenReview, and the documents with which others verify tokens."""

from __future__ import annotations

import json

import jwt
import pytest
from hub_harness import PODS, PROTOBUF, LocalHub, pod

from farflung.apis import wire
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import Obj

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
TOKEN = f"{ACCOUNT}/token"
SECRETS = "/api/v1/namespaces/default/secrets"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ISSUER = "https://kubernetes.default.svc"
DEFINITION = "io.k8s.api.authentication.v1.TokenRequest"


def claims_of(token: str) -> Obj:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def reference(kind: str, name: str = "x", **more: str) -> Obj:
    return {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, **more}}}


# --- TokenRequest ---------------------------------------------------------------------------------


async def test_a_token_is_issued_and_nothing_is_stored(hub: LocalHub) -> None:
    uid = (await hub.get(ACCOUNT)).json["metadata"]["uid"]
    with hub.writes_nothing():
        answer = await hub.post(TOKEN, {"spec": {"audiences": ["vault"], "expirationSeconds": 600}})
    assert answer.status == 201
    issued = answer.json
    token = issued["status"].pop("token")
    assert issued == {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": "default",
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2024-05-01T12:00:00Z",
            "managedFields": [
                {
                    "manager": "test",
                    "operation": "Update",
                    "apiVersion": "authentication.k8s.io/v1",
                    "time": "2024-05-01T12:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}},
                    "subresource": "token",
                }
            ],
        },
        "spec": {"audiences": ["vault"], "expirationSeconds": 600, "boundObjectRef": None},
        "status": {"expirationTimestamp": "2024-05-01T12:10:00Z"},
    }
    claims = claims_of(token)
    now = int(hub.now.timestamp())
    assert len(claims.pop("jti")) == 36
    assert claims == {
        "iss": ISSUER,
        "sub": "system:serviceaccount:default:default",
        "aud": ["vault"],
        "exp": now + 600,
        "nbf": now,
        "iat": now,
        "kubernetes.io": {
            "clusterName": "root",
            "namespace": "default",
            "serviceaccount": {"name": "default", "uid": uid},
        },
    }


@pytest.mark.parametrize("body", [{}, {"spec": {}}, {"spec": {"audiences": []}}, {"spec": None}])
async def test_a_token_is_for_the_hub_and_an_hour_unless_more_is_said(hub: LocalHub, body: Obj) -> None:
    issued = (await hub.post(TOKEN, body)).json
    assert issued["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    assert issued["status"]["expirationTimestamp"] == "2024-05-01T13:00:00Z"


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        (0, "may not specify a duration less than 10 minutes"),
        (599, "may not specify a duration less than 10 minutes"),
        (-(2**62), "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
        (2**63 - 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_a_token_lives_neither_too_short_nor_too_long(hub: LocalHub, seconds: int, why: str) -> None:
    answer = await hub.post(TOKEN, {"spec": {"expirationSeconds": seconds}})
    assert answer.status == 422
    assert answer.message == (
        f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: {seconds}: {why}'
    )
    for allowed in (600, 2**32):
        assert (await hub.post(TOKEN, {"spec": {"expirationSeconds": allowed}})).status == 201


async def test_a_longer_lifetime_is_shortened_with_a_warning(hub: LocalHub) -> None:
    """A syncer could request a token until 2162."""
    longest = 90 * 86400
    answer = await hub.post(TOKEN, {"spec": {"expirationSeconds": 2**32}})
    assert answer.warnings == [f'299 - "requested expiration of {2**32} seconds shortened to {longest} seconds"']
    assert answer.json["spec"]["expirationSeconds"] == longest
    assert answer.json["status"]["expirationTimestamp"] == "2024-07-30T12:00:00Z"
    claims = claims_of(answer.json["status"]["token"])
    assert claims["exp"] - claims["iat"] == longest
    assert not (await hub.post(TOKEN, {"spec": {"expirationSeconds": longest}})).warnings


async def test_a_token_of_a_missing_account_is_refused(hub: LocalHub) -> None:
    nobody = await hub.post("/api/v1/namespaces/default/serviceaccounts/nobody/token", {})
    assert (nobody.status, nobody.message) == (404, 'serviceaccounts "nobody" not found')
    nowhere = await hub.post("/api/v1/namespaces/nowhere/serviceaccounts/default/token", {})
    assert (nowhere.status, nowhere.message) == (404, 'namespaces "nowhere" not found')


async def test_a_body_may_repeat_what_the_path_says_and_nothing_else(hub: LocalHub) -> None:
    assert (await hub.post(TOKEN, {"metadata": {"name": "default", "namespace": "default"}})).status == 201
    name = await hub.post(TOKEN, {"metadata": {"name": "x"}})
    assert name.message == (
        'TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid value: "x": must match the '
        "service account name if specified"
    )
    namespace = await hub.post(TOKEN, {"metadata": {"namespace": "x"}})
    assert (namespace.status, namespace.message) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )
    kind = await hub.post(TOKEN, {"apiVersion": "v1", "kind": "ConfigMap"})
    assert kind.status == 400


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_a_token_can_be_made_and_nothing_else(hub: LocalHub, method: str) -> None:
    assert (await hub.request(method, TOKEN)).status == 405


async def test_a_token_is_bound_to_an_object_that_is_there(hub: LocalHub) -> None:
    secret = await hub.create(SECRETS, {"metadata": {"name": "x"}})
    await hub.create(PODS, pod("x"))
    issued = (await hub.post(TOKEN, reference("Secret", uid=secret["metadata"]["uid"]))).json
    bound = claims_of(issued["status"]["token"])["kubernetes.io"]
    assert bound["secret"] == {"name": "x", "uid": secret["metadata"]["uid"]}
    other = await hub.post(TOKEN, reference("Secret", uid="other"))
    assert (other.status, other.message) == (
        409,
        'Operation cannot be fulfilled on Secret "x": the UID in the bound object reference (other) does not match the '
        "UID in record. The object might have been deleted and then recreated",
    )
    for kind, plural in (("Pod", "pods"), ("Secret", "secrets"), ("Node", "nodes")):
        for name in ("y", "", "x/y"):
            missing = await hub.post(TOKEN, reference(kind, name))
            assert (missing.status, missing.message) == (404, f'{plural} "{name}" not found')
    thing = await hub.post(TOKEN, reference("ConfigMap"))
    assert (thing.status, thing.message) == (400, "cannot bind token to object of type /v1, Kind=ConfigMap")
    grouped = await hub.post(TOKEN, {"spec": {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Pod", "name": "x"}}})
    assert grouped.message == "cannot bind token to object of type apps/v1, Kind=Pod"


async def test_a_token_is_not_bound_to_the_pod_of_another_account(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    await hub.create(PODS, pod("x", serviceAccountName="robot"))
    answer = await hub.post(TOKEN, reference("Pod"))
    assert (answer.status, answer.message) == (
        400,
        'cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.',
    )


async def test_tokens_are_requested_and_returned_in_protobuf_and_yaml(hub: LocalHub) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 700}}
    sent = protobuf.encode(body, DEFINITION, wire.MESSAGES)
    answer = await hub.post(TOKEN, sent, content_type=PROTOBUF, accept=PROTOBUF)
    assert (answer.status, answer.content_type) == (201, PROTOBUF)
    issued = protobuf.decode(answer.body, DEFINITION, wire.MESSAGES).obj
    assert issued["spec"]["expirationSeconds"] == 700
    assert claims_of(issued["status"]["token"])["aud"] == [ISSUER]
    yaml = await hub.post(TOKEN, {}, accept="application/yaml")
    assert yaml.body.startswith(b"apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\n")


async def test_a_terminating_namespace_gives_no_more_tokens(hub: LocalHub) -> None:
    await hub.create("/api/v1/namespaces", {"metadata": {"name": "old"}})
    await hub.create("/api/v1/namespaces/old/serviceaccounts", {"metadata": {"name": "default"}})
    await hub.delete("/api/v1/namespaces/old")
    answer = await hub.post("/api/v1/namespaces/old/serviceaccounts/default/token", {})
    assert answer.status == 403
    assert "because it is being terminated" in answer.message


# --- TokenReview ----------------------------------------------------------------------------------


async def reviewed(hub: LocalHub, **spec: object) -> Obj:
    answer = await hub.post(REVIEWS, {"spec": spec})
    assert answer.status == 201, answer.body
    status: Obj = answer.json["status"]
    return status


async def test_a_review_says_whose_a_token_is_and_what_for(hub: LocalHub) -> None:
    uid = (await hub.get(ACCOUNT)).json["metadata"]["uid"]
    token = (await hub.post(TOKEN, {"spec": {"audiences": ["vault", ISSUER]}})).json["status"]["token"]
    user = {
        "username": "system:serviceaccount:default:default",
        "uid": uid,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims_of(token)['jti']}"]},
    }
    told = {"authenticated": True, "user": user}
    assert await reviewed(hub, token=token) == told | {"audiences": [ISSUER]}
    assert await reviewed(hub, token=token, audiences=["x", "vault"]) == told | {"audiences": ["vault"]}
    assert await reviewed(hub, token=token, audiences=["x", "y"]) == {
        "user": {},
        "error": f'[invalid bearer token, token audiences ["vault" "{ISSUER}"] is invalid for the target audiences '
        '["x" "y"]]',
    }


async def test_a_review_of_a_token_that_was_handed_out(hub: LocalHub) -> None:
    user = {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert await reviewed(hub, token=hub.token) == {"authenticated": True, "user": user, "audiences": [ISSUER]}
    assert await reviewed(hub, token=hub.token, audiences=["vault"]) == {"user": {}, "error": "invalid bearer token"}


async def test_a_review_of_nonsense_and_of_nothing(hub: LocalHub) -> None:
    assert await reviewed(hub, token="nonsense") == {"user": {}, "error": "invalid bearer token"}
    nothing = await hub.post(REVIEWS, {"spec": {}})
    assert (nothing.status, nothing.message) == (400, "token is required for TokenReview in authentication")


# --- OpenID ---------------------------------------------------------------------------------------


async def test_a_client_can_verify_a_token_with_the_openid_documents(hub: LocalHub) -> None:
    configuration = await hub.get("/.well-known/openid-configuration", host="hub.example.com:6443")
    assert (configuration.status, configuration.content_type) == (200, "application/json")
    assert configuration.json == {
        "issuer": ISSUER,
        "jwks_uri": "https://hub.example.com:6443/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    assert ("Cache-Control", "public, max-age=3600") in configuration.headers
    published = await hub.get("/openid/v1/jwks/")
    assert published.content_type == "application/jwk-set+json"
    token = (await hub.post(TOKEN, {})).json["status"]["token"]
    keys = jwt.PyJWKSet.from_json(json.dumps(published.json))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
    assert jwt.decode(token, key, algorithms=["ES256"], audience=ISSUER, issuer=ISSUER, options=options)


@pytest.mark.parametrize("path", ["/.well-known", "/.well-known/x", "/openid", "/openid/v1", "/openid/v1/jwks/x"])
async def test_there_are_no_other_such_documents(hub: LocalHub, path: str) -> None:
    assert (await hub.get(path)).status == 404
