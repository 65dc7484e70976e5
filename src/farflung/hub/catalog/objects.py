"""Objects as bytes: their keys, encoding, resourceVersion and selection.

An object is stored as the JSON that is served.  Metadata come first, and the resourceVersion is found without parsing:
so a write is encoded once, and lists and watch events are spliced from stored bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from farflung.apis.edge.names import PROJECTION
from farflung.apis.resource import Resource
from farflung.machinery.errors import TOO_DEEP, Obj, bad_request
from farflung.machinery.selectors import EVERY_FIELD, EVERYTHING, FieldSelector, LabelSelector
from farflung.store.base import Entry, Revision

#: no free text of a client comes before resourceVersion
METADATA_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
REVISION: Final = b'"resourceVersion":"'
UID: Final = b'"uid":"'
CREATED: Final = b'"creationTimestamp":"'
COPY_MARK: Final = f'"{PROJECTION}"'.encode()
DELETED: Final = b'"deletionTimestamp"'
OWNERS: Final = b'"ownerReferences"'
MANAGED_FIELDS: Final = b'"managedFields":['
TIMESTAMP_LENGTH: Final = len("2006-01-02T15:04:05Z") + len('",')

EVERY_CLUSTER: Final = "*"


def prefix(resource: Resource, cluster: str, namespace: str = "") -> str:
    """The prefix of a resource's objects in a cluster, or in one of its namespaces.  `*`: all clusters."""
    if cluster == EVERY_CLUSTER:
        return resource.storage_prefix
    start = f"{resource.storage_prefix}{cluster}/"
    return f"{start}{namespace}/" if namespace else start


def key(resource: Resource, cluster: str, namespace: str, name: str) -> str:
    start = resource.storage_prefix
    return f"{start}{cluster}/{namespace}/{name}" if namespace else f"{start}{cluster}/{name}"


def namespace_key(cluster: str, name: str) -> str:
    return f"/core/namespaces/{cluster}/{name}"


def definition_key(cluster: str, group: str, plural: str) -> str:
    return f"/apiextensions.k8s.io/customresourcedefinitions/{cluster}/{plural}.{group}"


def name_in(key: str) -> tuple[str, str]:
    """(namespace, name) of a key; the namespace of a cluster-scoped object is empty."""
    parts = key.split("/")
    return (parts[4], parts[5]) if len(parts) == 6 else ("", parts[4])


def cluster_in(key: str) -> str:
    return key.split("/", 4)[3]


# --- encoding -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _type_head(kind: str, api_version: str) -> bytes:
    return b'{"kind":%b,"apiVersion":%b,' % (orjson.dumps(kind), orjson.dumps(api_version))


def type_head(resource: Resource) -> bytes:
    """The beginning of every encoded object of a resource, up to its metadata."""
    return _type_head(resource.kind, resource.api_version)


def list_head(resource: Resource, metadata: Obj) -> bytes:
    """The beginning of an encoded list of a resource, up to its first item."""
    return _type_head(resource.list_kind, resource.api_version) + b'"metadata":%b,"items":[' % orjson.dumps(metadata)


def encode(resource: Resource, obj: Obj) -> bytes:
    """An object as stored and served: kind, apiVersion, metadata, then the rest in its order.  Raises ApiError for an
    object that is nested too deep, also inside of a list, a Table or a watch event."""
    metadata = obj["metadata"]
    metadata.setdefault("resourceVersion", "")
    document = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {name: metadata[name] for name in METADATA_ORDER if name in metadata},
    }
    for name, value in obj.items():
        if name not in document:
            document[name] = value
    try:
        return orjson.dumps([[[[[[[[document]]]]]]]])[8:-8]
    except orjson.JSONEncodeError:
        raise bad_request(TOO_DEEP) from None


def without_revision(value: bytes) -> bytes:
    """An encoded object without its empty resourceVersion, after a dry run."""
    return value.replace(REVISION + b'",', b"", 1).replace(b"," + REVISION + b'"}', b"}", 1)


def stamp(value: bytes, revision: Revision) -> bytes:
    """An encoded object with its revision.  Only name, namespace and uid come before, so the first match is the right
    one."""
    start = value.index(REVISION) + len(REVISION)
    return b"%b%d%b" % (value[:start], revision, value[value.index(b'"', start) :])


def decode(entry: Entry) -> Obj:
    """A copy of an object."""
    return orjson.loads(entry.value)  # type: ignore[no-any-return]


def uid_of(entry: Entry) -> str:
    """The first uid in an encoded object is its own: only names come before."""
    start = entry.value.index(UID) + len(UID)
    return entry.value[start : entry.value.index(b'"', start)].decode()


def is_terminating(entry: Entry) -> bool:
    """Whether an object has a deletionTimestamp.  In encoded metadata it directly follows the creationTimestamp, and
    no text of a client comes before."""
    value = entry.value
    return value.startswith(DELETED, value.index(CREATED) + len(CREATED) + TIMESTAMP_LENGTH)


def may_be_collected(entry: Entry) -> bool:
    """Whether an object has owners or is being deleted.  Called for every write, so only the bytes before managedFields
    are searched."""
    value = entry.value
    end = value.find(MANAGED_FIELDS)
    if end < 0:
        end = len(value)
    return value.find(OWNERS, 0, end) >= 0 or value.find(DELETED, 0, end) >= 0


# --- selecting ------------------------------------------------------------------------------------


class _Metadata(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_labels: Callable[[bytes], _Labelled] = msgspec.json.Decoder(_Labelled).decode
_NO_LABELS: Final[dict[str, str]] = {}


def labels_of(entry: Entry) -> dict[str, str]:
    """Decoded once, and cached in the entry."""
    if entry.note is None:
        entry.note = _decode_labels(entry.value).metadata.labels or _NO_LABELS
    return entry.note  # type: ignore[no-any-return]


def is_copy(entry: Entry) -> bool:
    """Whether this is the copy of an object in a mailbox.  It is meant for a cluster, and has no effect in the hub."""
    return COPY_MARK in entry.value and PROJECTION in (decode(entry)["metadata"].get("annotations") or ())


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """The objects of a resource that a list or watch selects."""

    resource: Resource = field(compare=False)
    read: Callable[[Entry], Obj] = field(compare=False, default=decode)  #: the served form of an object
    labels: LabelSelector = EVERYTHING
    fields: FieldSelector = EVERY_FIELD
    view: str = ""  #: of the request
    shows: Callable[[Entry], bool] | None = field(compare=False, default=None)  #: whether an object is in the view
    showed: Callable[[Entry], bool] | None = field(
        compare=False, default=None
    )  #: whether the former state of an object was in the view

    def __bool__(self) -> bool:
        return bool(self.labels) or bool(self.fields) or self.shows is not None

    def matches(self, entry: Entry) -> bool:
        return (self.shows is None or self.shows(entry)) and self._selects(entry)

    def matched(self, entry: Entry) -> bool:
        """Whether the former state of an object was selected."""
        return (self.showed is None or self.showed(entry)) and self._selects(entry)

    def _selects(self, entry: Entry) -> bool:
        if self.labels and not self.labels.matches(labels_of(entry)):
            return False
        return not self.fields or self._fields_match(entry)

    def _fields_match(self, entry: Entry) -> bool:
        namespace, name = name_in(entry.key)
        obj: Any = None

        def read(path: str) -> str:
            nonlocal obj
            if path == "metadata.name":
                return name
            if path == "metadata.namespace":
                return namespace
            if obj is None:
                obj = self.read(entry)
            return self.resource.selectable[path](obj)

        return self.fields.matches(read)
