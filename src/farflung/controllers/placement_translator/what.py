"""What a placement selects.

what = parse_what(placement)            what.problem says why it cannot be understood; then nothing is selected
what.selects(part, labels, labels of its namespace)     whether, and how
what.may_select(kind, namespaced=True)  whether any object of the kind can be selected
what.upsync                             what comes back

The selector of whole namespaces, the objects without namespace and the clauses of `downsync` are all the same inside:
alternatives, each of which says what an object must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.selector_reading import ProblemError, Selector, misfit, understood
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import EVERYTHING, Labels, LabelSelector

MOST_ALTERNATIVES: Final = 1_000  #: clauses and selectors of a placement, all together

_ALL: Final = ["*"]
_NO_LABELS: Final[Labels] = {}
_OVERWRITE: Final = ("edge.kcp.io/downsync-overwrite", "edge.kubestellar.io/downsync-overwrite")

Names = frozenset[str] | None  #: None: any name


class UpsyncSet(NamedTuple):
    """Objects that come back.  They are sorted as they are."""

    group: str
    resources: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Selected(NamedTuple):
    """How an object is selected."""

    create_only: bool = False  #: its copies are left alone once they are there
    singleton: bool = False  #: its status is written back if it goes to one place only
    collectors: tuple[str, ...] = ()  #: StatusCollectors that are applied to it, sorted
    whole_namespace: bool = False  #: because everything in its namespace is

    def joined(self, other: Selected) -> Selected:
        """Selected in both ways."""
        if self == other:
            return self
        return Selected(
            self.create_only or other.create_only,
            self.singleton or other.singleton,
            tuple(sorted({*self.collectors, *other.collectors})),
            self.whole_namespace or other.whole_namespace,
        )


class Alternative(NamedTuple):
    """What an object must be; no selectors: any labels.  An object without namespace is taken for one in a namespace
    without labels and name."""

    selected: Selected
    group: str | None = None  #: None: any
    resources: Names = None
    namespaces: Names = None
    namespace_selectors: tuple[LabelSelector, ...] = ()
    names: Names = None
    selectors: tuple[LabelSelector, ...] = ()
    namespaced: bool | None = None  #: None: whether or not the object is in a namespace

    def fits_kind(self, kind: Kind, *, namespaced: bool) -> bool:
        if self.namespaced is not None and self.namespaced is not namespaced:
            return False
        if self.group is not None and self.group != kind.group:
            return False
        if self.resources is not None and kind.resource not in self.resources:
            return False
        return namespaced or (self.namespaces is None and _one_matches(self.namespace_selectors, _NO_LABELS))

    def fits(self, part: Part, labels: Labels, namespace_labels: Labels) -> bool:
        """An object of a kind that fits."""
        if self.names is not None and part.name not in self.names:
            return False
        if part.namespace:
            if self.namespaces is not None and part.namespace not in self.namespaces:
                return False
            if self.namespace_selectors and not _one_matches(self.namespace_selectors, namespace_labels):
                return False
        return not self.selectors or _one_matches(self.selectors, labels)

    def discriminates(self) -> bool:
        """Whether there can be an object that does not fit."""
        return any(one is not None for one in (self.group, self.resources, self.namespaces, self.names)) or bool(
            self.namespace_selectors or self.selectors
        )


class _OfKind(NamedTuple):
    """What a placement says of one kind."""

    going: tuple[Alternative, ...]
    returning: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class What:
    """Two are equal if they say the same."""

    alternatives: tuple[Alternative, ...] = ()
    namespaces: LabelSelector | None = None  #: those that go there as a whole; None: none
    upsync: tuple[UpsyncSet, ...] = ()
    returning: tuple[Alternative, ...] = ()  #: the same, as alternatives
    problem: str = ""  #: why it cannot be understood, beginning with the path; then the rest says nothing
    _of_kinds: dict[tuple[Kind, bool], _OfKind | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def selects(self, part: Part, labels: Labels, namespace_labels: Labels | None) -> Selected | None:
        """How an object is selected; None: it is not, or nobody knows because its namespace is not known yet.

        `namespace_labels` means nothing to an object that is in no namespace.  What comes back does not go there.
        Categories of kinds and system objects are up to the caller."""
        namespaced = part.namespace != ""
        try:
            said = self._of_kinds[part.kind, namespaced]
        except KeyError:
            said = self._say(part.kind, namespaced=namespaced)
        if said is None or (namespaced and namespace_labels is None):
            return None
        around = _NO_LABELS if namespace_labels is None else namespace_labels
        found: Selected | None = None
        for one in said.going:
            if one.fits(part, labels, around):
                found = one.selected if found is None else found.joined(one.selected)
        if found is not None and any(one.fits(part, labels, around) for one in said.returning):
            return None
        return found

    def selects_namespace(self, labels: Labels) -> bool:
        """Whether all that is in a namespace with these labels is selected."""
        return self.namespaces is not None and self.namespaces.matches(labels)

    def may_select(self, kind: Kind, *, namespaced: bool) -> bool:
        """Whether there can be an object of the kind that is selected."""
        return self._say(kind, namespaced=namespaced) is not None

    def may_select_singly(self, kind: Kind, *, namespaced: bool) -> bool:
        """Whether there can be one that is selected for other reasons than that its whole namespace is."""
        said = self._say(kind, namespaced=namespaced)
        return said is not None and any(not one.selected.whole_namespace for one in said.going)

    def kinds(self) -> frozenset[Kind] | None:
        """The only kinds of which something can be selected; None: that depends on which kinds there are."""
        kinds: set[Kind] = set()
        for one in self.alternatives:
            if one.group is None or one.resources is None:
                return None
            kinds.update(Kind(one.group, resource) for resource in one.resources)
        return frozenset(kinds)

    def minds_namespaces(self) -> bool:
        """Whether the labels of a namespace can make a difference to what is in it."""
        return any(one.namespace_selectors for one in self.alternatives)

    def _say(self, kind: Kind, *, namespaced: bool) -> _OfKind | None:
        """None: nothing, as long as it is about what is selected."""
        if (kind, namespaced) not in self._of_kinds:
            going = _of_kind(self.alternatives, kind, namespaced=namespaced)
            said = _OfKind(going, _of_kind(self.returning, kind, namespaced=namespaced)) if going else None
            self._of_kinds[kind, namespaced] = said
        return self._of_kinds[kind, namespaced]


def _of_kind(some: tuple[Alternative, ...], kind: Kind, *, namespaced: bool) -> tuple[Alternative, ...]:
    return tuple(one for one in some if one.fits_kind(kind, namespaced=namespaced))


def _one_matches(selectors: tuple[LabelSelector, ...], labels: Labels) -> bool:
    """No selector: anything matches."""
    if not selectors:
        return True
    for one in selectors:  # noqa: SIM110 - this is asked for every object and placement
        if one.matches(labels):
            return True
    return False


def is_create_only(annotations: Mapping[str, str]) -> bool:
    """Whether an object itself says that its copies are left alone once they are there."""
    return any(annotations.get(key) == "false" for key in _OVERWRITE)


# --- reading --------------------------------------------------------------------------------------


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


def parse_what(obj: Obj | bytes) -> What:
    """What an EdgePlacement says of objects."""
    try:
        spec = _OBJECT.decode(obj if isinstance(obj, bytes) else msgspec.json.encode(obj)).spec or _Spec()
        _check_amount(spec)
        return _what(spec)
    except ProblemError as problem:
        return What(problem=str(problem))
    except msgspec.ValidationError as error:
        return What(problem=misfit("", error).removeprefix("."))


def _what(spec: _Spec) -> What:
    singleton = spec.want_singleton_reported_state or False
    alternatives: list[Alternative] = []
    namespaces = _namespaces(spec)
    if namespaces is not None:
        selected = Selected(singleton=singleton, whole_namespace=True)
        alternatives.append(Alternative(selected, namespace_selectors=_unless_all([namespaces]), namespaced=True))
    for at, one in enumerate(spec.non_namespaced_objects or ()):
        alternatives += _non_namespaced(one, f"spec.nonNamespacedObjects[{at}]", Selected(singleton=singleton))
    for at, clause in enumerate(spec.downsync or ()):
        alternatives.append(_downsync(clause, f"spec.downsync[{at}]", singleton=singleton))
    upsync = tuple(_upsync(one) for one in spec.upsync or ())
    returning = tuple(alternative for one in dict.fromkeys(upsync) for alternative in _returning(one))
    return What(tuple(alternatives), namespaces, upsync, returning)


def _namespaces(spec: _Spec) -> LabelSelector | None:
    """To leave it out means all of them, but for a placement that says what it wants in the other way."""
    if spec.namespace_selector is not None:
        return understood(spec.namespace_selector, "spec.namespaceSelector")
    return EVERYTHING if spec.downsync is None else None


def _non_namespaced(one: _NonNamespaced, path: str, selected: Selected) -> list[Alternative]:
    """Objects that are named, and objects whose labels fit."""
    selectors = _selectors(one.label_selectors, f"{path}.labelSelectors")
    any_object = Alternative(
        selected, group=one.api_group or "", resources=_listed(one.resources or ()), namespaced=False
    )
    alternatives = []
    if one.resource_names:
        alternatives.append(any_object._replace(names=_listed(one.resource_names)))
    if selectors:
        alternatives.append(any_object._replace(selectors=_unless_all(selectors)))
    return alternatives


def _downsync(clause: _Downsync, path: str, *, singleton: bool) -> Alternative:
    """What is not said fits every object."""
    alternative = Alternative(
        Selected(clause.create_only or False, singleton, tuple(sorted({*(clause.status_collectors or ())}))),
        group=None if clause.api_group == "*" else clause.api_group,
        resources=_listed(clause.resources or _ALL),
        namespaces=_listed(clause.namespaces or _ALL),
        namespace_selectors=_unless_all(_selectors(clause.namespace_selectors, f"{path}.namespaceSelectors")),
        names=_listed(clause.object_names or _ALL),
        selectors=_unless_all(_selectors(clause.label_selectors, f"{path}.labelSelectors")),
    )
    if not alternative.discriminates():
        raise ProblemError(f"{path}: Required value: must say something that not every object fits")
    return alternative


def _upsync(one: _Upsync) -> UpsyncSet:
    return UpsyncSet(
        one.api_group or "", tuple(one.resources or ()), tuple(one.namespaces or ()), tuple(one.names or ())
    )


def _returning(one: UpsyncSet) -> tuple[Alternative, Alternative]:
    """Objects in namespaces, and others, to which the list of namespaces means nothing."""
    outside = Alternative(
        Selected(), group=one.group, resources=_listed(one.resources), names=_listed(one.names), namespaced=False
    )
    return outside._replace(namespaces=_listed(one.namespaces), namespaced=True), outside


def _selectors(selectors: list[Selector] | None, path: str) -> list[LabelSelector]:
    return [understood(one, f"{path}[{at}]") for at, one in enumerate(selectors or ())]


def _unless_all(selectors: list[LabelSelector]) -> tuple[LabelSelector, ...]:
    """One that everything matches makes the others needless, and itself."""
    return tuple(dict.fromkeys(selectors)) if all(selectors) else ()


def _listed(names: Iterable[str]) -> Names:
    """`*` alone stands for all."""
    names = list(names)
    return None if names == _ALL else frozenset(names)


def _check_amount(spec: _Spec) -> None:
    """Every object is held against all of them."""
    lists: list[list[Selector] | None] = [one.label_selectors for one in spec.non_namespaced_objects or ()]
    for clause in spec.downsync or ():
        lists += (clause.namespace_selectors, clause.label_selectors)
    clauses = sum(len(some or ()) for some in (spec.non_namespaced_objects, spec.downsync, spec.upsync))
    amount = clauses + sum(len(some or ()) for some in lists)
    if amount > MOST_ALTERNATIVES:
        raise ProblemError(f"spec: Too many: {amount} clauses and selectors: must be at most {MOST_ALTERNATIVES}")
