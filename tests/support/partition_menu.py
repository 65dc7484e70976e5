"""What there is in a mailbox and at an edge, and how it is changed."""

from __future__ import annotations

from partition_laws import ORIGIN
from syncing import DEFINITIONS, DEPLOYMENTS, MAPS, NAMESPACES, scope
from translated import config_map, definition, deployment, namespace, widget

from farflung.apis.edge.names import PROJECTED
from farflung.apis.names import Collection
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef

ROLES = Collection("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
WIDGETS = Collection("example.org", "v1", "widgets", "Widget")
COLLECTIONS = {
    GroupResource(one.group, one.plural): one for one in (NAMESPACES, MAPS, DEPLOYMENTS, ROLES, DEFINITIONS, WIDGETS)
}


def _ref(collection: Collection, namespace: str, name: str) -> ObjectRef:
    return ObjectRef(GroupResource(collection.group, collection.plural), namespace, name)


REFS = (
    _ref(NAMESPACES, "", "shop"),
    _ref(NAMESPACES, "", "farm"),
    _ref(MAPS, "shop", "a"),
    _ref(MAPS, "shop", "b"),
    _ref(MAPS, "farm", "a"),
    _ref(DEPLOYMENTS, "shop", "web"),
    _ref(ROLES, "", "picker"),
    _ref(DEFINITIONS, "", "widgets.example.org"),
    _ref(WIDGETS, "shop", "w"),
)
BORN = (_ref(MAPS, "local", "r1"), _ref(MAPS, "local", "r2"))  #: at the edge

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


def made(ref: ObjectRef, number: int, **annotations: str) -> Obj:
    """A copy, that says which one it is."""
    name = ref.name
    match ref.resource.resource:
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


def edited(ref: ObjectRef) -> Obj:
    """A change of what is ours."""
    match ref.resource.resource:
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
