"""create: POST to a collection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import orjson

from farflung.http.messages import Answer
from farflung.hub import objects
from farflung.hub.admission.metadata import validate_metadata
from farflung.hub.admission.policies import admission as policies
from farflung.hub.auth.rbac.escalation import check_no_escalation
from farflung.hub.bodies import decode_object
from farflung.hub.namespaces import check_open
from farflung.hub.options import WriteOptions, write_options
from farflung.hub.registry import arrival, respond
from farflung.hub.registry.call import Call
from farflung.hub.registry.origin import forget_origin, set_origin
from farflung.hub.registry.ownership import manager_of, own
from farflung.machinery.errors import ApiError, Obj, already_exists, bad_request
from farflung.store.base import ABSENT, Conflict, Entry, Revision, Store

GENERATED_BASE_LIMIT: Final = 58
GENERATED_ATTEMPTS: Final = 8
#: what only the server sets
SERVER_SET: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


async def create(call: Call) -> Answer:
    options = write_options("CreateOptions", call.request.query)
    representation = respond.negotiated(call, many=False)
    body = decode_object(call.request, call.kind.shape, options, call.shape)
    warnings = body.warnings
    owner = manager_of(call, options)
    try:
        entry = await create_object(call, call.kind.enter(body.obj), options, warnings, owner=owner)
    except ApiError as error:
        raise respond.warned(error, warnings) from None
    return respond.with_entry(call, representation, entry, status=201, warnings=warnings)


async def create_object(
    call: Call, obj: Obj, options: WriteOptions, warnings: list[str], *, owner: str | None
) -> Entry:
    """Everything between a decoded object and the stored entry.  Without an owner its managedFields are set already."""
    rules, extension = call.kind.rules, call.tools.extension
    metadata = obj.setdefault("metadata", {})
    generated = not metadata.get("name")
    note_name(call, metadata)
    set_namespace(call, metadata)
    distinct_owners(metadata, warnings)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    check_open(call, metadata.get("name", ""))
    seen = call.store.revision
    for field in SERVER_SET:
        metadata.pop(field, None)
    forget_origin(call, metadata)
    rules.default(obj)
    check_no_escalation(call.tools.authorizer, call.user, call.target, obj, None)
    if owner is not None:
        own(call, obj, None, owner)
    await arrival.furnish(call, obj)
    set_system_fields(call, obj)
    if not options.dry_run:
        set_origin(call, metadata)
    rules.prepare_create(obj)
    arrival.sign(call, obj)
    if extension is not None:
        extension.admit(call, obj, None)

    async def write() -> Entry:
        check_still_open(call, metadata["name"], seen)
        return await insert(call, obj, options, generated=generated)

    taken = arrival.reserve(call, obj, None)
    try:
        errors = validate_metadata(obj, rules, namespaced=call.resource.namespaced)
        errors += rules.validate(obj) + rules.validate_create(obj)
        if errors:
            raise call.invalid(metadata.get("name", ""), errors)
        if extension is not None:
            extension.check(call, obj, None)
        arrival.check_limit_ranges(call, obj, None)
        policies.check_new(call, obj, options, warnings)
        arrival.admit(call, obj, None, taken)
        warnings += rules.warnings(obj, None)
        if not options.dry_run:
            arrival.settle(call, obj)
        if extension is not None and not options.dry_run:
            check_still_open(call, metadata["name"], seen)
            entry = await extended(call, obj, write)
        else:
            entry = await write()
    except BaseException:
        taken.give_back()
        raise
    if options.dry_run:
        taken.give_back()
    else:
        taken.keep()
    return entry


def check_still_open(call: Call, name: str, seen: Revision) -> None:
    """It may have closed while something was awaited."""
    if call.store.revision != seen:
        call.check_current()
        check_open(call, name)


async def extended(call: Call, obj: Obj, write: Callable[[], Awaitable[Entry]], old: Obj | None = None) -> Entry:
    """Settle an object by the server's extension, and write it."""
    extension = call.tools.extension
    assert extension is not None, "there is nothing to settle by"
    before = await extension.settle(call, obj, old)
    try:
        return await preceded(call.store, before, write) if before else await write()
    except BaseException:
        extension.abandon(call, obj)
        raise


async def preceded(store: Store, before: Iterable[tuple[str, bytes]], write: Callable[[], Awaitable[Entry]]) -> Entry:
    """Write an object when others are there that it needs, and not if one of them cannot be written.  These are
    committed together or one after the other, so some of them may stay.  When it returns or raises, nothing is under
    way."""
    puts = [store.put(key, value, expect=ABSENT) for key, value in before]
    for outcome in await asyncio.gather(*puts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
    return await write()


def note_name(call: Call, metadata: Obj) -> None:
    """For the audit, if the path does not tell it."""
    if call.trail is not None and not call.target.name:
        call.trail.name = metadata.get("name", "")


def set_system_fields(call: Call, obj: Obj) -> None:
    metadata = obj["metadata"]
    generate_name(call, metadata)
    metadata["uid"] = call.tools.new_uid()
    metadata["creationTimestamp"] = call.now()
    if call.kind.rules.generation:
        metadata["generation"] = 1


def distinct_owners(metadata: Obj, warnings: list[str]) -> None:
    """An owner that is there twice is there once, with a warning."""
    owners = metadata.get("ownerReferences", [])
    if len(owners) < 2:
        return
    kept: dict[bytes, Obj] = {}
    twice: list[str] = []
    for owner in owners:
        text = orjson.dumps(owner, option=orjson.OPT_SORT_KEYS)
        if text in kept:
            twice.append(owner.get("uid", ""))
        kept[text] = owner
    if twice:
        metadata["ownerReferences"] = list(kept.values())
        warnings.append(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and "
            "may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            + ", ".join(dict.fromkeys(twice))
        )


def generate_name(call: Call, metadata: Obj) -> None:
    """One that is free, if chance allows: what is made with an object may know it by its name."""
    base = metadata.get("generateName", "")
    if not base or metadata.get("name"):
        return
    for _ in range(GENERATED_ATTEMPTS):
        metadata["name"] = base[:GENERATED_BASE_LIMIT] + call.tools.random_suffix()
        if call.store.get(call.key_of(metadata["name"])) is None:
            return


def set_namespace(call: Call, metadata: Obj) -> None:
    """An object's namespace is its path's; a body may repeat it, nothing else."""
    namespace = call.target.namespace
    said = metadata.get("namespace", "")
    if said and call.resource.custom and not call.resource.namespaced:
        del metadata["namespace"]
        return
    if said and said != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace


async def insert(call: Call, obj: Obj, options: WriteOptions, *, generated: bool) -> Entry:
    """Store a new object.  A generated name that is taken is tried again with another suffix."""
    metadata = obj["metadata"]
    for _ in range(GENERATED_ATTEMPTS if generated else 1):
        key = call.key_of(metadata["name"])
        note_name(call, metadata)
        if call.store.get(key) is None:
            if options.dry_run:
                return Entry(key, objects.without_revision(call.kind.encode(obj)), 0)
            try:
                return await call.store.put(key, call.kind.encode(obj), expect=ABSENT)
            except Conflict:
                check_open(call, metadata["name"])
        taken = metadata["name"]
        if generated:
            del metadata["name"]
            generate_name(call, metadata)
    error = already_exists(call.resource.group, call.resource.plural, taken)
    if generated:
        error.message += ", the server was not able to generate a unique name for the object"
        error.details = (error.details or {}) | {"retryAfterSeconds": 1}
        error.headers = [("Retry-After", "1")]
        raise error
    existing = call.store.get(key)
    if existing is not None and "deletionTimestamp" in objects.decode(existing)["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    raise error
