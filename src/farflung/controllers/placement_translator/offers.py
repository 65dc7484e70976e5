"""Which kinds workspaces serve, as their bindings and definitions say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from farflung.controllers.placement_translator.kinds import Category, category
from farflung.controllers.placement_translator.values import Kind, Part, Source
from farflung.controllers.placement_translator.world import DEFINITIONS, Seen

BINDINGS: Final = Kind("apis.kcp.io", "apibindings")


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    identity_hash: str = ""


class _Bound(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    group: str = ""
    schema: _Schema = _Schema()
    storage_versions: list[str] | None = None


class _BindingStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    bound_resources: list[_Bound] | None = None


class _Binding(msgspec.Struct, frozen=True):
    status: _BindingStatus | None = None


class _Names(msgspec.Struct, frozen=True):
    plural: str


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool = True
    storage: bool = False


class _DefinitionSpec(msgspec.Struct, frozen=True):
    group: str
    names: _Names
    versions: list[_Version]


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""


class _DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct, frozen=True):
    spec: _DefinitionSpec
    status: _DefinitionStatus | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime


class _Made(msgspec.Struct, frozen=True):
    metadata: _Metadata


_made: Final = msgspec.json.Decoder(_Made)
_binding: Final = msgspec.json.Decoder(_Binding)
_definition: Final = msgspec.json.Decoder(_Definition)
_NOTHING: Final[dict[Kind, Source]] = {}


class Offers:
    """`builtin`: the kinds that every workspace has, and their versions."""

    def __init__(self, builtin: Mapping[Kind, str]) -> None:
        self._builtin = {kind: Source(kind, version) for kind, version in builtin.items()}
        self._of: dict[str, dict[Part, frozenset[Source]]] = {}  #: cluster → binding or definition → what it brings
        self._found: dict[str, dict[Kind, Source]] = {}  #: the same by kind

    def builtin(self) -> Iterable[Source]:
        return self._builtin.values()

    def everything(self) -> set[Source]:
        """Whatever any workspace has."""
        return {*self._builtin.values(), *(source for found in self._found.values() for source in found.values())}

    def source(self, cluster: str, kind: Kind) -> Source | None:
        """None if the workspace does not serve the kind."""
        return self._builtin.get(kind) or self._found.get(cluster, _NOTHING).get(kind)

    def of(self, cluster: str) -> Iterable[Source]:
        """What it has beside what every workspace has."""
        return self._found.get(cluster, _NOTHING).values()

    def brought_by(self, cluster: str, part: Part) -> frozenset[Source]:
        """By one binding or definition."""
        return self._of.get(cluster, {}).get(part, frozenset())

    def bringing(self, cluster: str, kind: Kind) -> Iterator[Part]:
        """The bindings and definitions that bring a kind."""
        for part, brought in self._of.get(cluster, {}).items():
            if any(source.kind == kind for source in brought):
                yield part

    def changed(self, cluster: str, part: Part, seen: Seen | None) -> bool:
        """A binding or a definition came, changed or went: whether that changes what is served."""
        brought = frozenset[Source]() if seen is None else brought_by(cluster, part, seen)
        if brought == self.brought_by(cluster, part):
            return False
        some = self._of.setdefault(cluster, {})
        if brought:
            some[part] = brought
        else:
            del some[part]
        self._found[cluster] = {
            source.kind: source
            for source in sorted({one for sources in some.values() for one in sources}, reverse=True)
        }
        if not some:
            del self._of[cluster], self._found[cluster]
        return True


def brought_by(cluster: str, part: Part, seen: Seen) -> frozenset[Source]:
    try:
        if part.kind == BINDINGS:
            return frozenset(_bound(_binding.decode(seen.document)))
        if part.kind == DEFINITIONS:
            return frozenset(_defined(cluster, _definition.decode(seen.document)))
    except msgspec.ValidationError:
        pass  # whatever it is, it brings nothing
    return frozenset()


def _bound(binding: _Binding) -> Iterator[Source]:
    for one in (binding.status.bound_resources if binding.status is not None else None) or ():
        kind = Kind(one.group, one.resource)
        if category(kind) is not Category.NOWHERE and one.storage_versions:
            yield Source(kind, one.storage_versions[-1], one.schema.identity_hash)


def _defined(cluster: str, definition: _Definition) -> Iterator[Source]:
    """In the version that is stored, if it is served."""
    conditions = (definition.status.conditions if definition.status is not None else None) or ()
    if not any(one.type == "Established" and one.status == "True" for one in conditions):
        return
    kind = Kind(definition.spec.group, definition.spec.names.plural)
    served = sorted((not one.storage, one.name) for one in definition.spec.versions if one.served)
    if served and category(kind) is not Category.NOWHERE:
        yield Source(kind, served[0][1], "", cluster)


def pending_since(part: Part, seen: Seen) -> datetime | None:
    """Since when a binding or a definition is there that may still bring what it should; None: it does, or will not."""
    try:
        pending = _is_unbound(seen.document) if part.kind == BINDINGS else _is_unestablished(seen.document)
        return _made.decode(seen.document).metadata.creation_timestamp if pending else None
    except msgspec.ValidationError:
        return None


def _is_unbound(document: bytes) -> bool:
    status = _binding.decode(document).status
    return status is None or status.phase != "Bound"


def _is_unestablished(document: bytes) -> bool:
    status = _definition.decode(document).status
    conditions = {one.type: one.status for one in (status.conditions if status is not None else None) or ()}
    return conditions.get("Established") != "True" and conditions.get("NamesAccepted") != "False"
