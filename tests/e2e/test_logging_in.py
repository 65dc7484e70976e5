"""Logging in to a real hub: with tokens that were handed out, tokens of ServiceAccounts, and certificates."""

from __future__ import annotations

import base64
import http.client
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hub_process import FARFLUNG, PATIENCE, HubProcess, Json, eventually
from kubectl_runner import Kubectl

from farflung.hub.auth.static_tokens import token_hash

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def farflung(hub: HubProcess, *arguments: str) -> str:
    command = [FARFLUNG, *arguments, "--root-directory", str(hub.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def whoami(hub: HubProcess, token: str = "", tls: ssl.SSLContext | None = None) -> Json | None:
    """Who the hub takes somebody for; None if it is 401."""
    assert hub.address.hostname is not None
    connection = http.client.HTTPSConnection(hub.address.hostname, hub.port, timeout=PATIENCE, context=tls or hub.tls)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request("POST", SELF, b"{}", headers)
        answer = connection.getresponse()
        content = orjson.loads(answer.read())
    finally:
        connection.close()
    if answer.status == 401:
        assert content["message"] == "Unauthorized"
        return None
    assert answer.status == 201, content
    found: Json = content["status"]["userInfo"]
    return found


def name_of(user: Json | None) -> str | None:
    return None if user is None else user["username"]


def certificate_request(name: str, group: str, key: ec.EllipticCurvePrivateKey, common_name: str) -> Json:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)
    subject = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(made.public_bytes(Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "expirationSeconds": 3600,
        },
    }


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# --- tokens that were handed out ------------------------------------------------------------------


def test_a_token_is_good_as_soon_as_it_is_handed_out_and_not_for_long_after_it_was_revoked(hub: HubProcess) -> None:
    assert whoami(hub, "nonsense") is None
    token = farflung(hub, "token", "create", "ann", "--group", "dev").strip()
    user = whoami(hub, token)
    assert user is not None
    assert (user["username"], user["groups"]) == ("ann", ["dev", "system:authenticated"])
    farflung(hub, "token", "revoke", "ann")
    eventually(lambda: whoami(hub, token) is None, "the end of a revoked token")
    assert name_of(whoami(hub, hub.token)) == "farflung-admin"


def test_kubectl_uses_the_kubeconfig_of_a_user(kubectl: Kubectl) -> None:
    name = f"user-{kubectl.namespace}"
    config = kubectl.home / "user.kubeconfig"
    config.write_text(farflung(kubectl.hub, "token", "create", name, "-o", "kubeconfig", "--expires", "1h"))
    assert f'User "{name}" cannot list resource "secrets"' in kubectl.fails(f"get secrets --kubeconfig {config}")


# --- certificates ---------------------------------------------------------------------------------


def test_a_user_with_an_approved_certificate_logs_in_with_it(kubectl: Kubectl) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"csr-{kubectl.namespace}"
    kubectl("create -f -", stdin=yaml.safe_dump(certificate_request(name, "dev", key, f"ann-{name}")))
    assert kubectl.table(f"get csr {name}")[1][-1] == "Pending"
    kubectl(f"certificate approve {name}")
    eventually(lambda: kubectl.value(f"csr {name}", ".status.certificate") != "", "the certificate")
    assert kubectl.table(f"get csr {name}")[1][-1] == "Approved,Issued"

    certificate = kubectl.home / "client.crt"
    certificate.write_bytes(base64.b64decode(kubectl.value(f"csr {name}", ".status.certificate")))
    (kubectl.home / "client.key").write_bytes(key_pem(key))
    tls = ssl.create_default_context(cafile=str(kubectl.hub.directory / "ca.crt"))
    tls.load_cert_chain(certificate, kubectl.home / "client.key")
    user = whoami(kubectl.hub, tls=tls)
    assert user is not None
    assert (user["username"], user["groups"]) == (f"ann-{name}", ["dev", "system:authenticated"])

    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "client-certificate": str(certificate),
        "client-key": str(kubectl.home / "client.key"),
    }
    (kubectl.home / "certificate.kubeconfig").write_text(yaml.safe_dump(config))
    refused = kubectl.fails("get secrets --kubeconfig certificate.kubeconfig")
    assert f'User "ann-{name}" cannot list resource "secrets"' in refused


# --- a hub of its own -----------------------------------------------------------------------------


@pytest.fixture
def verbose_hub(tmp_path: Path) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path / "data", arguments=["-v"])
    try:
        yield hub
    finally:
        hub.kill()


def test_tokens_outlive_the_hub_and_the_key_that_signed_them_and_are_in_no_log(verbose_hub: HubProcess) -> None:
    hub = verbose_hub
    secrets = {"administrator": hub.token}
    with hub.client() as client:
        account = client.request("POST", f"{ACCOUNTS}/default/token", {"spec": {}}).json
        secrets["account"] = account["status"]["token"]
        vault = client.request("POST", f"{ACCOUNTS}/default/token", {"spec": {"audiences": ["vault"]}}).json
        secrets["vault"] = vault["status"]["token"]
        annotations = {"kubernetes.io/service-account.name": "default"}
        kind = "kubernetes.io/service-account-token"
        client.create(SECRETS, {"metadata": {"name": "legacy", "annotations": annotations}, "type": kind})
        eventually(lambda: client.get(f"{SECRETS}/legacy").get("data"), "the token")
        secrets["legacy"] = base64.b64decode(client.get(f"{SECRETS}/legacy")["data"]["token"]).decode()
        secrets["user"] = farflung(hub, "token", "create", "ann").strip()
        secrets["wrong"] = "a-wrong-token-that-somebody-sent"
        secrets["forged"] = secrets["account"][:-20] + "A" * 20
        for token in secrets.values():
            whoami(hub, token)
            client.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
            client.request(
                "GET", f"/api/v1/namespaces?fieldManager={token}", headers={"Authorization": f"Basic {token}"}
            )
            client.request("POST", SECRETS, {"metadata": {"name": "Wrong"}, "stringData": {"a": token}})
            client.request("PUT", f"{SECRETS}/legacy", {"data": {"token": token}, "kind": "Pod"})
        key = ec.generate_private_key(ec.SECP256R1())
        client.create(REQUESTS, certificate_request("r", "dev", key, "ann"))
    hub.stop()
    logged = hub.log()
    assert f"POST {ACCOUNTS}/default/token 201" in logged, "the log says what happens"

    keys = hub.directory / "service-account.key"
    keys.write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())) + keys.read_bytes())
    again = HubProcess(hub.directory, arguments=["-v"])
    try:
        assert again.token == hub.token
        with again.client() as client:
            new = client.request("POST", f"{ACCOUNTS}/default/token", {"spec": {}}).json["status"]["token"]
            assert len(orjson.loads(client.text("/openid/v1/jwks"))["keys"]) == 2
        assert new.split(".")[0] != secrets["account"].split(".")[0], "the new key signs"
        secrets["new"] = new
        good = {name for name, token in secrets.items() if whoami(again, token) is not None}
        assert good == {"administrator", "account", "legacy", "user", "new"}
        again.stop()
    finally:
        again.kill()
    logged = again.log()
    for name, token in secrets.items():
        for shown in (token, base64.b64encode(token.encode()).decode(), token_hash(token), token[-24:]):
            assert shown not in logged, f"the log has the token of {name}"
    for private in ("ca.key", "server.key", "service-account.key"):
        for line in (hub.directory / private).read_text().splitlines()[1:-1]:
            assert line not in logged, f"the log has {private}"
    assert [line for line in again.trouble() if "Traceback" in line] == []
