"""delete and deletecollection: preconditions, grace, finalizers and propagation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import msgspec

from farflung.apis.validation import Deletion
from farflung.http.messages import Answer, Response
from farflung.hub.catalog import objects
from farflung.hub.registry import bodies, read, respond
from farflung.hub.registry.call import Call
from farflung.hub.registry.large_requests import LARGE, compute
from farflung.hub.registry.pipeline import DELETE, Write, modified
from farflung.hub.registry.update import ATTEMPTS, is_released
from farflung.hub.request.options import META, WriteOptions, integer, list_options
from farflung.hub.request.target import parse_query
from farflung.hub.request.turns import in_turns
from farflung.machinery.errors import ApiError, Obj, conflict, forbidden, invalid, invalid_value, not_supported
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.machinery.times import format_seconds
from farflung.machinery.turns import ALLOWANCE, TurnAllowance
from farflung.store.base import Conflict, Entry, Page

POLICIES: Final = ("Foreground", "Background", "Orphan")
TOGETHER: Final = 64  #: objects of a collection that are deleted at a time
LONGEST_GRACE: Final = 2**31  #: seconds; RFC 3339 can still represent that time


class Preconditions(msgspec.Struct):
    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(msgspec.Struct):
    """Of a body or a query.  Unknown fields are ignored."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions | None = None
    orphanDependents: bool | None = None
    propagationPolicy: str | None = None
    dryRun: list[str] | None = None


def delete_options(call: Call) -> DeleteOptions:
    """From the body; without a body, from the query."""
    if call.request.body:
        options = msgspec.convert(bodies.delete_options(call.request), DeleteOptions)
    else:
        options = _from_query(call.request.query)
    check_options(call, options)
    return options


def check_options(call: Call, options: DeleteOptions) -> None:
    errors = []
    policy = options.propagationPolicy
    if policy and options.orphanDependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid_value("propagationPolicy", policy, why))
    if policy and policy not in POLICIES:
        errors.append(not_supported("propagationPolicy", policy, (*POLICIES, "nil")))
    if options.dryRun and options.dryRun != ["All"]:
        errors.append(not_supported("dryRun", options.dryRun, ["All"]))
    if errors:
        raise invalid(META, "DeleteOptions", "", errors)
    if call.audit_record is not None and options.dryRun:
        call.audit_record.dry_run = True


def _from_query(query: str) -> DeleteOptions:
    values = parse_query(query)
    options = DeleteOptions(propagationPolicy=values.get("propagationPolicy"))
    if "dryRun" in values:
        options.dryRun = [values["dryRun"]]
    if "orphanDependents" in values:
        options.orphanDependents = values["orphanDependents"].lower() in ("true", "1")
    if grace := values.get("gracePeriodSeconds"):
        options.gracePeriodSeconds = integer(grace)
    return options


async def delete(call: Call) -> Answer:
    options = delete_options(call)
    rules = call.kind.rules
    if call.target.name in rules.undeletable:
        why = f"this {call.resource.kind.lower()} may not be deleted"
        raise forbidden(call.resource.group, call.resource.plural, call.target.name, why)
    representation = respond.negotiated(call, many=False)
    entry = call.found()
    warnings: list[str] = []
    removed = await remove(call, entry, options, warnings)
    if removed.gone and not rules.returns_deleted:
        return _success(call, entry, warnings)
    return respond.with_entry(call, representation, removed.entry, warnings=warnings)


def _success(call: Call, entry: Entry, warnings: Sequence[str]) -> Response:
    metadata = objects.decode(entry)["metadata"]
    details: Obj = {"name": metadata["name"]}
    if call.resource.group:
        details["group"] = call.resource.group
    details |= {"kind": call.resource.plural, "uid": metadata["uid"]}
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond.json_response(200, body, respond.headers_of(warnings))


@dataclass(frozen=True, slots=True)
class Removed:
    entry: Entry  #: the object after the deletion
    gone: bool  #: False: it still exists, with finalizers or a grace period


async def remove(call: Call, entry: Entry, options: DeleteOptions, warnings: list[str]) -> Removed:
    """Delete one object, or mark it as being deleted."""
    present: Entry | None = entry
    for _ in range(ATTEMPTS):
        if present is None:
            raise call.not_found()
        await in_turns(call.follow)
        old = objects.decode(present)
        _check_preconditions(call, old, present, options)
        await _admit(call, present, old, options, warnings)
        new = marked(call, call.kind.renewed(present), options)
        is_first = "deletionTimestamp" not in old["metadata"]
        gone = is_released(call, new) and not (is_first and call.kind.rules.deletion is Deletion.TWO_PHASE)
        left = Entry(present.key, call.kind.encode_stored(new), present.revision)
        if options.dryRun or (new == old and not gone):
            return Removed(left, gone)
        try:
            if gone:
                revision = await call.store.delete(present.key, expect=present.revision)
                return Removed(Entry(left.key, objects.stamp(left.value, revision), revision), True)
            return Removed(await call.store.put(present.key, left.value, expect=present.revision), False)
        except Conflict:
            present = call.store.get(present.key)
    raise modified(call)


async def _admit(call: Call, entry: Entry, stored: Obj, options: DeleteOptions, warnings: list[str]) -> None:
    old = stored if call.kind.is_plain(entry) else call.kind.presented(entry)
    sent = {name: value for name, value in msgspec.to_builtins(options).items() if value is not None}
    write = Write(call, WriteOptions(), {}, old, entry, warnings=warnings, delete_options=sent)
    try:
        await call.tools.pipeline.check(write, DELETE)
    except ApiError as error:
        raise respond.warned(error, warnings) from None


def _check_preconditions(call: Call, old: Obj, entry: Entry, options: DeleteOptions) -> None:
    wanted, metadata = options.preconditions, old["metadata"]
    if wanted is None:
        return
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        if call.kind.rules.deletion is Deletion.TWO_PHASE:
            why = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {metadata['uid']}"
            raise conflict(call.resource.group, call.resource.plural, metadata["name"], why)
        raise _refused(
            call,
            metadata,
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.resourceVersion is not None and wanted.resourceVersion != str(entry.revision):
        raise _refused(
            call,
            metadata,
            f"the ResourceVersion in the precondition ({wanted.resourceVersion}) does not match the ResourceVersion "
            f"in record ({entry.revision}). The object might have been modified",
        )


def _refused(call: Call, metadata: Obj, why: str) -> ApiError:
    return conflict(call.resource.group, call.resource.kind, metadata["name"], why)


def marked(call: Call, obj: Obj, options: DeleteOptions) -> Obj:
    """The object being deleted: deletionTimestamp, grace period and the garbage collector's finalizers."""
    metadata = obj["metadata"]
    finalizers = _finalizers(metadata.get("finalizers", []), options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    rules = call.kind.rules
    if rules.deletion is Deletion.TWO_PHASE:
        metadata.setdefault("deletionTimestamp", call.now())
        rules.prepare_delete(obj)
        return obj
    if rules.deletion is Deletion.MARKED:
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = call.now()
            rules.prepare_delete(obj)
        return obj
    grace = _grace(call, obj, options)
    already = metadata.get("deletionGracePeriodSeconds")
    if already is None or grace < already:
        if already is None and rules.generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
        metadata["deletionTimestamp"] = format_seconds(call.tools.clock() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    rules.prepare_delete(obj)
    return obj


def _grace(call: Call, obj: Obj, options: DeleteOptions) -> int:
    default = call.kind.rules.graceful_seconds
    if default is None:
        return 0
    usual = default(obj)
    wanted = usual if options.gracePeriodSeconds is None else options.gracePeriodSeconds
    if usual == 0:
        return 0
    return 1 if wanted < 0 else min(wanted, LONGEST_GRACE)


def _finalizers(present: list[str], options: DeleteOptions) -> list[str]:
    """Exactly the garbage collector's finalizer that the propagation policy needs, and all others."""
    policy = options.propagationPolicy
    if options.orphanDependents is not None:
        policy = "Orphan" if options.orphanDependents else "Background"
    if policy is None:
        return present
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)
    kept = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted else kept


async def remove_together(call: Call, entries: Sequence[Entry], options: DeleteOptions, warnings: list[str]) -> None:
    """Delete several objects in one commit, and large ones one by one in a worker process.  Objects that no longer
    exist count as deleted."""
    token = ALLOWANCE.set(TurnAllowance())  # for all of them, because they share a turn of the event loop
    small = [remove(call, entry, options, warnings) for entry in entries if len(entry.value) <= LARGE]
    removals = asyncio.gather(*small, return_exceptions=True)
    ALLOWANCE.reset(token)
    for outcome in await removals:
        if isinstance(outcome, BaseException) and not is_gone(outcome):
            raise outcome
    for entry in entries:
        if len(entry.value) > LARGE:
            await remove_large(call, entry)


async def remove_large(call: Call, entry: Entry) -> None:
    namespace, name = objects.name_in(entry.key)
    one = replace(call, target=call.target._replace(namespace=namespace, name=name), audit_record=None)
    try:
        await compute(one, delete)
    except ApiError as error:
        if not is_gone(error):
            raise


def is_gone(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.code == 404


async def delete_collection(call: Call) -> Answer:
    options = delete_options(call)
    listed = list_options(call.request.query)
    representation = respond.negotiated(call, many=True)
    selection = read.selection_of(call, listed)
    pin = read.pin_of(listed, call)
    present = call.store.list(call.prefix, after=pin.after if pin else "", limit=0 if selection else listed.limit)
    page = read.select(present, selection, listed)
    warnings: list[str] = []
    for start in range(0, len(page.entries), TOGETHER):
        await remove_together(call, page.entries[start : start + TOGETHER], options, warnings)
    listing = read.listed(call, representation, Page(page.entries, page.revision, page.after))
    answer = listing if isinstance(listing, Response) else await listing
    answer.headers = [*answer.headers, *respond.headers_of(warnings)]
    return answer
