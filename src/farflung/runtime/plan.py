"""Writes as data: what a decision wants done, in the order in which it is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from farflung.client.resource import Collection


@dataclass(frozen=True, slots=True)
class Create:
    cluster: str
    collection: Collection
    namespace: str  #: empty if the kind has none
    name: str
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update:
    """Put the object in the place of the one whose resourceVersion it has; a conflict if that is no longer there."""

    cluster: str
    collection: Collection
    namespace: str
    name: str
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """As Update, but of the status alone."""

    cluster: str
    collection: Collection
    namespace: str
    name: str
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with that uid, and no other of the same name."""

    cluster: str
    collection: Collection
    namespace: str
    name: str
    uid: str


Write: TypeAlias = Create | Update | UpdateStatus | Delete
