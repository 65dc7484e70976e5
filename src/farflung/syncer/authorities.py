"""The certificate authorities of the hub, which a syncer learns while the hub replaces them.

The kubeconfig has those of its creation.  The hub publishes its present ones in the mailbox, over a connection that the
syncer verified, and the syncer stores them in its state directory.  They replace those of this kubeconfig; a
kubeconfig with others, from a new registration, is used as it is.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from pathlib import Path
from typing import Final

from farflung.apis.names import CONFIG_MAPS
from farflung.client.errors import ClientError, KubeconfigError, NotFound
from farflung.client.rest import Client
from farflung.lib.files import write_private
from farflung.runtime.environment import Environment
from farflung.syncer.tokens import Copy, Report

FILE: Final = "ca.crt"  #: in the state directory, and beside the kubeconfig in its Secret
PUBLISHED: Final = "kube-root-ca.crt"  #: ConfigMap in each namespace of the mailbox
NAMESPACE: Final = "default"
PERIOD: Final = 300.0  #: seconds between two reads
HEAD: Final = "# instead of "  #: begins the file; the hash of the kubeconfig's authorities follows
CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
MAX_CHARACTERS: Final = 256 * 1024  #: characters


class LearnedAuthorities:
    """The stored authorities.  A file begins with the hash of the authorities that it replaces."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._file, self._copy = directory / FILE, kubeconfig.with_name(FILE)
        self._given = b""  #: those of the kubeconfig

    @property
    def files(self) -> tuple[Path, ...]:
        """The first one that belongs to the kubeconfig counts."""
        return self._file, self._copy

    @property
    def trusted(self) -> bytes:
        return self.choose(self._given)

    def choose(self, given: bytes) -> bytes:
        """The authorities to trust instead of those of the kubeconfig."""
        self._given = given
        found = (_content(file) for file in self.files)
        return next((one.encode() for one in found if given and self._is_ours(one)), given)

    def write(self, authorities: str) -> None:
        """Raises KubeconfigError."""
        try:
            write_private(self._file, f"{self._head()}{authorities}".encode())
        except OSError as error:
            raise KubeconfigError(f"cannot store authorities in {self._file}: {error.strerror or error}") from None

    def content_to_copy(self) -> str:
        """Empty if the copy is up to date."""
        content = _content(self._file)
        return content if self._is_ours(content) and content != _content(self._copy) else ""

    def _is_ours(self, content: str) -> bool:
        return content.startswith(self._head()) and _is_good(content)

    def _head(self) -> str:
        return f"{HEAD}{hashlib.sha256(self._given).hexdigest()}\n"


class AuthorityKeeper:
    def __init__(self, learned: LearnedAuthorities, report: Report, copy: Copy | None = None) -> None:
        """`copy`: writes the file to where a syncer without a state directory finds it."""
        self._learned = learned
        self._report = report
        self._copy = copy

    async def run(self, mailbox: Client, env: Environment) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.learn(mailbox)
                self._report("")
            except ClientError as error:
                self._report(str(error))
            await env.sleep(PERIOD)

    async def learn(self, mailbox: Client) -> None:
        """Store the published authorities if they are other ones.  Raises ClientError.

        They must include one that is trusted now: a server may publish authorities of another endpoint.
        """
        trusted = certificates_in(self._learned.trusted.decode(errors="replace"))
        try:
            published = await mailbox.get(CONFIG_MAPS, PUBLISHED, NAMESPACE)
        except NotFound:
            return
        data = published.get("data")
        text = data.get(FILE) if isinstance(data, dict) else None
        if not isinstance(text, str) or not trusted & certificates_in(text) or not _is_good(text):
            return
        if certificates_in(text) != trusted:
            self._learned.write(text)
        if self._copy is not None and (content := self._learned.content_to_copy()):
            await self._copy(content)


def certificates_in(text: str) -> frozenset[bytes]:
    """The certificates of a text in PEM; empty if one is damaged."""
    try:
        return frozenset(ssl.PEM_cert_to_DER_cert(one) for one in CERTIFICATE.findall(text))
    except ValueError:
        return frozenset()


def _is_good(text: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        return False
    return len(text) <= MAX_CHARACTERS


def _content(file: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
