"""Validation of names, with the messages of Kubernetes; and the order of API versions.

Every check takes a text and returns a sequence of error messages, empty for a valid text.  A valid name
costs one length comparison and one match of a compiled pattern; messages are built only for invalid ones.
Lengths are counted in bytes of UTF-8, as Go counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

Check = Callable[[str], Sequence[str]]

GOOD: Final[Sequence[str]] = ()

DNS_LABEL_LENGTH: Final = 63
DNS_SUBDOMAIN_LENGTH: Final = 253
LABEL_VALUE_LENGTH: Final = 63
QUALIFIED_NAME_LENGTH: Final = 63  #: of the part behind the slash
PORT_NAME_LENGTH: Final = 15

_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN: Final = _DNS_LABEL + r"(\." + _DNS_LABEL + ")*"
_QUALIFIED_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"

# The same languages for matching: possessive, so that the matcher never backtracks in a long hostile text.
_FAST_LABEL: Final = "[a-z0-9]++(?:-++[a-z0-9]++)*+"
_FAST_SUBDOMAIN: Final = rf"{_FAST_LABEL}(?:\.{_FAST_LABEL})*+"
_FAST_QUALIFIED: Final = "[A-Za-z0-9]++(?:[-_.]++[A-Za-z0-9]++)*+"


def size(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def at_most(limit: int) -> str:
    return f"must be no more than {limit} characters"


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def _pattern_message(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _matching(pattern: str, limit: int, message: str) -> Check:
    """The check of a text that fully matches a pattern and is not longer than the limit."""
    matches = re.compile(pattern).fullmatch

    def check(text: str) -> Sequence[str]:
        if len(text) <= limit and matches(text):
            return GOOD
        wrong = [at_most(limit)] if size(text) > limit else []
        if not matches(text):
            wrong.append(message)
        return wrong

    return check


# --- names of objects -----------------------------------------------------------------------------

_matches_dns_label: Final = re.compile(_FAST_LABEL).fullmatch
_matches_dns_subdomain: Final = re.compile(_FAST_SUBDOMAIN).fullmatch
_NOT_A_DNS_LABEL: Final = _pattern_message(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    _DNS_LABEL,
    "my-name",
    "123-abc",
)


def dns_label(text: str) -> Sequence[str]:
    """A label of RFC 1123: the name of a Namespace."""
    if len(text) <= DNS_LABEL_LENGTH and _matches_dns_label(text):
        return GOOD
    wrong = [at_most(DNS_LABEL_LENGTH)] if size(text) > DNS_LABEL_LENGTH else []
    if not _matches_dns_label(text):
        wrong.append("must not contain dots" if _matches_dns_subdomain(text) else _NOT_A_DNS_LABEL)
    return wrong


#: Labels of RFC 1123 separated by dots: the name of most objects.
dns_subdomain: Final = _matching(
    _FAST_SUBDOMAIN,
    DNS_SUBDOMAIN_LENGTH,
    _pattern_message(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character",
        _DNS_SUBDOMAIN,
        "example.com",
    ),
)

#: A label of RFC 1035, which starts with a letter: the name of a Service.
dns_1035_label: Final = _matching(
    f"(?=[a-z]){_FAST_LABEL}",
    DNS_LABEL_LENGTH,
    _pattern_message(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character",
        "[a-z]([-a-z0-9]*[a-z0-9])?",
        "my-name",
        "abc-123",
    ),
)

#: `*.example.com`
wildcard_subdomain: Final = _matching(
    r"\*\." + _FAST_SUBDOMAIN,
    DNS_SUBDOMAIN_LENGTH,
    _pattern_message(
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
        "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
        r"\*\." + _DNS_SUBDOMAIN,
        "*.example.com",
    ),
)

_matches_path_segment: Final = re.compile(r"(?!\.\.?\Z)[^/%]*", re.DOTALL).fullmatch


def path_segment(text: str) -> Sequence[str]:
    """Any segment of a URL path: the name of a Role."""
    if _matches_path_segment(text):
        return GOOD
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return [f"may not contain '{char}'" for char in "/%" if char in text]


def masked(generate_name: str) -> str:
    """A generateName for name checks, without its trailing dash."""
    if len(generate_name) > 1 and generate_name.endswith("-"):
        return generate_name[:-2] + "a"
    return generate_name


# --- labels, annotations, finalizers --------------------------------------------------------------

_matches_qualified: Final = re.compile(
    f"(?:(?=[^/]{{1,{DNS_SUBDOMAIN_LENGTH}}}/){_FAST_SUBDOMAIN}/)?(?=[^/]{{1,{QUALIFIED_NAME_LENGTH}}}\\Z){_FAST_QUALIFIED}"
).fullmatch
_matches_name_part: Final = re.compile(_FAST_QUALIFIED).fullmatch
_NAME_PART: Final = _pattern_message(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED_NAME,
    "MyName",
    "my.name",
    "123-abc",
)


def qualified_name(text: str) -> Sequence[str]:
    """A name with an optional DNS prefix, `example.com/name`: a label's key."""
    if _matches_qualified(text):
        return GOOD
    prefix, slash, name = text.partition("/")
    if not slash:
        return _wrong_name_part(text)
    if "/" in name:
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a qualified name {_NAME_PART}{optional}",)
    if not prefix:
        return ["prefix part must be non-empty", *_wrong_name_part(name)]
    return [*(f"prefix part {message}" for message in dns_subdomain(prefix)), *_wrong_name_part(name)]


def _wrong_name_part(name: str) -> list[str]:
    wrong = []
    if not name:
        wrong.append("name part must be non-empty")
    elif size(name) > QUALIFIED_NAME_LENGTH:
        wrong.append(f"name part {at_most(QUALIFIED_NAME_LENGTH)}")
    if not _matches_name_part(name):
        wrong.append(f"name part {_NAME_PART}")
    return wrong


#: The value of a label.
label_value: Final = _matching(
    f"(?:{_FAST_QUALIFIED})?",
    LABEL_VALUE_LENGTH,
    _pattern_message(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character",
        f"({_QUALIFIED_NAME})?",
        "MyValue",
        "my_value",
        "12345",
    ),
)

ORPHAN: Final = "orphan"  #: the garbage collector's finalizers: dependents are orphaned first …
FOREGROUND: Final = "foregroundDeletion"  #: … or deleted first
#: finalizers that need no prefix
STANDARD_FINALIZERS: Final = frozenset({"kubernetes", ORPHAN, FOREGROUND})


def finalizer(text: str) -> Sequence[str]:
    """The finalizer of a built-in kind contains a slash, or is one of Kubernetes' own."""
    if "/" in text or text in STANDARD_FINALIZERS:
        return GOOD
    return ("name is neither a standard finalizer name nor is it fully qualified",)


# --- keys, variables, ports -----------------------------------------------------------------------

_matches_plain_key: Final = re.compile("(?!\\.)" + _CONFIG_KEY).fullmatch
_config_key_letters: Final = _matching(
    _CONFIG_KEY,
    DNS_SUBDOMAIN_LENGTH,
    _pattern_message(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        _CONFIG_KEY,
        "key.name",
        "KEY_NAME",
        "key-name",
    ),
)


def config_key(text: str) -> Sequence[str]:
    """A key of a ConfigMap or Secret, which may become a file's name."""
    if len(text) <= DNS_SUBDOMAIN_LENGTH and _matches_plain_key(text):
        return GOOD
    errors = list(_config_key_letters(text))
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors


_matches_variable: Final = re.compile("[ -<>-~]+").fullmatch


def environment_variable(text: str) -> Sequence[str]:
    """The name of an environment variable of a container."""
    if _matches_variable(text):
        return GOOD
    if not text:
        return ("environment variable name must be non-empty",)
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


_matches_c_identifier: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*").fullmatch


def c_identifier(text: str) -> Sequence[str]:
    if _matches_c_identifier(text):
        return GOOD
    message = (
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
        "characters or '_'"
    )
    return (_pattern_message(message, "[A-Za-z_][A-Za-z0-9_]*", "my_name", "MY_NAME", "MyName"),)


_matches_header: Final = re.compile("[-A-Za-z0-9]+").fullmatch


def http_header(text: str) -> Sequence[str]:
    """The name of an HTTP header of a probe."""
    if _matches_header(text):
        return GOOD
    message = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return (_pattern_message(message, "[-A-Za-z0-9]+", "X-Header-Name"),)


_matches_percent: Final = re.compile("[0-9]+%").fullmatch


def percent(text: str) -> Sequence[str]:
    if _matches_percent(text):
        return GOOD
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return (_pattern_message(message, "[0-9]+%", "1%", "93%"),)


_matches_port_name: Final = re.compile("(?=[-0-9]*+[a-z])[a-z0-9]++(?:-[a-z0-9]++)*+").fullmatch
_matches_port_letters: Final = re.compile("[-a-z0-9]+").fullmatch
_finds_letter: Final = re.compile("[a-z]").search


def port_name(text: str) -> Sequence[str]:
    """The name of a container's port (RFC 6335)."""
    if len(text) <= PORT_NAME_LENGTH and _matches_port_name(text):
        return GOOD
    wrong = [at_most(PORT_NAME_LENGTH)] if size(text) > PORT_NAME_LENGTH else []
    if not _matches_port_letters(text):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _finds_letter(text):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in text:
        wrong.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        wrong.append("must not begin or end with a hyphen")
    return wrong


def port_number(number: int) -> Sequence[str]:
    return GOOD if 1 <= number <= 65535 else (between(1, 65535),)


# --- versions -----------------------------------------------------------------------------------


_VERSION: Final = re.compile(r"v([1-9][0-9]{0,17})(?:(alpha|beta)([1-9][0-9]{0,17}))?", re.ASCII).fullmatch
_STABILITY: Final = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, str]:
    """v2, v1, v1beta2, v1beta1, v1alpha1, then other texts in alphabetical order."""
    match = _VERSION(version)
    if match is None:
        return len(_STABILITY), 0, 0, version
    major, stability, minor = match.groups()
    return _STABILITY[stability], -int(major), -int(minor or 0), version
