"""The kinds of an established CustomResourceDefinition.

Objects are stored in one version and served in any.  Reading an object drops the fields that the served version does
not have, and sets its defaults.  Objects that were written under the current definition, in its only version, are
served as stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import orjson

from farflung.apis import definitions
from farflung.apis.apiextensions import kinds
from farflung.apis.metadata import OBJECT_META
from farflung.apis.resource import Resource
from farflung.hub.catalog.custom_rules import CustomScaling, rules_of
from farflung.hub.catalog.kinds import NEVER, Conversion, Kind, Shape, same
from farflung.machinery.errors import NAMES, Malformed, Obj
from farflung.machinery.schema.conform import Conformed
from farflung.machinery.schema.structural.structural import Structural, apply_schema, compiling_steps
from farflung.machinery.turns import Paced, Steps
from farflung.store.base import Revision

if TYPE_CHECKING:
    from farflung.hub.catalog.openapi.schemas import Own
    from farflung.machinery.cel.validation import Validations

RULES: Final = b'"x-kubernetes-validations"'
ANYTHING: Final[Obj] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def is_established(definition: Obj) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


class CompiledSchema:
    """A compiled schema, in several turns if it is large."""

    def __init__(self, schema: Obj, *, has_rules: bool) -> None:
        """`has_rules`: whether it may have validation rules."""
        self._structural = Paced(lambda: compiling_steps(schema, OBJECT_META))
        self._pruning = Paced(lambda: self.structural.pruning_steps())
        self._validations = Paced(lambda: compile_rules(schema)) if has_rules else None

    @property
    def structural(self) -> Structural:
        """Raises TurnOver if the current task has an allowance that is too small."""
        return self._structural.value

    @property
    def pruning(self) -> Structural:
        """The same, prepared to prune.  Raises TurnOver."""
        return self._pruning.value

    def validations(self) -> Validations | None:
        """The validation rules, compiled when first used.  Raises TurnOver."""
        return None if self._validations is None else self._validations.value


def compile_rules(schema: Obj) -> Steps[Validations | None]:
    from farflung.machinery.cel.crd import validation_steps  # loaded only if a kind has validation rules
    from farflung.machinery.cel.validation import Validations

    tree, _ = yield from validation_steps(schema, "")
    return None if tree is None else Validations(tree)


#: by digest, while a definition uses the schema; many clusters have equal definitions
COMPILED: Final[WeakValueDictionary[bytes, CompiledSchema]] = WeakValueDictionary()


def compiled(schema: Obj) -> CompiledSchema:
    encoded = orjson.dumps(schema)
    digest = sha256(encoded).digest()
    found = COMPILED.get(digest)
    if found is None:
        found = COMPILED[digest] = CompiledSchema(schema, has_rules=RULES in encoded)
    return found


class DefinitionVersion:
    """One version, compiled when first used."""

    def __init__(self, described: Obj) -> None:
        self.name: str = described["name"]
        self._described = described

    @cached_property
    def schema(self) -> Obj:
        return self._described.get("schema", {}).get("openAPIV3Schema") or ANYTHING

    @cached_property
    def _compiled(self) -> CompiledSchema:
        return compiled(self.schema)

    @property
    def structural(self) -> Structural:
        """Raises TurnOver."""
        return self._compiled.structural

    @property
    def pruning(self) -> Structural:
        """Raises TurnOver."""
        return self._compiled.pruning

    def validations(self) -> Validations | None:
        return self._compiled.validations()


class Definition:
    versioned = DefinitionVersion  #: makes a version

    def __init__(self, definition: Obj, unchanged_since: Revision, resources: Iterable[Resource] | None = None) -> None:
        """`unchanged_since`: objects of later revisions were written under this definition.  `resources`: None: as in
        the definition."""
        spec = definition["spec"]
        self._source = (spec, definition["status"]["acceptedNames"])
        #: makes it in another process
        self.remake: Callable[[], Definition] = partial(Definition, definition, unchanged_since)
        self._unchanged_since = unchanged_since
        self.group: str = spec["group"]
        self.plural: str = spec["names"]["plural"]
        self.resources = tuple(kinds.resources_of(definition) if resources is None else resources)
        self._stored: str = kinds.stored_version(definition)
        self._versions: Mapping[str, DefinitionVersion] = {one["name"]: self.versioned(one) for one in spec["versions"]}
        self._scales = {one.version: kinds.scale_paths(definition, one.version) for one in self.resources}
        self._kinds: dict[str, Kind] = {}

    @property
    def is_bound(self) -> bool:
        """Whether the cluster serves it by an APIBinding."""
        return False

    @property
    def named(self) -> Obj:
        """The definition reduced to its names, to detect conflicts with other definitions."""
        spec, names = self._source
        return {"spec": {"group": spec["group"], "names": names}, "status": {"acceptedNames": names}}

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return len(orjson.dumps(self._source))

    def has_same_source(self, other: Definition) -> bool:
        return self._source == other._source

    def kind(self, version: str) -> Kind:
        """The kind of one served version.  Raises TurnOver; the next call continues."""
        kind = self._kinds.get(version)
        if kind is None:
            resource = next(one for one in self.resources if one.version == version)
            kind = self._kinds[version] = self._made(resource)
        return kind

    def shape(self, version: str) -> Shape:
        """The shape of one served version, whose schema is compiled when it is first used."""
        resource = next(one for one in self.resources if one.version == version)
        schema = apply_schema(self._versions[version].schema, definitions.schema)
        conformer = CustomConformer(self._versions[version])
        definition = resource.definition
        return Shape(self.group, resource.api_version, resource.kind, definition, schema, conformer, custom=True)

    def _made(self, resource: Resource) -> Kind:
        version = self._versions[resource.version]
        shape = self.shape(resource.version)
        paths = self._scales[version.name]
        scaling = None if paths is None else CustomScaling(resource, paths)
        rules = rules_of(resource, version.structural, version.validations, scaling)
        stored = replace(resource, version=self._stored)
        conversion, remake = self._conversion(resource), partial(kind_of, self.remake, resource.version)
        return Kind(resource, shape, rules, stored, shape.schema, conversion, scaling, remake)

    def _conversion(self, resource: Resource) -> Conversion:
        served, stored = self._versions[resource.version].structural, None
        if resource.version != self._stored:
            stored = self._versions[self._stored].pruning
        api_version = resource.api_version

        def read(obj: Obj) -> Obj:
            obj["apiVersion"] = api_version
            with suppress(Malformed):  # an object that was valid before its schema changed can still be read
                served.conform(obj)
            return obj

        def leave(obj: Obj) -> Obj:
            if stored is not None:
                stored.prune(obj)
            return obj

        only = len(self._versions) == 1
        unchanged_since = self._unchanged_since if only else NEVER
        return Conversion(
            self.group,
            self._stored,
            read,
            present=read,
            leave=leave,
            renew=read if only else same,
            unchanged_since=unchanged_since,
        )

    def openapi(self, version: str) -> Own:
        """The OpenAPI definitions of a version, by name."""
        from farflung.hub.catalog.openapi.custom import published

        resource = next(one for one in self.resources if one.version == version)
        return published(resource, self._versions[version].schema)


def definition_of(value: bytes, unchanged_since: Revision) -> Definition:
    """The definition in a stored CustomResourceDefinition."""
    return decoded_definition(orjson.loads(value), value, unchanged_since)


def decoded_definition(obj: Obj, value: bytes, unchanged_since: Revision) -> Definition:
    definition = Definition(obj, unchanged_since)
    definition.remake = partial(definition_of, value, unchanged_since)
    return definition


def kind_of(remake: Callable[[], Definition], version: str) -> Kind:
    return remake().kind(version)


UNKNOWN: Final = 'unknown field "'


class CustomConformer:
    def __init__(self, version: DefinitionVersion) -> None:
        self._version = version

    def conform(self, obj: Obj) -> Conformed:
        """Raises Malformed if the metadata do not fit their type, and TurnOver.  Validation reports other
        mismatches."""
        metadata = obj.get("metadata")
        if metadata is not None and type(metadata) is not dict:
            raise Malformed(f"json: cannot unmarshal {NAMES[type(metadata)]} into Go value of type v1.ObjectMeta")
        conformed, unknown = OBJECT_META.conform(metadata or {})
        result = {**obj, "metadata": conformed}
        problems = self._version.structural.conform(result)
        if unknown:
            problems = [f"{UNKNOWN}metadata.{one.removeprefix(UNKNOWN)}" for one in unknown] + problems
        return Conformed(result, problems)
