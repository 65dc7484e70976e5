"""What can go wrong between a client and a server.

ClientError
├── Unreachable        no answer: refused, reset, timed out, TLS
├── Garbled            an answer, but not one that a Kubernetes API gives
├── KubeconfigError    nobody says where the server is, or who we are there
│   └── NoKubeconfig   there is none where kubectl would look, either
└── Refused            a failure Status
    ├── Unauthorized   401
    ├── Forbidden      403
    ├── NotFound       404
    ├── AlreadyExists  409, reason AlreadyExists
    ├── Conflict       409, any other reason
    ├── Expired        410: a resourceVersion or a continue token that is too old
    ├── Invalid        422
    └── TooMany        429
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from farflung.machinery.errors import Obj

LONGEST: Final = 300  #: characters of an answer that is not a Status

#: what decoders raise for bytes that make no sense to them: also for text that is none, and for what is nested too deep
NONSENSE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class ClientError(Exception):
    """Something a client may try again, or not."""

    retry_after: float | None = None  #: seconds that the server asked for


class Unreachable(ClientError):
    pass


class Garbled(ClientError):
    pass


class KubeconfigError(ClientError):
    """A sentence that says what to mend, and where.  Files and programs are asked while clients run, too."""


class NoKubeconfig(KubeconfigError):
    pass


class Refused(ClientError):
    """The server understood, and said no."""

    def __init__(
        self, status: int, reason: str, message: str, details: Obj | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message or f"the server answered {status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after

    @property
    def ahead(self) -> bool:
        """It was asked for a resourceVersion that it does not have yet; or not any more, if it went back to a copy."""
        causes = self.details.get("causes")
        return isinstance(causes, list) and any(
            isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
        )


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    def names(self, name: str) -> bool:
        """Whether the server says that this very object is not there; not, that it knows nothing of such objects."""
        return self.reason == "NotFound" and self.details.get("name") == name


class AlreadyExists(Refused):
    pass


class Conflict(Refused):
    pass


class Expired(Refused):
    pass


class Invalid(Refused):
    pass


class TooMany(Refused):
    pass


BY_STATUS: Final[Mapping[int, type[Refused]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooMany,
}


def refusal(status: int, body: bytes, retry_after: str = "") -> Refused:
    """What an answer with a failure code says; also one of a proxy, that knows nothing of Statuses."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != "Status":
        text = body[:LONGEST].decode(errors="replace").strip()
        return refused(status, {"message": text}, retry_after)
    return refused(status, said, retry_after)


def refused(code: int, status: Obj, retry_after: str = "") -> Refused:
    """`status`: an object of that kind, from an answer or from an ERROR event."""
    reason, message, details = status.get("reason"), status.get("message"), status.get("details")
    kind = BY_STATUS.get(code, Refused)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    if reason == "Expired":
        kind = Expired
    details = details if isinstance(details, dict) else {}
    return kind(
        code,
        reason if isinstance(reason, str) else "",
        message if isinstance(message, str) else "",
        details,
        _seconds(retry_after) or _seconds(details.get("retryAfterSeconds")),
    )


def _seconds(value: object) -> float | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 100_000:
        return float(value)
    return None
