"""What the expressions of policies may refer to, and of what types it is.

Objects and parameters are dyn: a policy may be about several kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.admissionregistration import authorizer
from farflung.machinery.cel.declarations import Functions, functions
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
    object_type,
)

FUNCTIONS: Final[Functions] = functions(KUBERNETES.values(), authorizer.LIBRARY)

TEXTS: Final = list_of(STRING)
LABELS: Final = map_of(STRING, STRING)


def _object(name: str, fields: Mapping[str, Type]) -> Type:
    return object_type(f"kubernetes.{name}", {name: Field(of, name) for name, of in fields.items()})


KIND: Final = _object("GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
RESOURCE: Final = _object("GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
USER_INFO: Final = _object(
    "UserInfo", {"username": STRING, "uid": STRING, "groups": TEXTS, "extra": map_of(STRING, TEXTS)}
)
REQUEST: Final = _object(
    "AdmissionRequest",
    {
        "kind": KIND,
        "resource": RESOURCE,
        "subResource": STRING,
        "requestKind": KIND,
        "requestResource": RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": USER_INFO,
        "dryRun": BOOL,
        "options": DYN,
    },
)
NAMESPACE_METADATA: Final = _object(
    "NamespaceMetadata",
    {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": LABELS,
        "annotations": LABELS,
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": TEXTS,
    },
)
NAMESPACE_CONDITION: Final = _object(
    "NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
NAMESPACE: Final = _object(
    "Namespace",
    {
        "metadata": NAMESPACE_METADATA,
        "spec": _object("NamespaceSpec", {"finalizers": TEXTS}),
        "status": _object("NamespaceStatus", {"conditions": list_of(NAMESPACE_CONDITION), "phase": STRING}),
    },
)

OBJECTS: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "request": REQUEST,
    "namespaceObject": NAMESPACE,
}
PARAMS: Final[Mapping[str, Type]] = {"params": DYN}
AUTHORIZER: Final[Mapping[str, Type]] = {
    "authorizer": authorizer.AUTHORIZER,
    "authorizer.requestResource": authorizer.RESOURCE_CHECK,
}
VARIABLES: Final = "variables"

#: the names of everything that an evaluation is given, whether an expression may use it or not
GIVEN: Final[Mapping[str, Type]] = {VARIABLES: DYN, **OBJECTS, **PARAMS, **AUTHORIZER}
