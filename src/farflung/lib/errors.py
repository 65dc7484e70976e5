"""Errors for users."""

from __future__ import annotations


class UserError(Exception):
    """Why there is no result.  The text is a message for the user."""
