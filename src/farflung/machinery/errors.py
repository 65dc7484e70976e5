"""Errors of the API, with the messages of Kubernetes.

    ApiError               a response with a failure Status
    FieldError             one error of one field; several are an `invalid` ApiError

`FieldError` values are data: validation returns lists of them and never raises.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

Obj = dict[str, Any]  #: a Kubernetes object, or a part of one, as plain JSON values

TOO_DEEP: Final = "exceeded max depth"  #: of a document
#: the names of types in Go's messages
NAMES: Final = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class ApiError(Exception):
    """A failure Status.  Raised below the app, which responds with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Obj | None = None,
        *,
        headers: Sequence[tuple[str, str]] = (),
        metadata: Obj | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers
        self.metadata = metadata or {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, whose default calls the constructor with the message alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def status(self) -> Obj:
        body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(name: str, group: str) -> str:
    """`deployments.apps`, or `configmaps` in the core group."""
    return f"{name}.{group}" if group else name


def object_details(group: str, kind: str, name: str) -> Obj:
    details: Obj = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def not_found(group: str, resource: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, object_details(group, resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def no_such_resource() -> ApiError:
    """404 for the path of a resource that is not served."""
    causes = [{"reason": "UnexpectedServerResponse", "message": "404 page not found"}]
    return ApiError(404, "NotFound", "the server could not find the requested resource", {"causes": causes})


def already_exists(group: str, resource: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, object_details(group, resource, name))


MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, resource: str, name: str, why: str = MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, object_details(group, resource, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(group: str, resource: str, name: str, why: str) -> ApiError:
    subject = qualified(resource, group) + (f' "{name}"' if name else "")
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", object_details(group, resource, name))


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: Iterable[str]) -> ApiError:
    message = "only the following media types are accepted: " + ", ".join(accepted)
    return ApiError(406, "NotAcceptable", message)


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(message: str, seconds: int = 1) -> ApiError:
    """The client may retry after `seconds`."""
    headers = [("Retry-After", str(seconds))]
    return ApiError(429, "TooManyRequests", message, {"retryAfterSeconds": seconds}, headers=headers)


def expired(message: str, *, metadata: Obj | None = None) -> ApiError:
    return ApiError(410, "Expired", message, metadata=metadata)


def internal(message: str) -> ApiError:
    full = f"Internal error occurred: {message}"
    return ApiError(500, "InternalError", full, {"causes": [{"message": message}]})


# --- fields ---------------------------------------------------------------------------------------

#: the type of a FieldError → the reason of its cause in the Status
CAUSES: Final[Mapping[str, str]] = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Not found": "FieldValueNotFound",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Internal error": "InternalError",
}
#: of one object: a response must not be fifty times as large as its request
MAX_ERRORS: Final = 500
MAX_ERROR_TEXT: Final = 256 * 1024  #: characters
WITHOUT_VALUE: Final = frozenset({"Required value", "Forbidden", "Too long", "Internal error"})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error of one field.  `body` is the message without the field."""

    what: str  #: a key of CAUSES
    field: str  #: `spec.containers[0].image`
    value: Any
    detail: str
    reason: str = ""  #: overrides the reason of CAUSES (`FieldValueTypeInvalid`)

    @property
    def body(self) -> str:
        text = self.what if self.what in WITHOUT_VALUE else f"{self.what}: {shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> Obj:
        return {"reason": self.reason or CAUSES[self.what], "message": self.body, "field": self.field}


def shown(value: Any) -> str:
    """A refused value as Go prints it: strings quoted, the rest as compact JSON."""
    if value is None:
        return "null"
    return orjson.dumps(value).decode() if not isinstance(value, str) else go_quote(value)


def go_quote(text: str) -> str:
    """Go's %q: JSON's escapes, but non-printable characters as \\x.. or \\u...."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'"{GO_QUOTED.sub(_go_escape, text)}"'


def _go_escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in GO_ESCAPES:
        return GO_ESCAPES[char]
    if char.isprintable():
        return char
    if ord(char) < 0x80:
        return f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


GO_QUOTED: Final = re.compile(r'["\\]|[^ -~]')  #: characters that need escapes
GO_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("Required value", field, None, detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("Invalid value", field, value, detail)


def duplicate(field: str, value: Any, detail: str = "") -> FieldError:
    return FieldError("Duplicate value", field, value, detail)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    return FieldError("Unsupported value", field, value, "supported values: " + ", ".join(map(go_quote, supported)))


def field_forbidden(field: str, detail: str) -> FieldError:
    return FieldError("Forbidden", field, None, detail)


def field_not_found(field: str, value: Any) -> FieldError:
    return FieldError("Not found", field, value, "")


def too_long(field: str, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError("Too long", field, None, f"may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError("Too many", field, actual, f"must have at most {limit} {unit}")


#: A place in an object: the place above, and what its path adds, `.name` or `[0]`.  Only paths of errors are written
#: out, because there may be a million values below a key of a million characters.
Place = tuple["Place", str] | None


def place_text(place: Place) -> str:
    """`spec.list[0].x`"""
    parts: list[str] = []
    while place is not None:
        place, part = place
        parts.append(part)
    return "".join(reversed(parts))


def first_texts(texts: Iterable[str]) -> list[str]:
    """As many as may be in a response."""
    found: list[str] = []
    length = 0
    for text in texts:
        found.append(text)
        length += len(text)
        if length > MAX_ERROR_TEXT:
            break
    return found


def first_errors(errors: Iterable[FieldError], most: int = 1000) -> list[FieldError]:
    """As many as may be in a response.  There may be millions in a large object, each with a path of a megabyte."""
    found: list[FieldError] = []
    length = 0
    for error in errors:
        found.append(error)
        length += len(str(error))
        if len(found) == most or length > MAX_ERROR_TEXT:
            break
    return found


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422: the object is invalid.  Lists the first errors, each once."""
    shown_errors = first_errors(errors, MAX_ERRORS)
    omitted, errors = len(errors) - len(shown_errors), shown_errors
    distinct = list(dict.fromkeys(map(str, errors)))
    if omitted:
        distinct.append(f"and {omitted} errors more")
    listed = distinct[0] if len(distinct) == 1 else "[" + ", ".join(distinct) + "]"
    details = object_details(group, kind, name)
    details["causes"] = [error.cause() for error in errors]
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {listed}', details)


# --- a body that cannot be decoded --------------------------------------------------------------


class Malformed(ApiError):
    """400.  `why` is Go's message alone, so that callers can add context of the request."""

    def __init__(self, why: str) -> None:
        super().__init__(400, "BadRequest", why)
        self.why = why


def strict_text(problems: Sequence[str]) -> str:
    """`strict decoding error: unknown field "x", duplicate field "y"`.  Duplicate keys of YAML are one of the errors,
    with a line for each key."""
    lines = [problem for problem in problems if problem.startswith("line ")]
    others = [problem for problem in problems if not problem.startswith("line ")]
    return "strict decoding error: " + ", ".join([*([yaml_errors(lines)] if lines else []), *others])


def yaml_errors(lines: Sequence[str]) -> str:
    """The error list of go-yaml."""
    return "yaml: unmarshal errors:" + "".join(f"\n  {line}" for line in lines)
