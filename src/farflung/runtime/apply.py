"""Execute a plan, one write after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from farflung.client.errors import NotFound
from farflung.client.rest import Client
from farflung.machinery.errors import Obj
from farflung.runtime.plan import Create, Delete, Update, UpdateStatus, Write

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
