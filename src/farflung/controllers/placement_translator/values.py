"""How objects are named, wherever they are."""

from __future__ import annotations

from typing import NamedTuple


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
