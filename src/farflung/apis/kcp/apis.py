"""apis.kcp.io: APIExports, APIBindings, APIResourceSchemas and related kinds."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    anything,
    checked,
    column,
    conditions,
    distinct,
    flag,
    keyed,
    listing,
    record,
    text,
    texts,
    whole,
)
from farflung.apis.kcp.names import APIS_GROUP
from farflung.apis.kcp.references import export, group, resource
from farflung.machinery.errors import Obj

VERSION_PATTERN: Final = "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$"
SAME_EXPORT: Final = ("self == oldSelf", "APIExport reference must not be changed")


def _version(description: str) -> Obj:
    return text(description, minLength=1, pattern=VERSION_PATTERN)


def _endpoints(description: str) -> Obj:
    one = record("One address.", {"url": text("The address.", minLength=1)}, required=("url",))
    return listing(description, one)


# --- schemas --------------------------------------------------------------------------------------

_NAMES = record(
    "What the resource is called.",
    {
        "plural": text("In URLs; in lower case."),
        "singular": text("For one object; the kind in lower case if it is not said."),
        "kind": text("In objects; in CamelCase."),
        "listKind": text("In lists; the kind and `List` if it is not said."),
        "shortNames": texts("Short for the plural.", "A name."),
        "categories": texts("Groups of resources that can be asked for together, such as `all`.", "A category."),
    },
    required=("plural", "kind"),
)
_COLUMN = record(
    "One column of what `kubectl get` shows.",
    {
        "name": text("Its heading."),
        "type": text("What its cells are: string, integer, number, boolean or date."),
        "format": text("How a cell is to be understood."),
        "description": text("What it shows."),
        "priority": whole("Shown always if 0, with `-o wide` if more."),
        "jsonPath": text("Where in an object its cell is found."),
    },
    required=("name", "type", "jsonPath"),
)
_SUBRESOURCES = record(
    "What else there is below an object's URL.",
    {
        "status": {"description": "The object's status is written apart from the rest.", "type": "object"},
        "scale": record(
            "The object can be scaled.",
            {
                "specReplicasPath": text("Where it says how many replicas are wanted."),
                "statusReplicasPath": text("Where it says how many there are."),
                "labelSelectorPath": text("Where it says what selects its pods, as a text."),
            },
            required=("specReplicasPath", "statusReplicasPath"),
        ),
    },
)
_RESOURCE_VERSION = record(
    "One version of the resource.",
    {
        "name": _version("What the version is called, such as `v1` or `v1alpha1`."),
        "served": flag("Whether it is served.", default=True),
        "storage": flag("Whether objects are stored in it. One version must be the one."),
        "deprecated": flag("Whether using it earns a warning."),
        "deprecationWarning": text("The warning."),
        "schema": anything("The structural schema of its objects.", **{"x-kubernetes-map-type": "atomic"}),
        "subresources": _SUBRESOURCES,
        "additionalPrinterColumns": keyed("What `kubectl get` shows beside the name.", _COLUMN, ["name"]),
    },
    required=("name", "schema", "served", "storage"),
)

API_RESOURCE_SCHEMA: Final = Described(
    APIS_GROUP,
    "apiresourceschemas",
    "APIResourceSchema",
    "A resource as it is at one time. Its name is `<anything>.<plural>.<group>`. Cannot be changed.",
    {
        "spec": record(
            "What the resource is.",
            {
                "group": text("Its API group; empty for the core group."),
                "names": _NAMES,
                "scope": text("Whether its objects are in namespaces.", enum=["Cluster", "Namespaced"]),
                "versions": keyed("Its versions.", _RESOURCE_VERSION, ["name"], minItems=1),
            },
            required=("group", "names", "scope", "versions"),
        )
    },
    columns=(AGE,),
    status=False,
)

_RULE = record(
    "How one field is converted.",
    {
        "field": text("Where it is in the version that is converted.", minLength=1),
        "destination": text("Where it is in the other version.", minLength=1),
        "transformation": text("What is made of it, in CEL; `self` is the field."),
    },
    required=("field", "destination"),
)

API_CONVERSION: Final = Described(
    APIS_GROUP,
    "apiconversions",
    "APIConversion",
    "How the objects of the APIResourceSchema with the same name get from one version to another.",
    {
        "spec": record(
            "The conversions.",
            {
                "conversions": keyed(
                    "How to convert from each version to each other.",
                    record(
                        "How to convert from one version to one other.",
                        {
                            "from": _version("The version that is converted."),
                            "to": _version("The version that it becomes."),
                            "rules": keyed("What becomes of fields.", _RULE, ["destination"]),
                            "preserve": texts("Fields that must survive the way there and back.", "A field's path."),
                        },
                        required=("from", "to", "rules"),
                    ),
                    ["from", "to"],
                )
            },
            required=("conversions",),
        )
    },
    required=("metadata", "spec"),
    columns=(AGE,),
    status=False,
)

# --- exports and bindings -------------------------------------------------------------------------

_CLAIM_RULES = (
    (
        "(has(self.all) && self.all) != (has(self.resourceSelector) && size(self.resourceSelector) > 0)",
        'either "all" or "resourceSelector" must be set',
    ),
    (
        '!has(self.group) || self.group != "core.kcp.io" || self.resource != "logicalclusters"'
        ' || (has(self.identityHash) && self.identityHash != "")',
        "logicalclusters cannot be claimed",
    ),
)
_SELECTED = checked(
    record(
        "Which objects.",
        {
            "name": text(
                "Their name; any if it is not said.",
                minLength=1,
                maxLength=253,
                pattern="^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$",
            ),
            "namespace": text("Their namespace; any if it is not said.", minLength=1),
        },
    ),
    ("has(self.__namespace__) || has(self.name)", "at least one field must be set"),
)


def _claim(description: str, *, decided: bool = False, **group_facets: object) -> Obj:
    fields = {
        "group": group("The API group of the objects; empty for the core group.", **group_facets),
        "resource": resource("The resource of the objects."),
        "identityHash": text("The identity of the export that the resource is bound from; empty if it is not bound."),
        "all": flag("All objects of the resource."),
        "resourceSelector": listing("Some objects of the resource.", _SELECTED),
    }
    required = ["resource"]
    if decided:
        fields["state"] = text("What was decided.", enum=["Accepted", "Rejected"])
        required.append("state")
    return checked(record(description, fields, required), *_CLAIM_RULES)


API_EXPORT: Final = Described(
    APIS_GROUP,
    "apiexports",
    "APIExport",
    "Resources that other workspaces may bind.",
    {
        "spec": record(
            "What is exported, and on what terms.",
            {
                "latestResourceSchemas": distinct(
                    "The APIResourceSchemas of this workspace that are exported, one for each resource.",
                    text("The name of one."),
                ),
                "identity": record(
                    "What tells this export from others of the same resources. Made by the system if it is not said.",
                    {
                        "secretRef": record(
                            "The Secret that has the identity as its `key`.",
                            {"name": text("Its name."), "namespace": text("Its namespace.")},
                            **{"x-kubernetes-map-type": "atomic"},
                        )
                    },
                ),
                "maximalPermissionPolicy": record(
                    "What users may do with the resources at most, whatever their own workspace allows them.",
                    {
                        "local": {
                            "description": "What roles of this workspace grant to users and groups with "
                            "`apis.kcp.io:binding:` in front of their names.",
                            "type": "object",
                        }
                    },
                    oneOf=[{"required": ["local"]}],
                ),
                "permissionClaims": keyed(
                    "What else the owner of the export wants to see in the workspaces that bind it.",
                    _claim("What is wanted.", default=""),
                    ["group", "resource"],
                ),
            },
        ),
        "status": record(
            "What was observed of the export.",
            {
                "identityHash": text("What others may know of the identity."),
                "conditions": conditions("Whether the export can be bound."),
                "virtualWorkspaces": _endpoints("Where the objects of all workspaces that bind the export are seen."),
            },
        ),
    },
    columns=(AGE,),
)

_BOUND = record(
    "One resource that is bound.",
    {
        "group": text("Its API group; empty for the core group."),
        "resource": text("Its plural name.", minLength=1),
        "schema": record(
            "The APIResourceSchema it is served by.",
            {
                "name": text("Its name.", minLength=1),
                "UID": text("Its uid.", minLength=1),
                "identityHash": text("The identity of the export, under which objects are stored.", minLength=1),
            },
            required=("name", "UID", "identityHash"),
        ),
        "storageVersions": distinct("Versions that objects were ever stored in.", text("A version.")),
    },
    required=("group", "resource", "schema"),
)

API_BINDING: Final = Described(
    APIS_GROUP,
    "apibindings",
    "APIBinding",
    "Resources of another workspace's APIExport that this workspace serves.",
    {
        "spec": record(
            "What is bound.",
            {
                "reference": checked(
                    record(
                        "Where the resources come from. Cannot be changed.",
                        {"export": export("The APIExport. Its workspace must allow the verb `bind` on it.")},
                        oneOf=[{"required": ["export"]}],
                    ),
                    SAME_EXPORT,
                ),
                "permissionClaims": listing(
                    "The accepted and rejected permission claims of the export.",
                    _claim("A permission claim, and whether it is accepted.", decided=True),
                ),
            },
            required=("reference",),
        ),
        "status": record(
            "What was observed of the binding.",
            {
                "apiExportClusterName": text("The logical cluster that the APIExport is in."),
                "phase": text("Nothing, then Binding, then Bound.", enum=["", "Binding", "Bound"]),
                "boundResources": keyed("What is bound.", _BOUND, ["group", "resource"]),
                "conditions": conditions("How the binding went."),
                "appliedPermissionClaims": listing("The wishes that are granted.", _claim("A wish.")),
                "exportPermissionClaims": listing("The wishes of the export's owner.", _claim("A wish.")),
            },
        ),
    },
    columns=(AGE,),
)

API_EXPORT_ENDPOINT_SLICE: Final = Described(
    APIS_GROUP,
    "apiexportendpointslices",
    "APIExportEndpointSlice",
    "Where the objects of an APIExport are seen, shard by shard.",
    {
        "spec": record(
            "Of which export, on which shards.",
            {
                "export": checked(export("The APIExport. Cannot be changed."), SAME_EXPORT),
                "partition": text("The Partition that selects the shards; all of them if it is not said."),
            },
            required=("export",),
        ),
        "status": record(
            "What was found.",
            {
                "endpoints": _endpoints("The addresses, one for each shard."),
                "conditions": conditions("Whether export and partition are good."),
            },
        ),
    },
    columns=(column("Export", ".spec.export.name"), column("Partition", ".spec.partition"), AGE),
)
