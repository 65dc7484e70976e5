"""CertificateSigningRequests: which requests the hub's CA signs, and the certificates.

A certificate that was requested in the root cluster is valid in all clusters, because the root cluster belongs to the
administrators of the hub.  Any other certificate names its cluster and is valid only there.  Otherwise a user that may
approve requests in one cluster could impersonate any user in all of them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from farflung.apis.names import CERTIFICATES_GROUP
from farflung.http.certificates import CLOCK_SKEW, LIFETIME, Certificates
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.target import DEFAULT_CLUSTER, Target
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.machinery.errors import Obj, forbidden, go_quote

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
NODES: Final = "system:nodes"
NODE: Final = "system:node:"

#: the extension with the name of a certificate's only cluster; clients in Go cannot read larger numbers
CLUSTER: Final = x509.ObjectIdentifier("2.25.171340613")
FORMER_CLUSTER: Final = x509.ObjectIdentifier("2.25.207364098571394867153840281764950371843")  #: of earlier versions

BEGIN: Final = b"-----BEGIN "

SHORTEST: Final = timedelta(minutes=10)
#: The lifetime of shorter certificates is counted from now, not from their notBefore.
SHORT: Final = timedelta(hours=8)

#: usage → argument of x509.KeyUsage
KEY_USAGES: Final[Mapping[str, str]] = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
}
NO_USAGE: Final = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)
PURPOSES: Final[Mapping[str, x509.ObjectIdentifier]] = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}


LARGEST: Final = 32 * 1024  #: bytes of an encoded request; usual ones have about a thousand


class SigningRefused(Exception):
    """The reason why a request is not signed."""


def parse_request(encoded: str) -> x509.CertificateSigningRequest:
    """Parse `spec.request` for signing.  Raises SigningRefused for a request that cannot be used, and for a text in
    which the approver may have read another request."""
    request = read_request(encoded)
    text = base64.b64decode(encoded)
    if text.count(BEGIN) != 1 or not (text.startswith(BEGIN) or b"\n" + BEGIN in text):
        raise SigningRefused("x509: the request must be one PEM block, at the beginning of a line")
    return request


def read_request(encoded: str) -> x509.CertificateSigningRequest:
    """Raises SigningRefused."""
    if len(encoded) > LARGEST:
        raise SigningRefused(f"x509: the request is larger than {LARGEST} bytes in base64")
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(encoded))
        request.public_key()
        request.subject  # noqa: B018  # it is read when it is first asked for
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, binascii.Error):
        raise SigningRefused("x509: the request or its public key cannot be used") from None
    return request


def organizations(request: x509.CertificateSigningRequest) -> list[str]:
    return [str(one.value) for one in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def common_name(request: x509.CertificateSigningRequest) -> str:
    """The last of several, as in Go."""
    names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def alternatives(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """The requested DNS names and addresses.  Raises SigningRefused."""
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise SigningRefused("x509: the extensions of the request cannot be read") from None


def requests_administrator(spec: Obj) -> bool:
    """Whether the request is for the group system:masters, which is never signed."""
    try:
        return spec.get("signerName") == CLIENT and ADMINISTRATORS in organizations(read_request(spec["request"]))
    except (SigningRefused, KeyError):
        return False


# --- checks of each signer ------------------------------------------------------------------------


def check_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            raise SigningRefused(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise SigningRefused("missing required usage for client certificate: client auth")
    if ADMINISTRATORS in organizations(request):
        raise SigningRefused(f"use of {CLIENT} signer with {ADMINISTRATORS} group is not allowed")


def check_kubelet_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    check_node(request)
    names = alternatives(request)
    for kind, what in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if any(isinstance(name, kind) for name in names):
            raise SigningRefused(f"{what} subjectAltNames are not allowed")
    check_common_name(request)
    check_usages(usages, "client auth")


def check_kubelet_serving(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    check_node(request)
    names = alternatives(request)
    if not any(isinstance(name, x509.DNSName | x509.IPAddress) for name in names):
        raise SigningRefused("DNS or IP subjectAltName is required")
    if any(isinstance(name, x509.RFC822Name) for name in names):
        raise SigningRefused("Email subjectAltNames are not allowed")
    if any(isinstance(name, x509.UniformResourceIdentifier) for name in names):
        raise SigningRefused("URI subjectAltNames are not allowed")
    check_usages(usages, "server auth")
    check_common_name(request)


def check_node(request: x509.CertificateSigningRequest) -> None:
    if organizations(request) != [NODES]:
        raise SigningRefused("subject organization is not system:nodes")


def check_common_name(request: x509.CertificateSigningRequest) -> None:
    if not common_name(request).startswith(NODE):
        raise SigningRefused("subject common name does not begin with system:node:")


def check_usages(usages: Collection[str], purpose: str) -> None:
    needed = {"digital signature", purpose}
    if set(usages) not in (needed, needed | {"key encipherment"}):
        listed = " ".join(sorted(needed | {"key encipherment"}))
        raise SigningRefused(f"usages did not match [{listed}]")


def check_signer_cluster(signer: str, cluster: str) -> None:
    """Serving certificates are only signed in the root cluster.  With a certificate for the hub's name, a server could
    pose as the hub.  Raises SigningRefused."""
    if signer == KUBELET_SERVING and cluster != DEFAULT_CLUSTER:
        raise SigningRefused("certificates of servers are signed in the root cluster alone")


Check = Callable[[x509.CertificateSigningRequest, Collection[str]], None]
SIGNERS: Final[Mapping[str, Check]] = {
    CLIENT: check_client,
    KUBELET_CLIENT: check_kubelet_client,
    KUBELET_SERVING: check_kubelet_serving,
}


# --- signing --------------------------------------------------------------------------------------


def sign_request(
    authority: Certificates,
    request: x509.CertificateSigningRequest,
    usages: Collection[str],
    seconds: int | None,
    cluster: str,
    now: datetime,
) -> bytes:
    """The certificate in PEM.  `seconds`: requested lifetime, which is limited.  Raises SigningRefused."""
    lifetime = LIFETIME if seconds is None else min(max(timedelta(seconds=seconds), SHORTEST), LIFETIME)
    ends = now + lifetime - (timedelta(0) if lifetime < SHORT else CLOCK_SKEW)
    public, ca_public = request.public_key(), authority.ca_key.public_key()
    try:
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(authority.ca.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(min(ends, authority.ca.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public), critical=False)
        )
        for extension, critical in extensions(request, usages, cluster):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority.ca_key, hashes.SHA256()).public_bytes(Encoding.PEM)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SigningRefused("x509: the public key of the request cannot be used") from None


def extensions(
    request: x509.CertificateSigningRequest, usages: Collection[str], cluster: str
) -> list[tuple[x509.ExtensionType, bool]]:
    """The extensions for usages, names and cluster, and whether each is critical."""
    found: list[tuple[x509.ExtensionType, bool]] = []
    keys = {KEY_USAGES[usage]: True for usage in usages if usage in KEY_USAGES}
    if keys:
        found.append((x509.KeyUsage(**NO_USAGE | keys), True))
    if purposes := [PURPOSES[usage] for usage in usages if usage in PURPOSES]:
        found.append((x509.ExtendedKeyUsage(purposes), False))
    if names := list(alternatives(request)):
        found.append((x509.SubjectAlternativeName(names), False))
    if cluster != DEFAULT_CLUSTER:
        found.append((x509.UnrecognizedExtension(CLUSTER, cluster.encode()), False))
    return found


def check_signer(authorizer: Authorization, user: User, target: Target, new: Obj, old: Obj) -> None:
    """Raises 403 unless the user may make this change of a CertificateSigningRequest."""
    if target.group != CERTIFICATES_GROUP or target.plural != "certificatesigningrequests":
        return
    verb = "approve" if target.subresource == "approval" else "sign" if signs(target, new, old) else ""
    signer = (old.get("spec") or {}).get("signerName", "")
    if verb and not is_permitted(authorizer, target.cluster, user, verb, signer):
        why = f"user not permitted to {verb} requests with signerName {go_quote(signer)}"
        raise forbidden(CERTIFICATES_GROUP, target.plural, target.name, why)


def signs(target: Target, new: Obj, old: Obj) -> bool:
    after, before = new.get("status") or {}, old.get("status") or {}
    changed = any(after.get(part) != before.get(part) for part in ("certificate", "conditions"))
    return target.subresource == "status" and changed


def is_permitted(authorizer: Authorization, cluster: str, user: User, verb: str, signer: str) -> bool:
    """RBAC may name a signer, or all signers of its domain: `example.com/*`."""
    domain = signer.partition("/")[0]
    return any(
        authorizer.decide(cluster, user, Attributes(verb, CERTIFICATES_GROUP, "signers", name=name)).allowed
        for name in (signer, f"{domain}/*")
    )
