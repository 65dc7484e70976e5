"""The error of what commands read."""

from __future__ import annotations

from farflung.lib.errors import UserError


class InspectError(UserError):
    """Why there is no result."""
