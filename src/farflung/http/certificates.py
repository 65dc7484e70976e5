"""The hub's certificate authorities: one directory with four files.

ca.crt                  the authorities whose certificates are valid; the first one signs
ca.key                  their keys, in the order of their creation
server.crt, server.key  created again before they expire, and when the hub's names or the signing authority change

Clients trust ca.crt, so an authority is replaced in steps: clients learn the new one, then it signs, then the old one
is revoked.  Each step is one replaced file, so a killed process leaves the state before the step or after it.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from farflung.lib.files import locked, write_private

CA_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
#: A server certificate that expires within this time is replaced.
RENEWAL: Final = timedelta(days=30)
#: Certificates are valid from a little before now, because clocks differ.
CLOCK_SKEW: Final = timedelta(minutes=5)
PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
SHORT_ID: Final = 12  #: characters
#: alerts of clients that do not trust a server certificate
REFUSALS: Final = frozenset(
    {"TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"}
)
HOST_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class CertificateError(Exception):
    """A problem with the files that an administrator must fix.  The message says how."""


def authority_id(authority: x509.Certificate) -> str:
    """The start of its SHA-256 fingerprint."""
    return authority.fingerprint(hashes.SHA256()).hex()[:SHORT_ID]


@dataclass(frozen=True, slots=True)
class Certificates:
    directory: Path
    ca: x509.Certificate  #: signs
    ca_key: ec.EllipticCurvePrivateKey
    others: tuple[x509.Certificate, ...] = ()  #: further authorities whose certificates are valid

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        return self.ca, *self.others

    @property
    def ids(self) -> frozenset[str]:
        """Of all authorities."""
        return frozenset(map(authority_id, self.authorities))

    @property
    def ca_pem(self) -> bytes:
        """All authorities in PEM, for clients."""
        return b"".join(map(certificate_pem, self.authorities))

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def server_file(self) -> Path:
        return self.directory / "server.crt"

    @property
    def server_key_file(self) -> Path:
        return self.directory / "server.key"

    def issuer_of(self, certificate: x509.Certificate) -> str:
        """The id of the authority that signed a certificate; empty: none of these."""
        return next((authority_id(one) for one in self.authorities if is_issued_by(certificate, one)), "")


class CertificateHolder:
    """The certificates of a running hub."""

    def __init__(self, current: Certificates) -> None:
        self.current = current
        self.bundle = current.ca_pem.decode()  #: for clients
        self.id = authority_id(current.ca)  #: of the authority that signs
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def replace(self, current: Certificates) -> None:
        removed = self.current.ids - current.ids
        self.current, self.bundle, self.id = current, current.ca_pem.decode(), authority_id(current.ca)
        for listener in self._listeners:
            listener(removed)

    def subscribe(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a listener after each replacement with the ids of authorities that are no longer valid."""
        self._listeners.append(listener)


def ensure_certificates(directory: Path, hosts: Sequence[str], now: datetime) -> Certificates:
    """Load the files and create missing ones.  The server certificate is valid for `hosts` and this machine.

    `now` has a time zone.  Raises CertificateError instead of replacing a CA that clients trust.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    with locked(directory):  # two hubs that start at once must not create two CAs
        certificates = ensure_authority(directory, now)
        names = server_names(hosts)
        if not server_certificate_serves(certificates, names, now):
            issue_server_certificate(certificates, names, now)
    return certificates


class ServerContext(ssl.SSLContext):
    def __new__(cls, on_refusal: Callable[[], None]) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, on_refusal: Callable[[], None]) -> None:
        """`on_refusal`: called when a client ends a handshake because it does not trust the server certificate."""
        self.on_refusal = on_refusal
        self.sslobject_class = _ServerConnection


class _ServerConnection(ssl.SSLObject):
    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason in REFUSALS and isinstance(self.context, ServerContext):
                self.context.on_refusal()
            raise


def server_context(certificates: Certificates, on_refusal: Callable[[], None] = lambda: None) -> ssl.SSLContext:
    """TLS 1.2 or later, with optional client certificates of the hub's authorities.

    A resumed session keeps its client certificate, so authentication checks it again.
    """
    context = ServerContext(on_refusal)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.server_file, certificates.server_key_file)
    context.load_verify_locations(cadata=certificates.ca_pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


# --- the authorities ------------------------------------------------------------------------------


def ensure_authority(directory: Path, now: datetime) -> Certificates:
    """Raises CertificateError."""
    if not (directory / "ca.crt").exists():
        # A key without certificate is the result of an interrupted start, and no client trusts it yet.
        key = new_key()
        write_private(directory / "ca.key", key_pem(key))
        write_private(directory / "ca.crt", certificate_pem(new_authority(key, now, "farflung-ca")))
    return AuthorityFiles(directory).certificates(now)


class AuthorityFiles:
    """The content of ca.crt and ca.key, and the steps of a rotation.

    ca.crt decides which authorities are valid and which one signs.  A new key is written before it, and a revoked one
    is removed after it, so a step that was interrupted is completed by calling it again.
    """

    def __init__(self, directory: Path) -> None:
        """Raises CertificateError."""
        self._directory = directory
        self._certificate_file, self._key_file = directory / "ca.crt", directory / "ca.key"
        if not self._key_file.exists():
            raise CertificateError(
                f"{self._key_file} is missing; restore it, or remove {self._certificate_file} to start with a new"
                " authority that all clients must be told to trust"
            )
        self.authorities = load_certificates(self._certificate_file)
        self._keys = load_keys(self._key_file)
        self._signing = self._key_position()

    def _key_position(self) -> int:
        public = self.authorities[0].public_key()
        for position, key in enumerate(self._keys):
            if key.public_key() == public:
                return position
        raise CertificateError(f"{self._key_file} is not the key of {self._certificate_file}; restore the right one")

    def certificates(self, now: datetime) -> Certificates:
        """Raises CertificateError if the authority that signs has expired."""
        ca, *others = self.authorities
        if ca.not_valid_after_utc <= now:
            raise CertificateError(
                f"{self._certificate_file} expired on {ca.not_valid_after_utc:%Y-%m-%d}; `farflung certs rotate --ca"
                " sign --revoke-old` creates a new authority, which all clients must be told to trust"
            )
        return Certificates(self._directory, ca, self._keys[self._signing], tuple(others))

    @property
    def successor(self) -> x509.Certificate | None:
        """The authority that was created after the one that signs."""
        newer = self._keys[self._signing + 1 :]
        return next((one for one in self.authorities if newer and one.public_key() == newer[-1].public_key()), None)

    @property
    def predecessor(self) -> x509.Certificate | None:
        """The authority that signed before."""
        older = self._keys[: self._signing]
        return next((one for one in self.authorities if older and one.public_key() == older[-1].public_key()), None)

    # --- steps ------------------------------------------------------------------------------------

    def trust_successor(self, now: datetime) -> None:
        """Sign with the old authority, and trust a new one; also after the new one has signed."""
        old = self.predecessor
        if old is not None and old.not_valid_after_utc > now:
            self._write([old, *(one for one in self.authorities if one != old)])
        elif self.successor is None:
            self._write([*self.authorities, self._new_successor(now)])

    def sign_with_successor(self) -> None:
        """Sign with the new authority, and trust the old one.  Does nothing if that is so."""
        if self.successor is not None:
            self._write([self.successor, *(one for one in self.authorities if one != self.successor)])

    def replace(self, now: datetime) -> None:
        """Sign with the successor or a new authority, and revoke all others."""
        is_newest = self._signing > 0  # older authorities are left, or their keys if an earlier call was interrupted
        self._write([self.authorities[0] if is_newest else self.successor or self._new_successor(now)])
        self.remove_revoked_keys()

    def revoke(self, ids: Collection[str]) -> None:
        """Revoke authorities that do not sign."""
        first, *others = self.authorities
        self._write([first, *(one for one in others if authority_id(one) not in ids)])
        self.remove_revoked_keys()

    def remove_revoked_keys(self) -> None:
        """Remove the keys of revoked authorities."""
        if self._valid_keys() != self._keys:
            self._keys = self._valid_keys()
            self._write_keys()
            self._signing = self._key_position()

    def _new_successor(self, now: datetime) -> x509.Certificate:
        self._keys = [*self._valid_keys(), new_key()]
        self._write_keys()
        return new_authority(self._keys[-1], now, f"farflung-ca@{now:%Y%m%dT%H%M%SZ}")

    def _write(self, authorities: list[x509.Certificate]) -> None:
        write_private(self._certificate_file, b"".join(map(certificate_pem, authorities)))
        self.authorities = authorities
        self._signing = self._key_position()

    def _valid_keys(self) -> list[ec.EllipticCurvePrivateKey]:
        valid = [one.public_key() for one in self.authorities]
        return [key for key in self._keys if key.public_key() in valid]

    def _write_keys(self) -> None:
        write_private(self._key_file, b"".join(map(key_pem, self._keys)))


def new_authority(key: ec.EllipticCurvePrivateKey, now: datetime, common_name: str) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


# --- certificates ---------------------------------------------------------------------------------


def server_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Sorted and without duplicates, so that equal hosts give equal names."""
    names = {host.strip("[]").lower() for host in (*LOCAL_HOSTS, *hosts)}
    machine = socket.gethostname().lower()
    if HOST_NAME.fullmatch(machine):
        names.add(machine)
    return [general_name(name) for name in sorted(names)]


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
        raise CertificateError(f"{host!r} is neither an address nor a host name") from None


def server_certificate_serves(certificates: Certificates, names: list[x509.GeneralName], now: datetime) -> bool:
    try:
        certificate = load_certificates(certificates.server_file)[0]
        key = load_keys(certificates.server_key_file)[0]
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, CertificateError, ValueError, x509.ExtensionNotFound):
        return False
    return (
        list(present) == names
        and is_issued_by(certificate, certificates.ca)
        and certificate.public_key() == key.public_key()
        and certificate.not_valid_before_utc <= now
        and now + RENEWAL < certificate.not_valid_after_utc
    )


def issue_server_certificate(certificates: Certificates, names: list[x509.GeneralName], now: datetime) -> None:
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "farflung-hub")])
    alternatives = x509.SubjectAlternativeName(names)
    certificate = issue(certificates, subject, key, ExtendedKeyUsageOID.SERVER_AUTH, alternatives, now)
    write_private(certificates.server_key_file, key_pem(key), durable=False)
    write_private(certificates.server_file, certificate_pem(certificate), durable=False)


def issue(
    certificates: Certificates,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    purpose: x509.ObjectIdentifier,
    alternatives: x509.SubjectAlternativeName | None,
    now: datetime,
) -> x509.Certificate:
    """No certificate is valid longer than the CA."""
    authority_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(certificates.ca_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(certificates.ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + LIFETIME, certificates.ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority_identifier, critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(certificates.ca_key, hashes.SHA256())


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# --- files ----------------------------------------------------------------------------------------


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def load_certificates(path: Path) -> list[x509.Certificate]:
    """At least one."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        raise CertificateError(f"{path} holds no PEM certificate; restore it") from None


def load_keys(path: Path) -> list[ec.EllipticCurvePrivateKey]:
    """At least one."""
    blocks = [found[0] for found in PRIVATE_KEY.finditer(path.read_bytes())]
    try:
        keys = [load_pem_private_key(block, None) for block in blocks]
    except (ValueError, TypeError):
        keys = []
    if not keys:
        raise CertificateError(f"{path} holds no PEM private key; restore it")
    if not all(isinstance(key, ec.EllipticCurvePrivateKey) for key in keys):
        raise CertificateError(f"{path} is not an elliptic-curve key; restore the right one")
    return [key for key in keys if isinstance(key, ec.EllipticCurvePrivateKey)]
