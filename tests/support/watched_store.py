"""A store that tells of every write as it happens, and of who did it; and that can be copied, as for a backup."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import orjson
from local_transport import Function
from memory_store import MemoryStore
from simulated_time import now

from farflung.http import messages
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.store.base import Compacted, Entry, Revision
from farflung.store.compaction import Gaps, first_revision

WRITER: ContextVar[str] = ContextVar("WRITER", default="")
SYNCER = "syncer"


def signed(function: Function, writer: str) -> Function:
    """What comes by this way is written by somebody who is known."""

    async def called(request: messages.Request) -> Any:
        token = WRITER.set(writer)
        try:
            answer: Any = function(request)
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            WRITER.reset(token)

    return called


@dataclass(frozen=True, slots=True)
class Write:
    writer: str  #: empty: nobody in particular
    cluster: str
    ref: ObjectRef
    before: Obj | None
    after: Obj | None


class WatchedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(stamp=objects.stamp)
        self.told: Callable[[Write], None] = lambda write: None
        self._known: dict[str, tuple[Entry, Obj]] = {}
        self._gaps = Gaps()

    def copied(self) -> WatchedStore:
        """As it is now; who watches the one does not watch the other."""
        other = WatchedStore()
        for name in ("_entries", "_log", "_revision", "_oldest"):
            setattr(other, name, copy.copy(getattr(self, name)))
        other._gaps = copy.deepcopy(self._gaps)
        other._keys = {prefix: set(keys) for prefix, keys in self._keys.items()}
        return other

    def reopened(self) -> WatchedStore:
        """A copy that continues after a gap, as a store in a file does."""
        other = self.copied()
        first = first_revision(self.revision, now().timestamp())
        if first != self.revision:
            other._gaps.add(self.revision, first)
            other._revision = first
        return other

    def _check_revision(self, revision: Revision) -> None:
        super()._check_revision(revision)
        if (first := self._gaps.end(revision)) != revision:
            raise Compacted(revision, first)

    def held(self, cluster: str) -> dict[ObjectRef, Obj]:
        """All that a cluster has."""
        keys = sorted(key for key in self._entries if cluster_of(key) == cluster)
        return {part_of(key): self._read(self._entries[key]) for key in keys}

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        before = self.get(key)
        entry = await super().put(key, value, expect=expect)
        self._tell(key, before, entry)
        return entry

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        before = self.get(key)
        revision = await super().delete(key, expect=expect)
        self._tell(key, before, None)
        return revision

    def _read(self, entry: Entry) -> Obj:
        """It is not to be changed."""
        known = self._known.get(entry.key)
        if known is None or known[0] is not entry:
            known = self._known[entry.key] = entry, orjson.loads(entry.value)
        return known[1]

    def _tell(self, key: str, before: Entry | None, after: Entry | None) -> None:
        old, new = (None if entry is None else self._read(entry) for entry in (before, after))
        self.told(Write(WRITER.get(), cluster_of(key), part_of(key), old, new))


def cluster_of(key: str) -> str:
    return key.split("/", 4)[3]


def part_of(key: str) -> ObjectRef:
    """`/<group>/<resource>/<cluster>/<namespace>/<name>`, or without the namespace."""
    _, group, plural, _, *where = key.split("/")
    resource = GroupResource("" if group == "core" else group, plural.partition(":")[0])
    return ObjectRef(resource, where[0] if len(where) == 2 else "", where[-1])
