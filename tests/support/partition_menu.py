"""What there is in a mailbox and at an edge, and how it is changed."""

from __future__ import annotations

from partition_laws import ORIGIN
from syncing import DEFINITIONS, DEPLOYMENTS, MAPS, NAMESPACES, scope
from translated import config_map, definition, deployment, namespace, widget

from farflung.apis.edge.names import PROJECTED
from farflung.apis.names import Collection
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, Part

ROLES = Collection("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
WIDGETS = Collection("example.org", "v1", "widgets", "Widget")
COLLECTIONS = {
    GroupResource(one.group, one.plural): one for one in (NAMESPACES, MAPS, DEPLOYMENTS, ROLES, DEFINITIONS, WIDGETS)
}


def _part(collection: Collection, namespace: str, name: str) -> Part:
    return Part(GroupResource(collection.group, collection.plural), namespace, name)


PARTS = (
    _part(NAMESPACES, "", "shop"),
    _part(NAMESPACES, "", "farm"),
    _part(MAPS, "shop", "a"),
    _part(MAPS, "shop", "b"),
    _part(MAPS, "farm", "a"),
    _part(DEPLOYMENTS, "shop", "web"),
    _part(ROLES, "", "picker"),
    _part(DEFINITIONS, "", "widgets.example.org"),
    _part(WIDGETS, "shop", "w"),
)
BORN = (_part(MAPS, "local", "r1"), _part(MAPS, "local", "r2"))  #: at the edge

_EVERYWHERE = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["local"], "names": ["*"]}
_CLUSTER = [
    {"group": ROLES.group, "resource": "clusterroles", "apiVersion": "v1", "objects": ["picker"]},
    {"group": DEFINITIONS.group, "resource": "customresourcedefinitions", "apiVersion": "v1", "objects": ["*"]},
]
_ONE_MAP = {
    "group": "",
    "resource": "configmaps",
    "apiVersion": "v1",
    "objectsByNamespace": [{"namespace": "shop", "names": ["a"]}],
}
#: what `the-one` may say; the first is what it says at first
SPECS: tuple[Obj, ...] = (
    scope("shop", "farm", resources=(MAPS, DEPLOYMENTS, WIDGETS), clusterScope=_CLUSTER, upsync=[_EVERYWHERE]),
    scope("shop", resources=(MAPS, DEPLOYMENTS), upsync=[{**_EVERYWHERE, "names": ["r1"]}]),
    {"namespacedObjects": [_ONE_MAP], "clusterScope": _CLUSTER[:1]},
    {},
)


def made(part: Part, number: int, **annotations: str) -> Obj:
    """A copy, that says which one it is."""
    name = part.name
    match part.resource.resource:
        case "namespaces":
            obj = namespace(name, tier=f"t{number}")
        case "configmaps":
            obj = config_map(name, {"v": str(number), f"k{number % 2}": "x"})
        case "deployments":
            obj = deployment(name, f"httpd:{number}")
        case "clusterroles":
            rules = [{"apiGroups": [""], "resources": [f"r{number}"], "verbs": ["get"]}]
            obj = {"apiVersion": f"{ROLES.group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        case "widgets":
            obj = widget(name, number)
        case _:
            obj = definition("v1")
    obj["metadata"]["annotations"] = {ORIGIN: str(number), **annotations}
    return obj


def edited(part: Part) -> Obj:
    """A change of what is ours."""
    match part.resource.resource:
        case "configmaps":
            return {"data": {"v": "edited"}}
        case "deployments":
            return {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "edited"}]}}}}
        case "clusterroles":
            return {"rules": []}
        case "widgets":
            return {"spec": {"size": -1}}
        case "namespaces":
            return {"metadata": {"labels": {"tier": "edited"}}}
    return {"metadata": {"labels": {PROJECTED: None}}}
