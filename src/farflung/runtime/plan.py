"""Writes as data: what a decision wants done, in the order in which it is to be done; and their execution."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from farflung.apis.names import Collection
from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.machinery.errors import Obj


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


Written = Callable[[Write, Obj | None], None]


async def apply(client_of: Callable[[str], Client], writes: Iterable[Write], written: Written) -> None:
    """Stop at the first write that fails, and raise its ClientError.  `client_of`: the API of a logical cluster;
    `written` is called after each write, with the server's answer, or None after a deletion."""
    for write in writes:
        written(write, await _one(client_of(write.cluster), write))


async def _one(client: Client, write: Write) -> Obj | None:
    obj: dict[str, Any] = {} if isinstance(write, Delete) else dict(write.object)
    match write:
        case Create():
            return await client.create(write.collection, obj, write.namespace)
        case Update():
            return await client.update(write.collection, obj)
        case UpdateStatus():
            return await client.update(write.collection, obj, "status")
        case Delete():
            with contextlib.suppress(NotFound):
                await client.delete(write.collection, write.name, write.namespace, uid=write.uid)
            return None
