"""The schema of one version of a custom resource, compiled once.

    structural = compile_structural(schema, metadata)
    problems = structural.conform(obj)      prunes, drops nulls and sets defaults, in place
    errors = structural.validate(obj, old)

Kubernetes prunes, drops nulls and sets defaults in three walks from the root to the leaves.  Here one walk does all
three to an object before it continues with the object's fields, which has the same result.  Values of another type
than their schema's stay: validation refuses them.

The walk follows the schema, so no object makes it fail or recurse without bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

import orjson

from farflung.machinery.errors import FieldError, Obj, first_errors
from farflung.machinery.schema.model import Lookup, Schema
from farflung.machinery.schema.structural.embedded import MetadataRules, conform_embedded, embedded_errors, located
from farflung.machinery.schema.structural.json_values import canonical_number, canonicalize_numbers
from farflung.machinery.schema.structural.node import (
    ANYTHING,
    IDENTITY,
    TOGETHER,
    VISIT_WORK,
    Find,
    SchemaNode,
    finder,
    inner_first,
    no_values,
    read_steps,
    work_of,
)
from farflung.machinery.schema.structural.quick_check import QuickCheck
from farflung.machinery.schema.structural.report import UNKNOWN, ErrorReport, duplicates
from farflung.machinery.schema.walk import (
    MAX_PROBLEM_TEXT,
    MAX_PROBLEMS,
    Convert,
    FieldWalk,
    Items,
    Make,
    ObjectWalk,
    Path,
    Problems,
    list_walk,
    map_walk,
    steps_of,
    unchanged,
    unknown_fields,
)
from farflung.machinery.turns import TURN_WORK, Steps, at_once

STATUS: Final = "status"


#: identity of a node, whether it prunes and keeps → the node, so that it keeps its identity, and its conversion
KnownItems = dict[tuple[int, bool, bool], tuple[SchemaNode, Items]]


class EnabledSteps(NamedTuple):
    """The steps of a walk."""

    prune: bool  #: drop the fields that the schema does not have
    default: bool  #: drop nulls, set defaults, and write numbers as Go does
    known: KnownItems | None = None  #: compiled before; None: nothing is remembered

    def of_field(self, name: str, identity: Set[str]) -> EnabledSteps:
        """For a field of an object: those of its identity are never pruned."""
        return self._replace(prune=False) if name in identity else self


ALL_STEPS: Final = EnabledSteps(prune=True, default=True)
ONLY_PRUNE: Final = EnabledSteps(prune=True, default=False)


class FoundValues(NamedTuple):
    """Functions that find values in objects."""

    embedded: Find
    keyed_lists: Find  #: of type set or map


class Structural:
    """The schema of one version.  The metadata of whole objects is conformed and validated elsewhere."""

    def __init__(
        self,
        node: SchemaNode,
        metadata: MetadataRules,
        quick_check: QuickCheck,
        found: FoundValues,
        conversions: Conversions,
    ) -> None:
        self._node = node
        self._status = node.properties.get(STATUS, ANYTHING)
        self._metadata = metadata
        self._conform = conversions.conform
        self._prune: Convert | None = None
        self._quick_check = quick_check
        self._fits = self._quick_check.table(node, True)[dict]
        self._embedded, self._keyed_lists = found
        #: makes the status of an object without one, if it gets a default
        self.default_status: Final = conversions.default_status

    def pruning_steps(self) -> Steps[Structural]:
        """Compile what `prune` needs, and return this."""
        conversions = yield from conversion_steps(self._node, ONLY_PRUNE)
        self._prune = conversions.conform
        return self

    # --- conforming -------------------------------------------------------------------------------

    def conform(self, obj: Obj) -> list[str]:
        """Prune, drop nulls and set defaults, in place.  Returns the pruned fields, `unknown field "spec.x"`.  Raises
        Malformed if the metadata of an embedded object does not fit its type."""
        return self._convert(self._conform, obj)

    def prune(self, obj: Obj) -> list[str]:
        """Only prune, in place."""
        if self._prune is None:
            self._prune = at_once(conversion_steps(self._node, ONLY_PRUNE)).conform
        return self._convert(self._prune, obj)

    def _convert(self, convert: Convert, obj: Obj) -> list[str]:
        unknown: Problems = []
        converted = convert(obj, None, unknown)
        obj.clear()
        obj.update(converted)
        problems: list[str] = []
        if unknown:
            problems = unknown_fields(sorted(unknown, key=alphabetical))
        described = 0
        for embedded in self._embedded(obj, None):
            for problem in conform_embedded(embedded, self._metadata):
                if len(problems) < MAX_PROBLEMS and described < MAX_PROBLEM_TEXT:
                    problems.append(located(problem, embedded))
                    described += len(problems[-1])
        return problems

    # --- validation -------------------------------------------------------------------------------

    def validate(self, new: Obj, old: Obj | None = None) -> list[FieldError]:
        """The errors of a new object, or of an update."""
        if self._fits(new):
            return self._embedded_errors(new)
        errors = ErrorReport(self._quick_check).errors(self._node, new, UNKNOWN if old is None else old)
        return [*errors, *self._embedded_errors(new), *self._new_duplicates(new, old)]

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """The errors of an update of the status.  The schema of other fields does not count."""
        if self._fits(new):
            return self._embedded_errors(new)
        errors: list[FieldError] = []
        if STATUS in new:
            before = old.get(STATUS, UNKNOWN)
            errors = ErrorReport(self._quick_check, STATUS).errors(self._status, new[STATUS], before)
        return [*errors, *self._embedded_errors(new), *self._new_duplicates(new, old)]

    def _embedded_errors(self, obj: Obj) -> list[FieldError]:
        """Kubernetes refuses updates for errors that the stored object already has, too."""
        return first_errors(
            error for embedded in self._embedded(obj, None) for error in embedded_errors(embedded, self._metadata)
        )

    def _new_duplicates(self, new: Obj, old: Obj | None) -> list[FieldError]:
        """The duplicates in lists of type set or map, unless the stored object has duplicates, too."""
        errors = self._duplicates(new)
        return [] if errors and old is not None and self._duplicates(old) else errors

    def _duplicates(self, obj: Obj) -> list[FieldError]:
        return first_errors(error for found in self._keyed_lists(obj, None) for error in duplicates(found))


def compile_structural(schema: Any, metadata: MetadataRules) -> Structural:
    """`schema`: the openAPIV3Schema of a version; `metadata`: the conforming and validation of ObjectMeta."""
    return at_once(compiling_steps(schema, metadata))


def compiling_steps(schema: Any, metadata: MetadataRules) -> Steps[Structural]:
    """The same, in steps."""
    node = yield from read_steps(schema)
    quick_check = QuickCheck()
    yield from quick_check.steps(node)
    conversions = yield from conversion_steps(node, ALL_STEPS)
    nodes = conversions.nodes
    yield min(VISIT_WORK * nodes, TURN_WORK)
    embedded = finder(node, lambda one: one.embedded) or no_values
    yield min(VISIT_WORK * nodes, TURN_WORK)
    keyed_lists = finder(node, lambda one: one.list_type in ("set", "map")) or no_values
    yield min(VISIT_WORK * nodes, TURN_WORK)
    return Structural(node, metadata, quick_check, FoundValues(embedded, keyed_lists), conversions)


class Conversions(NamedTuple):
    conform: Convert  #: of whole objects
    default_status: Make | None
    nodes: int


def conversion_steps(node: SchemaNode, enabled: EnabledSteps) -> Steps[Conversions]:
    """Compile the conversions of all nodes, inner ones first."""
    known: KnownItems = {}
    steps = enabled._replace(known=known)
    order = yield from inner_first(ConvertedNode(node, steps, kept=False, root=True), converted_within)
    for at, place in enumerate(order):
        if at % TOGETHER == 0:
            yield work_of(len(order) - at)
        if not place.root:
            compile_values(place.node, place.steps, kept=place.kept)
    yield min(VISIT_WORK * len(order), TURN_WORK)
    convert = compile_objects(node, steps)
    default_status = compile_default(node.properties.get(STATUS, ANYTHING), steps)
    known.clear()  # objects refer to it, and it to them
    return Conversions(convert, default_status, len(order))


OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def apply_schema(schema: Any, lookup: Lookup) -> Schema:
    """The root node of a version's openAPIV3Schema.  Its metadata is ObjectMeta, also if the schema
    contains another; `lookup` finds the definition."""
    definition: Obj = schema if isinstance(schema, dict) else {}
    properties = definition.get("properties")
    identity = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"#/definitions/{OBJECT_META}"},
    }
    known = {**(properties if isinstance(properties, dict) else {}), **identity}
    return Schema({**definition, "type": "object", "properties": known}, lookup)


def alphabetical(problem: tuple[Path, str]) -> list[str]:
    return [step if isinstance(step, str) else f"[{step}]" for step in (*steps_of(problem[0]), problem[1])]


# --- pruning, nulls and defaults ----------------------------------------------------------------------


def compile_objects(node: SchemaNode, steps: EnabledSteps) -> Convert:
    """The conversion of a whole object; apiVersion, kind and metadata are never pruned."""
    return _object(node, steps, unchanged, root=True, kept=False)


class ConvertedNode(NamedTuple):
    """What a conversion of values depends on."""

    node: SchemaNode
    steps: EnabledSteps
    kept: bool
    root: bool = False


def converted_within(place: ConvertedNode) -> Iterator[ConvertedNode]:
    node, steps, kept, root = place
    identity = IDENTITY if root or node.embedded else frozenset()
    for name, one in node.properties.items():
        yield ConvertedNode(one, steps.of_field(name, identity), kept=False)
    if node.values is not None:
        yield ConvertedNode(node.values, steps, kept=False)
    if node.items is not None:
        yield ConvertedNode(node.items, steps, kept=kept or node.preserving)


def compile_values(node: SchemaNode, steps: EnabledSteps, *, kept: bool = False) -> Items:
    """The conversion of any value of a node.  `kept`: unknown fields stay, because an enclosing list preserves them."""
    known = steps.known
    if known is None:
        return _compile_values(node, steps, kept=kept)
    key = (id(node), steps.prune, kept)
    if key not in known:
        known[key] = node, _compile_values(node, steps, kept=kept)
    return known[key][1]


def _compile_values(node: SchemaNode, steps: EnabledSteps, *, kept: bool) -> Items:
    convert: Convert = _canonical if steps.default and may_be_number(node) else unchanged
    if not node.types or "array" in node.types:
        convert = _list(node, steps, convert, kept=kept)
    if not node.types or "object" in node.types:
        convert = _object(node, steps, convert, root=False, kept=kept)
    unset = _unset(node, convert, present=True) if steps.default else _null
    return Items(EXACT.get(node.types), convert, unset)


def compile_default(node: SchemaNode, steps: EnabledSteps) -> Make | None:
    """The value of a missing field; None if it gets none."""
    return _unset(node, compile_values(node, steps).convert, present=False)


#: the Python type of values that are never changed
EXACT: Final[Mapping[tuple[str, ...], type]] = {("string",): str, ("boolean",): bool, ("integer", "string"): str}
NUMBER_TYPES: Final = frozenset({"integer", "number"})


def may_be_number(node: SchemaNode) -> bool:
    return not node.types or not NUMBER_TYPES.isdisjoint(node.types)


def _unset(node: SchemaNode, convert: Convert, *, present: bool) -> Make | None:
    """The value of a null, if the field is `present`, or of a missing field; None if the field is omitted."""
    if present and node.nullable:
        return _null
    if not node.has_default:
        return None
    if type(node.default) not in (dict, list):
        default = convert(node.default, None, [])
        return lambda: default
    encoded = orjson.dumps(node.default)
    return lambda: convert(orjson.loads(encoded), None, [])


def _null() -> None:
    return None


def _object(node: SchemaNode, steps: EnabledSteps, misfit: Convert, *, root: bool, kept: bool) -> Convert:
    if node.values is not None and not node.properties:
        return map_walk(compile_values(node.values, steps), misfit, sort=False)
    emptied = steps.prune and (node.open or not (kept or node.preserving))
    if not (node.properties or node.values or root or node.embedded or emptied):
        return _only(dict, _any_json if steps.default else unchanged, misfit)  # the schema does not describe fields
    return StructuralObject(node, steps, misfit, root=root, kept=kept).convert


def _list(node: SchemaNode, steps: EnabledSteps, misfit: Convert, *, kept: bool) -> Convert:
    kept = kept or node.preserving
    if node.items is not None:
        return list_walk(compile_values(node.items, steps, kept=kept), misfit)
    return _only(list, _emptied if steps.prune and not kept else _any_json if steps.default else unchanged, misfit)


def _only(exact: type, convert: Convert, misfit: Convert) -> Convert:
    if convert is misfit:
        return convert
    return lambda value, path, problems: (convert if type(value) is exact else misfit)(value, path, problems)


class StructuralObject(ObjectWalk):
    """An object with properties.  A new object has the order of the old one, and then the defaults."""

    __slots__ = ("_closed", "_known", "_missing", "_node", "_present", "_rest", "_steps")

    def __init__(self, node: SchemaNode, steps: EnabledSteps, misfit: Convert, *, root: bool, kept: bool) -> None:
        super().__init__(misfit)
        identity = IDENTITY if root or node.embedded else frozenset()
        self._node = node
        self._steps = steps
        self._known = identity.union(node.properties)
        self._closed = steps.prune and not (kept or node.preserving or node.open)
        self._present: dict[str, FieldWalk] = {}
        self._missing: dict[str, FieldWalk] = {}
        for name, one in node.properties.items():
            if root and name == "metadata" and not one.properties:
                continue  # it is conformed to ObjectMeta
            exact, convert, unset = compile_values(one, steps.of_field(name, identity))
            self._present[name] = FieldWalk(name, exact, True, unset, convert)
            if steps.default and one.has_default:
                self._missing[name] = FieldWalk(name, exact, True, _unset(one, convert, present=False), convert)
        self._rest = self._compile_rest()

    def _compile_rest(self) -> Items:
        """Fields that are no properties.  If additional properties have no schema, they are emptied."""
        if self._node.values is not None:
            return compile_values(self._node.values, self._steps)
        if self._node.open and self._steps.prune:
            return Items(None, _emptied_or_canonical if self._steps.default else _emptied, _null)
        return Items(None, _any_json if self._steps.default else unchanged, _null)

    def known(self) -> Set[str]:
        return self._known

    def closed(self) -> bool:
        return self._closed

    def fields(self, names: tuple[str, ...]) -> list[FieldWalk]:
        present = [self._field(name) for name in names if not self._closed or name in self._known]
        return present + [field for name, field in self._missing.items() if name not in names]

    def _field(self, name: str) -> FieldWalk:
        if name in self._present:
            return self._present[name]
        exact, convert, unset = self._rest
        if name in self._known:  # apiVersion, kind or metadata, which the schema does not describe
            exact, convert = None, unchanged
        return FieldWalk(name, exact, True, unset, convert)


# --- values without a schema ------------------------------------------------------------------------


def _canonical(value: Any, path: Path, problems: Problems) -> Any:
    return canonical_number(value) if type(value) is float or type(value) is int else value


def _any_json(value: Any, path: Path, problems: Problems) -> Any:
    if type(value) is dict or type(value) is list:
        canonicalize_numbers(value)
        return value
    return _canonical(value, path, problems)


def _emptied(value: Any, path: Path, problems: Problems) -> Any:
    """Without the fields of an object, or of the objects in a list: the schema does not describe them."""
    if type(value) is dict:
        problems += [(path, name) for name in value]
        return {}
    if type(value) is list:
        return [_emptied(item, (path, index), problems) for index, item in enumerate(value)]
    return value


def _emptied_or_canonical(value: Any, path: Path, problems: Problems) -> Any:
    return _canonical(_emptied(value, path, problems), path, problems)
