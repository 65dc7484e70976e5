"""update (PUT), and the loop that computes, writes and retries every change of an existing object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from farflung.apis.validation import Deletion
from farflung.http.messages import Answer
from farflung.hub.catalog import objects
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import decode_object
from farflung.hub.registry.call import Call, check_room
from farflung.hub.registry.create import create_object
from farflung.hub.registry.pipeline import UPDATE, Write, manager_of, modified, set_managed_fields, set_namespace
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.options import WriteOptions, write_options
from farflung.machinery.errors import ApiError, Obj, bad_request, forbidden
from farflung.machinery.fields import managed
from farflung.store.base import Conflict, Entry

ATTEMPTS: Final = 8  #: of a change without a resourceVersion


@dataclass(slots=True)
class ObjectChange:
    """A change of an existing object."""

    new: Callable[[Obj], Obj]  #: (a copy of the current object) → the desired one
    replaces: bool = False  #: a PUT: another uid in it means another object
    manager: str | None = None  #: owns the changed fields; None: managedFields are set already
    warnings: list[str] = field(default_factory=list)


async def update(call: Call) -> Answer:
    options = write_options("UpdateOptions", call.request.query)
    representation = respond.negotiated(call, many=False)
    body = decode_object(call.request, call.kind.shape, options, call.shape)
    metadata = body.obj.setdefault("metadata", {})
    check_name(call, metadata)
    set_namespace(call, metadata)
    insists = metadata.get("resourceVersion") or metadata.get("uid")
    sent = orjson.dumps(body.obj)
    manager = manager_of(call, options)
    change = ObjectChange(lambda present: orjson.loads(sent), replaces=True, manager=manager, warnings=body.warnings)
    if not call.kind.rules.create_on_update or insists or call.target.subresource:
        entry = await change_object(call, change, options)
        return respond.with_entry(call, representation, entry, warnings=change.warnings)

    async def create() -> Entry:
        obj = call.kind.enter(orjson.loads(sent))
        return await create_object(Write(call, options, obj, warnings=change.warnings, manager=manager))

    entry, status = await create_or_change(call, create, change, options)
    return respond.with_entry(call, representation, entry, status=status, warnings=change.warnings)


def check_name(call: Call, metadata: Obj) -> None:
    name = metadata.get("name", "")
    if not name:
        wanted = call.target.name
        raise bad_request(f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
    if name != call.target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.target.name})")


async def create_or_change(
    call: Call, create: Callable[[], Awaitable[Entry]], change: ObjectChange, options: WriteOptions
) -> tuple[Entry, int]:
    """Create the object if it does not exist, otherwise change it; again if another request creates or deletes it in
    between.  Returns the HTTP status as well."""
    for _ in range(ATTEMPTS):
        exists = call.store.get(call.key) is not None
        if not exists:
            check_may_create(call)
        try:
            return (await change_object(call, change, options), 200) if exists else (await create(), 201)
        except ApiError as error:
            if (error.code, error.reason) != ((404, "NotFound") if exists else (409, "AlreadyExists")):
                raise
    raise modified(call)


def check_may_create(call: Call) -> None:
    """An update or apply that creates an object needs the right to create it.  Raises 403."""
    target = call.target
    access = Attributes("create", target.group, target.plural, "", target.namespace, target.name)
    decision = call.tools.authorizer.decide(target.cluster, call.user, access)
    if not decision.allowed:
        raise forbidden(target.group, target.plural, target.name, decision.reason)


async def change_object(call: Call, change: ObjectChange, options: WriteOptions) -> Entry:
    """Change the object that the path names.  If another request changes it first, the change is computed again,
    unless the client insists on a resourceVersion.  Nothing is written if nothing changes."""
    try:
        for _ in range(ATTEMPTS):
            entry = call.found()
            old = call.kind.presented(entry)
            new = call.kind.enter(change.new(call.kind.read(entry)))
            write = Write(
                call,
                options,
                new,
                old,
                entry,
                warnings=change.warnings,
                manager=change.manager,
                replaces=change.replaces,
            )
            try:
                await call.tools.pipeline.run(write, call.target.subresource or UPDATE)
                set_managed_fields(new, managed.ignore_time_changes(new, old))
                if new == old and not call.kind.is_out_of_date(entry, new):
                    write.roll_back()
                    return entry
                written = await replace(call, entry, new, dry_run=options.dry_run)
            except Conflict:
                write.roll_back()
            except BaseException:
                write.roll_back()
                raise
            else:
                if options.dry_run or is_released(call, new):
                    write.roll_back()
                else:
                    write.clean_up()
                return written
        raise modified(call)
    except ApiError as error:
        raise respond.warned(error, change.warnings) from None


async def replace(call: Call, entry: Entry, new: Obj, *, dry_run: bool) -> Entry:
    value = call.kind.encode(new, before=len(entry.value))
    if dry_run:
        return Entry(entry.key, value, entry.revision)
    call.check_current()
    if not is_released(call, new):
        check_room(call, entry.key, len(value), entry)
        return await call.store.put(entry.key, value, expect=entry.revision)
    revision = await call.store.delete(entry.key, expect=entry.revision)
    return Entry(entry.key, objects.stamp(value, revision), revision)


def is_released(call: Call, obj: Obj) -> bool:
    """Whether an object is being deleted, and has neither finalizers nor a grace period."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if call.kind.rules.deletion is Deletion.TWO_PHASE and obj.get("spec", {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
