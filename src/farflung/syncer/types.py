"""The words of the syncer."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

FINALIZER: Final = "edge.kcp.io/syncer"  #: on copies in the mailbox: they stay until they are gone at the edge
DOWNSYNCED: Final = "edge.kcp.io/downsynced"  #: annotation at the edge: `Kind/namespace/name` of the object itself
UPSYNCED: Final = "edge.kcp.io/upsynced"  #: the same in the mailbox, for what comes from the edge
PROJECTED: Final = "edge.kcp.io/projected"  #: label, `yes`: on copies in the mailbox and on what is made of them
CREATE_ONLY: Final = "edge.kubestellar.io/downsync-overwrite"  #: annotation, `false`: made once and left alone then
MANAGER: Final = "farflung-syncer"  #: who writes at the edge and in the mailbox, in managedFields


class Resource(NamedTuple):
    """A kind of objects, in whatever version."""

    group: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Part(NamedTuple):
    """One object, on both sides."""

    resource: Resource
    namespace: str  #: empty if the kind has none
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name}" if self.namespace else f"{self.resource} {self.name}"


class Adopt(StrEnum):
    """What is done about an object that is at the edge already and is not ours."""

    NEVER = "never"
    IF_IDENTICAL = "if-identical"
    ALWAYS = "always"
