"""The tokens of CEL.

What is no token is reported and skipped, as the lexer of cel-go does: it names all that it has read, with the character
that could not follow.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from farflung.machinery.cel.errors import Issue

END: Final = "<EOF>"
IDENTIFIER: Final = "IDENTIFIER"
ESCAPED_IDENTIFIER: Final = "ESC_IDENTIFIER"
NUMBER_FLOAT: Final = "NUM_FLOAT"
NUMBER_INT: Final = "NUM_INT"
NUMBER_UINT: Final = "NUM_UINT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"

SYMBOLS: Final = (
    *("==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")"),
    *(".", ",", "-", "!", "?", ":", "+", "*", "/", "%", "true", "false", "null"),
)
#: kinds of tokens in the order in which messages list them
KINDS: Final = (
    *SYMBOLS,
    *(NUMBER_FLOAT, NUMBER_INT, NUMBER_UINT, STRING, BYTES, IDENTIFIER, ESCAPED_IDENTIFIER),
)
RANK: Final = {kind: rank for rank, kind in enumerate(KINDS)}
WORDS: Final = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    kind: str  #: a symbol itself, or one of the names above
    text: str
    offset: int


_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_TEXT = (
    rf'"""(?:[^\\]|{_ESCAPE})*?"""'
    rf"|'''(?:[^\\]|{_ESCAPE})*?'''"
    rf'|"(?:[^\\"\n\r]|{_ESCAPE})*+"'
    rf"|'(?:[^\\'\n\r]|{_ESCAPE})*+'"
    r'|[rR]"""(?s:.)*?"""'
    r"|[rR]'''(?s:.)*?'''"
    r'|[rR]"[^"\n\r]*+"'
    r"|[rR]'[^'\n\r]*+'"
)
_EXPONENT = r"[eE][+-]?[0-9]+"
_TOKEN = re.compile(
    r"(?P<hidden>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<BYTES>[bB](?:{_TEXT}))"
    rf"|(?P<STRING>{_TEXT})"
    rf"|(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT}|\.[0-9]+(?:{_EXPONENT})?)"
    r"|(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])"
    r"|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./ -]+`)"
    r"|(?P<symbol>==|!=|<=|>=|&&|\|\||[][{}().,!?:+*/%<>-])"
)
#: the beginning of a token that does not go on: what was read before the character that is wrong
_BROKEN = re.compile(
    rf'"(?:[^\\"\n\r]|{_ESCAPE})*+'
    r"(?:\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?)?"
    rf"|'(?:[^\\'\n\r]|{_ESCAPE})*+"
    r"(?:\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?)?"
    r"|`[A-Za-z0-9_./ -]*|[&|=]|"
)


def tokens(text: str) -> tuple[list[Token], list[Issue]]:
    """All tokens, ended by one that is END, and what could not be read."""
    found: list[Token] = []
    issues: list[Issue] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            end = _broken_end(text, at)
            issues.append(Issue(at, f"Syntax error: token recognition error at: '{_visible(text[at:end])}'"))
            at = end
            continue
        at = match.end()
        kind = match.lastgroup
        if kind == "hidden":
            continue
        word = match.group()
        found.append(Token(word if kind == "symbol" or word in WORDS else str(kind), word, match.start()))
    found.append(Token(END, END, len(text)))
    return found, issues


def _broken_end(text: str, at: int) -> int:
    match = _BROKEN.match(text, at)
    assert match is not None, "the last alternative matches always"
    return min(match.end() + 1, len(text))


def _visible(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
