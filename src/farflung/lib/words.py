"""Counts with singular and plural."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """`1 Location`, `2 Locations`"""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
