"""The requests to which a policy or a binding applies: `matchConstraints` and `matchResources`.

The part that depends on the resource is computed once per resource, operation and subresource; names and labels are
compared per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from farflung.apis.resource import Resource
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import Labels, LabelSelector, selector_of

ANY: Final = "*"
CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

Names = frozenset[str]  #: of objects; empty: all


class MatchAttributes(Protocol):
    """The parts of a request that matching uses."""

    @property
    def name(self) -> str: ...

    def labels(self) -> tuple[Labels | None, Labels | None]:
        """Of the new and of the old object."""

    def namespace_labels(self) -> Labels | None:
        """Of the namespace of the request; None if it has none."""


@dataclass(frozen=True, slots=True)
class ResourceRule:
    operations: Names
    groups: Names
    versions: Names
    resources: tuple[tuple[str, str], ...]  #: resource and subresource
    scope: str
    names: Names

    def concerns(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (
            self.scope in (ANY, "Namespaced" if resource.namespaced else "Cluster")
            and has(self.operations, operation)
            and has(self.groups, resource.group)
            and has(self.versions, resource.version)
            and any(name in (ANY, resource.plural) and part in (ANY, subresource) for name, part in self.resources)
        )


def has(names: Names, name: str) -> bool:
    return name in names or ANY in names


def rule_of(described: Obj) -> ResourceRule:
    resources = (one.partition("/") for one in described.get("resources") or ())
    return ResourceRule(
        frozenset(described.get("operations") or ()),
        frozenset(described.get("apiGroups") or ()),
        frozenset(described.get("apiVersions") or ()),
        tuple((name, part) for name, _, part in resources),
        described.get("scope") or ANY,
        frozenset(described.get("resourceNames") or ()),
    )


class Matcher:
    """A `MatchResources`.  An empty one matches everything."""

    def __init__(self, described: Obj | None) -> None:
        described = described or {}
        self._rules = tuple(map(rule_of, described.get("resourceRules") or ()))
        self._excluded = tuple(map(rule_of, described.get("excludeResourceRules") or ()))
        self._equivalent = described.get("matchPolicy") == "Equivalent"
        self.of_namespaces = selector_of(described.get("namespaceSelector") or {})
        self.of_objects = selector_of(described.get("objectSelector") or {})
        self.size = len(self.of_namespaces.requirements) + len(self.of_objects.requirements)

    def concerning(
        self, operation: str, resource: Resource, subresource: str, equivalents: Sequence[Resource]
    ) -> ResourceMatch | None:
        """The match for a resource; None if no request for it matches.  `equivalents`: other resources that serve the
        same objects."""
        others = equivalents if self._equivalent else ()

        def found(rules: Sequence[ResourceRule]) -> list[tuple[Names, Resource]]:
            exact = [(rule.names, resource) for rule in rules if rule.concerns(operation, resource, subresource)]
            return exact + [
                (rule.names, other)
                for rule in rules
                for other in others
                if rule.concerns(operation, other, subresource)
            ]

        excluded = [names for names, _ in found(self._excluded)]
        matched = found(self._rules) if self._rules else [(frozenset[str](), resource)]
        if not matched or not all(excluded):
            return None
        return ResourceMatch(self, tuple(matched), frozenset[str]().union(*excluded))


@dataclass(frozen=True, slots=True)
class ResourceMatch:
    matcher: Matcher
    matched: tuple[tuple[Names, Resource], ...]  #: in order of preference
    excluded: Names

    def form(self, asked: MatchAttributes) -> Resource | None:
        """The resource in whose form the policy gets the object; None if the request does not match."""
        if self.excluded and asked.name in self.excluded:
            return None
        for names, resource in self.matched:
            if not names or asked.name in names:
                return resource if self._selects(asked) else None
        return None

    def _selects(self, asked: MatchAttributes) -> bool:
        of_namespaces, of_objects = self.matcher.of_namespaces, self.matcher.of_objects
        if of_namespaces:
            labels = asked.namespace_labels()
            if labels is not None and not of_namespaces.matches(labels):
                return False
        return not of_objects or any(selects(of_objects, labels) for labels in asked.labels())


def selects(selector: LabelSelector, labels: Labels | None) -> bool:
    return labels is not None and selector.matches(labels)
