"""Rules of roles, compiled: a question to one costs a few look-ups in sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from farflung.machinery.errors import Obj

Words = dict[str, None]  #: a set that keeps the order in which its author wrote it


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """What a rule allows.  One with `paths` is about no resources."""

    verbs: Words
    groups: Words
    resources: Words
    names: Words  #: empty: all of them
    paths: Words  #: as they are written, with their stars
    _path_prefixes: tuple[str, ...] = field(init=False, repr=False)
    _any_verb: bool = field(init=False, repr=False)
    _any_group: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        prefixes = tuple(path.rstrip("*") for path in self.paths if path.endswith("*"))
        object.__setattr__(self, "_path_prefixes", prefixes)
        object.__setattr__(self, "_any_verb", "*" in self.verbs)
        object.__setattr__(self, "_any_group", "*" in self.groups)

    def has_verb(self, verb: str) -> bool:
        return self._any_verb or verb in self.verbs

    def has_group(self, group: str) -> bool:
        return self._any_group or group in self.groups

    def has_resource(self, resource: str) -> bool:
        """`pods`, `pods/log`, or what a rule may say: `*`, `*/log`."""
        if resource in self.resources or "*" in self.resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources

    def has_name(self, name: str) -> bool:
        return not self.names or name in self.names

    def has_path(self, path: str) -> bool:
        return path in self.paths or path.startswith(self._path_prefixes)

    def as_resource_rule(self) -> Obj:
        shown: Obj = {"verbs": [*self.verbs], "apiGroups": [*self.groups], "resources": [*self.resources]}
        return shown | {"resourceNames": [*self.names]} if self.names else shown

    def as_path_rule(self) -> Obj:
        return {"verbs": [*self.verbs], "nonResourceURLs": [*self.paths]}


def rule_of(obj: Obj) -> Rule:
    return Rule(*(_words(obj.get(part)) for part in ("verbs", "apiGroups", "resources", "resourceNames", PATHS)))


PATHS = "nonResourceURLs"


def _words(texts: Iterable[str] | None) -> Words:
    return dict.fromkeys(texts or ())


class Role:
    """The rules of a Role or ClusterRole, to be found by the resource they are about."""

    __slots__ = ("_about", "_paths", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._about: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for resource in rule.resources:
                self._about.setdefault(resource, []).append(rule)
        self._paths = tuple(rule for rule in self.rules if rule.paths)

    def allowing(self, verb: str, group: str, resources: Iterable[str]) -> Sequence[Rule]:
        """The rules that allow it, of some name at least.  `resources`: see `spellings`."""
        about = self._about
        found: list[Rule] = []
        for resource in resources:
            if resource in about:
                found += [rule for rule in about[resource] if rule.has_verb(verb) and rule.has_group(group)]
        return found

    def allows_path(self, verb: str, path: str) -> bool:
        return any(rule.has_verb(verb) and rule.has_path(path) for rule in self._paths)


def spellings(resource: str, subresource: str) -> tuple[str, ...]:
    """How a rule may write a resource."""
    return (f"{resource}/{subresource}", "*", f"*/{subresource}") if subresource else (resource, "*")


def role_of(obj: Obj) -> Role:
    return Role(map(rule_of, obj.get("rules") or ()))
