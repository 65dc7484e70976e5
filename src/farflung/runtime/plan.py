"""Writes as data: what a decision wants done, in the order in which it is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from farflung.apis.names import Collection


@dataclass(frozen=True, slots=True)
class _Write:
    cluster: str
    collection: Collection
    namespace: str  #: empty if the kind has none
    name: str


@dataclass(frozen=True, slots=True)
class Create(_Write):
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update(_Write):
    """Put the object in the place of the one whose resourceVersion it has; a conflict if that is no longer there."""

    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpdateStatus(_Write):
    """As Update, but of the status alone."""

    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete(_Write):
    """Delete the object with that uid, and no other of the same name."""

    uid: str


Write: TypeAlias = Create | Update | UpdateStatus | Delete
