"""`url(…)` and its parts, read as Go's net/url reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from farflung.machinery.cel.language.budget import SLOW, Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.types import URL as URL_TYPE
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import costs
from farflung.machinery.errors import go_quote

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_NOT_IN_HOST: Final = re.compile(r"[\x00-\x20#/?@\\^`{|}\x7f]")
_ASCII_ESCAPE_IN_HOST: Final = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")
_USERINFO: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9._~$&+,/:;=@-]*")
_ENCODED_PATH: Final = re.compile(r"[A-Za-z0-9._~$&+,/:;=@!'()*\[\]%-]*")
_KEPT_IN_PATH: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")


class URLError(ValueError):
    """A text that is no URL; its message is Go's."""


@dataclass(frozen=True, slots=True)
class URL:
    scheme: str
    host: str
    path: str  #: escaped
    query: str  #: not decoded
    text: str

    TYPE_NAME: ClassVar[str] = URL_TYPE.name

    @property
    def hostname(self) -> str:
        host = self._host_and_port()[0]
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        return self._host_and_port()[1]

    def _host_and_port(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        return (host, port) if colon and _PORT.fullmatch(f":{port}") else (self.host, "")

    def values(self) -> dict[str, list[str]]:
        """The parameters of the query; invalid ones are omitted."""
        values: dict[str, list[str]] = {}
        for pair in self.query.split("&"):
            if not pair or ";" in pair:
                continue
            key, _, value = pair.partition("=")
            if not _ESCAPE.search(key) and not _ESCAPE.search(value):
                values.setdefault(_unescaped(key.replace("+", " ")), []).append(_unescaped(value.replace("+", " ")))
        return values


def parse(text: str) -> URL:
    """Parses a URL as a request's target: absolute, or a path.  Raises URLError."""
    try:
        _parse(text, of_request=True)
        return _parse(text.partition("#")[0], of_request=False)
    except URLError as error:
        raise URLError(f"parse {go_quote(text[:1000])}: {error}") from None


def _parse(text: str, *, of_request: bool) -> URL:
    if _CONTROL.search(text):
        raise URLError("net/url: invalid control character in URL")
    if not text and of_request:
        raise URLError("empty url")
    if text == "*":
        return URL("", "", "*", "", text)
    if text.startswith(":"):
        raise URLError("missing protocol scheme")
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return URL(scheme, "", "", query, text)
        if of_request:
            raise URLError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise URLError("first path segment in URL cannot contain colon")
    host = ""
    if rest.startswith("//") and (scheme or (not of_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _host(authority), slash + path
    return URL(scheme, host, _escaped_path(rest), query, text)


def _host(authority: str) -> str:
    userinfo, _, host = authority.rpartition("@")
    if not _USERINFO.fullmatch(userinfo):
        raise URLError("net/url: invalid userinfo")
    _check_escapes(userinfo)
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise URLError("missing ']' in host")
        port = host[end + 1 :]
    else:
        port = host[host.rfind(":") :] if ":" in host else ""
    if not _PORT.fullmatch(port):
        raise URLError(f"invalid port {go_quote(port)} after host")
    _check_escapes(host)
    if bad := _ASCII_ESCAPE_IN_HOST.search(host):
        raise URLError(f"invalid URL escape {go_quote(bad[0])}")
    if bad := _NOT_IN_HOST.search(host):
        raise URLError(f"invalid character {go_quote(bad[0])} in host name")
    return _unescaped(host)


def _check_escapes(text: str) -> None:
    if bad := _ESCAPE.search(text):
        raise URLError(f"invalid URL escape {go_quote(bad[0])}")


def _escaped_path(path: str) -> str:
    _check_escapes(path)
    if _PLAIN_PATH.fullmatch(path) or _ENCODED_PATH.fullmatch(path):
        return path
    return "".join(chr(byte) if byte in _KEPT_IN_PATH else f"%{byte:02X}" for byte in _bytes(path))


def _bytes(text: str) -> bytes:
    parts = _ESCAPED.split(text)
    out = []
    for index, part in enumerate(parts):
        out.append(bytes.fromhex(part) if index % 2 else part.encode("utf-8", "surrogatepass"))
    return b"".join(out)


def _unescaped(text: str) -> str:
    return _bytes(text).decode("utf-8", "replace") if "%" in text else text


# --- functions ------------------------------------------------------------------------------------


def to_url(text: str) -> URL:
    try:
        return parse(text)
    except URLError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None


def is_url(meter: Meter, text: str) -> bool:
    meter.work(SLOW * len(text))
    try:
        _parse(text, of_request=True)
    except URLError:
        return False
    return True


def query_of(meter: Meter, url: URL) -> dict[str, list[str]]:
    meter.work(SLOW * len(url.query))
    return url.values()


LIBRARY: Final[tuple[Function, ...]] = (
    overload("url", "string_to_url", "string -> kubernetes.URL", to_url, costs.of_text),
    overload("isURL", "is_url_string", "string -> bool", Metered(is_url)),
    overload(".getScheme", "url_get_scheme", "kubernetes.URL -> string", lambda url: url.scheme),
    overload(".getHost", "url_get_host", "kubernetes.URL -> string", lambda url: url.host),
    overload(".getHostname", "url_get_hostname", "kubernetes.URL -> string", lambda url: url.hostname),
    overload(".getPort", "url_get_port", "kubernetes.URL -> string", lambda url: url.port),
    overload(".getEscapedPath", "url_get_escaped_path", "kubernetes.URL -> string", lambda url: url.path),
    overload(".getQuery", "url_get_query", "kubernetes.URL -> map(string, list(string))", Metered(query_of)),
)
