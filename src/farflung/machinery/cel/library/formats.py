"""`format.dns1123Label().validate('x')`: the named formats of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from farflung.machinery import names
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.types import NAMED_FORMAT
from farflung.machinery.cel.language.values import NONE, EvaluationError, OptionalValue
from farflung.machinery.cel.library.moments import date_of
from farflung.machinery.cel.library.urls import URLError, _parse
from farflung.machinery.errors import go_quote

_UUID: Final = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_BASE64: Final = re.compile("(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
_TIME: Final = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)

Check = Callable[[str], Sequence[str]]


class NamedFormat:
    __slots__ = ("check", "name")
    TYPE_NAME: Final = NAMED_FORMAT.name

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self.check = check

    def __eq__(self, other: object) -> bool:
        return type(other) is NamedFormat and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _as_prefix(check: Check) -> Check:
    return lambda text: check(names.masked(text))


def _uri(text: str) -> Sequence[str]:
    try:
        _parse(text, of_request=True)
    except URLError as error:
        return (f"parse {go_quote(text[:1000])}: {error}",)
    return ()


def _matching(matches: Callable[[str], object], complaint: str) -> Check:
    return lambda text: () if matches(text) else (complaint,)


def is_date(text: str) -> bool:
    try:
        date_of(text)
    except EvaluationError:
        return False
    return True


def is_datetime(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    match = _TIME.fullmatch(time)
    return is_date(day) and match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


_DEFINED: Final[tuple[tuple[str, Check], ...]] = (
    ("dns1123Label", names.dns_label),
    ("dns1123Subdomain", names.dns_subdomain),
    ("dns1035Label", names.dns_1035_label),
    ("qualifiedName", names.qualified_name),
    ("dns1123LabelPrefix", _as_prefix(names.dns_label)),
    ("dns1123SubdomainPrefix", _as_prefix(names.dns_subdomain)),
    ("dns1035LabelPrefix", _as_prefix(names.dns_1035_label)),
    ("labelValue", names.label_value),
    ("uri", _uri),
    ("uuid", _matching(_UUID.fullmatch, "does not match the UUID format")),
    ("byte", _matching(lambda text: text and _BASE64.fullmatch(text), "invalid base64")),
    ("date", _matching(is_date, "invalid date")),
    ("datetime", _matching(is_datetime, "invalid datetime")),
)
FORMATS: Final = {name: NamedFormat(name, check) for name, check in _DEFINED}


def named(name: str) -> OptionalValue:
    return OptionalValue(FORMATS[name]) if name in FORMATS else NONE


def validate(meter: Meter, named_format: NamedFormat, text: str) -> OptionalValue:
    """The error messages for a text."""
    meter.work(4 * len(text))
    wrong = named_format.check(text)
    return OptionalValue(list(wrong)) if wrong else NONE


def _constant(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


LIBRARY: Final[tuple[Function, ...]] = (
    overload(
        ".validate",
        "format-validate",
        "kubernetes.NamedFormat, string -> optional_type(list(string))",
        Metered(validate),
    ),
    overload("format.named", "format-named", "string -> optional_type(kubernetes.NamedFormat)", named),
    *(
        overload(f"format.{name}", f"format.{name}", "-> kubernetes.NamedFormat", _constant(value))
        for name, value in FORMATS.items()
    ),
)
