"""A CustomResourceDefinition that is established, as the hub serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from farflung.apis.resource import Resource
from farflung.hub.catalog.openapi.schemas import Own
from farflung.hub.kinds import Kind


class Definition(Protocol):
    @property
    def resources(self) -> Sequence[Resource]:
        """One for each version that is served."""

    def kind(self, version: str) -> Kind:
        """Everything that is needed to serve a version."""

    def openapi(self, version: str) -> Own:
        """The definitions that describe a version to clients, by name."""
