"""A syncer's token, which it renews long before it expires.

There are two: the one of the kubeconfig, which an operator may replace, and the last one that the syncer requested,
which is in its state directory.  The newer one is used, unless the server refuses it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
from multidict import CIMultiDict

from farflung.apis.names import SECRETS, SERVICE_ACCOUNTS
from farflung.client.credentials import bearer
from farflung.client.errors import DECODE_ERRORS, ClientError, InvalidResponse, KubeconfigError, Unauthorized
from farflung.client.kubeconfig import ClientConfig
from farflung.client.rest import Client, PatchType
from farflung.client.transport import Credentials
from farflung.lib.backoff import Backoff
from farflung.lib.files import write_private
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment

FILE: Final = "token"  #: in the state directory

SHARE: Final = 1 / 3  #: of its lifetime, after which a token is renewed
LEEWAY: Final = 300.0  #: seconds; a token issued further in the future shows a wrong clock
CHECK_PERIOD: Final = 3600.0  #: seconds, at most, between two checks
REST: Final = 60.0  #: seconds between two requests for a token, at least
LONGEST_REST: Final = 600.0  #: after failures
MAX_TOKEN_BYTES: Final = 16 * 1024  #: bytes of a token
LAST: Final = 1e11  #: seconds since 1970; no token lasts longer
SHORTEST_LIFETIME, LONGEST_LIFETIME = 600, 2**32  #: seconds that can be requested

REFUSED: Final = "the hub refuses the token, which has expired or was revoked; run `farflung syncer-gen` again"

Report = Callable[
    [str], None
]  #: called with an error when a credential cannot be renewed or stored, and with an empty text otherwise
Copy = Callable[[str], Awaitable[None]]  #: writes a credential to where a syncer without a state directory finds it


# --- the content of a token -----------------------------------------------------------------------


class TokenSubject(msgspec.Struct, frozen=True):
    cluster: str
    namespace: str
    name: str


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Private(msgspec.Struct, frozen=True):
    namespace: str = ""
    serviceaccount: _Named = _Named()
    clusterName: str = ""


class _Claims(msgspec.Struct, frozen=True):
    iat: float
    exp: float
    private: _Private = msgspec.field(name="kubernetes.io")


_claims: Final = msgspec.json.Decoder(_Claims).decode


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """A token of a ServiceAccount, decoded and not verified."""

    text: str = field(repr=False)
    account: TokenSubject
    issued: float  #: by the clock of the hub, as all times here
    expires: float

    @property
    def lifetime(self) -> float:
        return self.expires - self.issued

    def due_in(self, now: float) -> float:
        """Seconds until it should be renewed; 0 if it was issued in the future, because its age is unknown then."""
        age = now - self.issued
        return 0.0 if age < -LEEWAY else max(0.0, self.lifetime * SHARE - age)


def read_token(text: str) -> ServiceAccountToken | None:
    """None if it is not that of a ServiceAccount, or has no end."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > MAX_TOKEN_BYTES or not text.isascii() or not text.isprintable():
        return None
    try:
        claims = _claims(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (*DECODE_ERRORS, binascii.Error):
        return None
    private = claims.private
    if not private.namespace or not private.serviceaccount.name or not 0 <= claims.iat < claims.exp <= LAST:
        return None
    account = TokenSubject(private.clusterName, private.namespace, private.serviceaccount.name)
    return ServiceAccountToken(text, account, claims.iat, claims.exp)


def token_of(headers: Mapping[str, str]) -> ServiceAccountToken | None:
    kind, _, text = headers.get("Authorization", "").partition(" ")
    return read_token(text) if kind == "Bearer" else None


def choose_token(
    given: ServiceAccountToken | None, kept: ServiceAccountToken | None, refused: str = ""
) -> ServiceAccountToken | None:
    """The newer of two, unless it was refused.  A stored token of another account is ignored."""
    if given is not None and kept is not None and kept.account != given.account:
        kept = None
    found = [one for one in (given, kept) if one is not None]
    return max(found, key=lambda one: (one.text != refused, one.issued), default=None)


# --- renewal --------------------------------------------------------------------------------------


class TokenKeeper:
    """A transport uses `headers` and `forget`; `run` renews the token."""

    def __init__(
        self,
        given: Credentials,
        forget: Callable[[], None],
        directory: Path,
        clock: Callable[[], float],
        report: Report,
        copy: Copy | None = None,
    ) -> None:
        """`given`, `forget`: the credentials of the kubeconfig; `clock`: seconds since 1970."""
        self._given = given
        self._forget = forget
        self._file = directory / FILE
        self._clock = clock
        self._report = report
        self._copy = copy
        self._kept = _content(self._file)
        self._unwritten = False
        self._used: ServiceAccountToken | None = None
        self._refused = ""  #: the last refused token
        self._refusals: set[str] = set()  #: all refused tokens
        self._reported = False  #: that all tokens are refused
        self._ahead = 0.0  #: seconds by which the server's clock is ahead of ours

    async def headers(self) -> Mapping[str, str]:
        """Raises KubeconfigError."""
        try:
            headers = await self._given()
        except KubeconfigError:
            if self._kept is None:
                raise
            self._used = self._kept
            return bearer(self._kept.text, "what was kept")
        given = token_of(headers)
        if given is None:
            self._used = None
            return headers
        self._used = choose_token(given, self._kept, self._refused)
        assert self._used is not None
        return headers if self._used is given else _showing(headers, self._used)

    def forget(self) -> None:
        """The server refused the last token.  The other one, if there is one, is used next; a second
        refusal of the same token is reported."""
        if self._used is not None:
            self._refused = self._used.text
            if self._refused not in self._refusals:
                self._refusals.add(self._refused)
                self._reported = False
            elif not self._reported:
                self._report(REFUSED)
                self._reported = True
        self._forget()

    async def run(self, client: Client, env: Environment) -> None:
        """Until cancelled.  `client`: of the mailbox, with these headers."""
        backoff = Backoff(REST, LONGEST_REST, env.random)
        failures = 0
        while True:
            try:
                pause = await self.renew_if_due(client)
                failures = 0
                self._report("")
            except ClientError as error:
                failures += 1
                self._report(REFUSED if isinstance(error, Unauthorized) else self._without_secret(str(error)))
                pause = backoff.delay(failures, error.retry_after)
            await env.sleep(pause)

    async def renew_if_due(self, client: Client) -> float:
        """Renew the token if that is due.  Returns the seconds until the next check.  Raises ClientError if the server
        refuses, or the new token cannot be stored."""
        await self.headers()
        token = self._used
        if token is None:
            return CHECK_PERIOD
        if token.due_in(self._now()) <= 0:
            token = await self._renewed(client, token)
            self._ahead = token.issued - self._clock()
            self._kept, self._refused, self._unwritten = token, "", True
        try:
            self._write()
        finally:
            await self._copy_out()
        return min(max(token.due_in(self._now()), REST), CHECK_PERIOD)

    def _now(self) -> float:
        """By the server's clock."""
        return self._clock() + self._ahead

    async def _renewed(self, client: Client, token: ServiceAccountToken) -> ServiceAccountToken:
        account = token.account
        wanted: Obj = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account.name},
            "spec": {"expirationSeconds": min(max(int(token.lifetime), SHORTEST_LIFETIME), LONGEST_LIFETIME)},
        }
        answer = await client.create(SERVICE_ACCOUNTS, wanted, account.namespace, "token")
        status = answer.get("status")
        text = status.get("token") if isinstance(status, dict) else None
        found = read_token(text) if isinstance(text, str) else None
        if found is None or found.account != account:
            raise InvalidResponse("the server's answer is not a token of this account")
        return found

    def _write(self) -> None:
        if self._kept is None or not self._unwritten:
            return
        try:
            write_private(self._file, self._kept.text.encode())
            self._unwritten = False
        except OSError as error:
            raise KubeconfigError(f"cannot store a new token in {self._file}: {error.strerror or error}") from None

    async def _copy_out(self) -> None:
        if self._copy is None or self._kept is None:
            return
        try:
            given = token_of(await self._given())
        except KubeconfigError:
            given = None
        if given != self._kept and choose_token(given, self._kept) is self._kept:
            await self._copy(self._kept.text)

    def _without_secret(self, sentence: str) -> str:
        """A proxy may quote the request."""
        return sentence.replace(self._used.text, "…") if self._used is not None else sentence


def renew_tokens(
    access: ClientConfig, directory: Path, clock: Callable[[], float], report: Report, copy: Copy | None = None
) -> tuple[ClientConfig, TokenKeeper]:
    """The same access, with a token that the keeper renews.  ClientConfig without the token of a ServiceAccount is
    unchanged."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = TokenKeeper(access.credentials, access.forget, directory, clock, report, copy)
    return replace(access, credentials=keeper.headers, forget=keeper.forget), keeper


def secret_writer(edge: Client, namespace: str, name: str, file: str) -> Copy:
    """A writer to a file in the Secret with the syncer's kubeconfig."""

    async def copy(content: str) -> None:
        data = {"data": {file: base64.b64encode(content.encode()).decode()}}
        await edge.patch(SECRETS, name, data, namespace, how=PatchType.MERGE)

    return copy


def _content(file: Path) -> ServiceAccountToken | None:
    """None also for a damaged file: the kubeconfig still has a token."""
    try:
        with file.open("rb") as opened:
            return read_token(opened.read(MAX_TOKEN_BYTES + 1).decode(errors="replace").strip())
    except OSError:
        return None


def _showing(headers: Mapping[str, str], token: ServiceAccountToken) -> Mapping[str, str]:
    whole = CIMultiDict(headers)
    whole["Authorization"] = f"Bearer {token.text}"
    return whole
