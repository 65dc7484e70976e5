"""The kinds that syncers bring, their objects, and what configurations say of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from farflung.apis.names import Collection
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource

NAMESPACES = Collection("", "v1", "namespaces", "Namespace")
MAPS = Collection("", "v1", "configmaps", "ConfigMap")
SECRETS = Collection("", "v1", "secrets", "Secret")
DEPLOYMENTS = Collection("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Collection("apps", "v1", "replicasets", "ReplicaSet")
CONFIGS = Collection("edge.kcp.io", "v1alpha1", "syncerconfigs", "SyncerConfig")
OLD_CONFIGS = Collection("edge.kcp.io", "v1alpha1", "edgesyncconfigs", "EdgeSyncConfig")
DEFINITIONS = Collection("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
POLICIES, POLICY_BINDINGS = (
    Collection("admissionregistration.k8s.io", "v1", plural, kind)
    for plural, kind in (
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    )
)
NOWHERE = {"farflung.example.com/nowhere": "true"}  #: the label of a node that no cluster has
OPEN: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


# --- objects --------------------------------------------------------------------------------------


def resource(collection: Collection) -> GroupResource:
    return GroupResource(collection.group, collection.plural)


def entry(collection: Collection) -> Obj:
    """As a SyncerConfig has it."""
    return {"group": collection.group, "resource": collection.plural, "apiVersion": collection.version}


def scope(namespaces: Iterable[str], *collections: Collection) -> Obj:
    """`namespaceScope`: all objects of these kinds in these namespaces."""
    return {"namespaces": list(namespaces), "resources": [entry(one) for one in collections]}


def parts(collection: Collection, **names: list[str]) -> Obj:
    """One of `namespacedObjects`: names by namespace."""
    by_namespace = [{"namespace": namespace, "names": some} for namespace, some in names.items()]
    return {**entry(collection), "objectsByNamespace": by_namespace}


def whole(collection: Collection, *names: str) -> Obj:
    """One of `clusterScope`."""
    return {**entry(collection), "objects": list(names)}


def upsync(group: str, resources: list[str], namespaces: list[str], names: list[str]) -> Obj:
    return {"apiGroup": group, "resources": resources, "namespaces": namespaces, "names": names}


def obj(collection: Collection, name: str, content: Obj | None = None, **metadata: Any) -> Obj:
    head = {"apiVersion": collection.api_version, "kind": collection.kind}
    return {**head, "metadata": {"name": name, **metadata}, **(content or {})}


def deployment(name: str, image: str = "registry.example.com/none:1", **spec: Any) -> Obj:
    """Its pods, if a cluster makes any, run nowhere."""
    labels = {"app": name}
    pod = {
        "containers": [{"name": "main", "image": image}],
        "nodeSelector": NOWHERE,
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return obj(DEPLOYMENTS, name, {"spec": {"selector": {"matchLabels": labels}, "template": template, **spec}})


def schema_of(spec: Obj) -> Obj:
    """Of a version of a definition; `spec`: the schema of that part of its objects."""
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": OPEN}}}


def definition(collection: Collection, *, namespaced: bool = True, status: bool = True, spec: Obj | None = None) -> Obj:
    """Of a kind of its own; `spec`: the schema of that part of its objects."""
    version: Obj = {
        "name": collection.version,
        "served": True,
        "storage": True,
        "schema": schema_of(spec or OPEN),
        **({"subresources": {"status": {}}} if status else {}),
    }
    names = {"plural": collection.plural, "singular": collection.kind.lower(), "kind": collection.kind}
    content = {
        "group": collection.group,
        "names": {**names, "listKind": f"{collection.kind}List"},
        "scope": "Namespaced" if namespaced else "Cluster",
        "versions": [version],
    }
    return obj(DEFINITIONS, f"{collection.plural}.{collection.group}", {"spec": content})
