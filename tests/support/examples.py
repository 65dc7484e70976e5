"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings

FEWEST = 3
USUAL = 100  #: what Hypothesis tries unless a test sets something else; the profiles in tests/conftest.py scale it


def examples(usual: int) -> int:
    """`usual`, scaled as the profile in use scales USUAL: down in `make test`, up in `make long`."""
    return max(FEWEST, usual * settings().max_examples // USUAL)
