"""What is wrong with a definition, gathered without ever becoming much longer than the definition is.

Places in schemas are chains: (what is above, the last step).  They become text only where there is something to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from farflung.machinery.errors import FieldError, field_forbidden, invalid_value, not_supported, required

Place = tuple["Place | None", str]

MOST_FINDINGS: Final = 200
MOST_TEXT: Final = 512 * 1024  #: characters, the last finding aside


def place(text: str) -> Place:
    return None, text


def text_of(at: Place) -> str:
    steps: list[str] = []
    chain: Place | None = at
    while chain is not None:
        chain, step = chain
        steps.append(step)
    return "".join(reversed(steps))


class Findings:
    """A list of errors that has an end: who has two hundred mistakes does not read the next one."""

    __slots__ = ("_text", "errors")

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self._text = 0

    @property
    def full(self) -> bool:
        return len(self.errors) >= MOST_FINDINGS or self._text >= MOST_TEXT

    def required(self, at: Place, field: str, detail: str) -> None:
        if not self.full:
            self.add(required(text_of(at) + field, detail))

    def forbidden(self, at: Place, field: str, detail: str) -> None:
        if not self.full:
            self.add(field_forbidden(text_of(at) + field, detail))

    def invalid(self, at: Place, field: str, value: Any, detail: str) -> None:
        if not self.full:
            self.add(invalid_value(text_of(at) + field, value, detail))

    def unsupported(self, at: Place, field: str, value: Any, supported: Iterable[str]) -> None:
        if not self.full:
            self.add(not_supported(text_of(at) + field, value, supported))

    def add(self, error: FieldError) -> None:
        self.errors.append(error)
        self._text += len(str(error))
