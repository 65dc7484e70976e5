"""Names: the messages of a Kubernetes API server, and its patterns as the oracle of ours."""

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farflung.machinery import names

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("check", "text", "messages"),
    [
        (names.dns_subdomain, "1.2.3", []),
        (names.dns_subdomain, "a" * 253, []),
        (names.dns_subdomain, "a" * 254, ["must be no more than 253 characters"]),
        (names.dns_subdomain, "UPPER", [SUBDOMAIN]),
        (names.dns_subdomain, "a..b", [SUBDOMAIN]),
        (names.dns_subdomain, "", [SUBDOMAIN]),
        (names.dns_subdomain, "a\n", [SUBDOMAIN]),
        (names.dns_subdomain, "é" * 200, ["must be no more than 253 characters", SUBDOMAIN]),
        (names.dns_label, "n" * 64, ["must be no more than 63 characters"]),
        (names.dns_label, "a.b", ["must not contain dots"]),
        (names.dns_label, "ABC", [LABEL]),
        (names.dns_1035_label, "1svc", [DNS_1035]),
        (names.path_segment, "system:node", []),
        (names.path_segment, "a/b%c", ["may not contain '/'", "may not contain '%'"]),
        (names.path_segment, "..", ["may not be '..'"]),
        (names.path_segment, "a\nb", []),
        (names.qualified_name, "example.com/X_y.z-1", []),
        (names.qualified_name, "a b", [f"name part {NAME_PART}"]),
        (names.qualified_name, "A_/x", [f"prefix part {SUBDOMAIN}"]),
        (names.qualified_name, "/x", ["prefix part must be non-empty"]),
        (names.qualified_name, "x/", ["name part must be non-empty", f"name part {NAME_PART}"]),
        (names.qualified_name, "", ["name part must be non-empty", f"name part {NAME_PART}"]),
        (names.qualified_name, "a" * 64, ["name part must be no more than 63 characters"]),
        (
            names.qualified_name,
            "a/b/c",
            [f"a qualified name {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
        ),
        (names.label_value, "", []),
        (names.label_value, "x y", [LABEL_VALUE]),
        (names.label_value, "x" * 64, ["must be no more than 63 characters"]),
        (names.config_key, "..data", ["must not start with '..'"]),
        (names.config_key, ".hidden", []),
        (names.config_key, "..", ["must not be '..'"]),
        (names.config_key, "a/b", [CONFIG_KEY]),
        (names.environment_variable, "A.b-c d", []),
        (names.environment_variable, "", ["environment variable name must be non-empty"]),
        (
            names.environment_variable,
            "A=B",
            ["a valid environment variable name must consist only of printable ASCII characters other than '='"],
        ),
        (names.port_name, "http-2", []),
        (names.port_name, "-80--", [
            "must contain at least one letter (a-z)",
            "must not contain consecutive hyphens",
            "must not begin or end with a hyphen",
        ]),
        (names.finalizer, "orphan", []),
        (names.finalizer, "short", ["name is neither a standard finalizer name nor is it fully qualified"]),
    ],
)  # fmt: skip
def test_a_name_is_judged_in_kubernetes_words(check: names.Check, text: str, messages: list[str]) -> None:
    assert list(check(text)) == messages


@pytest.mark.parametrize(("number", "good"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_a_port_is_between_1_and_65535(number: int, good: bool) -> None:
    assert list(names.port_number(number)) == ([] if good else ["must be between 1 and 65535, inclusive"])


@pytest.mark.parametrize(
    ("prefix", "seen"), [("gen-", "gea"), ("gen", "gen"), ("-", "-"), ("a-", "a"), ("", ""), ("Gen_", "Gen_")]
)
def test_the_dash_a_prefix_ends_with_is_not_the_end_of_a_name(prefix: str, seen: str) -> None:
    assert names.masked(prefix) == seen


# --- the patterns that messages show, tried on the same texts ------------------------------------

LETTERS = st.text(alphabet="aZ0-_./%=é\n*", max_size=12) | st.text(string.ascii_lowercase + "-.", max_size=70)


def shown_pattern(pattern: str, limit: int, text: str) -> bool:
    return len(text.encode()) <= limit and re.fullmatch(pattern, text) is not None


@given(LETTERS)
@example("a" * 63)
@example("a" * 64)
def test_fast_patterns_accept_what_the_patterns_in_the_messages_accept(text: str) -> None:
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    subdomain = rf"{label}(\.{label})*"
    part = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    assert (not names.dns_label(text)) == shown_pattern(label, 63, text)
    assert (not names.dns_subdomain(text)) == shown_pattern(subdomain, 253, text)
    assert (not names.dns_1035_label(text)) == shown_pattern("[a-z]([-a-z0-9]*[a-z0-9])?", 63, text)
    assert (not names.wildcard_subdomain(text)) == shown_pattern(rf"\*\.{subdomain}", 253, text)
    assert (not names.label_value(text)) == shown_pattern(f"({part})?", 63, text)
    assert (not names.qualified_name(text)) == is_qualified(text, subdomain, part)


def is_qualified(text: str, subdomain: str, part: str) -> bool:
    *prefix, name = text.split("/")
    if len(prefix) > 1 or not shown_pattern(part, 63, name):
        return False
    return not prefix or shown_pattern(subdomain, 253, prefix[0])


@given(LETTERS)
def test_path_segments_hold_no_slash_and_no_percent_and_are_no_dots(text: str) -> None:
    assert (not names.path_segment(text)) == (text not in (".", "..") and "/" not in text and "%" not in text)


@given(LETTERS)
def test_port_names_are_letters_digits_and_single_inner_hyphens(text: str) -> None:
    plain = (
        0 < len(text) <= 15
        and set(text) <= set(string.ascii_lowercase + string.digits + "-")
        and any(char in string.ascii_lowercase for char in text)
        and "--" not in text
        and text.strip("-") == text
    )
    assert (not names.port_name(text)) == plain
