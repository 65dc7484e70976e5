"""Namespaces, as far as other objects depend on them."""

from __future__ import annotations

import msgspec

from farflung.hub.verbs.call import Call
from farflung.machinery.errors import ApiError, forbidden, not_found
from farflung.store.base import Entry


class _Metadata(msgspec.Struct, gc=False):
    deletionTimestamp: str | None = None


class _Namespace(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Namespace).decode


def namespace_key(cluster: str, name: str) -> str:
    return f"/core/namespaces/{cluster}/{name}"


def is_terminating(entry: Entry) -> bool:
    return _decode(entry.value).metadata.deletionTimestamp is not None


def check_open(call: Call, name: str = "") -> None:
    """Objects are created only in a namespace that exists and is not going away."""
    namespace = call.target.namespace
    entry = call.store.get(namespace_key(call.target.cluster, namespace))
    if entry is None:
        raise not_found("", "namespaces", namespace)
    if is_terminating(entry):
        raise terminating(call, namespace, name)


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
