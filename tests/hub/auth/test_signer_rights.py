"""Approving and signing requests for certificates is for those who may do it for that signer."""

from __future__ import annotations

from base64 import b64encode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hub_harness import LocalHub

from farflung.machinery.errors import Obj

GROUP = "certificates.k8s.io"
REQUESTS = f"/apis/{GROUP}/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
APPROVED = {"type": "Approved", "status": "True", "reason": "r", "message": "m"}


def request_bytes() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    signed = x509.CertificateSigningRequestBuilder(name).sign(ec.generate_private_key(ec.SECP256R1()), SHA256())
    return b64encode(signed.public_bytes(Encoding.PEM)).decode()


@pytest.fixture
async def hub(hub: LocalHub) -> LocalHub:
    spec = {"request": request_bytes(), "signerName": "example.com/mine", "usages": ["client auth"]}
    await hub.create(REQUESTS, {"metadata": {"name": "c"}, "spec": spec})
    return hub


async def allow(hub: LocalHub, verb: str, *signers: str) -> None:
    """Ann may change requests, and do something for some signers."""
    what = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]
    rules: list[Obj] = [{"verbs": ["get", "patch"], "apiGroups": [GROUP], "resources": what}]
    if signers:
        rules.append({"verbs": [verb], "apiGroups": [GROUP], "resources": ["signers"], "resourceNames": [*signers]})
    await hub.create(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    binding = {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "ann"}]}
    await hub.create(f"{RBAC}/clusterrolebindings", binding)


@pytest.mark.parametrize(
    ("verb", "signers", "allowed"),
    [
        ("approve", ("example.com/mine",), True),
        ("approve", ("example.com/*",), True),
        ("approve", ("example.com/other", "other.com/*"), False),
        ("sign", ("example.com/mine",), False),
        ("approve", (), False),
    ],
)
async def test_an_approval_needs_approve_on_the_signer(
    hub: LocalHub, verb: str, signers: tuple[str, ...], allowed: bool
) -> None:
    await allow(hub, verb, *signers)
    change = {"status": {"conditions": [APPROVED]}}

    answer = await hub.patch(f"{REQUESTS}/c/approval", change, impersonate_user="ann")

    assert answer.status == (200 if allowed else 403)
    if not allowed:
        assert answer.message == (
            f'certificatesigningrequests.{GROUP} "c" is forbidden: user not permitted to approve requests with '
            'signerName "example.com/mine"'
        )


@pytest.mark.parametrize(("verb", "status"), [("sign", 200), ("approve", 403)])
async def test_a_condition_in_the_status_needs_sign_on_the_signer(hub: LocalHub, verb: str, status: int) -> None:
    await allow(hub, verb, "example.com/mine")
    failed = {"type": "Failed", "status": "True", "reason": "r", "message": "m"}

    answer = await hub.patch(f"{REQUESTS}/c/status", {"status": {"conditions": [failed]}}, impersonate_user="ann")
    unchanged = await hub.patch(f"{REQUESTS}/c/status", {}, impersonate_user="ann")

    assert (answer.status, unchanged.status) == (status, 200)
