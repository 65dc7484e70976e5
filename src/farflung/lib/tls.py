"""A TLS context that is replaced while a server or client uses it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Self


class ReplaceableContext(ssl.SSLContext):
    """Each new connection uses the newest context.  Open connections keep theirs."""

    def __new__(cls, newest: Callable[[], ssl.SSLContext]) -> Self:
        return super().__new__(cls, newest().protocol)

    def __init__(self, newest: Callable[[], ssl.SSLContext]) -> None:
        """`newest`: called for each connection."""
        first = newest()
        self.check_hostname, self.verify_mode = first.check_hostname, first.verify_mode
        self._newest = newest

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Called by the event loop for each connection."""
        return self._newest().wrap_bio(*arguments, **named)
