"""Random names."""

from __future__ import annotations

import secrets
import uuid
from typing import Final

#: no vowels and nothing that looks like something else: no words by accident
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def new_uid() -> str:
    return str(uuid.uuid4())


def random_suffix() -> str:
    """The five characters that Kubernetes appends to a generateName."""
    return "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))


def new_token() -> str:
    return secrets.token_urlsafe(32)
