"""WorkspaceTypes: inheritance, allowed parents and children, initializers and default bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from farflung.apis.kcp.names import ExportReference
from farflung.hub.tenancy.paths import TypeReference
from farflung.machinery.errors import Obj

BINDINGS: Final = "system:apibindings"  #: the initializer that creates default bindings
RESERVED: Final = frozenset({"any", "system"})  #: names that are not allowed
MAX_EXTENDED: Final = 100  #: types that a type may extend, directly or not
DEFAULT_CHILD: Final = TypeReference("universal", "root")


class WorkspaceTypeRefused(Exception):
    """Why a type cannot be used, with kcp's message."""


@dataclass(frozen=True, slots=True)
class TypeLimit:
    """The allowed types of parents or children."""

    none: bool
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkspaceType:
    cluster: str
    path: str  #: of the type's workspace
    name: str
    initializer: bool = False
    extends: tuple[TypeReference, ...] = ()
    default_child: TypeReference = DEFAULT_CHILD
    parents: TypeLimit | None = None
    children: TypeLimit | None = None
    bindings: tuple[ExportReference, ...] = ()
    labels: Mapping[str, str] | None = None

    @property
    def qualified(self) -> str:
        return f"{self.path}:{self.name}"

    @property
    def initializer_name(self) -> str:
        """With the name of its cluster, which is unique."""
        return f"{self.cluster}:{self.name}"


#: (path, name) → type, or None
Lookup = Callable[[str, str], WorkspaceType | None]
TypeLineage = Sequence[WorkspaceType]  #: the extended types, then the type itself


def read_type(obj: Obj, cluster: str, path: str) -> WorkspaceType:
    """Read a WorkspaceType object of a cluster with this path."""
    spec: Obj = obj.get("spec") or {}
    child = spec.get("defaultChildWorkspaceType")
    return WorkspaceType(
        cluster,
        path,
        obj["metadata"]["name"],
        bool(spec.get("initializer")),
        tuple(_reference(one) for one in _list(spec.get("extend"), "with")),
        _reference(child) if child else DEFAULT_CHILD,
        _limit(spec.get("limitAllowedParents")),
        _limit(spec.get("limitAllowedChildren")),
        tuple(ExportReference(one.get("path", ""), one.get("export", "")) for one in _list(spec, "defaultAPIBindings")),
        spec.get("additionalWorkspaceLabels") or None,
    )


def _list(obj: Obj | None, field: str) -> Iterable[Any]:
    return (obj or {}).get(field) or ()


def _reference(obj: Obj) -> TypeReference:
    return TypeReference(obj.get("name", ""), obj.get("path", ""))


def _limit(obj: Obj | None) -> TypeLimit | None:
    if not obj:
        return None
    types = tuple(str(_reference(one)) for one in obj.get("types") or ())
    none = bool(obj.get("none"))
    return TypeLimit(none, types) if none or types else None


def find_type(reference: TypeReference, paths: Iterable[str], lookup: Lookup) -> WorkspaceType:
    """The type at the reference's path, or the first one of that name in `paths`.  Raises WorkspaceTypeRefused."""
    if reference.path:
        found = lookup(reference.path, reference.name)
        if found is None:
            missing = f'workspacetypes.tenancy.kcp.io "{reference}" not found'
            raise WorkspaceTypeRefused(f"Internal error occurred: {missing}")
        return found
    for path in paths:
        found = lookup(path, reference.name)
        if found is not None:
            return found
    raise WorkspaceTypeRefused(f'workspace type "{reference.name}" cannot be resolved')


def type_lineage(last: WorkspaceType, lookup: Lookup) -> TypeLineage:
    """The type with all types that it extends.  Raises WorkspaceTypeRefused for a missing type or a cycle."""
    return [*_extended(last, lookup, {last.qualified}, []), last]


def _extended(one: WorkspaceType, lookup: Lookup, seen: set[str], path: list[str]) -> list[WorkspaceType]:
    path = [*path, one.qualified]
    found: list[WorkspaceType] = []
    for reference in one.extends:
        name = str(reference)
        if name in path:
            circle = " -> ".join(path[path.index(name) :])
            raise WorkspaceTypeRefused(f"circular dependency detected in workspace type {name}: {circle}")
        if name in seen:
            continue
        seen.add(name)
        base = lookup(reference.path, reference.name) if len(seen) <= MAX_EXTENDED else None
        if base is None:
            raise WorkspaceTypeRefused(f"unable to find inherited workspace type {name}")
        found.append(base)
        found += _extended(base, lookup, seen, path)
    return found


class RelationLimit(NamedTuple):
    """One direction of the relation between parent and child workspaces."""

    limit: Callable[[WorkspaceType], TypeLimit | None]
    one: str
    some: str


PARENT: Final = RelationLimit(lambda one: one.parents, "parent", "parent")
CHILD: Final = RelationLimit(lambda one: one.children, "child", "children")


def check_relation(parents: TypeLineage, children: TypeLineage) -> None:
    """Raises WorkspaceTypeRefused unless a workspace of one type may be the parent of one of another."""
    messages = _relation_errors(PARENT, parents, by=children) or _relation_errors(CHILD, children, by=parents)
    if messages:
        raise WorkspaceTypeRefused(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")


def _relation_errors(side: RelationLimit, types: TypeLineage, by: TypeLineage) -> list[str]:
    """Messages about a relation that types do not allow."""
    messages = []
    for one in by:
        limit = side.limit(one)
        if limit is None or (not limit.none and any(type_.qualified in limit.types for type_ in types)):
            continue
        extends = "" if one is by[-1] else f" extends {one.qualified}, which"
        limiting = f"workspace type {by[-1].qualified}{extends}"
        if limit.none:
            messages.append(f"{limiting} cannot have any {side.some}")
        else:
            messages.append(
                f"{limiting} only allows {_names(limit.types)} {side.one} workspaces, but {side.one} type "
                f"{types[-1].qualified} only implements {_names(type_.qualified for type_ in types)}"
            )
    return messages


def _names(types: Iterable[str]) -> str:
    return f"[{' '.join(sorted(set(types)))}]"


def initializers(types: TypeLineage) -> list[str]:
    """The initializers of a new workspace."""
    named = [one.initializer_name for one in types if one.initializer]
    return [*dict.fromkeys(named), BINDINGS] if bindings(types) else list(dict.fromkeys(named))


def bindings(types: TypeLineage) -> list[ExportReference]:
    """The default bindings of a new workspace."""
    return list(dict.fromkeys(export for one in types for export in one.bindings))
