"""The words of the syncer."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

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
