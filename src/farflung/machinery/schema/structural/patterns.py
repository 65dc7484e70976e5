"""Regular expressions of schemas: RE2's language, which is Go's, matched in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2

MOST_REMEMBERED: Final = 256  #: texts of a pattern; few are used again and again
LONGEST_REMEMBERED: Final = 64


class SchemaPattern:
    """A pattern that is looked for anywhere in a text.  One that cannot be compiled matches nothing, and says why."""

    __slots__ = ("_known", "_search", "text", "why")

    def __init__(self, text: str) -> None:
        self.text = text
        self.why = ""  #: what is wrong with it
        self._known: set[str] = set()  # that match: a call into RE2 costs as much as the rest of an object
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        self._search: Callable[[bytes], Any] = nothing
        try:
            self._search = re2.compile(text.encode("utf-8", "surrogatepass"), options).search
        except re2.error as error:
            self.why = _why(error)

    def matches(self, text: str) -> bool:
        known = self._known
        if text in known:
            return True
        if self._search(text.encode("utf-8", "surrogatepass")) is None:
            return False
        if len(text) <= LONGEST_REMEMBERED and len(known) < MOST_REMEMBERED:
            known.add(text)
        return True


def nothing(text: bytes) -> None:
    return None


def _why(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def pattern_problem(text: str) -> str:
    """Why a text is no pattern; empty if it is one."""
    return SchemaPattern(text).why
