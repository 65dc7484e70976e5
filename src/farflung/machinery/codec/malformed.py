"""A body that cannot be read."""

from __future__ import annotations

from farflung.machinery.errors import ApiError


class Malformed(ApiError):
    """400.  `why` is the bare reason in Go's words, for whoever knows more of the request to say more."""

    def __init__(self, why: str) -> None:
        super().__init__(400, "BadRequest", why)
        self.why = why
