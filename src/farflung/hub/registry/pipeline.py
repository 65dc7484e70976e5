"""The write pipeline: the ordered steps between a decoded object and its stored bytes (ADR 5).

create, update, patch, apply and the subresources all run it.  `Stage` is the order of the steps.  The registry has
steps for every kind (`STEPS`); admission plugins and workspaces add theirs.  A pipeline is compiled once per kind and
operation, and contains only the steps that apply there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from weakref import WeakKeyDictionary

import orjson

from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.metadata import validate_metadata, validate_metadata_update
from farflung.apis.validation import no_change, no_changes, no_warnings
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.hub.registry.call import Call
from farflung.hub.request.options import FIELD_MANAGER_LIMIT, WriteOptions
from farflung.lib.memory import remember
from farflung.machinery.errors import (
    ApiError,
    FieldError,
    Obj,
    bad_request,
    conflict,
    forbidden,
    go_quote,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
)
from farflung.machinery.fields import managed
from farflung.machinery.fields.sets import Fields, path, union
from farflung.store.base import Entry, Revision

#: operations that are no subresource; every other operation has the name of its subresource
CREATE: Final = "create"
UPDATE: Final = "update"
DELETE: Final = "delete"
STATUS: Final = "status"
SCALE: Final = "scale"
#: subresource → the only field of the object that it writes
SUBRESOURCE_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "finalize": ("spec", "finalizers"),
    "approval": ("status", "conditions"),
    "ephemeralcontainers": ("spec", "ephemeralContainers"),
    "resize": ("spec", "containers"),
}
CHANGES: Final = frozenset({UPDATE, STATUS, SCALE, *SUBRESOURCE_FIELDS})  #: operations on an object that exists
WRITES: Final = CHANGES | {CREATE}

GENERATED_BASE_LIMIT: Final = 58
GENERATED_ATTEMPTS: Final = 8
#: metadata that only the server sets
SERVER_SET: Final = frozenset(
    {"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
)
#: metadata that an update cannot change; values that a client sends are ignored
KEPT: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


class Stage(IntEnum):
    """The order of the steps.  Steps of one stage run in the order in which they are registered."""

    CHECK = 1  #: may the request write here at all?
    METADATA = 2  #: drop or restore the metadata that only the server sets
    DEFAULT = 3  #: fill in defaults
    ESCALATE = 4  #: refuse grants that exceed the user's own rights
    MANAGED_FIELDS = 5  #: record in managedFields the fields that the client sets
    INJECT = 6  #: fields that need other objects: a Pod's token volume, its priority
    PREPARE = 7  #: name, uid, generation; reset the fields that this operation may not write
    COMPLETE = 8  #: fields that only the server sets, by kind
    GENERATION = 9  #: a new generation, if more than metadata and status changed
    ALLOCATE = 10  #: addresses and ports, released if the write fails
    VALIDATE = 11  #: report every error in one 422
    REFUSE = 12  #: refuse valid objects, by kind
    LIMIT = 13  #: the namespace's limit ranges
    POLICIES = 14  #: the cluster's ValidatingAdmissionPolicies
    QUOTA = 15  #: room in quotas, released if the write fails
    FINISH = 16  #: status that depends on other objects, and objects that must exist first; never in a dry run


@dataclass(slots=True)
class Write:
    """One object on its way through the pipeline."""

    call: Call
    options: WriteOptions
    new: Obj
    old: Obj | None = None  #: None if the object is created
    entry: Entry | None = None  #: of `old`
    warnings: list[str] = field(default_factory=list)
    manager: str | None = None  #: owns the changed fields; None: managedFields are set already
    replaces: bool = False  #: a PUT: another uid in it means another object
    delete_options: Obj | None = None  #: of a deletion, as the client sent them
    generated: bool = False  #: the name is generated
    checked_at: Revision = 0  #: the store's revision when the namespace was checked
    prerequisites: list[tuple[str, bytes]] = field(default_factory=list)  #: key and value of objects to create first
    rollbacks: list[Callable[[], None]] = field(default_factory=list)  #: called if nothing is written
    cleanups: list[Callable[[], None]] = field(default_factory=list)  #: called in either case

    @property
    def name(self) -> str:
        name: str = self.new["metadata"].get("name", "")
        return name

    def roll_back(self) -> None:
        for undo in self.rollbacks:
            undo()
        self.clean_up()

    def clean_up(self) -> None:
        for clean_up in self.cleanups:
            clean_up()

    def refuse(self, why: str) -> ApiError:
        """403 for this object."""
        return forbidden(self.call.resource.group, self.call.resource.plural, self.name, why)


Run = Callable[[Write], Awaitable[None] | None]
Applies = Callable[[Kind, str], bool]  #: (kind, operation) → whether its pipeline contains a step


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    stage: Stage
    run: Run
    applies: Applies
    concerns: Callable[[Call], bool] | None = None  #: None: every request; tells it without the object
    needs_name_only: Applies | None = None  #: where it needs no more of the object than its name; None: nowhere
    alone: bool = False  #: it is a function of the objects, so workers run it themselves


def on(*operations: str) -> Applies:
    """Every kind, in these operations."""
    return lambda kind, operation: operation in operations


def of_kinds(kinds: Collection[tuple[str, str]], *operations: str) -> Applies:
    """Built-in kinds by (group, plural), in these operations; without operations: in every write."""
    wanted = operations or WRITES
    return lambda kind, operation: (
        operation in wanted and not kind.resource.custom and (kind.resource.group, kind.resource.plural) in kinds
    )


class Pipeline:
    """The steps of a hub, compiled once per kind and operation."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = tuple(sorted(steps, key=lambda step: step.stage))
        self._by_name = {step.name: step for step in self.steps}
        self._compiled: dict[str, WeakKeyDictionary[Kind, tuple[tuple[Run, ...], tuple[Run, ...]]]] = {}

    def step(self, name: str) -> Step:
        return self._by_name[name]

    def steps_of(self, kind: Kind, operation: str) -> list[Step]:
        return [step for step in self.steps if step.applies(kind, operation)]

    def compiled(self, kind: Kind, operation: str) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
        """All steps, and those before Stage.FINISH."""
        known = self._compiled.get(operation)
        if known is None:
            known = self._compiled[operation] = WeakKeyDictionary()
        found = known.get(kind)
        if found is None:
            steps = self.steps_of(kind, operation)
            found = known[kind] = (
                tuple(step.run for step in steps),
                tuple(step.run for step in steps if step.stage < Stage.FINISH),
            )
        return found

    async def run(self, write: Write, operation: str, *, finishes: bool = True) -> None:
        """Raises ApiError.  The caller calls `write.roll_back` or `write.clean_up` afterwards."""
        steps, without_finish = self.compiled(write.call.kind, operation)
        for step in steps if finishes and not write.options.dry_run else without_finish:
            waiting = step(write)
            if waiting is not None:
                await waiting

    def check(self, write: Write, operation: str) -> Awaitable[None]:
        """The same for an operation whose steps only look at the object: a deletion, or a subresource that stores
        nothing."""
        return self.run(write, operation, finishes=False)


# --- check ----------------------------------------------------------------------------------------


def check_new(write: Write) -> None:
    call, metadata = write.call, write.new.setdefault("metadata", {})
    write.generated = not metadata.get("name")
    note_name(call, metadata)
    set_namespace(call, metadata)
    deduplicate_owners(metadata, write.warnings)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    check_not_terminating(call, metadata.get("name", ""))
    write.checked_at = call.store.revision


def note_name(call: Call, metadata: Obj) -> None:
    """For the audit line of a request whose path has no name."""
    if call.audit_record is not None and not call.target.name:
        call.audit_record.name = metadata.get("name", "")


def set_namespace(call: Call, metadata: Obj) -> None:
    """The namespace of the path.  Raises 400 if the body has another one."""
    namespace = call.target.namespace
    sent = metadata.get("namespace", "")
    if sent and call.resource.custom and not call.resource.namespaced:
        del metadata["namespace"]
        return
    if sent and sent != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace


def deduplicate_owners(metadata: Obj, warnings: list[str]) -> None:
    """Remove owner references that occur twice, with a warning."""
    owners = metadata.get("ownerReferences", [])
    if len(owners) < 2:
        return
    kept: dict[bytes, Obj] = {}
    duplicates: list[str] = []
    for owner in owners:
        text = orjson.dumps(owner, option=orjson.OPT_SORT_KEYS)
        if text in kept:
            duplicates.append(owner.get("uid", ""))
        kept[text] = owner
    if duplicates:
        metadata["ownerReferences"] = list(kept.values())
        warnings.append(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and "
            "may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            + ", ".join(dict.fromkeys(duplicates))
        )


def check_not_terminating(call: Call, name: str = "") -> None:
    """Raises an error unless the namespace exists and neither it nor the kind's definition is being deleted."""
    resource, cluster, namespace = call.resource, call.target.cluster, call.target.namespace
    if resource.namespaced:
        entry = call.store.get(objects.namespace_key(cluster, namespace))
        if entry is None:
            raise not_found("", "namespaces", namespace)
        if objects.is_terminating(entry):
            raise terminating(call, namespace, name)
    if resource.custom and "create" not in resource.verbs:
        raise method_not_allowed()  # its APIBinding is being deleted
    if resource.custom and not resource.identity:
        definition = call.store.get(objects.definition_key(cluster, resource.group, resource.plural))
        if definition is not None and objects.is_terminating(definition):
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource.group, resource.plural, name, why)


def terminating(call: Call, namespace: str, name: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(call.resource.group, call.resource.plural, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = (error.details or {}) | {"causes": [cause]}
    return error


def check_preconditions(write: Write) -> None:
    """The uid and resourceVersion that a client sends must be those of the object."""
    call, entry = write.call, write.entry
    assert write.old is not None and entry is not None
    metadata, present = write.new["metadata"], write.old["metadata"]
    uid = metadata.get("uid")
    if write.replaces and uid and uid != present["uid"]:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {registry_key(call)}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {present['uid']}"
        )
        raise conflict(call.resource.group, call.resource.plural, call.target.name, why)
    version = metadata.get("resourceVersion", "")
    if not version or version == "0":
        if not call.kind.rules.unconditional_update and call.target.subresource != SCALE:
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
    """The key that etcd would have; Kubernetes' messages contain it."""
    group = f"{call.resource.group}/" if call.resource.group and "." in call.resource.group else ""
    namespace = f"{call.target.namespace}/" if call.target.namespace else ""
    return f"/registry/{group}{call.resource.plural}/{namespace}{call.target.name}"


def modified(call: Call) -> ApiError:
    return conflict(call.resource.group, call.resource.plural, call.target.name)


# --- metadata -------------------------------------------------------------------------------------


def drop_server_fields(write: Write) -> None:
    metadata = write.new["metadata"]
    for name in SERVER_SET.intersection(metadata):
        del metadata[name]
    drop_cluster_annotation(write.call, metadata)


def restore_metadata(write: Write) -> None:
    assert write.old is not None
    metadata, present = write.new["metadata"], write.old["metadata"]
    metadata.setdefault("uid", present["uid"])
    for name in KEPT:
        if name in present:
            metadata[name] = present[name]
    for name in ("generation", "selfLink"):
        if name not in present:
            metadata.pop(name, None)
    metadata["resourceVersion"] = present["resourceVersion"]
    set_cluster_annotation(write.call, metadata)
    deduplicate_owners(metadata, write.warnings)


def drop_cluster_annotation(call: Call, metadata: Obj) -> None:
    annotations = metadata.get("annotations")
    if call.tools.annotates and isinstance(annotations, dict) and CLUSTER_ANNOTATION in annotations:
        kept = {name: value for name, value in annotations.items() if name != CLUSTER_ANNOTATION}
        if kept:
            metadata["annotations"] = kept
        else:
            del metadata["annotations"]


def without_cluster_annotation(call: Call, obj: Obj) -> Obj:
    """The same object, or one that shares everything but its annotations."""
    if not call.tools.annotates or CLUSTER_ANNOTATION not in (obj["metadata"].get("annotations") or ()):
        return obj
    metadata = dict(obj["metadata"])
    drop_cluster_annotation(call, metadata)
    return {**obj, "metadata": metadata}


def set_cluster_annotation(call: Call, metadata: Obj) -> None:
    if call.tools.annotates:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CLUSTER_ANNOTATION: call.target.cluster}


# --- default --------------------------------------------------------------------------------------


def set_defaults(write: Write) -> None:
    write.call.kind.rules.default(write.new)


def keep_other_fields(write: Write) -> None:
    """A subresource that writes one part leaves the rest of the object as it is."""
    new, old = write.new, write.old
    assert old is not None
    section, part = SUBRESOURCE_FIELDS[write.call.target.subresource]
    wanted = new.get(section, {}).get(part)
    for name in new.keys() - old.keys():
        del new[name]
    for name, value in old.items():
        if name != "metadata":
            new[name] = value
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        new["metadata"].pop(name, None)
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]
    new[section] = {name: value for name, value in old.get(section, {}).items() if name != part}
    if wanted:
        new[section][part] = wanted


# --- own: metadata.managedFields ------------------------------------------------------------------

STATUS_FIELDS: Final = path("status")
SPEC_FIELDS: Final = path("spec")
ALL_BUT_STATUS: Final = union(SPEC_FIELDS, path("metadata", "labels"))  #: what a status update cannot change


def manager_of(call: Call, options: WriteOptions) -> str:
    """The fieldManager parameter, or else the program's name at the start of its User-Agent."""
    return options.field_manager or program_of(call.request.headers.get("user-agent", ""))


@remember(1024)
def program_of(agent: str) -> str:
    program = agent.partition("/")[0]
    return "".join(char for char in program if char.isprintable())[:FIELD_MANAGER_LIMIT] or "unknown"


def ignored_fields(call: Call) -> Fields | None:
    """Fields that a request may contain but does not write, so its manager does not own them."""
    if call.target.subresource == STATUS:
        return SPEC_FIELDS if call.resource.custom else ALL_BUT_STATUS
    return STATUS_FIELDS if call.resource.has_status else None


def manage_fields(write: Write) -> None:
    """The manager owns the fields that it set or changed.  The object has defaults, and nothing else of the server."""
    if write.manager is None:
        return
    call, old = write.call, write.old
    if old is None and write.new["metadata"].get("managedFields") is None:
        entries = managed.after_create(
            write.new,
            call.kind.schema,
            manager=write.manager,
            api_version=call.resource.api_version,
            now=call.now(),
            reset=ignored_fields(call),
        )
    else:
        entries = managed.after_update(
            without_cluster_annotation(call, write.new),
            None if old is None else without_cluster_annotation(call, old),
            call.kind.schema,
            manager=write.manager,
            api_version=call.resource.api_version,
            now=call.now(),
            subresource=call.target.subresource,
            reset=ignored_fields(call),
        )
    set_managed_fields(write.new, entries)


def manage_scale(write: Write) -> None:
    if write.manager is None:
        return
    call, old = write.call, write.old
    assert old is not None
    entries = old["metadata"].get("managedFields") or []
    if write.new.get("spec") != old.get("spec") and call.kind.scaling is not None:
        api_version, replicas = call.resource.api_version, call.kind.scaling.replicas
        entries = managed.after_scale(entries, manager=write.manager, api_version=api_version, replicas=replicas)
    set_managed_fields(write.new, entries)


def set_managed_fields(obj: Obj, entries: list[Obj]) -> None:
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


# --- prepare --------------------------------------------------------------------------------------


def set_identity(write: Write) -> None:
    """Name, uid, creationTimestamp and first generation of a new object."""
    call, metadata = write.call, write.new["metadata"]
    generate_name(call, metadata)
    metadata["uid"] = call.tools.new_uid()
    metadata["creationTimestamp"] = call.now()
    if call.kind.rules.generation:
        metadata["generation"] = 1
    if not write.options.dry_run:
        set_cluster_annotation(call, metadata)


def generate_name(call: Call, metadata: Obj) -> None:
    """A name that is free, if one of a few random names is."""
    base = metadata.get("generateName", "")
    if not base or metadata.get("name"):
        return
    for _ in range(GENERATED_ATTEMPTS):
        metadata["name"] = base[:GENERATED_BASE_LIMIT] + call.tools.random_suffix()
        if call.store.get(call.key_of(metadata["name"])) is None:
            return


def prepare_create(write: Write) -> None:
    write.call.kind.rules.prepare_create(write.new)


def prepare_update(write: Write) -> None:
    assert write.old is not None
    write.call.kind.rules.prepare_update(write.new, write.old)


def prepare_status(write: Write) -> None:
    assert write.old is not None
    write.call.kind.rules.prepare_status(write.new, write.old)


def increment_generation(write: Write) -> None:
    assert write.old is not None
    differs = write.call.kind.rules.another_generation or differs_in_spec
    if differs(write.new, write.old):
        write.new["metadata"]["generation"] = write.old["metadata"].get("generation", 0) + 1


def differs_in_spec(new: Obj, old: Obj) -> bool:
    """In anything but metadata and status."""
    ignored = ("metadata", "status")
    return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()).difference(ignored))


# --- validate -------------------------------------------------------------------------------------


def validate_create(write: Write) -> None:
    call, new = write.call, write.new
    rules = call.kind.rules
    errors = validate_metadata(new, rules, namespaced=call.resource.namespaced)
    errors += rules.validate(new) + rules.validate_create(new)
    if errors:
        raise call.invalid(write.name, errors)


def validate_change(write: Write, errors: list[FieldError]) -> None:
    """`errors`: of everything but the metadata.  Raises 422."""
    call, new, old = write.call, write.new, write.old
    assert old is not None
    found = validate_metadata_update(new, old) * 2  # Kubernetes reports them for every object, and for the kind
    found += validate_metadata(new, call.kind.rules, namespaced=call.resource.namespaced) + errors
    if found:
        raise call.invalid(call.target.name, found)


def validate_update(write: Write) -> None:
    rules = write.call.kind.rules
    assert write.old is not None
    validate_change(write, rules.validate(write.new) + rules.validate_update(write.new, write.old))


def validate_status(write: Write) -> None:
    assert write.old is not None
    validate_change(write, write.call.kind.rules.validate_status(write.new, write.old))


def validate_field(write: Write) -> None:
    validate_change(write, write.call.kind.rules.validate(write.new))


def warn(write: Write) -> None:
    write.warnings += write.call.kind.rules.warnings(write.new, write.old)


# --- admit ----------------------------------------------------------------------------------------


def check_view(write: Write) -> None:
    """An object that is created through a view must be visible there.  Raises 403."""
    if write.call.target.view:
        sees = write.call.sees()
        if sees is not None and not sees(write.call.key_of(write.name)):
            raise write.refuse("it is not in this view")


STEPS: Final = (
    Step("check_new", Stage.CHECK, check_new, on(CREATE)),
    Step("check_preconditions", Stage.CHECK, check_preconditions, on(*CHANGES)),
    Step("drop_server_fields", Stage.METADATA, drop_server_fields, on(CREATE)),
    Step("restore_metadata", Stage.METADATA, restore_metadata, on(*CHANGES)),
    Step(
        "set_defaults",
        Stage.DEFAULT,
        set_defaults,
        lambda kind, operation: operation in WRITES and kind.rules.default is not no_change,
    ),
    Step("keep_other_fields", Stage.DEFAULT, keep_other_fields, on(*SUBRESOURCE_FIELDS)),
    Step("manage_fields", Stage.MANAGED_FIELDS, manage_fields, on(*WRITES - {SCALE})),
    Step("manage_scale", Stage.MANAGED_FIELDS, manage_scale, on(SCALE)),
    Step("set_identity", Stage.PREPARE, set_identity, on(CREATE)),
    Step(
        "prepare_create",
        Stage.PREPARE,
        prepare_create,
        lambda kind, operation: operation == CREATE and kind.rules.prepare_create is not no_change,
    ),
    Step(
        "prepare_update",
        Stage.PREPARE,
        prepare_update,
        lambda kind, operation: operation in (UPDATE, SCALE) and kind.rules.prepare_update is not no_changes,
    ),
    Step(
        "prepare_status",
        Stage.PREPARE,
        prepare_status,
        lambda kind, operation: operation == STATUS and kind.rules.prepare_status is not no_changes,
    ),
    Step(
        "increment_generation",
        Stage.GENERATION,
        increment_generation,
        lambda kind, operation: operation in CHANGES - {STATUS} and kind.rules.generation,
    ),
    Step("validate_create", Stage.VALIDATE, validate_create, on(CREATE)),
    Step("validate_update", Stage.VALIDATE, validate_update, on(UPDATE, SCALE)),
    Step("validate_status", Stage.VALIDATE, validate_status, on(STATUS)),
    Step("validate_field", Stage.VALIDATE, validate_field, on("ephemeralcontainers", "resize")),
    Step(
        "warn",
        Stage.REFUSE,
        warn,
        lambda kind, operation: operation in WRITES and kind.rules.warnings is not no_warnings,
    ),
    Step("check_view", Stage.REFUSE, check_view, on(CREATE), lambda call: bool(call.target.view), on(CREATE)),
)
