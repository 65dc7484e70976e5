"""How objects are named, wherever they are."""

from __future__ import annotations

from typing import NamedTuple

from farflung.apis.names import Collection


class Kind(NamedTuple):
    """A kind of objects, in whatever version."""

    group: str  #: empty: the core group
    resource: str  #: the lower-case plural

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class Part(NamedTuple):
    """One object of a workload, without saying of which workspace."""

    kind: Kind
    namespace: str  #: empty if the kind has none
    name: str

    def __str__(self) -> str:
        within = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {within}"


class Source(NamedTuple):
    """Where objects of a kind come from."""

    kind: Kind
    version: str  #: of the API
    identity: str = ""  #: of the export that brings the kind; empty for others
    cluster: str = ""  #: the workspace that defines the kind; empty: all of them

    def collection(self) -> Collection:
        plural = f"{self.kind.resource}:{self.identity}" if self.identity else self.kind.resource
        return Collection(self.kind.group, self.version, plural, "")
