"""Errors of requests.

ClientError
├── Unreachable          no response: refused, reset, timed out, TLS
├── InvalidResponse      a response that no Kubernetes API sends
├── KubeconfigError      missing or invalid configuration or credentials
│   └── NoKubeconfig     no kubeconfig was named, and none exists
└── Refused              a failure Status
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404
    ├── AlreadyExists    409, reason AlreadyExists
    ├── UpdateConflict   409, any other reason
    ├── Expired          410: an old resourceVersion or continue token
    ├── Invalid          422
    └── TooMany          429
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from farflung.machinery.errors import Obj

MAX_RESPONSE: Final = 300  #: characters of a response that is not a Status

#: errors of decoders for invalid data
DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class ClientError(Exception):
    """An error of a request, which may be retried."""

    retry_after: float | None = None  #: seconds, from the server


class Unreachable(ClientError):
    pass


class InvalidResponse(ClientError):
    pass


class KubeconfigError(ClientError):
    """The message says what to fix, and where.  Also raised while a client runs, because files and plugins are read
    again."""


class NoKubeconfig(KubeconfigError):
    pass


class Refused(ClientError):
    """The server responded with a failure Status."""

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
    def is_future_version(self) -> bool:
        """Whether the requested resourceVersion is newer than the server's.  This also happens after the server was
        restored from a backup."""
        causes = self.details.get("causes")
        return isinstance(causes, list) and any(
            isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
        )


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    def is_about(self, name: str) -> bool:
        """Whether the named object does not exist, as opposed to its resource."""
        return self.reason == "NotFound" and self.details.get("name") == name


class AlreadyExists(Refused):
    pass


class UpdateConflict(Refused):
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
    409: UpdateConflict,
    410: Expired,
    422: Invalid,
    429: TooMany,
}


def response_error(status: int, body: bytes, retry_after: str = "") -> Refused:
    """The error of a response with a failure code, also of a proxy that sends no Status."""
    try:
        status_object = orjson.loads(body)
    except orjson.JSONDecodeError:
        status_object = None
    if not isinstance(status_object, dict) or status_object.get("kind") != "Status":
        text = body[:MAX_RESPONSE].decode(errors="replace").strip()
        return status_error(status, {"message": text}, retry_after)
    return status_error(status, status_object, retry_after)


def status_error(code: int, status: Obj, retry_after: str = "") -> Refused:
    """`status`: a Status object, from a response or an ERROR event."""
    reason, message, details = status.get("reason"), status.get("message"), status.get("details")
    kind = BY_STATUS.get(code, Refused)
    if kind is UpdateConflict and reason == "AlreadyExists":
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
