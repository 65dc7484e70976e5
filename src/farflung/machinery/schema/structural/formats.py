"""String formats and patterns that Kubernetes validates in custom resources.  Other formats are ignored."""

from __future__ import annotations

import ipaddress
import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

import re2

from farflung.machinery import names

Check = Callable[[str], bool]


def known(name: Any) -> str:
    """The name of a format that is validated; empty for others."""
    return name if isinstance(name, str) and name.replace("-", "") in CHECKS else ""


def check_of(name: str) -> Check:
    """The check of a known format."""
    return CHECKS[name.replace("-", "")]


def _matching(pattern: str, flags: int = 0) -> Check:
    compiled = re.compile(pattern, re.ASCII | flags)
    return lambda text: compiled.fullmatch(text) is not None


# --- time -----------------------------------------------------------------------------------------

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DATE_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    return match is not None and _is_day(*match.groups())


def is_date_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = match.groups()
    return hour <= "23" and minute <= "59" and second <= "59" and _is_day(year, month, day)


def _is_day(year: str, month: str, day: str) -> bool:
    if "01" <= day <= "28" and "01" <= month <= "12":
        return True
    try:
        date(int(year) or 4, int(month), int(day))  # the year 0 was a leap year
    except ValueError:
        return False
    return True


_GO_DURATION: Final = re.compile(r"[-+]?(?:0|(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:ns|us|µs|μs|ms|s|m|h))++)")
_WORDY: Final = re.compile(r"\s*+(?:[0-9]++\s*+[A-Za-zµ]++\s*+)++", re.ASCII)
_NUMBER_AND_UNIT: Final = re.compile(r"[0-9]++\s*+([A-Za-zµ]++)", re.ASCII)
_UNITS: Final = frozenset({"ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"})
_UNIT_STEMS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def is_duration(text: str) -> bool:
    """`1h5m` as Go reads it, or `3 days`."""
    if _GO_DURATION.fullmatch(text):
        return True
    if not _WORDY.fullmatch(text):
        return False
    units = (match[1].lower() for match in _NUMBER_AND_UNIT.finditer(text))
    return any(unit in _UNITS or unit.startswith(_UNIT_STEMS) for unit in units)


# --- the net --------------------------------------------------------------------------------------


def _is_dotted(text: str) -> bool:
    """Four numbers, with or without leading zeros."""
    if text.count(".") != 3 or not text.isascii():
        return False
    parts = [part.lstrip("0") or "0" for part in text.split(".") if part.isdigit()]
    return len(parts) == 4 and all(len(part) <= 3 and int(part) <= 255 for part in parts)


def _is_colonned(text: str) -> bool:
    head, colon, tail = text.rpartition(":")
    if colon and "." in tail:
        if not _is_dotted(tail):
            return False
        text = f"{head}:0:0"
    if "%" in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_ip(text: str) -> bool:
    return _is_colonned(text) if ":" in text else _is_dotted(text)


def is_ipv4(text: str) -> bool:
    return "." in text and is_ip(text)


def is_ipv6(text: str) -> bool:
    return ":" in text and is_ip(text)


def is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not is_ip(address) or not (bits.isascii() and bits.isdigit()) or len(bits) > 6:
        return False
    return int(bits) <= (128 if ":" in address else 32)


_MACS: Final = re.compile(
    "|".join(f"[0-9A-Fa-f]{{2}}(?:{mark}[0-9A-Fa-f]{{2}}){{{count - 1}}}" for mark in ":-" for count in (6, 8, 20))
    + "|"
    + "|".join(rf"[0-9A-Fa-f]{{4}}(?:\.[0-9A-Fa-f]{{4}}){{{count - 1}}}" for count in (3, 4, 10))
)


def is_mac(text: str) -> bool:
    return _MACS.fullmatch(text) is not None


def is_hostname(text: str) -> bool:
    """Labels with dots between; letters and symbols of all scripts are fine, and the last label has letters alone."""
    labels = text.split(".")
    if names.size(text) > 255 or any(names.size(label) > 63 for label in labels):
        return False
    if len(labels) == 1:
        return _is_word(text[:1]) and (len(text) == 1 or _is_word(text[1:].removeprefix("-") or "x"))
    *others, last = labels
    has_letters_alone = len(last) > 1 and all(unicodedata.category(char)[0] == "L" for char in last)
    return has_letters_alone and all(map(_is_label, others))


def _is_word(text: str) -> bool:
    return bool(text) and all(char in ASCII_WORD or unicodedata.category(char)[0] in "LS" for char in text)


def _is_label(text: str) -> bool:
    return _is_word(text[:1]) and _is_word(text[-1:]) and _is_word(text.replace("-", ""))


ASCII_WORD: Final = frozenset(string.ascii_letters + string.digits)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_HOST: Final = re.compile(r"(?:\[[^\]\[]*\]|[^\]\[:<>\" \\^`{|}]*)(?::[0-9]*)?")


def is_uri(text: str) -> bool:
    """An absolute URI or an absolute path."""
    if not text or _CONTROL.search(text):
        return False
    scheme = _SCHEME.fullmatch(text)
    rest = scheme[2] if scheme else text
    if not rest.startswith("/"):
        return scheme is not None or text == "*"
    rest = rest.partition("?")[0]
    if scheme and rest.startswith("//"):
        authority, slash, rest = rest[2:].partition("/")
        if not _is_authority(authority):
            return False
        rest = slash + rest
    return not _BAD_ESCAPE.search(rest)


def _is_authority(authority: str) -> bool:
    user, _, host = authority.rpartition("@")
    if _BAD_ESCAPE.search(authority) or not _USER.fullmatch(user):
        return False
    return _HOST.fullmatch(host) is not None and not any(ord(char) < 0x20 for char in unquote(host))


_ATOM: Final = r'[^\x00-\x20"(),.:;<>@\[\\\]\x7f]++'  # a set that ends at U+10FFFF takes 14 ms to compile
_DOT_ATOM: Final = rf"{_ATOM}(?:\.{_ATOM})*+"
_QUOTED: Final = r'"(?:[^"\\\x00-\x08\x0b-\x1f\x7f]|\\[\t -~])*+"'
_LITERAL: Final = r"\[[!-Z^-~]*+\]"
_ADDRESS: Final = rf"(?:{_DOT_ATOM}|{_QUOTED})@(?:{_DOT_ATOM}|{_LITERAL})"
_WORD: Final = rf"(?:{_DOT_ATOM}\.?+|{_QUOTED})"
_EMAIL: Final = re.compile(rf"[ \t]*+(?:{_ADDRESS}|(?:{_WORD}[ \t]*+)*+<[ \t]*+{_ADDRESS}[ \t]*+>)[ \t]*+")


def is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None


# --- numbers of things ----------------------------------------------------------------------------

_ISBN_MARKS: Final = re.compile(r"[\s-]+", re.ASCII)
_ISBN_10: Final = re.compile(r"[0-9]{9}[0-9X]")
_ISBN_13: Final = re.compile(r"[0-9]{13}")


def is_isbn10(text: str) -> bool:
    digits = _ISBN_MARKS.sub("", text)
    if not _ISBN_10.fullmatch(digits):
        return False
    return sum((10 - at) * (10 if digit == "X" else int(digit)) for at, digit in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = _ISBN_MARKS.sub("", text)
    if not _ISBN_13.fullmatch(digits):
        return False
    return sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits)) % 10 == 0


_NO_DIGITS: Final = re.compile(r"[^0-9]+")
_CARD: Final = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    r"|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def is_credit_card(text: str) -> bool:
    digits = _NO_DIGITS.sub("", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = (int(digit) * (2 if at % 2 else 1) for at, digit in enumerate(reversed(digits)))
    return sum(number // 10 + number % 10 for number in doubled) % 10 == 0


_BYTE: Final = r"(?:0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_UUID: Final = "[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{}-?{}-?[0-9a-f]{{12}}"
_FOUR: Final = "[0-9a-f]{4}"
_VARIANT: Final = "[89ab][0-9a-f]{3}"


def _uuid(third: str, fourth: str) -> Check:
    return _matching(_UUID.format(third, fourth), re.IGNORECASE)


#: by name without dashes
CHECKS: Final[Mapping[str, Check]] = {
    "bsonobjectid": _matching("[0-9a-fA-F]{24}"),
    "byte": _matching(r"(?!\Z)(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?+"),
    "cidr": is_cidr,
    "creditcard": is_credit_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": is_duration,
    "email": is_email,
    "hexcolor": _matching("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "k8slongname": lambda text: not names.dns_subdomain(text),
    "k8sshortname": _matching("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "mac": is_mac,
    "password": lambda text: True,
    "rgbcolor": _matching(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": _matching("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "uri": is_uri,
    "uuid": _uuid(_FOUR, _FOUR),
    "uuid3": _uuid("3[0-9a-f]{3}", _FOUR),
    "uuid4": _uuid("4[0-9a-f]{3}", _VARIANT),
    "uuid5": _uuid("5[0-9a-f]{3}", _VARIANT),
}


# --- patterns -----------------------------------------------------------------------------------


MAX_REMEMBERED: Final = 256  #: texts of a pattern; few are used again and again
LONGEST_REMEMBERED: Final = 64


class SchemaPattern:
    """A pattern that matches anywhere in a text.  An invalid one matches nothing, and has the reason in `why`."""

    __slots__ = ("_known", "_search", "text", "why")

    def __init__(self, text: str) -> None:
        self.text = text
        self.why = ""  #: the compile error
        self._known: set[str] = set()  # that match: calling RE2 costs as much as the other checks of an object
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        self._search: Callable[[bytes], Any] = nothing
        try:
            self._search = re2.compile(text.encode("utf-8", "surrogatepass"), options).search
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            self.why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)

    def matches(self, text: str) -> bool:
        known = self._known
        if text in known:
            return True
        if self._search(text.encode("utf-8", "surrogatepass")) is None:
            return False
        if len(text) <= LONGEST_REMEMBERED and len(known) < MAX_REMEMBERED:
            known.add(text)
        return True


def nothing(text: bytes) -> None:
    return None


def pattern_problem(text: str) -> str:
    """The compile error of a pattern; empty if it is valid."""
    return SchemaPattern(text).why
