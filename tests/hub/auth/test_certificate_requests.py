"""What the authority signs, and what becomes of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hub_harness import authority

from farflung.apis.certificates import RULES
from farflung.hub.auth.authenticator import client_certificate
from farflung.hub.auth.certificate_requests import (
    CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    SIGNERS,
    SigningRefused,
    parse_request,
    read_request,
    requests_administrator,
    sign_request,
)
from farflung.hub.request.user import AUTHENTICATED

NOW = authority().ca.not_valid_before_utc + timedelta(hours=1)
DNS, ADDRESS = x509.DNSName("node.example.com"), x509.IPAddress(ip_address("10.0.0.1"))
EMAIL, URI = x509.RFC822Name("a@example.com"), x509.UniformResourceIdentifier("spiffe://a/b")
NODE = ("system:node:n1", ["system:nodes"])


@lru_cache
def new_key(kind: str = "ec") -> object:
    match kind:
        case "ec":
            return ec.generate_private_key(ec.SECP256R1())
        case "rsa":
            return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate()


def requested(
    name: str = "ann", groups: Sequence[str] = ("dev",), names: Sequence[x509.GeneralName] = (), kind: str = "ec"
) -> str:
    """spec.request of a CertificateSigningRequest."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    request = builder.sign(new_key(kind), None if kind == "ed25519" else hashes.SHA256())  # type: ignore[arg-type]
    return base64.b64encode(request.public_bytes(Encoding.PEM)).decode()


def refusal(signer: str, request: str, usages: Sequence[str]) -> str:
    try:
        SIGNERS[signer](parse_request(request), usages)
    except SigningRefused as error:
        return str(error)
    return ""


def signed(
    request: str, usages: Sequence[str] = ("client auth",), seconds: int | None = None, cluster: str = "root"
) -> x509.Certificate:
    made = sign_request(authority(), parse_request(request), usages, seconds, cluster, NOW)
    certificate = x509.load_pem_x509_certificate(made)
    certificate.verify_directly_issued_by(authority().ca)
    return certificate


@pytest.mark.parametrize(
    ("usages", "why"),
    [
        (["client auth"], ""),
        (["digital signature", "key encipherment", "client auth"], ""),
        (["client auth", "server auth"], "invalid usage for client certificate: server auth"),
        (["digital signature"], "missing required usage for client certificate: client auth"),
        ([], "missing required usage for client certificate: client auth"),
    ],
)
def test_usages_of_a_client(usages: list[str], why: str) -> None:
    assert refusal(CLIENT, requested(), usages) == why


def test_a_request_cannot_make_its_user_an_administrator() -> None:
    why = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    assert refusal(CLIENT, requested(groups=["dev", "system:masters"]), ["client auth"]) == why


KUBELET = ["digital signature", "client auth"]


@pytest.mark.parametrize(
    ("subject", "names", "usages", "why"),
    [
        (NODE, [], KUBELET, ""),
        (NODE, [], [*KUBELET, "key encipherment"], ""),
        (("system:node:n1", ["dev"]), [], KUBELET, "subject organization is not system:nodes"),
        (("system:node:n1", ["system:nodes", "x"]), [], KUBELET, "subject organization is not system:nodes"),
        (("ann", ["system:nodes"]), [], KUBELET, "subject common name does not begin with system:node:"),
        (("", ["system:nodes"]), [], KUBELET, "subject common name does not begin with system:node:"),
        (NODE, [DNS], KUBELET, "DNS subjectAltNames are not allowed"),
        (NODE, [EMAIL], KUBELET, "Email subjectAltNames are not allowed"),
        (NODE, [ADDRESS], KUBELET, "IP subjectAltNames are not allowed"),
        (NODE, [URI], KUBELET, "URI subjectAltNames are not allowed"),
        (NODE, [], ["client auth"], "usages did not match [client auth digital signature key encipherment]"),
    ],
)
def test_requests_of_a_kubelet_for_the_hub(
    subject: tuple[str, list[str]], names: list[x509.GeneralName], usages: list[str], why: str
) -> None:
    assert refusal(KUBELET_CLIENT, requested(*subject, names), usages) == why


SERVING = ["digital signature", "server auth"]


@pytest.mark.parametrize(
    ("subject", "names", "usages", "why"),
    [
        (NODE, [DNS], SERVING, ""),
        (NODE, [ADDRESS], [*SERVING, "key encipherment"], ""),
        (("system:node:n1", []), [DNS], SERVING, "subject organization is not system:nodes"),
        (NODE, [], SERVING, "DNS or IP subjectAltName is required"),
        (NODE, [DNS, EMAIL], SERVING, "Email subjectAltNames are not allowed"),
        (NODE, [DNS, URI], SERVING, "URI subjectAltNames are not allowed"),
        (NODE, [DNS], KUBELET, "usages did not match [digital signature key encipherment server auth]"),
        (("ann", ["system:nodes"]), [DNS], SERVING, "subject common name does not begin with system:node:"),
    ],
)
def test_requests_of_a_kubelet_for_its_own_server(
    subject: tuple[str, list[str]], names: list[x509.GeneralName], usages: list[str], why: str
) -> None:
    assert refusal(KUBELET_SERVING, requested(*subject, names), usages) == why


# --- the certificate ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ec", "rsa", "ed25519"])
def test_a_certificate_has_what_was_asked_for_and_nothing_more(kind: str) -> None:
    usages = ["client auth", "digital signature", "key encipherment"]
    certificate = signed(requested(names=[DNS, ADDRESS], kind=kind), usages)
    assert certificate.subject.rfc4514_string() == "CN=ann,O=dev"
    extensions = certificate.extensions
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_encipherment, usage.key_cert_sign) == (True, True, False)
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == [DNS, ADDRESS]


def test_a_request_does_not_choose_its_extensions() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=9), critical=True)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    certificate = signed(base64.b64encode(request.public_bytes(Encoding.PEM)).decode())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("seconds", "lasting"),
    [
        (None, timedelta(days=365) - timedelta(minutes=5)),
        (3600, timedelta(hours=1)),
        (1, timedelta(minutes=10)),
        (8 * 3600, timedelta(hours=8) - timedelta(minutes=5)),
        (2**31 - 1, timedelta(days=365) - timedelta(minutes=5)),
    ],
)
def test_a_certificate_lasts_as_long_as_asked_for_up_to_a_year(seconds: int | None, lasting: timedelta) -> None:
    certificate = signed(requested(), seconds=seconds)
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + lasting


def test_no_certificate_outlives_the_authority() -> None:
    end = authority().ca.not_valid_after_utc
    late = end - timedelta(hours=1)
    made = sign_request(authority(), parse_request(requested()), ["client auth"], None, "root", late)
    assert x509.load_pem_x509_certificate(made).not_valid_after_utc == end


def test_whoever_shows_a_certificate_is_who_it_says_and_where_it_was_asked_for() -> None:
    for cluster, bound in (("root", ""), ("other", "other"), ("2vn3khv93u", "2vn3khv93u")):
        der = signed(requested(), cluster=cluster).public_bytes(Encoding.DER)
        user = client_certificate(der).user
        assert (user.name, user.groups, user.cluster) == ("ann", ("dev", AUTHENTICATED), bound)
        ((name, (credential,)),) = user.extra
        assert name == "authentication.kubernetes.io/credential-id"
        assert credential.startswith("X509SHA256=")


def test_a_certificate_of_a_workspace_can_be_read_by_clients_in_go() -> None:
    """They refuse identifiers of extensions with larger numbers."""
    found = [one.oid.dotted_string for one in signed(requested(), cluster="other").extensions]
    assert all(int(number) < 2**28 for oid in found for number in oid.split("."))


def test_a_certificate_of_an_earlier_version_is_still_valid_in_its_cluster_only() -> None:
    identifier = x509.ObjectIdentifier("2.25.207364098571394867153840281764950371843")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    made = (
        x509.CertificateBuilder(name, name, ec.generate_private_key(ec.SECP256R1()).public_key(), 1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(hours=1))
        .add_extension(x509.UnrecognizedExtension(identifier, b"other"), critical=False)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    assert client_certificate(made.public_bytes(Encoding.DER)).user.cluster == "other"


@pytest.mark.parametrize("request_", ["", "!", "bm90IGEgY3Ny", requested()[:-40]])
def test_what_is_no_request_is_not_signed(request_: str) -> None:
    with pytest.raises(SigningRefused):
        parse_request(request_)


def test_a_huge_request_is_not_even_read() -> None:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"o{number}") for number in range(2_000)]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(new_key(), hashes.SHA256())  # type: ignore[arg-type]
    with pytest.raises(SigningRefused, match="larger than 32768 bytes"):
        read_request(base64.b64encode(request.public_bytes(Encoding.PEM)).decode())


def test_of_several_common_names_the_one_that_was_checked_is_the_name_of_the_user() -> None:
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), *((NameOID.COMMON_NAME, name) for name in ("ann", NODE[0]))]
    subject = x509.Name([x509.NameAttribute(*name) for name in names])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(new_key(), hashes.SHA256())  # type: ignore[arg-type]
    encoded = base64.b64encode(request.public_bytes(Encoding.PEM)).decode()
    assert refusal(KUBELET_CLIENT, encoded, KUBELET) == ""
    assert client_certificate(signed(encoded).public_bytes(Encoding.DER)).user.name == NODE[0]


def pem_of(encoded: str) -> bytes:
    return base64.b64decode(encoded)


@pytest.mark.parametrize(
    "text",
    [
        b"x" + pem_of(requested("eve")) + pem_of(requested("ann")),
        pem_of(requested("eve")) + pem_of(requested("ann")),
        b"x" + pem_of(requested("eve")),
    ],
)
def test_a_request_in_which_others_may_read_another_one_is_not_signed(text: bytes) -> None:
    with pytest.raises(SigningRefused, match="one PEM block"):
        parse_request(base64.b64encode(text).decode())


def test_a_request_of_another_version_is_not_signed() -> None:
    lines = base64.b64decode(requested()).splitlines()[1:-1]
    version = base64.b64decode(b"".join(lines)).replace(b"\x02\x01\x00", b"\x02\x01\x5b", 1)
    text = b"-----BEGIN CERTIFICATE REQUEST-----\n%b-----END CERTIFICATE REQUEST-----\n" % base64.encodebytes(version)
    changed = base64.b64encode(text).decode()
    assert not requests_administrator({"signerName": CLIENT, "request": changed})
    with pytest.raises(SigningRefused, match="cannot be used"):
        parse_request(changed)


def test_a_request_may_have_a_text_before_it() -> None:
    text = b"Certificate Request:\n    Data:\n" + pem_of(requested("ann"))
    assert signed(base64.b64encode(text).decode()).subject.rfc4514_string() == "CN=ann,O=dev"


def test_administrators_cannot_be_asked_for_beside_another_request() -> None:
    request = base64.b64encode(pem_of(requested(groups=["system:masters"])) + pem_of(requested())).decode()
    assert requests_administrator({"signerName": CLIENT, "request": request})


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x81, size])
    return bytes([tag]) + length + content


def with_unreadable_subject() -> str:
    """A request that is signed as it should be, with a name that is no UTF-8."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "AAAA")])
    said = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256()).tbs_certrequest_bytes
    said = said.replace(b"AAAA", b"\xff\xfeAA")
    ecdsa_with_sha256 = der(0x30, bytes.fromhex("06082a8648ce3d040302"))
    whole = der(0x30, said + ecdsa_with_sha256 + der(3, b"\0" + key.sign(said, ec.ECDSA(hashes.SHA256()))))
    kind = b"CERTIFICATE REQUEST-----\n"
    pem = b"-----BEGIN " + kind + base64.encodebytes(whole) + b"-----END " + kind
    return base64.b64encode(pem).decode()


def test_a_subject_that_cannot_be_read_is_not_signed() -> None:
    request = with_unreadable_subject()
    spec = {"request": request, "signerName": CLIENT, "usages": ["client auth"]}
    rules = RULES["certificates.k8s.io", "CertificateSigningRequest"]
    assert rules.validate({"metadata": {"name": "a"}, "spec": spec}) == []
    assert not requests_administrator(spec)
    for signer in SIGNERS:
        assert refusal(signer, request, KUBELET) == "x509: the request or its public key cannot be used"
