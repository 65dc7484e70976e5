"""The keys and certificates of a running hub, in files that `farflung certs` may replace at any time."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from farflung.http.certificates import (
    CertificateError,
    CertificateHolder,
    Certificates,
    authority_id,
    ensure_certificates,
    load_certificates,
    server_context,
)
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.service_account_tokens import ServiceAccountTokens
from farflung.hub.auth.signing_keys import SIGNING_KEYS, SigningKeys, ensure_keys, read_keys, short_id
from farflung.lib.files import FileVersion, file_version, write_private
from farflung.lib.tls import ReplaceableContext
from farflung.store.base import Unusable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

PERIOD: Final = 1.0  #: seconds between two checks for replaced files
RENEWAL_PERIOD: Final = 60.0  #: seconds between two checks of the server certificate's end and names
USES: Final = "credential-uses.json"
CERTIFICATE_FILES: Final = ("ca.crt", "ca.key", "server.crt", "server.key")


class CredentialFiles:
    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        """Creates missing files.  `hosts`: names for the server certificate.  Raises CertificateError or Unusable."""
        self._directory = directory
        self._hosts = hosts
        self._key_file = directory / SIGNING_KEYS
        self._uses_file = directory / USES
        self.uses = read_uses(directory)
        self._written_uses = msgspec.json.encode(self.uses)
        self._versions = self._certificate_versions()
        certificates, self._context = self._load_certificates()
        self.certificates = CertificateHolder(certificates)
        self.keys = ensure_keys(self._key_file)
        self._key_version = file_version(self._key_file)
        self.tls: ssl.SSLContext = ReplaceableContext(lambda: self._context)

    async def follow(self, accounts: ServiceAccountTokens) -> None:
        """Use replaced files, and renew the server certificate, until cancelled."""
        loop = asyncio.get_running_loop()
        checked = loop.time()
        try:
            while True:
                await asyncio.sleep(PERIOD)
                self._follow_keys(accounts)
                if self._versions != self._certificate_versions() or loop.time() >= checked + RENEWAL_PERIOD:
                    checked = loop.time()
                    await self._follow_certificates()
                    self._write_uses()
        finally:
            self._write_uses()

    def _follow_keys(self, accounts: ServiceAccountTokens) -> None:
        version = file_version(self._key_file)
        if version == self._key_version:
            return
        self._key_version = version
        try:
            self.keys = SigningKeys.of(read_keys(self._key_file))
        except (Unusable, OSError) as error:
            log.warning("cannot read the signing keys, keeping the old ones: %s", error)
            return
        log.info("using other signing keys for ServiceAccount tokens")
        accounts.replace_keys(self.keys)

    async def _follow_certificates(self) -> None:
        before, self._versions = self._versions, self._certificate_versions()
        try:
            found, context = await asyncio.to_thread(self._load_certificates)
            if self._certificate_versions() != before:  # if the server certificate was just renewed, it is loaded again
                self._context = context
            if found.authorities != self.certificates.current.authorities:
                log.info("using other certificate authorities: %s", ", ".join(map(authority_id, found.authorities)))
                self.certificates.replace(found)
        except (CertificateError, OSError) as error:
            log.warning("cannot use the new certificates: %s", error)

    def _load_certificates(self) -> tuple[Certificates, ssl.SSLContext]:
        """Renews the server certificate if that is due.  Raises CertificateError or OSError."""
        certificates = ensure_certificates(self._directory, self._hosts, datetime.now(UTC))
        self._server_end = load_certificates(certificates.server_file)[0].not_valid_after_utc
        return certificates, server_context(certificates, lambda: self.uses.note_refusal(datetime.now(UTC)))

    def metrics(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        what = "The end of a certificate in seconds since 1970."
        ends = GaugeMetricFamily("farflung_certificate_expiration_timestamp_seconds", what, labels=("kind",))
        ends.add_metric(("authority",), self.certificates.current.ca.not_valid_after_utc.timestamp())
        ends.add_metric(("server",), self._server_end.timestamp())
        yield ends
        what = "TLS handshakes that clients ended because they do not trust the server certificate."
        yield CounterMetricFamily("farflung_server_certificate_refusals", what, self.uses.refusals)
        what = "The last use of an old signing key or certificate authority in seconds since 1970."
        used = GaugeMetricFamily("farflung_old_issuer_last_use_timestamp_seconds", what, labels=("issuer",))
        for issuer, use in self.uses.issuers.items():
            used.add_metric((issuer,), use.last.timestamp())
        yield used

    def _write_uses(self) -> None:
        self.uses.forget_others({*map(short_id, self.keys.ids), *self.certificates.current.ids})
        content = msgspec.json.encode(self.uses)
        if content != self._written_uses:
            try:
                write_private(self._uses_file, content, durable=False)
            except OSError as error:
                log.warning("cannot write %s: %s", self._uses_file, error)
            self._written_uses = content

    def _certificate_versions(self) -> list[FileVersion]:
        return [file_version(self._directory / name) for name in CERTIFICATE_FILES]


def read_uses(directory: Path) -> CredentialUses:
    """Empty if the file does not exist or is damaged: it is only informative."""
    try:
        return msgspec.json.decode((directory / USES).read_bytes(), type=CredentialUses)
    except (OSError, ValueError):
        return CredentialUses()
