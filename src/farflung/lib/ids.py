"""Random names."""

from __future__ import annotations

import os
import secrets
from typing import Final

#: no vowels and nothing that looks like something else: no words by accident
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_uid() -> str:
    """A random UUID (version 4), as text."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def random_suffix() -> str:
    """The five characters that Kubernetes appends to a generateName."""
    return "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))


def new_token() -> str:
    return secrets.token_urlsafe(32)
