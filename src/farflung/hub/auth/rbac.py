"""RBAC: rules of roles, and an index of the roles and bindings of one cluster.

subject ─► scope (a namespace, or "" for the whole cluster) ─► bindings ─► role ─► rules
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

import orjson

from farflung.apis.names import RBAC_GROUP, SERVICE_ACCOUNT
from farflung.hub.catalog import objects
from farflung.hub.request.attributes import Decision
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.turns import INDIVISIBLE, Paced, Steps
from farflung.store.base import Entry

OrderedSet = dict[str, None]  #: a set in the order of the object


@dataclass(frozen=True, slots=True, eq=False)
class PolicyRule:
    """A rule of a role as sets.  A rule with `paths` has no resources."""

    verbs: OrderedSet
    groups: OrderedSet
    resources: OrderedSet
    names: OrderedSet  #: empty: all names
    paths: OrderedSet  #: with their stars
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
        """`resource` may also be a pattern: `pods`, `pods/log`, `*`, `*/log`."""
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


def rule_of(obj: Obj) -> PolicyRule:
    parts = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return PolicyRule(*(dict.fromkeys(obj.get(part) or ()) for part in parts))


class RoleIndex(NamedTuple):
    rules: Sequence[PolicyRule]
    about: Mapping[str, Sequence[PolicyRule]]  #: by resource
    paths: Sequence[PolicyRule]  #: rules with paths


class Role:
    """The rules of a Role or ClusterRole.  They are read when they are first used, because a role may have thousands.
    Raises TurnOver if the current task has an allowance that is too small."""

    __slots__ = ("_index",)

    def __init__(self, value: bytes) -> None:
        """`value`: the stored role."""
        self._index: Paced[RoleIndex] = Paced(lambda: role_steps(value))

    @property
    def rules(self) -> Sequence[PolicyRule]:
        return self._index.value.rules

    def allowing(self, verb: str, group: str, resources: Iterable[str]) -> Sequence[PolicyRule]:
        """The rules that allow a verb on a resource, if only for some names.  `resources`: see `spellings`."""
        about = self._index.value.about
        found: list[PolicyRule] = []
        for resource in resources:
            if resource in about:
                found += [rule for rule in about[resource] if rule.has_verb(verb) and rule.has_group(group)]
        return found

    def allows_path(self, verb: str, path: str) -> bool:
        return any(rule.has_verb(verb) and rule.has_path(path) for rule in self._index.value.paths)


def spellings(resource: str, subresource: str) -> tuple[str, ...]:
    """The strings with which a rule can name a resource."""
    return (f"{resource}/{subresource}", "*", f"*/{subresource}") if subresource else (resource, "*")


READING: Final = 2  #: work of decoding a byte
INDEXING: Final = 700  #: work of a rule


def role_steps(value: bytes) -> Steps[RoleIndex]:
    yield min(READING * len(value), INDIVISIBLE)
    rules: list[PolicyRule] = []
    about: dict[str, list[PolicyRule]] = {}
    for one in orjson.loads(value).get("rules") or ():
        yield INDEXING
        rule = rule_of(one)
        rules.append(rule)
        for resource in rule.resources:
            about.setdefault(resource, []).append(rule)
    return RoleIndex(rules, about, [rule for rule in rules if rule.paths])


CLUSTER_ROLES: Final = f"/{RBAC_GROUP}/clusterroles/"
ROLES: Final = f"/{RBAC_GROUP}/roles/"
CLUSTER_BINDINGS: Final = f"/{RBAC_GROUP}/clusterrolebindings/"
BINDINGS: Final = f"/{RBAC_GROUP}/rolebindings/"
STORAGE_PREFIXES: Final = (CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS)


DENIED: Final = Decision(False)


class Subject(NamedTuple):
    kind: str
    name: str
    namespace: str  #: of a ServiceAccount

    @property
    def user(self) -> str:
        """The user name of the subject."""
        return f"{SERVICE_ACCOUNT}{self.namespace}:{self.name}" if self.kind == "ServiceAccount" else self.name

    def __str__(self) -> str:
        shown = f"{self.name}/{self.namespace}" if self.kind == "ServiceAccount" else self.name
        return f"{self.kind} {go_quote(shown)}"


@dataclass(frozen=True, slots=True, eq=False)
class RoleBinding:
    namespace: str  #: "" of a ClusterRoleBinding
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...]
    _decisions: dict[int, Decision] = field(default_factory=dict)

    def missing(self) -> str:
        """The error if its role does not exist."""
        return f"{self.role_kind.lower()}.{RBAC_GROUP} {go_quote(self.role_name)} not found"

    def allows(self, at: int) -> Decision:
        """The decision for one of its subjects, with Kubernetes' reason.  Cached."""
        decision = self._decisions.get(at)
        if decision is None:
            kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else (CLUSTER, self.name)
            role = f"{self.role_kind} {go_quote(self.role_name)}"
            reason = f"RBAC: allowed by {kind} {go_quote(name)} of {role} to {self.subjects[at]}"
            decision = self._decisions[at] = Decision(True, reason)
        return decision


CLUSTER: Final = "ClusterRoleBinding"


def binding_of(namespace: str, name: str, obj: Obj) -> RoleBinding:
    role = obj.get("roleRef") or {}
    subjects = (
        Subject(one.get("kind", ""), one.get("name", ""), one.get("namespace") or namespace)
        for one in obj.get("subjects") or ()
    )
    return RoleBinding(namespace, name, role.get("kind", ""), role.get("name", ""), tuple(subjects))


class BoundSubject(NamedTuple):
    """A binding, and the index of the subject that matches a user."""

    name: str
    binding: RoleBinding
    at: int


BY_NAME: Final = itemgetter(0)
BY_NAME_AND_SUBJECT: Final = itemgetter(0, 2)
Scopes = dict[str, list[BoundSubject]]  #: scope → bindings, ordered by name


@dataclass(slots=True)
class Grant:
    """A user's permissions for a resource in a namespace."""

    denied: Decision = DENIED
    everything: Decision | None = None
    named: list[tuple[PolicyRule, Decision]] = field(default_factory=list)

    def of(self, name: str) -> Decision:
        for rule, decision in self.named:
            if name in rule.names:
                return decision
        return self.everything or self.denied


class RbacPolicy:
    """`shared`: the index of another cluster whose ClusterRoles and ClusterRoleBindings apply here too."""

    def __init__(self, shared: RbacPolicy | None = None) -> None:
        self._shared = shared
        self._roles: dict[tuple[str, str], Role] = {}  #: (namespace, name); the namespace of a ClusterRole is ""
        self._bindings: dict[tuple[str, str], RoleBinding] = {}
        self._users: dict[str, Scopes] = {}
        self._groups: dict[str, Scopes] = {}
        self.generation = 0  #: changes with every update

    # --- updates ----------------------------------------------------------------------------------

    def follow(self, key: str, entry: Entry | None) -> None:
        """Set a role or binding; None: it was deleted.  Copies in mailboxes grant nothing: other tenants have copies
        there too."""
        identity = objects.name_in(key)
        if entry is not None and objects.is_copy(entry):
            entry = None
        if key.startswith((ROLES, CLUSTER_ROLES)):
            if entry is None:
                self._roles.pop(identity, None)
            else:
                self._roles[identity] = Role(entry.value)
            return
        old = self._bindings.pop(identity, None)
        if old is not None:
            self._unbind(old)
        if entry is not None:
            self._bind(binding_of(*identity, orjson.loads(entry.value)))

    def _bind(self, binding: RoleBinding) -> None:
        self._bindings[binding.namespace, binding.name] = binding
        for at, subject in enumerate(binding.subjects):
            index, name = self._place(subject)
            bound = index.setdefault(name, {}).setdefault(binding.namespace, [])
            place = bisect_left(bound, binding.name, key=BY_NAME)
            if place == len(bound) or bound[place].binding is not binding:
                bound.insert(place, BoundSubject(binding.name, binding, at))

    def _unbind(self, binding: RoleBinding) -> None:
        for subject in binding.subjects:
            index, name = self._place(subject)
            scopes = index.get(name, {})
            bound = scopes.get(binding.namespace, [])
            place = bisect_left(bound, binding.name, key=BY_NAME)
            if place < len(bound) and bound[place].binding is binding:
                del bound[place]
            if not bound:
                scopes.pop(binding.namespace, None)
            if not scopes:
                index.pop(name, None)

    def _place(self, subject: Subject) -> tuple[dict[str, Scopes], str]:
        return (self._groups, subject.name) if subject.kind == "Group" else (self._users, subject.user)

    # --- queries ----------------------------------------------------------------------------------

    def binds(self, user: User) -> bool:
        """Whether a binding of this cluster names the user or one of its groups."""
        return user.name in self._users or not self._groups.keys().isdisjoint(user.groups)

    def role(self, kind: str, namespace: str, name: str) -> Role | None:
        """The role that a binding in a namespace refers to."""
        if kind == "Role":
            return self._roles.get((namespace, name))
        role = self._roles.get(("", name))
        return self._shared.role(kind, "", name) if role is None and self._shared is not None else role

    def grant(self, user: User, verb: str, group: str, resource: str, subresource: str, namespace: str) -> Grant:
        grant, errors = Grant(), []
        resources = spellings(resource, subresource)
        for binding, at, role in self._bound(user, namespace):
            if role is None:
                errors.append(binding.missing())
                continue
            for rule in role.allowing(verb, group, resources):
                decision = binding.allows(at)
                if not rule.names:
                    grant.everything = decision
                    return grant
                grant.named.append((rule, decision))
        grant.denied = denied(errors)
        return grant

    def decide_path(self, user: User, verb: str, path: str) -> Decision:
        errors = []
        for binding, at, role in self._bound(user, ""):
            if role is None:
                errors.append(binding.missing())
            elif role.allows_path(verb, path):
                return binding.allows(at)
        return denied(errors)

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """All rules of a user in a namespace, and errors about missing roles."""
        rules: list[PolicyRule] = []
        errors: list[str] = []
        for binding, _, role in self._bound(user, namespace):
            if role is None:
                errors.append(binding.missing())
            else:
                rules += role.rules
        return rules, errors

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[RoleBinding, int, Role | None]]:
        """The bindings of a user: cluster-wide ones first, then by name.  A role with several bindings is returned
        once, because a large role with many bindings would be slow."""
        seen: set[Role] = set()
        for scope in ("", namespace) if namespace else ("",):
            for _, binding, at in self._in_scope(user, scope):
                role = self.role(binding.role_kind, scope, binding.role_name)
                if role is None:
                    yield binding, at, None
                elif role not in seen:
                    seen.add(role)
                    yield binding, at, role
            if self._shared is not None and not scope:
                yield from self._shared._bound(user, "")

    def _in_scope(self, user: User, scope: str) -> Sequence[BoundSubject]:
        found = [self._users[user.name].get(scope, [])] if user.name in self._users else []
        found += [self._groups[group].get(scope, []) for group in user.groups if group in self._groups]
        if len(found) < 2:
            return found[0] if found else ()
        first: dict[str, BoundSubject] = {}  #: the first subject of each binding that matches the user
        for one in sorted(chain.from_iterable(found), key=BY_NAME_AND_SUBJECT):
            first.setdefault(one.name, one)
        return list(first.values())


def denied(errors: Sequence[str]) -> Decision:
    return Decision(False, f"RBAC: {aggregate(errors)}") if errors else DENIED


def aggregate(errors: Sequence[str]) -> str:
    """Several errors as one text, without duplicates."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
