"""The hub's certificate authority: one directory with four files.

ca.crt, ca.key          created once; clients trust ca.crt, so it must be kept
server.crt, server.key  created again before they expire, and when the hub's names change
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from farflung.lib.files import locked, write_private

CA_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=365)
#: A server certificate that expires within this time is replaced.
RENEWAL: Final = timedelta(days=30)
#: Certificates are valid from a little before now, because clocks differ.
CLOCK_SKEW: Final = timedelta(minutes=5)
HOST_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class CertificateError(Exception):
    """A problem with the files that an administrator must fix.  The message says how."""


@dataclass(frozen=True, slots=True)
class Certificates:
    directory: Path
    ca: x509.Certificate
    ca_key: ec.EllipticCurvePrivateKey

    @property
    def ca_pem(self) -> bytes:
        """The CA certificate in PEM."""
        return self.ca.public_bytes(Encoding.PEM)

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def server_file(self) -> Path:
        return self.directory / "server.crt"

    @property
    def server_key_file(self) -> Path:
        return self.directory / "server.key"


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


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """TLS 1.2 or later, with optional client certificates of the hub's CA.

    A resumed session keeps its client certificate, so authentication checks its dates again.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.server_file, certificates.server_key_file)
    context.load_verify_locations(certificates.ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


# --- the CA ---------------------------------------------------------------------------------------


def ensure_authority(directory: Path, now: datetime) -> Certificates:
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    if not certificate_file.exists():
        # A key without certificate is the result of an interrupted start, and no client trusts it yet.
        key = new_key()
        certificate = new_authority(key, now)
        write_private(key_file, key_pem(key))
        write_private(certificate_file, certificate.public_bytes(Encoding.PEM))
        return Certificates(directory, certificate, key)
    if not key_file.exists():
        raise CertificateError(
            f"{key_file} is missing; restore it, or remove {certificate_file} to start with a new authority"
            " that all clients must be told to trust"
        )
    certificate, key = load_certificate(certificate_file), load_key(key_file)
    if certificate.public_key() != key.public_key():
        raise CertificateError(f"{key_file} is not the key of {certificate_file}; restore the right one")
    if certificate.not_valid_after_utc <= now:
        raise CertificateError(
            f"{certificate_file} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; remove it to start with a"
            " new authority that all clients must be told to trust"
        )
    return Certificates(directory, certificate, key)


def new_authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "farflung-ca")])
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
        certificate = load_certificate(certificates.server_file)
        key = load_key(certificates.server_key_file)
        certificate.verify_directly_issued_by(certificates.ca)
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, CertificateError, InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    return (
        list(present) == names
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
    write_private(certificates.server_file, certificate.public_bytes(Encoding.PEM), durable=False)


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


def load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise CertificateError(f"{path} holds no PEM certificate; restore it") from None


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise CertificateError(f"{path} holds no PEM private key; restore it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is not an elliptic-curve key; restore the right one")
    return key
