"""The parameters of a policy: objects that its bindings name or select."""

from __future__ import annotations

from farflung.hub.admission.policies.registry import ParamReference
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind
from farflung.machinery.errors import Obj
from farflung.store.base import Store


class ConfigurationError(Exception):
    """A policy or binding that cannot be applied; the text says why."""


def params_of(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> list[Obj]:
    """The parameters for a request in a namespace ("": about the cluster's own objects); none if the binding does not
    apply then.  Raises ConfigurationError."""
    where = reference.namespace
    if not kind.resource.namespaced:
        if where:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    elif not where:
        where = namespace
        if not where:
            why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise ConfigurationError(why)
    found = named(store, cluster, kind, reference, where) if reference.name else []
    if not reference.name:
        found = selected(store, cluster, kind, reference, where)
    if not found and reference.required:
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def named(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> list[Obj]:
    entry = store.get(objects.key(kind.resource, cluster, namespace, reference.name))
    return [] if entry is None else [kind.read(entry)]


def selected(store: Store, cluster: str, kind: Kind, reference: ParamReference, namespace: str) -> list[Obj]:
    entries = store.list(objects.prefix(kind.resource, cluster, namespace)).entries
    return [kind.read(entry) for entry in entries if reference.selector.matches(objects.labels_of(entry))]
