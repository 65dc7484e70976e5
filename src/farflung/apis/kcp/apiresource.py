"""apiresource.kcp.io: served for clients that list these kinds.  No controller uses the objects."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import Described, anything, column, flag, listing, moment, record, text, texts, whole
from farflung.apis.kcp.names import APIRESOURCE_GROUP
from farflung.machinery.errors import Obj

_COLUMN = record(
    "One column of what `kubectl get` shows.",
    {
        "name": text("Its heading."),
        "type": text("What its cells are."),
        "format": text("How a cell is to be understood."),
        "description": text("What it shows."),
        "priority": whole("Shown always if 0, with `-o wide` if more."),
        "jsonPath": text("Where in an object its cell is found."),
    },
    required=("name", "type", "format", "description", "priority", "jsonPath"),
)
_CONDITION = record(
    "One thing that was observed.",
    {
        "type": text("What was observed, in CamelCase."),
        "status": text("Whether it is so: True, False or Unknown."),
        "lastTransitionTime": moment("When the status last became another."),
        "reason": text("Why it is so, as one CamelCase word for programs."),
        "message": text("Why it is so, for people."),
    },
    required=("type", "status"),
)
_RESOURCE: Final[dict[str, Obj]] = {
    "groupVersion": record(
        "Group and version of the resource.",
        {"group": text("The group; empty for the core group."), "version": text("The version.")},
        required=("version",),
    ),
    "scope": text("Whether its objects are in namespaces."),
    "plural": text("What it is called in URLs."),
    "singular": text("What one object is called."),
    "kind": text("What it is called in objects."),
    "listKind": text("What it is called in lists."),
    "shortNames": texts("Short for the plural.", "A name."),
    "categories": texts("Groups of resources that can be asked for together.", "A category."),
    "openAPIV3Schema": anything("The schema of its objects.", **{"x-kubernetes-map-type": "atomic"}),
    "subResources": listing(
        "What else there is below an object's URL.",
        record("One subresource.", {"name": text("Its name.")}, required=("name",)),
    ),
    "columnDefinitions": listing("What `kubectl get` shows beside the name.", _COLUMN),
}
_NEEDED = ("groupVersion", "kind", "openAPIV3Schema", "plural", "scope")
_STATUS = record("What was observed.", {"conditions": listing("What was observed.", _CONDITION)})
_API_VERSION = column("API Version", r".metadata.annotations.apiresource\.kcp\.dev/apiVersion", priority=3)
_API_RESOURCE = column("API Resource", ".spec.plural", priority=4)


def _condition(name: str, priority: int) -> Obj:
    return column(name, f'.status.conditions[?(@.type=="{name}")].status', priority=priority)


API_RESOURCE_IMPORT: Final = Described(
    APIRESOURCE_GROUP,
    "apiresourceimports",
    "APIResourceImport",
    "A resource as some cluster serves it.",
    {
        "spec": record(
            "The resource.",
            {
                **_RESOURCE,
                "location": text("The cluster."),
                "schemaUpdateStrategy": text("When the schema that all clusters agree on follows this one."),
            },
            required=(*_NEEDED, "location"),
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

NEGOTIATED_API_RESOURCE: Final = Described(
    APIRESOURCE_GROUP,
    "negotiatedapiresources",
    "NegotiatedAPIResource",
    "A resource as all clusters can serve it.",
    {
        "spec": record(
            "The resource.",
            {**_RESOURCE, "publish": flag("Whether it is served.")},
            required=_NEEDED,
        ),
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
