"""Random UIDs, name suffixes and tokens."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Final

#: no vowels and nothing that looks like something else: no words by accident
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
UIDS_AT_ONCE: Final = 256
VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class Uids:
    """Random UUIDs (version 4), as text.  Many are drawn at once: each time the system is asked, another thread may
    take the interpreter, and the request waits until it gives it back."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def __call__(self) -> str:
        if not self._drawn:
            self._drawn.extend(_draw(UIDS_AT_ONCE))
        return self._drawn.pop()


def _draw(count: int) -> Iterator[str]:
    digits = os.urandom(16 * count).hex()
    for at in range(0, len(digits), 32):
        one = digits[at : at + 32]
        yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{VARIANT[one[16]]}{one[17:20]}-{one[20:]}"


def random_suffix() -> str:
    """The five characters that Kubernetes appends to a generateName."""
    return "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))


def new_token() -> str:
    return secrets.token_urlsafe(32)
