"""apiresource.kcp.io: served for clients that list these kinds.  No controller uses the objects."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    CustomKind,
    anything,
    array,
    boolean,
    column,
    date_time,
    integer,
    object_,
    text,
    texts,
)
from farflung.apis.kcp.names import APIRESOURCE_GROUP
from farflung.machinery.errors import Obj

_COLUMN = object_(
    "A column of the output of `kubectl get`.",
    name=text("The header of the column."),
    type=text("The type of its values."),
    format=text("The OpenAPI format of its values."),
    description=text("A description of the column."),
    priority=integer("0: always shown; more: shown with `-o wide`."),
    jsonPath=text("The path of the value in an object."),
    requires=("name", "type", "format", "description", "priority", "jsonPath"),
)
_CONDITION = object_(
    "A condition.",
    type=text("The type, in CamelCase."),
    status=text("True, False or Unknown."),
    lastTransitionTime=date_time("The time of the last change of the status."),
    reason=text("The reason, as one CamelCase word."),
    message=text("A human-readable message."),
    requires=("type", "status"),
)
_RESOURCE: Final[dict[str, Obj]] = {
    "groupVersion": object_(
        "Group and version of the resource.",
        group=text("The group; empty for the core group."),
        version=text("The version."),
        requires=("version",),
    ),
    "scope": text("Whether the resource is namespaced."),
    "plural": text("The plural name, in URLs."),
    "singular": text("The singular name."),
    "kind": text("The kind."),
    "listKind": text("The kind of lists."),
    "shortNames": texts("Short names of the plural.", "A name."),
    "categories": texts("Categories of the resource.", "A category."),
    "openAPIV3Schema": anything("The schema of its objects.", **{"x-kubernetes-map-type": "atomic"}),
    "subResources": array(
        "The subresources.",
        object_("One subresource.", name=text("Its name."), requires=("name",)),
    ),
    "columnDefinitions": array("The columns of `kubectl get` after the name.", _COLUMN),
}
_NEEDED = ("groupVersion", "kind", "openAPIV3Schema", "plural", "scope")
_STATUS = object_("The observed conditions.", conditions=array("The observed conditions.", _CONDITION))
_API_VERSION = column("API Version", r".metadata.annotations.apiresource\.kcp\.dev/apiVersion", priority=3)
_API_RESOURCE = column("API Resource", ".spec.plural", priority=4)


def _condition(name: str, priority: int) -> Obj:
    return column(name, f'.status.conditions[?(@.type=="{name}")].status', priority=priority)


API_RESOURCE_IMPORT: Final = CustomKind(
    APIRESOURCE_GROUP,
    "apiresourceimports",
    "APIResourceImport",
    "A resource as one cluster serves it.",
    {
        "spec": object_(
            "The resource.",
            **_RESOURCE,
            location=text("The cluster."),
            schemaUpdateStrategy=text("When the negotiated schema is updated from this one."),
            requires=(*_NEEDED, "location"),
        ),
        "status": _STATUS,
    },
    columns=(
        column("Location", ".spec.location", priority=1),
        column("Schema update strategy", ".spec.schemaUpdateStrategy", priority=2),
        _API_VERSION,
        _API_RESOURCE,
        _condition("Compatible", 5),
        _condition("Available", 6),
    ),
    snapshot="v220628-546034da",
)

NEGOTIATED_API_RESOURCE: Final = CustomKind(
    APIRESOURCE_GROUP,
    "negotiatedapiresources",
    "NegotiatedAPIResource",
    "A resource as all clusters can serve it.",
    {
        "spec": object_("The resource.", **_RESOURCE, publish=boolean("Whether it is served."), requires=_NEEDED),
        "status": _STATUS,
    },
    columns=(
        column("Publish", ".spec.publish", kind="boolean", priority=1),
        _API_VERSION,
        _API_RESOURCE,
        _condition("Published", 5),
        _condition("Enforced", 6),
    ),
    snapshot="v220628-546034da",
)
