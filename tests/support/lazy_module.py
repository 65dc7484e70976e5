"""Modules that are imported when a test uses them first.

Clients of Kubernetes take half a second to import.  Every worker collects all tests, and runs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """Not for private names, because pytest asks every object of a test module for some."""
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
