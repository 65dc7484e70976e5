"""Texts as Go quotes them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from farflung.machinery.errors import go_quote

ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    if char == "\v":
        return "\\v"
    if char.isprintable():
        return char
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


@given(st.text(st.characters() | st.sampled_from('"\\\n\v\x00\x7f é\u2028\U000e0001')))
@example('plain "text" with a \\')
@example('"\\\n\u2028é\U000e0001')
def test_every_character_is_quoted_by_itself(text: str) -> None:
    assert go_quote(text) == f'"{"".join(map(quoted, text))}"'
