"""The policies of each cluster, which follow the store.

The store reports a commit before its writer gets a response, so a binding applies as soon as it is created.  The
policies of a resource are computed at its first write, and cached until policies, bindings or kinds change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from farflung.apis.builtin.catalog import Path
from farflung.apis.names import POLICIES_GROUP
from farflung.apis.resource import Resource
from farflung.hub.admission.policies.matcher import Matcher, ResourceMatch
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.hub.catalog.served import Changed, ClusterKinds, Kinds, path_of
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import LabelSelector, selector_of
from farflung.machinery.turns import Paced, Steps
from farflung.store.base import Change, Entry, Store

if TYPE_CHECKING:
    from farflung.apis.admissionregistration.expressions import CompiledPolicy

POLICIES: Final = f"/{POLICIES_GROUP}/validatingadmissionpolicies/"
BINDINGS: Final = f"/{POLICIES_GROUP}/validatingadmissionpolicybindings/"


class AdmissionPolicy:
    """One generation of a ValidatingAdmissionPolicy."""

    def __init__(self, described: Obj) -> None:
        self.name: str = described["metadata"]["name"]
        self._identity = (described["metadata"]["uid"], described["metadata"].get("generation"))
        self.spec: Obj = described["spec"]
        self.param_kind: Obj | None = self.spec.get("paramKind")
        self.fails = self.spec.get("failurePolicy") != "Ignore"
        self.matcher = Matcher(self.spec.get("matchConstraints"))
        self.is_expensive = False  #: its last evaluation took longer than a turn of the event loop
        self._compiled = Paced(self._compile)

    def is_same_as(self, other: AdmissionPolicy) -> bool:
        return self._identity == other._identity

    @property
    def compiled(self) -> CompiledPolicy:
        """Raises TurnOver if the current task has an allowance that is too small."""
        return self._compiled.value

    def _compile(self) -> Steps[CompiledPolicy]:
        from farflung.apis.admissionregistration.expressions import (
            policy_steps,  # a hub without policies does not load CEL
        )

        return policy_steps(self.spec)


class PolicyBinding:
    def __init__(self, described: Obj) -> None:
        spec = described["spec"]
        self.name: str = described["metadata"]["name"]
        self.policy: str = spec["policyName"]
        self.actions = frozenset[str](spec.get("validationActions") or ())
        self.matcher = Matcher(spec.get("matchResources"))
        param: Obj | None = spec.get("paramRef")
        self.param = None if param is None else ParamReference(param)


class ParamReference:
    """The parameters of a binding: one object by name, or several by labels."""

    def __init__(self, described: Obj) -> None:
        self.name: str = described.get("name", "")
        self.namespace: str = described.get("namespace", "")
        self.selector: LabelSelector = selector_of(described.get("selector") or {})
        self.required = described.get("parameterNotFoundAction") == "Deny"


class ApplicableBinding(NamedTuple):
    """A binding that applies to a resource."""

    binding: PolicyBinding
    match: ResourceMatch


class ApplicablePolicy(NamedTuple):
    """A policy that applies to a resource, with its bindings."""

    policy: AdmissionPolicy
    match: ResourceMatch
    bound: tuple[ApplicableBinding, ...]
    params: Kind | None  #: None if it has no parameters, or their kind is not served


class ClusterPolicies:
    """The policies of one cluster."""

    def __init__(self, cluster: str, kinds: Kinds) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._policies: dict[str, AdmissionPolicy] = {}
        self._bindings: dict[str, PolicyBinding] = {}
        self._hooks: dict[tuple[Path, str, str], tuple[ApplicablePolicy, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._policies or self._bindings)

    def follow_policy(self, name: str, entry: Entry | None) -> None:
        before = self._policies.pop(name, None)
        if entry is not None:
            after = AdmissionPolicy(objects.decode(entry))
            self._policies[name] = before if before is not None and before.is_same_as(after) else after
        self.forget()

    def follow_binding(self, name: str, entry: Entry | None) -> None:
        self._bindings.pop(name, None)
        if entry is not None:
            self._bindings[name] = PolicyBinding(objects.decode(entry))
        self.forget()

    def forget(self) -> None:
        """Clear the cache."""
        self._hooks.clear()

    def concerning(self, operation: str, resource: Resource, subresource: str) -> tuple[ApplicablePolicy, ...]:
        """The policies with bindings for a resource, by name."""
        key = (path_of(resource), operation, subresource)
        hooks = self._hooks.get(key)
        if hooks is None:
            hooks = self._hooks[key] = tuple(self._found(operation, resource, subresource))
        return hooks

    def _found(self, operation: str, resource: Resource, subresource: str) -> Iterable[ApplicablePolicy]:
        served = self._kinds.of(self._cluster)
        equivalents = equivalents_of(served, resource, subresource)
        bound: dict[str, list[ApplicableBinding]] = {}
        for _, binding in sorted(self._bindings.items()):
            match = binding.matcher.concerning(operation, resource, subresource, equivalents)
            known = bound.setdefault(binding.policy, [])
            if match is not None:
                known.append(ApplicableBinding(binding, match))
        for name, policy in sorted(self._policies.items()):
            match = policy.matcher.concerning(operation, resource, subresource, equivalents)
            if match is not None and name in bound:
                params = None if policy.param_kind is None else kind_of(served, policy.param_kind)
                if bound[name] or (params is None and policy.param_kind is not None):
                    yield ApplicablePolicy(policy, match, tuple(bound[name]), params)


def equivalents_of(served: ClusterKinds, resource: Resource, subresource: str) -> tuple[Resource, ...]:
    """Other resources that serve the same objects."""
    prefix = objects.prefix(resource, "")
    return tuple(
        other
        for other in served.catalog
        if other.plural == resource.plural
        and other is not resource
        and objects.prefix(other, "") == prefix
        and (not subresource or other.subresource(subresource) is not None)
    )


def kind_of(served: ClusterKinds, described: Obj) -> Kind | None:
    """The kind that a paramKind names, if it is served."""
    for resource in served.catalog:
        if resource.kind == described.get("kind") and resource.api_version == described.get("apiVersion"):
            return served.of(resource.group, resource.version, resource.plural)
    return None


class Policies:
    """The policies of all clusters."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._kinds = kinds
        self._clusters: dict[str, ClusterPolicies] = {}
        for prefix in (POLICIES, BINDINGS):
            store.subscribe(prefix, self._on_changes)
            for entry in store.list(prefix).entries:
                self._follow(entry.key, entry)
        kinds.subscribe(self._forget)

    def of(self, cluster: str) -> ClusterPolicies | None:
        """None for a cluster without policies."""
        return self._clusters.get(cluster)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow(change.key, change.entry)

    def _follow(self, key: str, entry: Entry | None) -> None:
        """Copies in mailboxes are not enforced: other tenants have copies there too."""
        if entry is not None and objects.is_copy(entry):
            entry = None
        cluster = objects.cluster_in(key)
        policies = self._clusters.get(cluster)
        if policies is None:
            policies = self._clusters[cluster] = ClusterPolicies(cluster, self._kinds)
        _, name = objects.name_in(key)
        if key.startswith(POLICIES):
            policies.follow_policy(name, entry)
        else:
            policies.follow_binding(name, entry)
        if not policies:
            del self._clusters[cluster]

    def _forget(self, changed: Iterable[Changed]) -> None:
        for cluster in {cluster for cluster, _, _ in changed}:
            policies = self._clusters.get(cluster)
            if policies is not None:
                policies.forget()
