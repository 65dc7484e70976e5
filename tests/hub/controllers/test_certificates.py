"""Certificate requests: approved and signed, denied, failed, and gone after a while."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from house import House
from hub_harness import authority

from farflung.hub.controllers.certificates import expiries
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.times import format_seconds, parse

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
KEY = ec.generate_private_key(ec.SECP256R1())


def request_for(name: str, *groups: str) -> str:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(KEY, hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


REQUEST = request_for("ann", "dev")


async def ask(house: House, name: str, **spec: object) -> Obj:
    wanted = {"request": REQUEST, "signerName": CLIENT, "usages": ["client auth"], **spec}
    created: Obj = await house.client.request("POST", PATH, {"metadata": {"name": name}, "spec": wanted})
    return created


async def find(house: House, name: str) -> Obj | None:
    try:
        found: Obj = await house.client.request("GET", f"{PATH}/{name}")
    except ApiError as error:
        assert error.code == 404
        return None
    return found


async def decide(house: House, name: str, verdict: str = "Approved") -> None:
    request = await find(house, name)
    assert request is not None
    condition = {"type": verdict, "status": "True", "reason": "Test", "message": "because"}
    request["status"]["conditions"] = [condition]
    await house.client.request("PUT", f"{PATH}/{name}/approval", request)


def issued(request: Obj | None) -> x509.Certificate | None:
    if request is None or not request["status"].get("certificate"):
        return None
    return x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))


def conditions(request: Obj | None) -> list[tuple[str, str, str]]:
    assert request is not None
    listed = request["status"].get("conditions") or []
    return [(condition["type"], condition["reason"], condition["message"]) for condition in listed]


async def test_an_approved_request_is_signed(house: House) -> None:
    await ask(house, "a", expirationSeconds=3600)
    await house.settle()
    assert issued(await find(house, "a")) is None
    await decide(house, "a")
    await house.settle()
    request = await find(house, "a")
    certificate = issued(request)
    assert certificate is not None
    certificate.verify_directly_issued_by(authority().ca)
    assert certificate.public_key() == KEY.public_key()
    assert conditions(request) == [("Approved", "Test", "because")]
    assert request is not None
    managers = [(entry["manager"], entry.get("subresource")) for entry in request["metadata"]["managedFields"]]
    assert ("kube-controller-manager", "status") in managers


async def test_a_denied_request_is_not_signed(house: House) -> None:
    await ask(house, "a")
    await decide(house, "a", "Denied")
    await house.settle()
    assert issued(await find(house, "a")) is None


async def test_a_request_to_another_signer_is_ignored(house: House) -> None:
    await ask(house, "a", signerName="example.com/own")
    await ask(house, "b", signerName="kubernetes.io/unheard-of")
    for name in ("a", "b"):
        await decide(house, name)
    await house.settle()
    for name in ("a", "b"):
        assert issued(await find(house, name)) is None
        assert conditions(await find(house, name)) == [("Approved", "Test", "because")]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"usages": ["client auth", "server auth"]}, "invalid usage for client certificate: server auth"),
        ({"usages": ["digital signature"]}, "missing required usage for client certificate: client auth"),
        ({"signerName": "kubernetes.io/kubelet-serving"}, "subject organization is not system:nodes"),
        (
            {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": request_for("x", "system:nodes")},
            "subject common name does not begin with system:node:",
        ),
    ],
)
async def test_what_its_signer_does_not_sign_fails(house: House, spec: Obj, why: str) -> None:
    await ask(house, "a", **spec)
    await decide(house, "a")
    await house.settle()
    request = await find(house, "a")
    assert issued(request) is None
    assert conditions(request) == [("Approved", "Test", "because"), ("Failed", "SignerValidationFailure", why)]
    revision = house.store.revision
    await house.restart()
    await house.settle()
    assert house.store.revision == revision


async def test_a_request_for_an_administrators_certificate_is_refused(house: House) -> None:
    why = (
        'certificatesigningrequests.certificates.k8s.io "a" is forbidden: use of kubernetes.io/kube-apiserver-client '
        "signer with system:masters group is not allowed"
    )
    with pytest.raises(ApiError) as refused:
        await ask(house, "a", request=request_for("ann", "system:masters"))
    assert (refused.value.code, refused.value.message) == (403, why)
    await ask(house, "b", request=request_for("ann", "system:masters"), signerName="example.com/own")


async def test_who_asks_is_not_for_them_to_say(house: House) -> None:
    spec = (await ask(house, "a", username="x", uid="y", groups=["z"], extra={"a": ["b"]}))["spec"]
    assert (spec["username"], spec["groups"]) == ("admin", ["system:masters"])
    assert "uid" not in spec
    assert "extra" not in spec


# --- the end --------------------------------------------------------------------------------------


async def test_requests_go_after_their_time(house: House) -> None:
    for name in ("pending", "denied", "issued", "failed", "waiting"):
        spec: Obj = {"signerName": "example.com/own"} if name == "waiting" else {}
        await ask(house, name, **spec | ({"usages": ["server auth"]} if name == "failed" else {}))
    await decide(house, "denied", "Denied")
    for name in ("issued", "failed", "waiting"):
        await decide(house, name)
    await house.settle()

    async def left(hours: float) -> set[str]:
        house.ahead = timedelta(hours=hours)
        await house.restart()
        await house.settle()
        return {item["metadata"]["name"] for item in (await house.client.request("GET", PATH))["items"]}

    assert await left(0.99) == {"pending", "denied", "issued", "failed", "waiting"}
    assert await left(1.01) == {"pending", "waiting"}
    assert await left(23.9) == {"pending", "waiting"}
    assert await left(24.1) == {"waiting"}, "whoever is to sign it may still do so"
    assert await left(1000) == {"waiting"}


async def test_a_request_is_deleted_with_its_certificate(house: House) -> None:
    await ask(house, "a", expirationSeconds=600)
    await decide(house, "a")
    await house.settle()
    house.ahead = timedelta(minutes=11)
    await house.restart()
    await house.settle()
    assert await find(house, "a") is None


async def test_a_running_hub_does_not_miss_the_time(house: House) -> None:
    made = await ask(house, "a")
    await house.settle()
    due = parse(made["metadata"]["creationTimestamp"]) + timedelta(hours=24)
    house.ahead += due - house.clock() - timedelta(milliseconds=50)
    media = "application/merge-patch+json"
    await house.client.request("PATCH", f"{PATH}/a", {"metadata": {"labels": {"look": "again"}}}, media=media)
    gone = asyncio.Event()
    prefix = "/certificates.k8s.io/certificatesigningrequests/"
    subscription = house.store.subscribe(prefix, lambda changes: gone.set() if changes[-1].entry is None else None)
    async with asyncio.timeout(60):
        await gone.wait()
    subscription.cancel()
    assert await find(house, "a") is None


def test_a_time_that_is_missing_or_has_no_later_one_is_none() -> None:
    now = format_seconds(authority().ca.not_valid_before_utc)
    request: Obj = {"metadata": {"creationTimestamp": now}, "spec": {}, "status": {"conditions": [{"type": "Denied"}]}}
    assert min(expiries(request), default=None) is None
    for moment in ("nonsense", "9999-12-31T23:59:59Z"):
        request["status"]["conditions"][0]["lastUpdateTime"] = moment
        assert min(expiries(request), default=None) is None
    request["status"] = {"conditions": [{"type": "Approved"}], "certificate": "bm9uZQ=="}
    assert min(expiries(request), default=None) is None


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(8))
async def test_whenever_it_stops_in_between_it_goes_on_after_the_start(turns: int) -> None:
    async with House() as house:
        for number in range(4):
            await ask(house, f"r{number}")
        await house.settle()
        await asyncio.gather(*(decide(house, f"r{number}") for number in range(4)))
        await house.restart(after=turns)
        await house.settle()
        for number in range(4):
            assert issued(await find(house, f"r{number}")) is not None
