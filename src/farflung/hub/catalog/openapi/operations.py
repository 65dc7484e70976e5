"""The operations of each path, independent of the version of OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from farflung.apis.definitions import META
from farflung.apis.resource import Resource, Subresource
from farflung.hub.request.media_types import JSON, PATCHES, PROTOBUF, STRATEGIC_PATCH, YAML
from farflung.machinery.errors import Obj

STREAMS: Final = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

STATUS: Final = f"{META}Status"
PATCH: Final = f"{META}Patch"
DELETE_OPTIONS: Final = f"{META}DeleteOptions"
TEXT: Final = ""  #: in place of the name of a definition: a plain string

WRITING: Final = ("dryRun", "fieldManager", "fieldValidation")
DELETING: Final = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)
SELECTING: Final = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
LISTING: Final = ("allowWatchBookmarks", *SELECTING, "watch")

#: subresource that connects to a pod, a node or a service → its query parameters
CONNECTING: Final[Mapping[str, tuple[str, ...]]] = {
    "attach": ("container", "stderr", "stdin", "stdout", "tty"),
    "exec": ("command", "container", "stderr", "stdin", "stdout", "tty"),
    "portforward": ("ports",),
    "proxy": ("path",),
}
LOGGING: Final = (
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
)


#: verb → the method, and the verb in the identity of the operation
METHODS: Final[Mapping[str, tuple[str, str]]] = {
    "get": ("get", "read"),
    "list": ("get", "list"),
    "create": ("post", "create"),
    "update": ("put", "replace"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
}
CREATED: Final = ("200", "201", "202")


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    action: str  #: get, list, post, put, patch, delete, deletecollection or connect; empty: no resource
    identity: str  #: unique in all documents
    description: str
    tag: str
    kind: Obj = field(default_factory=dict)  #: group, version and kind
    parameters: Sequence[str] = ()  #: names of query parameters
    body: str | None = None  #: the definition of the body
    body_required: bool = True
    consumes: Sequence[str] = ("*/*",)
    produces: Sequence[str] = (JSON, YAML, PROTOBUF)
    answers: Mapping[str, str] = field(default_factory=dict)  #: status code → definition


@dataclass(frozen=True, slots=True)
class PathOperations:
    path: str
    parameters: Sequence[str]  #: of every operation
    operations: Sequence[Operation]


def paths_of(resource: Resource) -> Iterator[PathOperations]:
    """The paths of a resource and its subresources."""
    names = OperationNames(resource)
    if resource.namespaced and "list" in resource.verbs:
        yield PathOperations(f"{names.root}/{resource.plural}", ("pretty",), [listing(names, everywhere=True)])
    collection = list(collection_operations(names))
    if collection:
        yield PathOperations(names.collection, names.outer, collection)
    item = list(item_operations(names))
    if item:
        yield PathOperations(names.item, names.inner, item)
    for subresource in resource.subresources:
        operations = list(subresource_operations(names, subresource))
        yield PathOperations(f"{names.item}/{subresource.name}", names.inner, operations)


class OperationNames:
    """Names and paths of the operations on a resource."""

    __slots__ = ("collection", "inner", "item", "kind", "outer", "resource", "root", "tag", "title")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        self.collection = f"{self.root}{scope}/{resource.plural}"
        self.item = f"{self.collection}/{{name}}"
        self.outer = ("namespace", "pretty") if resource.namespaced else ("pretty",)
        self.inner = ("name", *self.outer)
        self.tag, self.title = titles(resource.group, resource.version)
        self.kind = group_version_kind(resource.group, resource.version, resource.kind)

    def identity(self, verb: str, *, middle: str = "", end: str = "") -> str:
        """`readCoreV1NamespacedPodStatus`"""
        scope = "Namespaced" if self.resource.namespaced else ""
        return f"{verb}{self.title}{middle}{scope}{self.resource.kind}{end}"

    def operation(
        self,
        verb: str,
        description: str,
        parameters: Sequence[str] = (),
        *,
        middle: str = "",
        end: str = "",
        kind: Obj | None = None,
        **others: Any,
    ) -> Operation:
        """`others`: further fields of the Operation."""
        method, named = METHODS[verb]
        action = "list" if verb == "list" else method
        identity = self.identity(named, middle=middle, end=end)
        fields: Obj = {"produces": self.produces, **others}
        return Operation(method, action, identity, description, self.tag, kind or self.kind, parameters, **fields)

    def deletion(
        self, description: str, parameters: Sequence[str], answers: Mapping[str, str], middle: str = ""
    ) -> Operation:
        body: Obj = {"body": DELETE_OPTIONS, "body_required": False}
        return self.operation("delete", description, parameters, middle=middle, answers=answers, **body)

    @property
    def produces(self) -> tuple[str, ...]:
        return (JSON, YAML) if self.resource.custom else (JSON, YAML, PROTOBUF)

    @property
    def patches(self) -> tuple[str, ...]:
        """Media types of patches.  Strategic ones need a built-in type, or a custom type that merges like one."""
        is_strategic = not self.resource.custom or self.resource.merged_like
        return tuple(one for one in PATCHES if is_strategic or one != STRATEGIC_PATCH)

    @property
    def list_definition(self) -> str:
        return f"{self.resource.definition.rpartition('.')[0]}.{self.resource.list_kind}"


def titles(group: str, version: str) -> tuple[str, str]:
    """`rbacAuthorization_v1` and `RbacAuthorizationV1`"""
    words = group.removesuffix(".k8s.io").replace("-", ".").split(".") if group else ["core"]
    title = "".join(word[:1].upper() + word[1:] for word in words)
    tag = title[:1].lower() + title[1:]
    return (f"{tag}_{version}", title + version[:1].upper() + version[1:]) if version else (tag, title)


def group_version_kind(group: str, version: str, kind: str) -> Obj:
    return {"group": group, "version": version, "kind": kind}


def listing(names: OperationNames, *, everywhere: bool = False) -> Operation:
    kind = names.resource.kind
    streams = tuple(one for one in STREAMS if one.partition(";")[0] in names.produces)
    listed = names.operation(
        "list", f"list or watch objects of kind {kind}", LISTING, produces=(*names.produces, *streams),
        answers={"200": names.list_definition},
    )  # fmt: skip
    return replace(listed, identity=f"list{names.title}{kind}ForAllNamespaces") if everywhere else listed


def collection_operations(names: OperationNames) -> Iterator[Operation]:
    kind, verbs, definition = names.resource.kind, names.resource.verbs, names.resource.definition
    if "list" in verbs:
        yield listing(names)
    if "create" in verbs:
        created = dict.fromkeys(CREATED, definition)
        yield names.operation("create", f"create {article(kind)}", WRITING, body=definition, answers=created)
    if "deletecollection" in verbs:
        described, parameters = f"delete a collection of {kind}", (*DELETING, *SELECTING)
        deleting = names.deletion(described, parameters, {"200": STATUS}, middle="Collection")
        yield replace(deleting, action="deletecollection")


def item_operations(names: OperationNames) -> Iterator[Operation]:
    resource = names.resource
    yield from changes(names, resource.verbs, resource.definition, f"the specified {resource.kind}")
    if "delete" in resource.verbs:
        yield names.deletion(f"delete {article(resource.kind)}", DELETING, {"200": STATUS, "202": STATUS})


def changes(
    names: OperationNames, verbs: Sequence[str], definition: str, described: str, end: str = "", kind: Obj | None = None
) -> Iterator[Operation]:
    """Get, put and patch of an object, or of a subresource in its form."""
    written = {"200": definition, "201": definition}
    if "get" in verbs and end == "Log":
        produces = ("text/plain", *names.produces)
        yield names.operation(
            "get", f"read {described}", LOGGING, end=end, kind=kind, produces=produces, answers={"200": TEXT}
        )
    elif "get" in verbs:
        yield names.operation("get", f"read {described}", end=end, kind=kind, answers={"200": definition})
    if "update" in verbs:
        yield names.operation(
            "update", f"replace {described}", WRITING, end=end, kind=kind, body=definition, answers=written
        )
    if "patch" in verbs:
        yield names.operation(
            "patch", f"partially update {described}", (*WRITING, "force"), end=end, kind=kind, body=PATCH,
            consumes=names.patches, answers=written,
        )  # fmt: skip


def subresource_operations(names: OperationNames, subresource: Subresource) -> Iterator[Operation]:
    resource = names.resource
    if subresource.name in CONNECTING:
        yield from connections(names, subresource)
        return
    end = subresource.name[:1].upper() + subresource.name[1:]
    kind = subresource_kind(resource, subresource)
    definition = subresource_definition(resource, subresource)
    described = f"{subresource.name} of the specified {resource.kind}"
    yield from changes(names, subresource.verbs, definition, described, end, kind)
    if "create" in subresource.verbs:
        created = dict.fromkeys(CREATED, definition)
        yield names.operation(
            "create", f"create {described}", WRITING, end=end, kind=kind, body=definition, answers=created
        )


def subresource_kind(resource: Resource, subresource: Subresource) -> Obj:
    if subresource.version:
        return group_version_kind(subresource.group, subresource.version, subresource.kind)
    return group_version_kind(resource.group, resource.version, subresource.kind)


def subresource_definition(resource: Resource, subresource: Subresource) -> str:
    if subresource.version:
        return f"io.k8s.api.{subresource.group.partition('.')[0]}.{subresource.version}.{subresource.kind}"
    if subresource.kind == resource.kind:
        return resource.definition
    return f"{resource.definition.rpartition('.')[0]}.{subresource.kind}"


def connections(names: OperationNames, subresource: Subresource) -> Iterator[Operation]:
    resource = names.resource
    end = subresource.name[:1].upper() + subresource.name[1:]
    for verb in subresource.verbs:
        method, _ = METHODS[verb]
        yield Operation(
            method,
            "connect",
            names.identity("connect", middle=method.capitalize(), end=end),
            f"connect {method.upper()} requests to {subresource.name} of {resource.kind}",
            names.tag,
            subresource_kind(resource, subresource),
            CONNECTING[subresource.name],
            produces=("*/*",),
            answers={"200": TEXT},
        )


def article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"


def discovery(path: str, tag: str, identity: str, description: str, definition: str) -> PathOperations:
    """The path of a discovery document."""
    produces = (JSON,) if path == "/version/" else (JSON, YAML, PROTOBUF)
    return PathOperations(
        path,
        (),
        [Operation("get", "", identity, description, tag, produces=produces, answers={"200": definition})],
    )
