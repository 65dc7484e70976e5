"""create: POST to a collection."""

from __future__ import annotations

import asyncio
from typing import Final

from farflung.http.messages import Answer
from farflung.hub.catalog import objects
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import decode_object
from farflung.hub.registry.call import Call, check_room
from farflung.hub.registry.pipeline import (
    CREATE,
    GENERATED_ATTEMPTS,
    Write,
    check_not_terminating,
    generate_name,
    manager_of,
    note_name,
)
from farflung.hub.request.options import write_options
from farflung.machinery.errors import ApiError, already_exists
from farflung.store.base import ABSENT, Conflict, Entry

RETRY_SECONDS: Final = 1


async def create(call: Call) -> Answer:
    options = write_options("CreateOptions", call.request.query)
    representation = respond.negotiated(call, many=False)
    body = decode_object(call.request, call.kind.shape, options, call.shape)
    write = Write(call, options, call.kind.enter(body.obj), warnings=body.warnings, manager=manager_of(call, options))
    try:
        entry = await create_object(write)
    except ApiError as error:
        raise respond.warned(error, write.warnings) from None
    return respond.with_entry(call, representation, entry, status=201, warnings=write.warnings)


async def create_object(write: Write) -> Entry:
    """Run the pipeline on a decoded object, and store the result."""
    try:
        await write.call.tools.pipeline.run(write, CREATE)
        if write.prerequisites:
            await create_prerequisites(write)
        entry = await insert(write)
    except BaseException:
        write.roll_back()
        raise
    if write.options.dry_run:
        write.roll_back()
    else:
        write.clean_up()
    return entry


async def create_prerequisites(write: Write) -> None:
    """Create the objects that must exist first.  If one fails, others may remain.  No write is pending afterwards."""
    puts = [write.call.store.put(key, value, expect=ABSENT) for key, value in write.prerequisites]
    for outcome in await asyncio.gather(*puts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def insert(write: Write) -> Entry:
    """Store a new object.  If a generated name is taken, another one is generated."""
    call, metadata, generated = write.call, write.new["metadata"], write.generated
    if call.store.revision != write.checked_at:  # its namespace or definition may be terminating by now
        call.check_current()
        check_not_terminating(call, metadata["name"])
    for _ in range(GENERATED_ATTEMPTS if generated else 1):
        key = call.key_of(metadata["name"])
        note_name(call, metadata)
        if call.store.get(key) is None:
            if write.options.dry_run:
                return Entry(key, objects.without_revision(call.kind.encode(write.new)), 0)
            value = call.kind.encode(write.new)
            check_room(call, key, len(value), None)
            try:
                return await call.store.put(key, value, expect=ABSENT)
            except Conflict:
                check_not_terminating(call, metadata["name"])
        taken = metadata["name"]
        if generated:
            del metadata["name"]
            generate_name(call, metadata)
    error = already_exists(call.resource.group, call.resource.plural, taken)
    if generated:
        error.message += ", the server was not able to generate a unique name for the object"
        error.details = (error.details or {}) | {"retryAfterSeconds": RETRY_SECONDS}
        error.headers = [("Retry-After", str(RETRY_SECONDS))]
        raise error
    existing = call.store.get(key)
    if existing is not None and "deletionTimestamp" in objects.decode(existing)["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    raise error
