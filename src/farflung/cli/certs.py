"""Keys and certificates of a hub, for administrators with write access to its directory.  A running hub follows the
files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
from cryptography import x509
from msgspec import UNSET, UnsetType

from farflung.cli.output import printer, table
from farflung.cli.tokens import hub_directory
from farflung.http.certificates import (
    AuthorityFiles,
    CertificateError,
    authority_id,
    is_issued_by,
    issue_server_certificate,
    load_certificates,
    server_names,
)
from farflung.hub.auth.credential_files import read_uses
from farflung.hub.auth.credential_uses import IssuerUse
from farflung.hub.auth.signing_keys import SIGNING_KEYS, StoredKey, read_keys, revoke_keys, rotate_keys
from farflung.inspect.results import Result
from farflung.machinery.times import human

SERVER: Final = "server.crt"
#: An authority is reported so long before its end, because all clients have to learn the new one.
AUTHORITY_NOTICE: Final = timedelta(days=180)


class CredentialRow(Result, frozen=True):
    """A key or certificate of the hub."""

    kind: str
    id: str
    state: str
    expires: datetime | UnsetType = UNSET
    replaced: datetime | UnsetType = UNSET  #: when another one began to sign
    last_used: datetime | UnsetType = UNSET  #: of old ones
    users: tuple[str, ...] | UnsetType = UNSET  #: of old ones, the latest first


class CertificateReport(Result, frozen=True):
    items: tuple[CredentialRow, ...]
    refused_handshakes: int  #: by clients that do not trust the server certificate
    last_refused_handshake: datetime | UnsetType = UNSET


@contextmanager
def _certificate_directory(directory: Path) -> Iterator[None]:
    """Locked."""
    try:
        with hub_directory(directory):
            yield
    except CertificateError as error:
        raise click.ClickException(str(error)) from None


# --- list and check -------------------------------------------------------------------------------


def report(directory: Path) -> CertificateReport:
    with _certificate_directory(directory):
        uses = read_uses(directory)
        items = [
            *_authority_rows(AuthorityFiles(directory), uses.issuers),
            *_server_rows(directory),
            *_key_rows(read_keys(directory / SIGNING_KEYS), uses.issuers),
        ]
    return CertificateReport(tuple(items), uses.refusals, uses.last_refusal or UNSET)


def _authority_rows(files: AuthorityFiles, uses: dict[str, IssuerUse]) -> Iterator[CredentialRow]:
    signs = files.authorities[0]
    for authority in files.authorities:
        own = authority_id(authority)
        state = "Signs" if authority == signs else "New" if authority == files.successor else "Old"
        last, users = _use(uses.get(own))
        yield CredentialRow(
            "CertificateAuthority", own, state, authority.not_valid_after_utc, last_used=last, users=users
        )


def _server_rows(directory: Path) -> Iterator[CredentialRow]:
    certificate = _server_certificate(directory)
    if certificate is not None:
        issued = is_issued_by(certificate, AuthorityFiles(directory).authorities[0])
        state = "Serves" if issued else "Old"
        yield CredentialRow("ServerCertificate", authority_id(certificate), state, certificate.not_valid_after_utc)


def _key_rows(keys: Sequence[StoredKey], uses: dict[str, IssuerUse]) -> Iterator[CredentialRow]:
    for number, key in enumerate(keys):
        last, users = _use(uses.get(key.verifying.short_id))
        state = "Old" if number else "Signs"
        yield CredentialRow(
            "SigningKey", key.verifying.short_id, state, UNSET, key.replaced or UNSET, last_used=last, users=users
        )


def _use(use: IssuerUse | None) -> tuple[datetime | UnsetType, tuple[str, ...] | UnsetType]:
    return (UNSET, UNSET) if use is None else (use.last, tuple(reversed(use.users)))


def _server_certificate(directory: Path) -> x509.Certificate | None:
    """None if the hub has to create a new one."""
    try:
        return load_certificates(directory / SERVER)[0]
    except (OSError, CertificateError):
        return None


@printer
def printed(found: CertificateReport, now: datetime) -> Iterator[str]:
    yield table(_rows(found, now))


def _rows(found: CertificateReport, now: datetime) -> Iterator[list[str]]:
    yield ["KIND", "ID", "STATE", "EXPIRES", "LAST USED"]
    for one in found.items:
        expires = "-" if one.expires is UNSET else f"in {human(one.expires - now)}"
        if one.expires is not UNSET and one.expires <= now:
            expires = "expired"
        yield [one.kind, one.id, one.state, expires, _last_use(one, now)]


def _last_use(one: CredentialRow, now: datetime) -> str:
    if one.state != "Old" or one.kind == "ServerCertificate":
        return "-"
    if one.last_used is UNSET or one.users is UNSET:
        return "<none>"
    more = f" and {len(one.users) - 1} more" if len(one.users) > 1 else ""
    return f"{human(now - one.last_used)} ago by {one.users[0]}{more}"


def remarks(found: CertificateReport, now: datetime) -> Iterator[str]:
    if found.last_refused_handshake is not UNSET:
        yield (
            f"Clients that do not trust the server certificate ended {found.refused_handshakes} connections, the last "
            f"one {human(now - found.last_refused_handshake)} ago."
        )


def problems(found: CertificateReport, now: datetime, within: timedelta) -> Iterator[str]:
    """What ends soon."""
    for one in found.items:
        if one.expires is UNSET or one.state == "Old":
            continue
        authority = one.kind == "CertificateAuthority"
        left, notice = one.expires - now, max(within, AUTHORITY_NOTICE) if authority else within
        if left > notice:
            continue
        what = f"the {'certificate authority' if authority else 'server certificate'} {one.id}"
        ends = f"expires in {human(left)}" if left > timedelta(0) else "has expired"
        advice = "`farflung certs rotate --ca trust` begins to replace it" if authority else "a running hub renews it"
        yield f"{what} {ends}: {advice}"


# --- changes --------------------------------------------------------------------------------------


def rotate_server(directory: Path) -> str:
    with _certificate_directory(directory):
        _issue_server_certificate(AuthorityFiles(directory), datetime.now(UTC), even_if_good=True)
    return "The hub has a new server certificate."


def rotate_signing_keys(directory: Path, *, revoke_old: bool) -> str:
    with _certificate_directory(directory):
        first, *old = rotate_keys(directory / SIGNING_KEYS, datetime.now(UTC), keep_old=not revoke_old)
    signs = f"The key {first.verifying.short_id} signs new tokens of ServiceAccounts."
    if revoke_old:
        return f"{signs} The hub refuses all earlier tokens."
    ids = " ".join(one.verifying.short_id for one in old)
    return (
        f"{signs} Tokens of older keys stay valid.\n"
        f"When the tokens have expired, refuse the older keys: farflung certs revoke {ids}"
    )


def trust_new_authority(directory: Path) -> str:
    with _certificate_directory(directory):
        files, now = AuthorityFiles(directory), datetime.now(UTC)
        files.trust_successor(now)
        _issue_server_certificate(files, now)
        signs, trusted = authority_id(files.authorities[0]), " ".join(map(authority_id, files.authorities[1:]))
    return (
        f"Clients should trust {trusted} from now on. The certificate authority {signs} still signs.\n"
        f"Distribute {directory / 'ca.crt'} to clients with a copy of it, and then run: farflung certs rotate --ca sign"
    )


def sign_with_new_authority(directory: Path, *, revoke_old: bool) -> str:
    with _certificate_directory(directory):
        files, now = AuthorityFiles(directory), datetime.now(UTC)
        if revoke_old:
            files.replace(now)
        elif len(files.authorities) == 1:
            raise click.ClickException(
                "there is no new certificate authority: create one with `farflung certs rotate --ca trust`, and "
                "let clients learn it before it signs"
            )
        else:
            files.sign_with_successor()
        _issue_server_certificate(files, now)
        signs, *old = map(authority_id, files.authorities)
    if not old:
        return (
            f"The certificate authority {signs} signs, and all others are revoked.\n"
            f"Distribute {directory / 'ca.crt'} to all clients: they cannot connect before."
        )
    return (
        f"The certificate authority {signs} signs. Certificates of {' '.join(old)} stay valid.\n"
        f"When `farflung certs list` shows no use of it, run: farflung certs revoke {' '.join(old)}"
    )


def _issue_server_certificate(files: AuthorityFiles, now: datetime, *, even_if_good: bool = False) -> None:
    """With the names of the present one, unless that is good.  A running hub with other names replaces it."""
    certificates = files.certificates(now)
    present = _server_certificate(certificates.directory)
    names = server_names([])
    if present is not None:
        if is_issued_by(present, certificates.ca) and not even_if_good:
            return
        names = list(present.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    issue_server_certificate(certificates, names, now)


def revoke(directory: Path, ids: Collection[str]) -> str:
    """Revokes all or, with an error, none."""
    with _certificate_directory(directory):
        files, keys = AuthorityFiles(directory), read_keys(directory / SIGNING_KEYS)
        files.remove_revoked_keys()  # of an earlier call that was interrupted
        authorities = {authority_id(one) for one in files.authorities[1:]}
        old_keys = {one.verifying.short_id: one.verifying.id for one in keys[1:]}
        signing = {authority_id(files.authorities[0]): "--ca trust", keys[0].verifying.short_id: "--keys"}
        for one in ids:
            if one in signing:
                raise click.ClickException(f"{one} signs: first replace it with `farflung certs rotate {signing[one]}`")
            if one not in authorities and one not in old_keys:
                raise click.ClickException(f"no key and no certificate authority has the id {one}")
        if authorities & set(ids):
            files.revoke(ids)
        if old_keys.keys() & set(ids):
            revoke_keys(directory / SIGNING_KEYS, {old_keys[one] for one in ids if one in old_keys})
    return f"{' '.join(ids)} revoked"
