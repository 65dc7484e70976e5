"""The namespace and the definition that an object needs: neither may be terminating when it is created."""

from __future__ import annotations

from typing import Final

from farflung.hub.registry.call import Call
from farflung.machinery.errors import ApiError, forbidden, method_not_allowed, not_found
from farflung.store.base import Entry

_CREATED: Final = b'"creationTimestamp":"'
_DELETED: Final = b'"deletionTimestamp"'
_STAMP: Final = len("2006-01-02T15:04:05Z") + len('",')


def namespace_key(cluster: str, name: str) -> str:
    return f"/core/namespaces/{cluster}/{name}"


def definition_key(cluster: str, group: str, plural: str) -> str:
    return f"/apiextensions.k8s.io/customresourcedefinitions/{cluster}/{plural}.{group}"


def is_terminating(entry: Entry) -> bool:
    """Whether a stored object has a deletionTimestamp.  In encoded metadata it directly follows the
    creationTimestamp, and no text of a client comes before."""
    value = entry.value
    return value.startswith(_DELETED, value.index(_CREATED) + len(_CREATED) + _STAMP)


def check_open(call: Call, name: str = "") -> None:
    """Raises an error unless the namespace exists and neither it nor the kind's definition is being deleted."""
    resource, cluster, namespace = call.resource, call.target.cluster, call.target.namespace
    if resource.namespaced:
        entry = call.store.get(namespace_key(cluster, namespace))
        if entry is None:
            raise not_found("", "namespaces", namespace)
        if is_terminating(entry):
            raise terminating(call, namespace, name)
    if resource.custom and "create" not in resource.verbs:
        raise method_not_allowed()  # its APIBinding is being deleted
    if resource.custom and not resource.identity:
        definition = call.store.get(definition_key(cluster, resource.group, resource.plural))
        if definition is not None and is_terminating(definition):
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource.group, resource.plural, name, why)


def terminating(call: Call, namespace: str, name: str) -> ApiError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(call.resource.group, call.resource.plural, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = (error.details or {}) | {"causes": [cause]}
    return error
