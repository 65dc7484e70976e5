"""Parsing of requests: llhttp does the grammar, this module the limits and the framing rules.

    feed → KnownHeads                    the common case: a known header block
         → llhttp → on_header, on_body … everything else

The parser does no I/O: a connection feeds bytes and takes exchanges from a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Final, NoReturn

import httptools

from farflung.http.limits import Limits
from farflung.http.messages import Request
from farflung.machinery.errors import ApiError, bad_request, method_not_allowed, too_large

#: The stage of the message that the next byte belongs to.
BETWEEN: Final = 0
HEAD: Final = 1
BODY: Final = 2

METHODS: Final = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}
COMMON_HEADERS: Final = (
    *("accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "expect", "host"),
    *("kubectl-command", "kubectl-session", "transfer-encoding", "user-agent", "x-forwarded-for"),
)
#: The usual spellings of common names.
NAMES: Final = {spelling.encode(): name for name in COMMON_HEADERS for spelling in (name, name.title())}
#: Headers that must not be repeated.  llhttp refuses repeated framing headers.
SINGLE: Final = frozenset({"host", "authorization", "content-type", "content-length", "transfer-encoding", "expect"})

#: Prefix of headers whose values may contain commas: repeated values are separated by newlines.
EXACT: Final = "impersonate-"


class Exchange:
    """A complete request, and whether its client uses HTTP/1.1."""

    __slots__ = ("modern", "request")

    def __init__(self, request: Request, modern: bool) -> None:
        self.request = request
        self.modern = modern  #: HTTP/1.1: persistent by default, and supports chunks


#: Headers that affect the framing or the connection.  A plain Content-Length is handled.
CONSEQUENTIAL: Final = frozenset({"transfer-encoding", "connection", "upgrade", "expect"})
LENGTH: Final = b"\r\nContent-Length: "  #: start of the line with the length of a body
ZERO: Final = ord("0")
LENGTH_DIGITS: Final = 7  #: of a body that is read with a known header block
#: Characters of a plain target.
PLAIN_TARGET: Final = bytes(each for each in range(0x21, 0x7F) if each != ord("#"))


class KnownHeads:
    """A cache of header blocks that llhttp has parsed.

    Requests of a client differ in the first line, in the length of the body, and in the body.  Only a few short blocks
    are cached, and none that affects framing otherwise.
    """

    __slots__ = ("_blocks",)

    COUNT: Final = 1024
    SIZE: Final = 2048

    def __init__(self) -> None:
        #: block → headers; the digits of a Content-Length are removed from the block
        self._blocks: dict[bytes | tuple[bytes, bytes], Mapping[str, str]] = {}

    def request(self, data: bytes) -> tuple[str, str, Mapping[str, str], bytes] | None:
        """Method, target, headers and body, if the data is one plain request with a known header block."""
        parts = divided(data)
        if parts is None:
            return None
        line, block, digits, body = parts
        headers = self._blocks.get(block)
        if headers is None:
            return None
        plain = plain_line(line)
        if plain is None:
            return None
        if digits:
            headers = {**headers, "content-length": digits}
        return (*plain, headers, body)

    def learn(self, data: bytes, headers: Mapping[str, str], body: bytes) -> None:
        """Cache the header block of `data`, which llhttp parsed as exactly one request."""
        parts = divided(data)
        if parts is None:
            return
        line, block, digits, rest = parts
        if headers.get("content-length", "") != digits or rest != body or not CONSEQUENTIAL.isdisjoint(headers):
            return
        size = len(block) if isinstance(block, bytes) else sum(map(len, block))
        if size > self.SIZE or plain_line(line) is None:
            return
        if len(self._blocks) >= self.COUNT:
            self._blocks.clear()
        self._blocks[block] = MappingProxyType(headers)


def divided(data: bytes) -> tuple[bytes, bytes | tuple[bytes, bytes], str, bytes] | None:
    """Request line, header block, digits of the Content-Length (empty without a body) and body, if the data is exactly
    one request."""
    line_end = data.find(b"\r\n")
    if data.endswith(b"\r\n\r\n"):
        return data[:line_end], data[line_end + 2 :], "", b""
    head_end = data.find(b"\r\n\r\n")
    length = data.find(LENGTH, line_end, head_end) if head_end > 0 else -1
    if length < 0:
        return None
    start = length + len(LENGTH)
    end = data.find(b"\r\n", start)
    digits = data[start:end]
    if not digits.isdigit() or digits[0] == ZERO or len(digits) > LENGTH_DIGITS:
        return None
    if len(data) != head_end + 4 + int(digits):
        return None
    return data[:line_end], (data[line_end:start], data[end:head_end]), digits.decode(), data[head_end + 4 :]


def plain_line(line: bytes) -> tuple[str, str] | None:
    """Method and target of an unambiguous request line."""
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] != b"HTTP/1.1":
        return None
    method = METHODS.get(parts[0])
    target = parts[1]
    if method is None or target[:1] != b"/" or target.translate(None, PLAIN_TARGET):
        return None
    return method, target.decode("latin-1")


class RequestParser:
    """Parses the bytes of one connection into exchanges, appended to `ready` in order.

    `stage` is the stage of the next byte.  `feed` raises ApiError for the first error; the requests before it are in
    `ready`, and the parser cannot be used afterwards.  After a request that ends the connection (`finished`) further
    bytes are ignored.
    """

    __slots__ = (
        "_body",
        "_certificate",
        "_fields",
        "_keep_alive",
        "_known",
        "_limits",
        "_llhttp",
        "_modern",
        "_peer",
        "_progressed",
        "_ready",
        "_refusal",
        "_request",
        "_silent_bytes",
        "_skipped_body",
        "_target",
        "awaits_continue",
        "finished",
        "stage",
    )

    def __init__(
        self,
        limits: Limits,
        known: KnownHeads,
        ready: list[Exchange],
        peer: str = "",
        certificate: bytes | None = None,
    ) -> None:
        self._limits = limits
        self._known = known
        self._ready = ready
        self._peer = peer
        self._certificate = certificate
        self._llhttp = httptools.HttpRequestParser(self)
        self._refusal: ApiError | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._progressed = False
        self._skipped_body = ""  #: the framing header of a body that llhttp will skip
        self.stage = BETWEEN
        self.finished = False
        self.awaits_continue = False  #: the client waits for 100 Continue

    def feed(self, data: bytes | memoryview) -> None:
        if self.stage != BETWEEN or not isinstance(data, bytes):
            self._parse(data)
            return
        known = self._known.request(data)
        limits = self._limits
        if known is None or len(known[1]) > limits.request_line or len(known[3]) > limits.body_bytes or self.finished:
            self._parse_and_learn(data)
            return
        method, target, headers, body = known
        path, _, query = target.partition("?")
        self._ready.append(Exchange(Request(method, path, query, headers, body, self._certificate, self._peer), True))

    def _parse_and_learn(self, data: bytes) -> None:
        before = len(self._ready)
        self._parse(data)
        if self.stage == BETWEEN and len(self._ready) == before + 1:
            exchange = self._ready[-1]
            if exchange.modern:
                self._known.learn(data, exchange.request.headers, exchange.request.body)

    def _parse(self, data: bytes | memoryview) -> None:
        while not self.finished:
            self._progressed = False
            try:
                self._llhttp.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._stay_with_http()
                data = memoryview(data)[upgrade.args[0] :]
                continue
            except httptools.HttpParserCallbackError as error:
                raise self._refusal or error.__context__ or error from None
            except httptools.HttpParserError as error:
                if isinstance(error, httptools.HttpParserInvalidMethodError):
                    raise method_not_allowed() from None
                if not self.finished:
                    raise bad_request(f"malformed HTTP request: {error}") from None
            break
        if self.stage != BETWEEN and not self._progressed:
            # llhttp called nothing: half a header, or a chunk extension
            self._silent_bytes += len(data)
            if self._silent_bytes > self._limits.header_bytes + self._limits.request_line:
                raise headers_too_large()

    @property
    def incomplete(self) -> Request | None:
        """The request whose head is complete, but not its body."""
        return self._request if self.stage == BODY else None

    @property
    def body_size(self) -> int:
        """Bytes of its body so far."""
        return len(self._body)

    def close(self) -> None:
        """Break the reference cycle with llhttp.  The parser cannot be used afterwards."""
        self.finished = True
        del self._llhttp

    def _stay_with_http(self) -> None:
        """Upgrades are ignored.  llhttp then skips the rest of the input as another protocol, so a new parser reads the
        next request, or the body after a substitute head."""
        if not self._skipped_body:
            self._llhttp = httptools.HttpRequestParser(self)
            return
        body_only = SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
        self._llhttp = httptools.HttpRequestParser(body_only)
        self._llhttp.feed_data(f"POST / HTTP/1.1\r\n{self._skipped_body}\r\nConnection: close\r\n\r\n".encode())
        self._skipped_body = ""

    def _refuse(self, refusal: ApiError) -> NoReturn:
        """Raise through llhttp, which would replace the exception."""
        self._refusal = refusal
        raise refusal

    # Called by llhttp.

    def on_message_begin(self) -> None:
        self.stage = HEAD
        self._progressed = True
        self._silent_bytes = 0
        self._target = b""

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.request_line:
            self._refuse(ApiError(414, "BadRequest", f"request line too long: limit is {self._limits.request_line}"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Also called for trailers after the head, which are ignored."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.stage = BODY
        llhttp = self._llhttp
        headers = self._gather_headers()
        version = llhttp.get_http_version()
        self._modern = version == "1.1"
        if self._modern:
            if "host" not in headers:
                self._refuse(bad_request("missing required Host header"))
        elif version != "1.0":
            self._refuse(ApiError(505, "BadRequest", "unsupported protocol version"))
        self._keep_alive = llhttp.should_keep_alive()
        if "content-length" in headers or "transfer-encoding" in headers:
            self._check_body(headers)
        method = llhttp.get_method()
        if llhttp.should_upgrade():
            self._ignore_upgrade(method, headers)
        target = self._target.decode("latin-1")
        if target[0] != "/" or "#" in target:
            target = self._origin_form(target)
        path, _, query = target.partition("?")
        self._request = Request(
            METHODS.get(method) or method.decode("latin-1"), path, query, headers, b"", self._certificate, self._peer
        )

    def _gather_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        size = 0
        for raw_name, raw_value in self._fields:
            size += len(raw_name) + len(raw_value)
            name = NAMES.get(raw_name) or raw_name.lower().decode("latin-1")
            value = raw_value.decode("latin-1").rstrip(" \t")
            if name not in headers:
                headers[name] = value
            elif name in SINGLE:
                self._refuse(bad_request(f"repeated header: {name}"))
            else:
                between = "\n" if name.startswith(EXACT) else ", "
                headers[name] = f"{headers[name]}{between}{value}"
        if size > self._limits.header_bytes or len(self._fields) > self._limits.header_count:
            self._refuse(headers_too_large())
        return headers

    def _check_body(self, headers: dict[str, str]) -> None:
        coding = headers.get("transfer-encoding")
        if coding is None:
            # llhttp ensures that this is one number below 2**64.
            length = headers["content-length"].lstrip("0")
            if not length:
                return
            if int(length) > self._limits.body_bytes:
                self._refuse(too_large(self._limits.body_bytes))
        elif coding.lower() != "chunked":
            self._refuse(ApiError(501, "BadRequest", "unsupported transfer encoding"))
        elif not self._modern:
            self._refuse(bad_request("HTTP/1.0 knows no transfer encoding"))
        expectation = headers.get("expect")
        if expectation is None or not self._modern:
            return
        if expectation.lower() != "100-continue":
            self._refuse(ApiError(417, "BadRequest", "unsupported expectation"))
        self.awaits_continue = True

    def _ignore_upgrade(self, method: bytes, headers: dict[str, str]) -> None:
        if method == b"CONNECT":
            self._refuse(method_not_allowed())
        if "transfer-encoding" in headers:
            self._skipped_body = "Transfer-Encoding: chunked"
        elif headers.get("content-length", "").strip("0"):
            self._skipped_body = f"Content-Length: {headers['content-length']}"
        if self._skipped_body:
            self._keep_alive = False

    def _origin_form(self, target: str) -> str:
        """`http://host/path` is the form for proxies; `*` refers to the server."""
        scheme, found, rest = target.partition("://")
        if found and scheme.lower() in ("http", "https") and "#" not in rest:
            authority_end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
            tail = rest[authority_end:]
            return tail if tail.startswith("/") else f"/{tail}"
        if target != "*" or self._llhttp.get_method() != b"OPTIONS":
            self._refuse(bad_request("malformed HTTP request: invalid request target"))
        return target

    def on_body(self, part: bytes) -> None:
        self._progressed = True
        self._silent_bytes = 0
        body = self._body
        if len(body) + len(part) > self._limits.body_bytes:
            self._refuse(too_large(self._limits.body_bytes))
        if not body:
            self._body = part
        elif isinstance(body, bytearray):
            body += part
        else:
            self._body = bytearray(body)
            self._body += part

    def on_message_complete(self) -> None:
        if self._skipped_body:
            return
        request = self._request
        if self._body:
            request.body = bytes(self._body)
            self._body = b""
        self._ready.append(Exchange(request, self._modern))
        del self._request  # an idle connection must not keep it
        self._fields = []
        self.stage = BETWEEN
        self.awaits_continue = False
        if not self._keep_alive:
            self.finished = True


def headers_too_large() -> ApiError:
    return ApiError(431, "BadRequest", "request header fields too large")
