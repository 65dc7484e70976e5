"""Short names for contents, in the alphabet that Kubernetes uses for them.  Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  #: no vowels: no words by accident
OFFSET: Final = 2166136261
PRIME: Final = 16777619


def short_hash(content: Any, collisions: int | None = None) -> str:
    """Equal contents, equal texts, on every machine.  `collisions`: how often the text was somebody else's before."""
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    return "".join(ALPHABET[ord(digit) % len(ALPHABET)] for digit in str(_fnv1a(data)))


def _fnv1a(data: bytes) -> int:
    number = OFFSET
    for byte in data:
        number = (number ^ byte) * PRIME & 0xFFFFFFFF
    return number
