"""update: PUT, and the steps that every change of an existing object takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from farflung.http.messages import Answer
from farflung.hub import objects
from farflung.hub.admission import certificates, core
from farflung.hub.admission.metadata import validate_metadata, validate_metadata_update
from farflung.hub.admission.policies import admission as policies
from farflung.hub.auth.attributes import Attributes
from farflung.hub.auth.certificate_requests import check_signer
from farflung.hub.auth.rbac.escalation import check_no_escalation
from farflung.hub.bodies import decode_object
from farflung.hub.options import WriteOptions, write_options
from farflung.hub.registry import arrival, respond
from farflung.hub.registry.call import Call, Extension
from farflung.hub.registry.create import create_object, distinct_owners, set_namespace
from farflung.hub.registry.origin import set_origin
from farflung.hub.registry.ownership import manager_of, own, set_owners
from farflung.machinery import managed
from farflung.machinery.errors import ApiError, Obj, bad_request, conflict, forbidden, go_quote, invalid, invalid_value
from farflung.store.base import Conflict, Entry

ATTEMPTS: Final = 8  #: how often a change that does not insist on a resourceVersion is tried


@dataclass(slots=True)
class Change:
    """What to do with an existing object."""

    new: Callable[[Obj], Obj]  #: (own copy of the present object) → the wanted one
    replaces: bool = False  #: a PUT: another uid in it means another object
    subresource: str = ""  #: status, or another that writes through its own rules
    owner: str | None = None  #: whose fields they become; None: managedFields are set already
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
    change = Change(
        lambda present: orjson.loads(sent),
        replaces=True,
        subresource=call.target.subresource,
        owner=manager_of(call, options),
        warnings=body.warnings,
    )
    if not call.kind.rules.create_on_update or insists or call.target.subresource:
        entry = await change_object(call, change, options)
        return respond.with_entry(call, representation, entry, warnings=change.warnings)

    async def create() -> Entry:
        obj = call.kind.enter(orjson.loads(sent))
        return await create_object(call, obj, options, change.warnings, owner=change.owner)

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
    call: Call, create: Callable[[], Awaitable[Entry]], change: Change, options: WriteOptions
) -> tuple[Entry, int]:
    """For whom it is the same whether the object is there: it may come or go after the look at it.
    Returns the HTTP status as well."""
    for _ in range(ATTEMPTS):
        there = call.store.get(call.key) is not None
        if not there:
            check_may_create(call)
        try:
            return (await change_object(call, change, options), 200) if there else (await create(), 201)
        except ApiError as error:
            if (error.code, error.reason) != ((404, "NotFound") if there else (409, "AlreadyExists")):
                raise
    raise modified(call)


def check_may_create(call: Call) -> None:
    """Whoever may change objects may not make them by that."""
    target = call.target
    asked = Attributes("create", target.group, target.plural, "", target.namespace, target.name)
    decision = call.tools.authorizer.decide(target.cluster, call.user, asked)
    if not decision.allowed:
        raise forbidden(target.group, target.plural, target.name, decision.reason)


async def change_object(call: Call, change: Change, options: WriteOptions) -> Entry:
    """Apply a change to the object the path names, and again if somebody else was faster: a client that insists on
    the version it saw is then refused.  Nothing is written when nothing changed."""
    try:
        return await changed(call, change, options)
    except ApiError as error:
        raise respond.warned(error, change.warnings) from None


async def changed(call: Call, change: Change, options: WriteOptions) -> Entry:
    for _ in range(ATTEMPTS):
        entry = call.found()
        old = call.kind.presented(entry)
        new = call.kind.enter(change.new(call.kind.read(entry)))
        check_preconditions(call, change, new, old, entry)
        prepare_change(call, change, new, old)
        taken = arrival.reserve(call, new, old)
        try:
            check_change(call, change, new, old)
            if call.tools.extension is not None:
                await extend(call, call.tools.extension, new, old, dry_run=options.dry_run)
            policies.check_change(call, new, old, options, change.warnings)
            if new == old and not call.kind.is_out_of_date(entry, new):
                return entry
            arrival.check_limit_ranges(call, new, old)
            arrival.admit(call, new, old, taken)
            written = await write(call, entry, new, dry_run=options.dry_run)
        except Conflict:
            taken.give_back()
        except BaseException:
            taken.give_back()
            raise
        else:
            if options.dry_run or is_released(new):
                taken.give_back()
            else:
                taken.keep()
            return written
    raise modified(call)


async def extend(call: Call, extension: Extension, new: Obj, old: Obj, *, dry_run: bool) -> None:
    extension.check(call, new, old)
    if not dry_run:
        await extension.settle(call, new, old)


async def write(call: Call, entry: Entry, new: Obj, *, dry_run: bool) -> Entry:
    value = call.kind.encode(new, before=len(entry.value))
    if dry_run:
        return Entry(entry.key, value, entry.revision)
    call.check_current()
    if not is_released(new):
        return await call.store.put(entry.key, value, expect=entry.revision)
    revision = await call.store.delete(entry.key, expect=entry.revision)
    return Entry(entry.key, objects.stamp(value, revision), revision)


def modified(call: Call) -> ApiError:
    return conflict(call.resource.group, call.resource.plural, call.target.name)


def is_released(obj: Obj) -> bool:
    """Marked for deletion, and nothing holds it any more."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    held = obj.get("spec", {}).get("finalizers") if obj.get("kind") == "Namespace" else None
    return not metadata.get("deletionGracePeriodSeconds") and not held


def check_preconditions(call: Call, change: Change, new: Obj, old: Obj, entry: Entry) -> None:
    """The uid and resourceVersion a client sends must be those of the object."""
    metadata, present = new["metadata"], old["metadata"]
    uid = metadata.get("uid")
    if change.replaces and uid and uid != present["uid"]:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {registry_key(call)}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {present['uid']}"
        )
        raise conflict(call.resource.group, call.resource.plural, call.target.name, why)
    version = metadata.get("resourceVersion", "")
    if not version or version == "0":
        if not call.kind.rules.unconditional_update and change.subresource != "scale":
            why = "must be specified for an update"
            error = invalid_value("metadata.resourceVersion", 0, why)
            raise invalid(call.resource.group, call.resource.plural, call.target.name, [error])
        return
    if not version.isascii() or not version.isdigit():
        why = f"strconv.ParseUint: parsing {go_quote(version)}: invalid syntax"
        raise bad_request(why)
    if version.lstrip("0") != str(entry.revision):
        raise modified(call)


def registry_key(call: Call) -> str:
    """Where Kubernetes would have the object; its messages name it."""
    group = f"{call.resource.group}/" if call.resource.group and "." in call.resource.group else ""
    namespace = f"{call.target.namespace}/" if call.target.namespace else ""
    return f"/registry/{group}{call.resource.plural}/{namespace}{call.target.name}"


#: a client cannot change these; what it sends is ignored
KEPT: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


def prepare_change(call: Call, change: Change, new: Obj, old: Obj) -> None:
    """System fields, defaults, ownership, and what the kind does with a change."""
    rules, metadata, present = call.kind.rules, new["metadata"], old["metadata"]
    metadata.setdefault("uid", present["uid"])
    for name in KEPT:
        if name in present:
            metadata[name] = present[name]
    for name in ("generation", "selfLink"):
        if name not in present:
            metadata.pop(name, None)
    set_origin(call, metadata)
    distinct_owners(metadata, change.warnings)
    rules.default(new)
    if change.subresource in PARTS:
        keep_all_but(PARTS[change.subresource], new, old)
    if change.owner is not None:
        own_change(call, new, old, change.owner)
    if change.subresource == "status":
        rules.prepare_status(new, old)
    elif change.subresource == "approval":
        certificates.prepare_approval(new, old, call.now())
    elif change.subresource not in PARTS:
        rules.prepare_update(new, old)
    if call.tools.extension is not None:
        call.tools.extension.admit(call, new, old)
    count_generation(call, new, old)


def check_change(call: Call, change: Change, new: Obj, old: Obj) -> None:
    rules = call.kind.rules
    check_no_escalation(call.tools.authorizer, call.user, call.target, new, old)
    errors = validate_metadata_update(new, old) * 2  # upstream says it twice: for every object, and for this kind
    errors += validate_metadata(new, rules, namespaced=call.resource.namespaced)
    match change.subresource:
        case "status":
            errors += rules.validate_status(new, old)
        case "approval":
            errors += certificates.validate_approval(new, old)
        case "finalize":
            errors += core.validate_finalize(new, old)
        case "ephemeralcontainers" | "resize":
            errors += rules.validate(new)
        case _:
            errors += rules.validate(new) + rules.validate_update(new, old)
    if errors:
        raise call.invalid(call.target.name, errors)
    check_signer(call.tools.authorizer, call.user, call.target, new, old)
    change.warnings += rules.warnings(new, old)
    if not change.subresource:
        arrival.settle(call, new)
    set_owners(new, managed.settle(new, old))
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]


#: subresource → the part of the object that it writes; /status and /scale have rules of their own
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "finalize": ("spec", "finalizers"),
    "approval": ("status", "conditions"),
    "ephemeralcontainers": ("spec", "ephemeralContainers"),
    "resize": ("spec", "containers"),
}


def keep_all_but(part: tuple[str, str], new: Obj, old: Obj) -> None:
    """Everything but one part, and the metadata that is looked at elsewhere, stays as it was."""
    section, field = part
    wanted = new.get(section, {}).get(field)
    for name in new.keys() - old.keys():
        del new[name]
    for name, value in old.items():
        if name != "metadata":
            new[name] = value
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        new["metadata"].pop(name, None)
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]
    new[section] = {name: value for name, value in old.get(section, {}).items() if name != field}
    if wanted:
        new[section][field] = wanted


def own_change(call: Call, new: Obj, old: Obj, owner: str) -> None:
    if call.target.subresource != "scale":
        own(call, new, old, owner)
        return
    entries = old["metadata"].get("managedFields") or []
    if new.get("spec") != old.get("spec") and call.kind.scaling is not None:
        api_version, replicas = call.resource.api_version, call.kind.scaling.replicas
        entries = managed.after_scale(entries, manager=owner, api_version=api_version, replicas=replicas)
    set_owners(new, entries)


def count_generation(call: Call, new: Obj, old: Obj) -> None:
    rules = call.kind.rules
    if not rules.generation or call.target.subresource == "status":
        return
    another = rules.another_generation or differs_in_spec
    if another(new, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def differs_in_spec(new: Obj, old: Obj) -> bool:
    """In anything but metadata and status."""
    apart = ("metadata", "status")
    return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()).difference(apart))
