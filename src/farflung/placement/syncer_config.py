"""SyncerConfigs: the configuration of a syncer, and its report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from farflung.apis.edge.names import CAPACITY_KNOWN, EDGE_REACHABLE
from farflung.machinery import quantity, times
from farflung.machinery.errors import Obj
from farflung.machinery.names import version_order
from farflung.placement.names import DEFINITIONS, NAMESPACES, Category, GroupResource, ObjectRef, PlacementKey, category
from farflung.placement.select import UpsyncSet
from farflung.placement.types import StatusCondition

if TYPE_CHECKING:  # a syncer needs no placement engine
    from farflung.placement.index import ObjectIndex, PlacementIndex
    from farflung.placement.name_owners import NameOwners
    from farflung.placement.state import PlacementState


class SyncerHeartbeat(msgspec.Struct, frozen=True):
    """The report of a syncer, as the mailbox controller uses it."""

    beat: datetime | None = None  #: time of the last heartbeat, by the server's clock
    edge: StatusCondition | None = None  #: the condition EdgeReachable
    room: EdgeCapacity | None = None  #: None: not reported


MAX_RESOURCES: Final = 20  #: resources of a cluster
MAX_AMOUNT: Final = 64  #: characters of an amount
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
Amounts = tuple[tuple[str, str], ...]


class EdgeCapacity(NamedTuple):
    """Valid amounts.  Empty: the syncer cannot read Nodes."""

    allocatable: Amounts = ()
    capacity: Amounts = ()


def parse_amounts(value: object) -> Amounts:
    """Sorted, in canonical form, without invalid entries."""
    if not isinstance(value, dict):
        return ()
    found = ((name, _text(amount)) for name, amount in value.items() if isinstance(name, str) and NAME.fullmatch(name))
    return tuple(sorted((name, text) for name, text in found if text))[:MAX_RESOURCES]


def _text(amount: object) -> str:
    """Empty if it is invalid."""
    if not isinstance(amount, str) or len(amount) > MAX_AMOUNT:
        return ""
    try:
        value = quantity.parse(amount)
        return quantity.canonical(amount) if 0 <= value.nanos <= quantity.LARGEST_BINARY * quantity.ONE else ""
    except quantity.QuantityError:
        return ""


def capacity_patch(shown: Any, room: EdgeCapacity) -> Obj:
    """A merge patch of the status `shown` to these amounts; empty if it has them already."""
    found: Obj = {}
    for field, amounts in room._asdict().items():
        before, after = getattr(shown, field, None) or {}, dict(amounts)
        if before != after:
            removed = dict.fromkeys(before if isinstance(before, dict) else ())
            found[field] = {**removed, **after} if after else None
    return found


_FIELD: Final = b'"f:lastSyncerHeartbeatTime"'


# --- the report -----------------------------------------------------------------------------------


class _Owner(msgspec.Struct, rename="camel"):
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: list[_Owner] | None = None


class _Status(msgspec.Struct):
    conditions: list[StatusCondition] | None = None
    allocatable: Any = None
    capacity: Any = None


class _Config(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_CONFIG: Final = msgspec.json.Decoder(_Config)


def parse_heartbeat(document: bytes) -> SyncerHeartbeat:
    """Raises msgspec.MsgspecError if the document is not a SyncerConfig."""
    found = _CONFIG.decode(document)
    status = found.status or _Status()
    conditions = {one.type: one for one in reversed(status.conditions or [])}
    beats = [beat for owner in found.metadata.managed_fields or () if (beat := _beat(owner)) is not None]
    return SyncerHeartbeat(
        max(beats, default=None), conditions.get(EDGE_REACHABLE), _room(status, conditions.get(CAPACITY_KNOWN))
    )


def _room(status: _Status, known: StatusCondition | None) -> EdgeCapacity | None:
    """None for old syncers, which report neither capacity nor the condition."""
    room = EdgeCapacity(parse_amounts(status.allocatable), parse_amounts(status.capacity))
    return room if any(room) or (known is not None and known.status == "False") else None


def _beat(owner: _Owner) -> datetime | None:
    if owner.subresource != "status" or _FIELD not in bytes(owner.fields_v1):
        return None
    return moment(owner.time)


def moment(text: str) -> datetime | None:
    try:
        return times.parse(text)
    except times.TimeError:
        return None


ANY: Final = "*"  #: in lists of names, and instead of a name: all objects
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII).fullmatch
_DOMAIN: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII).fullmatch


class SyncerSpec(NamedTuple):
    """The spec of a SyncerConfig, without order."""

    namespaces: frozenset[str] = frozenset()
    resources: frozenset[GroupResource] = frozenset()
    refs: frozenset[ObjectRef] = frozenset()
    versions: Mapping[GroupResource, str] = {}
    upsync: frozenset[UpsyncSet] = frozenset()

    def spec(self) -> Obj:
        return spec_of(**self._asdict())

    def joined(self, other: SyncerSpec) -> SyncerSpec:
        """The union.  Versions of `other` have precedence."""
        return SyncerSpec(
            self.namespaces | other.namespaces,
            self.resources | other.resources,
            self.refs | other.refs,
            {**self.versions, **other.versions},
            self.upsync | other.upsync,
        )


def combine_specs(
    selections: PlacementIndex,
    objects: ObjectIndex,
    placements: Iterable[PlacementKey],
    namespaced: Callable[[str], Mapping[GroupResource, str]],
    names: MailboxNames | None = None,
) -> SyncerSpec:
    """The spec for valid placements.  `namespaced`: the namespaced kinds of a workspace, with versions; `names`: of the
    mailbox, if several tenants have placements there.  Versions of kinds outside of whole namespaces are added from
    the mailbox."""
    namespaces: set[str] = set()
    refs: set[ObjectRef] = set()
    resources: dict[GroupResource, str] = {}
    upsync: set[UpsyncSet] = set()
    for key in placements:
        workload = selections.workload(key)
        assert workload is not None
        whole = selections.whole_namespaces(key)
        selected = selections.selected(key)
        if names is None:
            upsync.update(workload.upsync)
        else:
            upsync.update(one for some in workload.upsync if (one := names.permitted_upsync(some, key)) is not None)
            whole = frozenset(name for name in whole if names.permits(ObjectRef(NAMESPACES, "", name), key))
            selected = {ref: how for ref, how in selected.items() if names.permits(ref, key)}
        namespaces |= whole
        if whole:
            resources |= namespaced(key.cluster)
        refs.update(ref for ref, how in selected.items() if not how.whole_namespace)
        refs.update(_definitions(objects, key.cluster, {ref.resource for ref in selected}))
    return SyncerSpec(frozenset(namespaces), frozenset(resources), frozenset(refs), resources, frozenset(upsync))


class MailboxNames:
    """The names that each placement may use in a mailbox of several tenants."""

    def __init__(self, name_owners: NameOwners, mailbox: str) -> None:
        self._name_owners = name_owners
        self._mailbox = mailbox

    def permits(self, ref: ObjectRef, key: PlacementKey) -> bool:
        return self._name_owners.permits(self._mailbox, ref, key)

    def permitted_upsync(self, wanted: UpsyncSet, key: PlacementKey) -> UpsyncSet | None:
        """With the namespaces that the tenant owns there instead of all, and without those of others; None if none is
        left."""
        named = set(wanted.namespaces) - {ANY}
        permitted = {name for name in named if self.permits(ObjectRef(NAMESPACES, "", name), key)}
        if ANY in wanted.namespaces:
            permitted |= self._name_owners.owned_namespaces(self._mailbox, key)
        elif permitted == named:
            return wanted
        return wanted._replace(namespaces=tuple(sorted(permitted))) if permitted else None


def _definitions(objects: ObjectIndex, cluster: str, resources: Iterable[GroupResource]) -> Iterator[ObjectRef]:
    """The definitions of these kinds, if they exist."""
    for resource in resources:
        definition = ObjectRef(DEFINITIONS, "", f"{resource.resource}.{resource.group}")
        if objects.get(cluster, definition) is not None:
            yield definition


class SyncerSpecs:
    """The desired spec of each SyncerConfig.  Mailboxes with the same placements share it."""

    def __init__(self, known: PlacementState, namespaced: Callable[[str], Mapping[GroupResource, str] | None]) -> None:
        """`namespaced`: the namespaced kinds of a workspace, with versions; None if its discovery was not read yet."""
        self._known = known
        self._namespaced = namespaced
        self._combined: dict[tuple[object, ...], tuple[SyncerSpec, frozenset[GroupResource]]] = {}
        self._specs: dict[tuple[object, ...], tuple[SyncerSpec, Obj]] = {}

    def forget(self) -> None:
        """The spec of some SyncerConfig may have changed."""
        self._combined.clear()
        self._specs.clear()

    def desired(self, mailbox: str, cluster: str, before: Mapping[str, Any], *, is_failing: bool) -> Obj | None:
        """None: wait for the discovery of a workspace.  `before`: the current spec; `is_failing`: the engine may lack
        objects."""
        selections = self._known.selections
        placements = tuple(key for key in selections.placements_at(mailbox) if selections.workload(key) is not None)
        kinds_of = {key.cluster: self._namespaced(key.cluster) for key in placements}
        if None in kinds_of.values():
            return None
        name_owners = self._known.name_owners
        tenancy = MailboxNames(name_owners, mailbox) if name_owners.is_contested(mailbox) else None
        sharing: tuple[object, ...] = placements if tenancy is None else (mailbox,)
        if sharing not in self._combined:
            kinds_in = {cluster: resources or {} for cluster, resources in kinds_of.items()}
            combined = combine_specs(selections, self._known.objects, placements, kinds_in.__getitem__, tenancy)
            self._combined[sharing] = combined, frozenset(ref.resource for ref in combined.refs)
        combined, resources = self._combined[sharing]
        served = ((resource, self._known.served_kinds.collection(cluster, resource)) for resource in resources)
        versions = {resource: source.version for resource, source in served if source is not None}
        shared = sharing, tuple(versions.items())
        if shared not in self._specs:
            wanted = combined._replace(versions={**versions, **combined.versions})
            self._specs[shared] = wanted, wanted.spec()
        wanted, spec = self._specs[shared]
        if is_failing or self._known.has_unresolved_copies(mailbox):
            return parse_syncer_spec(before).joined(wanted).spec()  # held copies stay in the cluster too
        return spec


class ConfigFields:
    """Reads fields of a configuration that users may write by hand.  Invalid parts are reported and left out."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        """`report` gets the path of an invalid part, and what is wrong with it."""
        self._report = report

    def map(self, within: Mapping[str, Any], key: str, above: str) -> Obj:
        """`above`: the path of `within`, with a dot."""
        found = within.get(key)
        if isinstance(found, dict):
            return found
        if found is not None:
            self._report(f"{above}{key}", "is no map")
        return {}

    def maps(self, within: Mapping[str, Any], key: str, above: str) -> Iterator[tuple[str, Obj]]:
        """The maps of a list, each with its path."""
        for number, one in enumerate(self._list(within, key, above)):
            where = f"{above}{key}[{number}]"
            if isinstance(one, dict):
                yield where, one
            else:
                self._report(where, "is no map")

    def texts(self, within: Mapping[str, Any], key: str, above: str) -> tuple[str, ...]:
        found = self._list(within, key, above)
        texts = tuple(one for one in found if isinstance(one, str) and one)
        if len(texts) < len(found):
            self._report(f"{above}{key}", "holds something that is no text, or empty")
        return texts

    def text(self, within: Mapping[str, Any], key: str, above: str) -> str:
        """Empty if it is absent."""
        found = within.get(key)
        if isinstance(found, str):
            return found
        if found is not None:
            self._report(f"{above}{key}", "is no text")
        return ""

    def group(self, where: str, one: Obj, key: str) -> str | None:
        """None if it is invalid."""
        return self._fitting(where, one, key, _DOMAIN, "is no name of an API group")

    def version(self, where: str, one: Obj, key: str) -> str | None:
        """None if it is invalid."""
        return self._fitting(where, one, key, _LABEL, "is no version of an API: say `v1`, without its group")

    def resource(self, where: str, one: Obj) -> tuple[GroupResource, str] | None:
        """A kind and its version; None if they are invalid."""
        group, version = self.group(where, one, "group"), self.version(where, one, "apiVersion")
        plural = self.text(one, "resource", f"{where}.")
        if not self.is_plural(where, plural) or group is None or version is None:
            return None
        return GroupResource(group, plural), version

    def is_plural(self, where: str, plural: str) -> bool:
        if _LABEL(plural):
            return True
        self._report(where, "has a resource that is no lower-case plural")
        return False

    def missing(self, where: str, why: str = "is missing") -> None:
        self._report(where, why)

    def _list(self, within: Mapping[str, Any], key: str, above: str) -> list[Any]:
        found = within.get(key)
        if isinstance(found, list):
            return found
        if found is not None:
            self._report(f"{above}{key}", "is no list")
        return []

    def _fitting(self, where: str, one: Obj, key: str, fits: Callable[[str], object], problem: str) -> str | None:
        text = one.get(key)
        if text is None or text == "":
            return ""
        if isinstance(text, str) and fits(text):
            return text
        self._report(f"{where}.{key}", problem)
        return None


def read_syncer_spec(spec: Mapping[str, Any], fields: ConfigFields) -> SyncerSpec:
    """The inverse of `SyncerSpec.spec`, for specs of any writer.  Of several versions of a kind, the newest one."""
    versions: dict[GroupResource, str] = {}
    refs: set[ObjectRef] = set()

    def parse_resource(where: str, one: Obj) -> GroupResource | None:
        found = fields.resource(where, one)
        if found is None:
            return None
        resource, version = found
        versions[resource] = min(
            versions.get(resource) or version, version or versions.get(resource, ""), key=version_order
        )
        return resource

    scope = fields.map(spec, "namespaceScope", "spec.")
    namespaces = frozenset(fields.texts(scope, "namespaces", "spec.namespaceScope."))
    whole = [parse_resource(where, one) for where, one in fields.maps(scope, "resources", "spec.namespaceScope.")]
    for where, one in fields.maps(spec, "namespacedObjects", "spec."):
        resource = parse_resource(where, one)
        for inner, within in fields.maps(one, "objectsByNamespace", f"{where}."):
            namespace = fields.text(within, "namespace", f"{inner}.")
            names = fields.texts(within, "names", f"{inner}.")
            if not namespace:
                fields.missing(f"{inner}.namespace")
            elif resource is not None:
                refs.update(ObjectRef(resource, namespace, name) for name in names)
    for where, one in fields.maps(spec, "clusterScope", "spec."):
        resource, names = parse_resource(where, one), fields.texts(one, "objects", f"{where}.")
        if resource is not None:
            refs.update(ObjectRef(resource, "", name) for name in names)
    upsync: set[UpsyncSet] = set()
    for where, one in fields.maps(spec, "upsync", "spec."):
        group = fields.group(where, one, "apiGroup")
        requested, *others = (fields.texts(one, key, f"{where}.") for key in ("resources", "namespaces", "names"))
        plurals = tuple(plural for plural in requested if plural == ANY or fields.is_plural(where, plural))
        if group is not None:
            upsync.add(UpsyncSet(group, plurals, *others))
    resources = frozenset(resource for resource in whole if resource is not None)
    known = {resource: version for resource, version in versions.items() if version}
    return SyncerSpec(namespaces, resources, frozenset(refs), known, frozenset(upsync))


def parse_syncer_spec(spec: Mapping[str, Any]) -> SyncerSpec:
    """Without invalid parts."""
    return read_syncer_spec(spec, ConfigFields(lambda where, problem: None))


def spec_of(
    *,
    namespaces: Iterable[str] = (),
    resources: Iterable[GroupResource] = (),
    refs: Iterable[ObjectRef] = (),
    versions: Mapping[GroupResource, str],
    upsync: Iterable[UpsyncSet] = (),
) -> Obj:
    """The spec of `the-one`: sorted, and equal for equal sets.

    `namespaces`: selected as a whole, for these namespaced `resources`; `refs`: selected one by one.  Omits objects in
    whole namespaces, and objects of kinds that are only copied to mailboxes or have no known version."""
    all_kinds = {resource for resource in resources if resource in versions and category(resource) is Category.EDGE}
    whole = set(namespaces)
    inside: dict[GroupResource, dict[str, set[str]]] = {}
    outside: dict[GroupResource, set[str]] = {}
    for resource, namespace, name in refs:
        if not namespace:
            outside.setdefault(resource, set()).add(name)
        elif namespace not in whole or resource not in all_kinds:
            inside.setdefault(resource, {}).setdefault(namespace, set()).add(name)
    spec: Obj = {"namespaceScope": {}}
    if whole:
        spec["namespaceScope"] = {
            "namespaces": sorted(whole),
            "resources": [_resource(resource, versions) for resource in sorted(all_kinds)],
        }
    if some := _downsynced(inside, versions):
        spec["namespacedObjects"] = [
            {**_resource(resource, versions), "objectsByNamespace": _by_namespace(inside[resource])}
            for resource in some
        ]
    if some := _downsynced(outside, versions):
        spec["clusterScope"] = [
            {**_resource(resource, versions), "objects": sorted(outside[resource])} for resource in some
        ]
    if sets := sorted(set(upsync)):
        spec["upsync"] = [_upsync(one) for one in sets]
    return spec


def _downsynced(resources: Iterable[GroupResource], versions: Mapping[GroupResource, str]) -> list[GroupResource]:
    return sorted(resource for resource in resources if resource in versions and category(resource) is Category.EDGE)


def _resource(resource: GroupResource, versions: Mapping[GroupResource, str]) -> Obj:
    return {"apiVersion": versions[resource], "group": resource.group, "resource": resource.resource}


def _by_namespace(names: Mapping[str, set[str]]) -> list[Obj]:
    return [{"namespace": namespace, "names": sorted(names[namespace])} for namespace in sorted(names)]


def _upsync(one: UpsyncSet) -> Obj:
    """The lists keep the order of the EdgePlacement."""
    lists: Obj = {"apiGroup": one.group, "names": list(one.names), "namespaces": list(one.namespaces)}
    return {**{key: value for key, value in lists.items() if value}, "resources": list(one.resources)}
