"""The roles and bindings of one cluster, to be found by whom they are about.

subject ─► scope (a namespace, or "" for the whole cluster) ─► bindings ─► role ─► rules
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

import orjson

from farflung.apis.names import RBAC_GROUP
from farflung.hub.auth.rbac.rules import Role, Rule, role_of, spellings
from farflung.hub.catalog import objects
from farflung.hub.request.attributes import Decision
from farflung.hub.request.user import SERVICE_ACCOUNT, User
from farflung.machinery.errors import Obj, go_quote
from farflung.store.base import Entry

CLUSTER_ROLES: Final = f"/{RBAC_GROUP}/clusterroles/"
ROLES: Final = f"/{RBAC_GROUP}/roles/"
CLUSTER_BINDINGS: Final = f"/{RBAC_GROUP}/clusterrolebindings/"
BINDINGS: Final = f"/{RBAC_GROUP}/rolebindings/"
HOMES: Final = (CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS)


DENIED: Final = Decision(False)


class Subject(NamedTuple):
    kind: str
    name: str
    namespace: str  #: of a ServiceAccount

    @property
    def user(self) -> str:
        """The name of the user that it is."""
        return f"{SERVICE_ACCOUNT}{self.namespace}:{self.name}" if self.kind == "ServiceAccount" else self.name

    def __str__(self) -> str:
        shown = f"{self.name}/{self.namespace}" if self.kind == "ServiceAccount" else self.name
        return f"{self.kind} {go_quote(shown)}"


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    namespace: str  #: "" of a ClusterRoleBinding
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...]
    _decisions: dict[int, Decision] = field(default_factory=dict)

    def missing(self) -> str:
        """What is wrong if its role is not there."""
        return f"{self.role_kind.lower()}.{RBAC_GROUP} {go_quote(self.role_name)} not found"

    def allows(self, at: int) -> Decision:
        """What it allows its subject, in the words of Kubernetes; they are put together once."""
        decision = self._decisions.get(at)
        if decision is None:
            decision = self._decisions[at] = self._allows(at)
        return decision

    def _allows(self, at: int) -> Decision:
        kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else (CLUSTER, self.name)
        role = f"{self.role_kind} {go_quote(self.role_name)}"
        return Decision(True, f"RBAC: allowed by {kind} {go_quote(name)} of {role} to {self.subjects[at]}")


CLUSTER: Final = "ClusterRoleBinding"


def binding_of(namespace: str, name: str, obj: Obj) -> Binding:
    role = obj.get("roleRef") or {}
    subjects = (
        Subject(one.get("kind", ""), one.get("name", ""), one.get("namespace") or namespace)
        for one in obj.get("subjects") or ()
    )
    return Binding(namespace, name, role.get("kind", ""), role.get("name", ""), tuple(subjects))


class Bound(NamedTuple):
    """A binding, and which of its subjects somebody is."""

    name: str
    binding: Binding
    at: int


BY_NAME: Final = itemgetter(0)
BY_NAME_AND_SUBJECT: Final = itemgetter(0, 2)
Scopes = dict[str, list[Bound]]  #: scope → bindings, by name


@dataclass(slots=True)
class Grant:
    """What somebody may do with a resource in a namespace, whichever object it is."""

    denied: Decision = DENIED
    everything: Decision | None = None
    named: list[tuple[Rule, Decision]] = field(default_factory=list)

    def of(self, name: str) -> Decision:
        for rule, decision in self.named:
            if name in rule.names:
                return decision
        return self.everything or self.denied


class Policy:
    """`shared`: another cluster's policy, whose ClusterRoles and ClusterRoleBindings count here too."""

    def __init__(self, shared: Policy | None = None) -> None:
        self._shared = shared
        self._roles: dict[tuple[str, str], Role] = {}  #: (namespace, name); the namespace of a ClusterRole is ""
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._users: dict[str, Scopes] = {}
        self._groups: dict[str, Scopes] = {}
        self.generation = 0  #: another one after every change

    # --- keeping in step --------------------------------------------------------------------------

    def follow(self, key: str, entry: Entry | None) -> None:
        """A role or binding is now this; None: it is gone."""
        identity = objects.name_in(key)
        if key.startswith((ROLES, CLUSTER_ROLES)):
            if entry is None:
                self._roles.pop(identity, None)
            else:
                self._roles[identity] = role_of(orjson.loads(entry.value))
            return
        old = self._bindings.pop(identity, None)
        if old is not None:
            self._unbind(old)
        if entry is not None:
            self._bind(binding_of(*identity, orjson.loads(entry.value)))

    def _bind(self, binding: Binding) -> None:
        self._bindings[binding.namespace, binding.name] = binding
        for at, subject in enumerate(binding.subjects):
            index, name = self._place(subject)
            bound = index.setdefault(name, {}).setdefault(binding.namespace, [])
            place = bisect_left(bound, binding.name, key=BY_NAME)
            if place == len(bound) or bound[place].binding is not binding:
                bound.insert(place, Bound(binding.name, binding, at))

    def _unbind(self, binding: Binding) -> None:
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

    # --- questions --------------------------------------------------------------------------------

    def role(self, kind: str, namespace: str, name: str) -> Role | None:
        """What a binding in a namespace refers to."""
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

    def rules_of(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """All rules that count for somebody in a namespace, and the roles that were not found."""
        rules: list[Rule] = []
        errors: list[str] = []
        for binding, _, role in self._bound(user, namespace):
            if role is None:
                errors.append(binding.missing())
            else:
                rules += role.rules
        return rules, errors

    def _bound(self, user: User, namespace: str) -> Iterator[tuple[Binding, int, Role | None]]:
        """The bindings of a user: those of the cluster first, each kind by name.  A role that is bound more than once
        comes once, or a large role and many small bindings would keep everybody waiting."""
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

    def _in_scope(self, user: User, scope: str) -> Sequence[Bound]:
        found = [self._users[user.name].get(scope, [])] if user.name in self._users else []
        found += [self._groups[group].get(scope, []) for group in user.groups if group in self._groups]
        if len(found) < 2:
            return found[0] if found else ()
        first: dict[str, Bound] = {}  #: of a binding that has somebody twice, who comes first
        for one in sorted(chain.from_iterable(found), key=BY_NAME_AND_SUBJECT):
            first.setdefault(one.name, one)
        return list(first.values())


def denied(errors: Sequence[str]) -> Decision:
    return Decision(False, f"RBAC: {aggregate(errors)}") if errors else DENIED


def aggregate(errors: Sequence[str]) -> str:
    """Several errors as one text, each of them once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
