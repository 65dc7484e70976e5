"""Selectors of an EdgePlacement: labels, objects, and the expression in `spec.where`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from farflung.machinery.cel.language.budget import COMPILED, MAX_WORK, STEP, OverBudget
from farflung.machinery.cel.language.types import BOOL, DYN
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.selectors import (
    EVERYTHING,
    InvalidFieldError,
    Labels,
    LabelSelector,
    Selector,
    describe_mismatch,
    parse_label_selector,
)
from farflung.machinery.turns import ALLOWANCE, INDIVISIBLE, spend

if TYPE_CHECKING:  # the compiler is loaded with the first expression
    from farflung.machinery.cel.compiler import Program
    from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.placement.names import GroupResource, ObjectRef

MAX_ALTERNATIVES: Final = 1_000  #: clauses and selectors of a placement, all together
_ALL: Final = ["*"]
_NO_LABELS: Final[Labels] = {}
Names = frozenset[str] | None  #: None: any name


class UpsyncSet(NamedTuple):
    """An entry of `spec.upsync`."""

    group: str
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Selected(NamedTuple):
    """How an object is selected."""

    create_only: bool = False  #: its copies are never updated
    singleton: bool = False  #: the status of its only copy is returned
    collectors: tuple[str, ...] = ()  #: names of StatusCollectors, sorted
    whole_namespace: bool = False  #: with everything in its namespace

    def joined(self, other: Selected) -> Selected:
        """Selected by both."""
        if self == other:
            return self
        return Selected(
            self.create_only or other.create_only,
            self.singleton or other.singleton,
            tuple(sorted({*self.collectors, *other.collectors})),
            self.whole_namespace or other.whole_namespace,
        )


class SelectorClause(NamedTuple):
    """The conditions on an object; no selectors: any labels.  A cluster-scoped object counts as one in a namespace
    without labels and name."""

    selected: Selected
    group: str | None = None  #: None: any
    resources: Names = None
    namespaces: Names = None
    namespace_selectors: tuple[LabelSelector, ...] = ()
    names: Names = None
    selectors: tuple[LabelSelector, ...] = ()
    namespaced: bool | None = None  #: None: both

    def fits_kind(self, resource: GroupResource, *, namespaced: bool) -> bool:
        if self.namespaced is not None and self.namespaced is not namespaced:
            return False
        if self.group is not None and self.group != resource.group:
            return False
        if self.resources is not None and resource.resource not in self.resources:
            return False
        return namespaced or (self.namespaces is None and _one_matches(self.namespace_selectors, _NO_LABELS))

    def fits(self, ref: ObjectRef, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether an object matches, given that `fits_kind` is true for its kind."""
        if self.names is not None and ref.name not in self.names:
            return False
        if ref.namespace:
            if self.namespaces is not None and ref.namespace not in self.namespaces:
                return False
            if self.namespace_selectors and not _one_matches(self.namespace_selectors, namespace_labels):
                return False
        return not self.selectors or _one_matches(self.selectors, labels)

    def discriminates(self) -> bool:
        """Whether any object may not match."""
        return any(one is not None for one in (self.group, self.resources, self.namespaces, self.names)) or bool(
            self.namespace_selectors or self.selectors
        )


class _KindClauses(NamedTuple):
    """The clauses that can match objects of one kind."""

    downsynced: tuple[SelectorClause, ...]
    upsynced: tuple[SelectorClause, ...]


@dataclass(frozen=True, slots=True)
class WorkloadSelector:
    """The objects that an EdgePlacement selects."""

    alternatives: tuple[SelectorClause, ...] = ()
    namespaces: LabelSelector | None = None  #: namespaces that are selected as a whole; None: none
    upsync: tuple[UpsyncSet, ...] = ()
    upsynced: tuple[SelectorClause, ...] = ()  #: the same as clauses
    problem: str = ""  #: why it is invalid, beginning with the path; then the other fields are empty
    _of_kinds: dict[tuple[GroupResource, bool], _KindClauses | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def selects(self, ref: ObjectRef, labels: Labels, namespace_labels: Labels | None) -> Selected | None:
        """How an object is selected; None: it is not, or its namespace was not observed yet.

        `namespace_labels` is ignored for cluster-scoped objects.  Upsynced objects are not selected.  The caller checks
        categories of kinds and system objects."""
        namespaced = ref.namespace != ""
        try:
            clauses = self._of_kinds[ref.resource, namespaced]
        except KeyError:
            clauses = self._clauses_of(ref.resource, namespaced=namespaced)
        if clauses is None or (namespaced and namespace_labels is None):
            return None
        around = _NO_LABELS if namespace_labels is None else namespace_labels
        found: Selected | None = None
        for one in clauses.downsynced:
            if one.fits(ref, labels, around):
                found = one.selected if found is None else found.joined(one.selected)
        if found is not None and any(one.fits(ref, labels, around) for one in clauses.upsynced):
            return None
        return found

    def selects_namespace(self, labels: Labels) -> bool:
        """Whether a namespace with these labels is selected as a whole."""
        return self.namespaces is not None and self.namespaces.matches(labels)

    def _clauses_of(self, resource: GroupResource, *, namespaced: bool) -> _KindClauses | None:
        """None: no object of the kind can be selected."""
        if (resource, namespaced) not in self._of_kinds:
            downsynced = _of_kind(self.alternatives, resource, namespaced=namespaced)
            clauses = (
                _KindClauses(downsynced, _of_kind(self.upsynced, resource, namespaced=namespaced))
                if downsynced
                else None
            )
            self._of_kinds[resource, namespaced] = clauses
        return self._of_kinds[resource, namespaced]


def _of_kind(
    some: tuple[SelectorClause, ...], resource: GroupResource, *, namespaced: bool
) -> tuple[SelectorClause, ...]:
    return tuple(one for one in some if one.fits_kind(resource, namespaced=namespaced))


def _one_matches(selectors: tuple[LabelSelector, ...], labels: Labels) -> bool:
    """No selector matches anything."""
    if not selectors:
        return True
    for one in selectors:  # noqa: SIM110 - called for every object and placement
        if one.matches(labels):
            return True
    return False


# --- parsing --------------------------------------------------------------------------------------


class _NonNamespaced(msgspec.Struct, rename="camel"):
    api_group: str | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    label_selectors: list[Selector] | None = None


class _Downsync(msgspec.Struct, rename="camel"):
    api_group: str | None = None
    resources: list[str] | None = None
    namespaces: list[str] | None = None
    namespace_selectors: list[Selector] | None = None
    object_names: list[str] | None = None
    label_selectors: list[Selector] | None = None
    create_only: bool | None = None
    status_collectors: list[str] | None = None


class _Upsync(msgspec.Struct, rename="camel"):
    api_group: str | None = None
    resources: list[str] | None = None
    namespaces: list[str] | None = None
    names: list[str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    namespace_selector: Selector | None = None
    non_namespaced_objects: list[_NonNamespaced] | None = None
    downsync: list[_Downsync] | None = None
    want_singleton_reported_state: bool | None = None
    upsync: list[_Upsync] | None = None


class _Object(msgspec.Struct):
    spec: _Spec | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)


def parse_workload_selector(obj: Obj | bytes) -> WorkloadSelector:
    """The objects that an EdgePlacement selects; `problem` if its spec is invalid."""
    try:
        spec = _OBJECT.decode(obj if isinstance(obj, bytes) else msgspec.json.encode(obj)).spec or _Spec()
        _check_amount(spec)
        return _what(spec)
    except InvalidFieldError as problem:
        return WorkloadSelector(problem=str(problem))
    except msgspec.ValidationError as error:
        return WorkloadSelector(problem=describe_mismatch("", error).removeprefix("."))


def _what(spec: _Spec) -> WorkloadSelector:
    singleton = spec.want_singleton_reported_state or False
    alternatives: list[SelectorClause] = []
    namespaces = _namespaces(spec)
    if namespaces is not None:
        selected = Selected(singleton=singleton, whole_namespace=True)
        alternatives.append(SelectorClause(selected, namespace_selectors=_unless_all([namespaces]), namespaced=True))
    for at, one in enumerate(spec.non_namespaced_objects or ()):
        alternatives += _non_namespaced(one, f"spec.nonNamespacedObjects[{at}]", Selected(singleton=singleton))
    for at, clause in enumerate(spec.downsync or ()):
        alternatives.append(_downsync(clause, f"spec.downsync[{at}]", singleton=singleton))
    upsync = tuple(_upsync(one) for one in spec.upsync or ())
    upsynced = tuple(alternative for one in dict.fromkeys(upsync) for alternative in _upsynced(one))
    return WorkloadSelector(tuple(alternatives), namespaces, upsync, upsynced)


def _namespaces(spec: _Spec) -> LabelSelector | None:
    """An absent selector selects all namespaces, unless `spec.downsync` is set."""
    if spec.namespace_selector is not None:
        return parse_label_selector(spec.namespace_selector, "spec.namespaceSelector")
    return EVERYTHING if spec.downsync is None else None


def _non_namespaced(one: _NonNamespaced, path: str, selected: Selected) -> list[SelectorClause]:
    """Objects by name, and objects by labels."""
    selectors = _selectors(one.label_selectors, f"{path}.labelSelectors")
    any_object = SelectorClause(
        selected, group=one.api_group or "", resources=_listed(one.resources or ()), namespaced=False
    )
    alternatives = []
    if one.resource_names:
        alternatives.append(any_object._replace(names=_listed(one.resource_names)))
    if selectors:
        alternatives.append(any_object._replace(selectors=_unless_all(selectors)))
    return alternatives


def _downsync(clause: _Downsync, path: str, *, singleton: bool) -> SelectorClause:
    """Absent fields match every object."""
    alternative = SelectorClause(
        Selected(clause.create_only or False, singleton, tuple(sorted({*(clause.status_collectors or ())}))),
        group=None if clause.api_group == "*" else clause.api_group,
        resources=_listed(clause.resources or _ALL),
        namespaces=_listed(clause.namespaces or _ALL),
        namespace_selectors=_unless_all(_selectors(clause.namespace_selectors, f"{path}.namespaceSelectors")),
        names=_listed(clause.object_names or _ALL),
        selectors=_unless_all(_selectors(clause.label_selectors, f"{path}.labelSelectors")),
    )
    if not alternative.discriminates():
        raise InvalidFieldError(f"{path}: Required value: must not match every object")
    return alternative


def _upsync(one: _Upsync) -> UpsyncSet:
    return UpsyncSet(
        one.api_group or "", tuple(one.resources or ()), tuple(one.namespaces or ()), tuple(one.names or ())
    )


def _upsynced(one: UpsyncSet) -> tuple[SelectorClause, SelectorClause]:
    """Namespaced objects, and cluster-scoped ones, for which the list of namespaces is ignored."""
    outside = SelectorClause(
        Selected(), group=one.group, resources=_listed(one.resources), names=_listed(one.names), namespaced=False
    )
    return outside._replace(namespaces=_listed(one.namespaces), namespaced=True), outside


def _selectors(selectors: list[Selector] | None, path: str) -> list[LabelSelector]:
    return [parse_label_selector(one, f"{path}[{at}]") for at, one in enumerate(selectors or ())]


def _unless_all(selectors: list[LabelSelector]) -> tuple[LabelSelector, ...]:
    """Empty if one of them selects everything."""
    return tuple(dict.fromkeys(selectors)) if all(selectors) else ()


def _listed(names: Iterable[str]) -> Names:
    """`*` alone stands for all."""
    names = list(names)
    return None if names == _ALL else frozenset(names)


def _check_amount(spec: _Spec) -> None:
    """Every object is matched with all of them, so their number is limited."""
    lists: list[list[Selector] | None] = [one.label_selectors for one in spec.non_namespaced_objects or ()]
    for clause in spec.downsync or ():
        lists += (clause.namespace_selectors, clause.label_selectors)
    clauses = sum(len(some or ()) for some in (spec.non_namespaced_objects, spec.downsync, spec.upsync))
    amount = clauses + sum(len(some or ()) for some in lists)
    if amount > MAX_ALTERNATIVES:
        raise InvalidFieldError(f"spec: Too many: {amount} clauses and selectors: must be at most {MAX_ALTERNATIVES}")


MAX_EXPRESSION: Final = 10_240  #: characters of an expression
MAX_COST: Final = 100_000  #: of one evaluation
COST_OF_ALL: Final = (1_000_000, 10_000_000)  #: of all pairs of a placement: always allowed, and at most
COST_OF_EACH: Final = 100  #: allowed for each pair of many
PAIR_WORK: Final = 1 << 19  #: bytes of intermediate values of one evaluation
COST_WORK: Final = 6  #: work of a unit of cost, of the allowance of a turn
_GIVEN: Final = {"location": DYN, "target": DYN}


def most_cost(pairs: int) -> int:
    """The limit for this number of pairs.  Few pairs may not cost as much as many."""
    least, most = COST_OF_ALL
    return min(most, max(least, COST_OF_EACH * pairs))


class WhereResult(NamedTuple):
    refusal: str  #: empty: it is true
    cost: int


class WhereFilter:
    """A `spec.where`, compiled when it is first used.  Two are equal if their texts are."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled: Program | str | None = None  #: a text: why it is invalid

    def __eq__(self, other: object) -> bool:
        return type(other) is WhereFilter and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    @property
    def problem(self) -> str:
        """Why it is invalid; empty if it is not.  Raises TurnOver if the current task has an allowance that is too
        small."""
        if self._compiled is None:
            spend(min(COMPILED * len(self.text), INDIVISIBLE))
            self._compiled = compile_where(self.text)
        return self._compiled if isinstance(self._compiled, str) else ""

    def evaluate(self, location: Any, target: Any) -> WhereResult:
        """Deterministic; cost and work are limited.  The expression must be valid."""
        assert not self.problem and self._compiled is not None and not isinstance(self._compiled, str)
        program = self._compiled
        run = program.start({"location": location, "target": target}, MAX_COST)
        run.worked = MAX_WORK - PAIR_WORK
        token = ALLOWANCE.set(None)  # its own limits end it soon
        try:
            holds = program.evaluate(run)
            refusal = "" if holds is True else f"spec.where is false: {self.text}"
        except (EvaluationError, OverBudget) as error:
            refusal = f"spec.where fails: {error}"
        finally:
            ALLOWANCE.reset(token)
        return WhereResult(refusal, run.spent + (run.worked - (MAX_WORK - PAIR_WORK)) // STEP)


@cache
def _environment() -> ExpressionEnvironment:
    from farflung.machinery.cel.environment import ExpressionEnvironment
    from farflung.machinery.cel.library import KUBERNETES

    return ExpressionEnvironment(_GIVEN, KUBERNETES)


def compile_where(text: str) -> Program | str:
    """A text: why it is invalid."""
    from farflung.machinery.cel.adapt import Adapters
    from farflung.machinery.cel.compiler import Program
    from farflung.machinery.cel.errors import CompileError

    invalid = f"spec.where: Invalid value: {go_quote(text)}: "
    if len(text) > MAX_EXPRESSION:
        return f"{invalid}may not be more than {MAX_EXPRESSION} characters long"
    try:
        checked = _environment().compile(text, BOOL)
    except CompileError as error:
        return f"{invalid}compilation failed: {error}"
    return Program(checked.tree, _GIVEN, Adapters())
