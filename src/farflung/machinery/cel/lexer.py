"""The tokens of CEL.

As in cel-go, invalid text is reported and skipped.  The issue has the text that was read and the first invalid
character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    kind: str  #: a symbol, or one of the names above
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
#: the beginning of a token before an invalid character
_BROKEN = re.compile(
    rf'"(?:[^\\"\n\r]|{_ESCAPE})*+'
    r"(?:\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?)?"
    rf"|'(?:[^\\'\n\r]|{_ESCAPE})*+"
    r"(?:\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?)?"
    r"|`[A-Za-z0-9_./ -]*|[&|=]|"
)


def tokens(text: str) -> tuple[list[Token], list[Issue]]:
    """All tokens, followed by END, and the issues."""
    found: list[Token] = []
    issues: list[Issue] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            broken = _BROKEN.match(text, at)
            assert broken is not None, "the last alternative always matches"
            end = min(broken.end() + 1, len(text))
            shown = text[at:end].replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
            issues.append(Issue(at, f"Syntax error: token recognition error at: '{shown}'"))
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


_RESERVED: Final = re.compile(r"no viable alternative at input '\.(true|false|null)'")


MAX_RECOVERIES: Final = 30


class UnparsableError(Exception):
    """A token that cannot be read.  The issues have the reason."""


class HopelessError(Exception):
    """The parser cannot go on at all.  Why is among the issues."""


class TokenStream:
    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens, self.issues = tokens(text)
        self._at = 0
        self._recovering = False
        self._recoveries = 0
        self._recovered_at = -1

    @property
    def current(self) -> Token:
        return self._tokens[self._at]

    def ahead(self, count: int) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        self._recovering = False
        return token

    def take_if(self, kind: str) -> Token | None:
        return self.take() if self.current.kind == kind else None

    def need_one_of(self, kinds: frozenset[str]) -> None:
        """See to it that the current token is one of these."""
        if self.current.kind in kinds:
            return
        if self.ahead(1).kind in kinds and self.current.kind != END:
            self._complain(f"extraneous input {quoted(self.current)} expecting {listed(kinds)}")
            self.take()
            return
        self._complain(f"mismatched input {quoted(self.current)} expecting {listed(kinds)}")
        raise UnparsableError

    def need(self, kind: str, after: frozenset[str] = frozenset()) -> Token:
        """Take a token of this kind.  If one of `after` is there instead, it was forgotten."""
        if self.current.kind == kind:
            return self.take()
        if self.ahead(1).kind == kind and self.current.kind != END:
            self._complain(f"extraneous input {quoted(self.current)} expecting {listed([kind])}")
            self.take()
            return self.take()
        if self.current.kind in after:
            self._complain(f"missing {listed([kind])} at {quoted(self.current)}")
            self._recovering = True
            return Token(kind, kind, self.current.offset)
        self._complain(f"mismatched input {quoted(self.current)} expecting {listed([kind])}")
        raise UnparsableError

    def unwanted(self, kinds: frozenset[str]) -> UnparsableError:
        self._complain(f"extraneous input {quoted(self.current)} expecting {listed(kinds)}")
        return UnparsableError()

    def dead_end(self, start: Token) -> UnparsableError:
        """Reports that the current token cannot follow `start`."""
        end = self.current.offset + (0 if self.current.kind == END else len(self.current.text))
        message = f"no viable alternative at input '{visible(self.text[start.offset : end])}'"
        self._complain(_RESERVED.sub(r"mismatched input '\1' expecting IDENTIFIER", message))
        return UnparsableError()

    def recover(self, follow: frozenset[str]) -> None:
        """Skip what cannot be read, up to something that may come after it."""
        if self._recoveries == MAX_RECOVERIES:
            self._recovering = False
            self._complain(f"error recovery attempt limit exceeded: {MAX_RECOVERIES}")
            raise HopelessError
        self._recoveries += 1
        if self._recovered_at == self._at:
            self.take()
        while self.current.kind not in follow and self.current.kind != END:
            self.take()
        self._recovered_at = self._at
        self._recovering = True

    def _complain(self, message: str) -> None:
        if not self._recovering:
            self.issues.append(Issue(self.current.offset, f"Syntax error: {message}"))


def quoted(token: Token) -> str:
    return f"'{visible(token.text)}'"


def visible(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def listed(kinds: Iterable[str]) -> str:
    names = [f"'{kind}'" if kind in SYMBOLS else kind for kind in sorted(kinds, key=lambda kind: RANK.get(kind, -1))]
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"
