"""Errors of plugins."""

from __future__ import annotations


class CommandError(Exception):
    """The text is the whole message for the user."""


class ApiFailure(CommandError):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
