"""What a plugin says when it gives up."""

from __future__ import annotations


class CommandError(Exception):
    """The command failed; its text is the whole message for the person who typed it."""


class ApiFailure(CommandError):
    """The server refused a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
