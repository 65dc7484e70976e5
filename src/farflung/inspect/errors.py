"""The error of what commands read."""

from __future__ import annotations


class InspectError(Exception):
    """Why there is no result.  The text is a message for the user."""
