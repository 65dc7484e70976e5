"""Tokens one after the other, with the repairs and the complaints of cel-go's parser (that is, ANTLR's).

A token too many is skipped and one that is missing is made up, so that what is wrong after it is told as well; after
any other mistake `UnparsableError` is raised, and whoever can go on calls `recover`.  Until a token fits again, nothing
more is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from farflung.machinery.cel.errors import Issue
from farflung.machinery.cel.lexer import END, RANK, SYMBOLS, Token, tokens

_RESERVED: Final = re.compile(r"no viable alternative at input '\.(true|false|null)'")


MOST_RECOVERIES: Final = 30


class UnparsableError(Exception):
    """What was begun cannot be read.  Why is among the issues."""


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
        """What began with `start` cannot go on with the current token."""
        end = self.current.offset + (0 if self.current.kind == END else len(self.current.text))
        message = f"no viable alternative at input '{visible(self.text[start.offset : end])}'"
        self._complain(_RESERVED.sub(r"mismatched input '\1' expecting IDENTIFIER", message))
        return UnparsableError()

    def recover(self, follow: frozenset[str]) -> None:
        """Skip what cannot be read, up to something that may come after it."""
        if self._recoveries == MOST_RECOVERIES:
            self._recovering = False
            self._complain(f"error recovery attempt limit exceeded: {MOST_RECOVERIES}")
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
