"""Access reviews of authors, and what roles and bindings say about placing.  Pure.

The server decides whether an author may place.  It answers about all Locations of a workspace, or about one.  Roles and
bindings say which questions are worth a request, and when to ask again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from farflung.apis.edge.authors import Author
from farflung.apis.edge.names import PLACE, RECORDS_AUTHORS
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER, GLOBAL_GROUPS, LOCATIONS, REQUIRED_GROUPS, SHARED_CLUSTER
from farflung.apis.names import ACCESS_REVIEWS, SERVICE_ACCOUNT
from farflung.lib.groups import discard_from
from farflung.machinery.errors import Obj

ROOT: Final = "root"  #: the workspace that exports Locations; its roles are the policy of the export
APPLYING_EVERYWHERE: Final = (SHARED_CLUSTER, CONTROLLERS_CLUSTER)  #: clusters whose roles apply in every workspace
ANY: Final = "*"
ENTER: Final = frozenset({"access", ANY})  #: verbs of the permission to access a workspace


class RightKey(NamedTuple):
    author: Author
    cluster: str  #: of the Locations

    def __str__(self) -> str:
        return f"{self.cluster}|{self.author.user or self.author.cluster}"


# --- reviews --------------------------------------------------------------------------------------


def new_review(key: RightKey, location: str = "") -> Obj:
    """A SubjectAccessReview for the workspace of the Locations.  `location`: empty: all of them."""
    about = {"verb": PLACE, "group": LOCATIONS.group, "resource": LOCATIONS.plural, "name": location}
    spec = {**key.author.review_spec(key.cluster), "resourceAttributes": about}
    return {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}


def is_allowed(review: Obj) -> bool:
    status = review.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


# --- roles and bindings ---------------------------------------------------------------------------


class PlacingRules(NamedTuple):
    """The part of a ClusterRole that decides about placing."""

    everywhere: bool = False
    names: frozenset[str] = frozenset()
    enters: bool = False  #: it gives access to the workspace

    @property
    def places(self) -> bool:
        return self.everywhere or bool(self.names)


NO_RULES: Final = PlacingRules()


class PlacingSubject(NamedTuple):
    is_group: bool
    name: str


class PlacingBinding(NamedTuple):
    """A ClusterRoleBinding."""

    role: str
    subjects: frozenset[PlacingSubject]


class _Rule(msgspec.Struct, rename="camel"):
    verbs: tuple[str, ...] | None = None
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = msgspec.field(default=None, name="nonResourceURLs")


class _Role(msgspec.Struct):
    rules: list[_Rule] | None = None


class _Subject(msgspec.Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Reference(msgspec.Struct, frozen=True):
    name: str = ""


class _Binding(msgspec.Struct, rename="camel"):
    role_ref: _Reference = _Reference()
    subjects: list[_Subject] | None = None


class _Annotations(msgspec.Struct):
    required_groups: str = msgspec.field(default="", name=REQUIRED_GROUPS)


class _Metadata(msgspec.Struct):
    annotations: _Annotations | None = None


class _LogicalCluster(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_role: Final = msgspec.json.Decoder(_Role)
_binding: Final = msgspec.json.Decoder(_Binding)
_logical_cluster: Final = msgspec.json.Decoder(_LogicalCluster)


def decode_role(document: bytes) -> PlacingRules:
    rules = _role.decode(document).rules or ()
    placing = [one for one in rules if _is_about_placing(one)]
    names = (name for one in placing for name in one.resource_names or ())
    enters = any(one.paths and not ENTER.isdisjoint(one.verbs or ()) for one in rules)
    return PlacingRules(any(not one.resource_names for one in placing), frozenset(names), enters)


def _is_about_placing(rule: _Rule) -> bool:
    parts = (rule.verbs, PLACE), (rule.api_groups, LOCATIONS.group), (rule.resources, LOCATIONS.plural)
    return all(wanted in (given or ()) or ANY in (given or ()) for given, wanted in parts)


def decode_binding(document: bytes) -> PlacingBinding:
    found = _binding.decode(document)
    return PlacingBinding(found.role_ref.name, frozenset(map(_read_subject, found.subjects or ())))


def _read_subject(subject: _Subject) -> PlacingSubject:
    is_account = subject.kind == "ServiceAccount"
    name = f"{SERVICE_ACCOUNT}{subject.namespace}:{subject.name}" if is_account else subject.name
    return PlacingSubject(subject.kind == "Group", name)


def decode_required_groups(document: bytes) -> str:
    """The groups that a user needs for access to a workspace; empty: none."""
    annotations = _logical_cluster.decode(document).metadata.annotations
    return "" if annotations is None else annotations.required_groups


def subjects_of(author: Author) -> Iterator[PlacingSubject]:
    yield PlacingSubject(False, author.user)
    for group in author.groups:
        yield PlacingSubject(True, group)


class PlacingRoles:
    """The ClusterRoles and ClusterRoleBindings of all workspaces.  Those of two logical clusters apply in all."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], PlacingRules] = {}  #: by logical cluster and name
        self._bindings: dict[tuple[str, str], PlacingBinding] = {}
        self._bound: dict[tuple[str, PlacingSubject], set[str]] = {}  #: names of bindings

    def put_role(self, cluster: str, name: str, rules: PlacingRules | None) -> bool:
        """None: it was deleted.  Whether a right may have changed."""
        before = self._rules.pop((cluster, name), NO_RULES)
        if rules is not None and rules != NO_RULES:
            self._rules[cluster, name] = rules
        return before != (rules or NO_RULES)

    def put_binding(self, cluster: str, name: str, binding: PlacingBinding | None) -> bool:
        """None: it was deleted.  Whether a right may have changed."""
        before = self._bindings.pop((cluster, name), None)
        for subject in () if before is None else before.subjects:
            discard_from(self._bound, (cluster, subject), name)
        if binding is not None:
            self._bindings[cluster, name] = binding
            for subject in binding.subjects:
                self._bound.setdefault((cluster, subject), set()).add(name)
        if before == binding:
            return False
        return any(one is not None and self._rules_in(cluster, one.role) != NO_RULES for one in (before, binding))

    def _rules_in(self, cluster: str, role: str) -> PlacingRules:
        return self._rules.get((cluster, role)) or self._rules.get((SHARED_CLUSTER, role), NO_RULES)

    def candidates(self, key: RightKey) -> frozenset[str]:
        """Names of Locations on which the author may be allowed to place."""
        return frozenset().union(*(rules.names for rules in self._bound_rules(key)))

    def may_place(self, key: RightKey) -> bool:
        """Whether the author may have a right at all: by a role, or as an administrator of all workspaces."""
        is_global = not key.author.cluster and not GLOBAL_GROUPS.isdisjoint(key.author.groups)
        return is_global or any(rules.places for rules in self._bound_rules(key))

    def _bound_rules(self, key: RightKey) -> Iterator[PlacingRules]:
        for cluster in (key.cluster, *APPLYING_EVERYWHERE):
            for subject in subjects_of(key.author.seen_in(key.cluster)):
                for name in self._bound.get((cluster, subject), ()):
                    yield self._rules_in(cluster, self._bindings[cluster, name].role)


def concerned(cluster: str, keys: Iterable[RightKey]) -> list[RightKey]:
    """The rights that a change in a logical cluster may affect."""
    if cluster in (*APPLYING_EVERYWHERE, ROOT):
        return list(keys)
    return [key for key in keys if key.cluster == cluster]


# --- trusted workspaces ---------------------------------------------------------------------------


def workspace_author(cluster: str) -> Author:
    """The author of everything in a workspace, for servers that record none."""
    return Author("", cluster=cluster)


def is_trusted(path: str, trusted: Iterable[str]) -> bool:
    """Whether the path of a workspace is one of these, or below one."""
    return any(path == one or path.startswith(f"{one}:") for one in trusted)


def records_authors(version: Any) -> bool:
    """Whether a server records authors, by its version."""
    return isinstance(version, dict) and version.get(RECORDS_AUTHORS) is True
