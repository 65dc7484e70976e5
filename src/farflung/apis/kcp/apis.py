"""apis.kcp.io: APIExports, APIBindings, APIResourceSchemas and related kinds."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    anything,
    array,
    boolean,
    checked,
    column,
    conditions,
    distinct,
    integer,
    map_list,
    object_,
    text,
    texts,
)
from farflung.apis.kcp.names import APIS_GROUP
from farflung.apis.kcp.references import export, group, resource
from farflung.machinery.errors import Obj

VERSION_PATTERN: Final = "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$"
SAME_EXPORT: Final = ("self == oldSelf", "APIExport reference must not be changed")


def _version(description: str) -> Obj:
    return text(description, minLength=1, pattern=VERSION_PATTERN)


def _endpoints(description: str) -> Obj:
    one = object_("An endpoint.", url=text("The URL.", minLength=1), requires=("url",))
    return array(description, one)


# --- schemas --------------------------------------------------------------------------------------

_NAMES = object_(
    "The names of the resource.",
    plural=text("The plural name, in URLs; lower case."),
    singular=text("The singular name; by default the kind in lower case."),
    kind=text("The kind, in CamelCase."),
    listKind=text("The kind of lists; by default the kind and `List`."),
    shortNames=texts("Short names of the plural.", "A name."),
    categories=texts("Categories of the resource, such as `all`.", "A category."),
    requires=("plural", "kind"),
)
_COLUMN = object_(
    "A column of the output of `kubectl get`.",
    name=text("The header of the column."),
    type=text("The type of its values: string, integer, number, boolean or date."),
    format=text("The OpenAPI format of its values."),
    description=text("A description of the column."),
    priority=integer("0: always shown; more: shown with `-o wide`."),
    jsonPath=text("The path of the value in an object."),
    requires=("name", "type", "jsonPath"),
)
_SUBRESOURCES = object_(
    "The subresources.",
    status={"description": "The status is a subresource.", "type": "object"},
    scale=object_(
        "The scale subresource.",
        specReplicasPath=text("The path of the number of desired replicas."),
        statusReplicasPath=text("The path of the number of observed replicas."),
        labelSelectorPath=text("The path of the label selector of its pods, as a string."),
        requires=("specReplicasPath", "statusReplicasPath"),
    ),
)
_RESOURCE_VERSION = object_(
    "One version of the resource.",
    name=_version("The name of the version, such as `v1` or `v1alpha1`."),
    served=boolean("Whether it is served.", default=True),
    storage=boolean("Whether objects are stored in this version. Exactly one version must have it."),
    deprecated=boolean("Whether requests for this version return a warning."),
    deprecationWarning=text("The warning."),
    schema=anything("The structural schema of its objects.", **{"x-kubernetes-map-type": "atomic"}),
    subresources=_SUBRESOURCES,
    additionalPrinterColumns=map_list("The columns of `kubectl get` after the name.", _COLUMN, ["name"]),
    requires=("name", "schema", "served", "storage"),
)

API_RESOURCE_SCHEMA: Final = CustomKind(
    APIS_GROUP,
    "apiresourceschemas",
    "APIResourceSchema",
    "An immutable definition of a resource. Its name is `<anything>.<plural>.<group>`.",
    {
        "spec": object_(
            "The definition of the resource.",
            group=text("Its API group; empty for the core group."),
            names=_NAMES,
            scope=text("Whether the resource is namespaced.", enum=["Cluster", "Namespaced"]),
            versions=map_list("Its versions.", _RESOURCE_VERSION, ["name"], minItems=1),
            requires=("group", "names", "scope", "versions"),
        )
    },
    columns=(AGE,),
    status=False,
)

_RULE = object_(
    "The conversion of one field.",
    field=text("The path in the source version.", minLength=1),
    destination=text("The path in the destination version.", minLength=1),
    transformation=text("A CEL expression for the new value; `self` is the field."),
    requires=("field", "destination"),
)

API_CONVERSION: Final = CustomKind(
    APIS_GROUP,
    "apiconversions",
    "APIConversion",
    "Conversions between the versions of the APIResourceSchema with the same name.",
    {
        "spec": object_(
            "The conversions.",
            conversions=map_list(
                "One conversion for each pair of versions.",
                object_(
                    "The conversion of one version to another.",
                    **{"from": _version("The source version.")},
                    to=_version("The destination version."),
                    rules=map_list("The conversions of fields.", _RULE, ["destination"]),
                    preserve=texts("Fields that a conversion and its reverse must preserve.", "A field's path."),
                    requires=("from", "to", "rules"),
                ),
                ["from", "to"],
            ),
            requires=("conversions",),
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
    object_(
        "Selects objects.",
        name=text(
            "The name; empty: any.",
            minLength=1,
            maxLength=253,
            pattern="^([a-z0-9][-a-z0-9_.]*)?[a-z0-9]$",
        ),
        namespace=text("The namespace; empty: any.", minLength=1),
    ),
    ("has(self.__namespace__) || has(self.name)", "at least one field must be set"),
)


def _claim(description: str, *, decided: bool = False, **group_facets: object) -> Obj:
    fields = {
        "group": group("The API group of the objects; empty for the core group.", **group_facets),
        "resource": resource("The resource of the objects."),
        "identityHash": text("The identity of the export that the resource is bound from; empty if it is not bound."),
        "all": boolean("All objects of the resource."),
        "resourceSelector": array("Some objects of the resource.", _SELECTED),
    }
    required = ["resource"]
    if decided:
        fields["state"] = text("Whether the claim is accepted.", enum=["Accepted", "Rejected"])
        required.append("state")
    return checked(object_(description, **fields, requires=required), *_CLAIM_RULES)


API_EXPORT: Final = CustomKind(
    APIS_GROUP,
    "apiexports",
    "APIExport",
    "Resources that other workspaces may bind.",
    {
        "spec": object_(
            "The exported resources, their identity and permissions.",
            latestResourceSchemas=distinct(
                "The APIResourceSchemas of this workspace that are exported, one for each resource.",
                text("The name of an APIResourceSchema."),
            ),
            identity=object_(
                "The identity, which distinguishes exports of the same resources. Generated by default.",
                secretRef=object_(
                    "The Secret that has the identity as its `key`.",
                    name=text("Its name."),
                    namespace=text("Its namespace."),
                    facets={"x-kubernetes-map-type": "atomic"},
                ),
            ),
            maximalPermissionPolicy=object_(
                "The maximal permissions of users in bound workspaces, whatever RBAC there allows.",
                local={
                    "description": "What roles of this workspace grant to users and groups with "
                    "`apis.kcp.io:binding:` in front of their names.",
                    "type": "object",
                },
                facets={"oneOf": [{"required": ["local"]}]},
            ),
            permissionClaims=map_list(
                "Further resources in bound workspaces that the owner of the export requests to access.",
                _claim("A permission claim.", default=""),
                ["group", "resource"],
            ),
        ),
        "status": object_(
            "The observed state of the export.",
            identityHash=text("The public hash of the identity."),
            conditions=conditions("Whether the export can be bound."),
            virtualWorkspaces=_endpoints("The URLs of the view of the export: its objects in all bound workspaces."),
        ),
    },
    columns=(AGE,),
)

_BOUND = object_(
    "A bound resource.",
    group=text("Its API group; empty for the core group."),
    resource=text("Its plural name.", minLength=1),
    schema=object_(
        "The APIResourceSchema of the resource.",
        name=text("Its name.", minLength=1),
        UID=text("Its uid.", minLength=1),
        identityHash=text("The identity of the export, under which objects are stored.", minLength=1),
        requires=("name", "UID", "identityHash"),
    ),
    storageVersions=distinct("All versions in which objects were stored.", text("A version.")),
    requires=("group", "resource", "schema"),
)

API_BINDING: Final = CustomKind(
    APIS_GROUP,
    "apibindings",
    "APIBinding",
    "Resources of another workspace's APIExport that this workspace serves.",
    {
        "spec": object_(
            "The bound resources.",
            reference=checked(
                object_(
                    "The source of the resources. Immutable.",
                    export=export("The APIExport. Its workspace must allow the verb `bind` on it."),
                    facets={"oneOf": [{"required": ["export"]}]},
                ),
                SAME_EXPORT,
            ),
            permissionClaims=array(
                "The accepted and rejected permission claims of the export.",
                _claim("A permission claim, and whether it is accepted.", decided=True),
            ),
            requires=("reference",),
        ),
        "status": object_(
            "The observed state of the binding.",
            apiExportClusterName=text("The logical cluster of the APIExport."),
            apiExportPath=text("The workspace of the APIExport, if the reference names none."),
            phase=text("Empty, then Binding, then Bound.", enum=["", "Binding", "Bound"]),
            boundResources=map_list("The bound resources.", _BOUND, ["group", "resource"]),
            conditions=conditions("Conditions of the binding."),
            appliedPermissionClaims=array("The permission claims in effect.", _claim("A permission claim.")),
            exportPermissionClaims=array("The permission claims of the export.", _claim("A permission claim.")),
        ),
    },
    columns=(AGE,),
)

API_EXPORT_ENDPOINT_SLICE: Final = CustomKind(
    APIS_GROUP,
    "apiexportendpointslices",
    "APIExportEndpointSlice",
    "The URLs of the view of an APIExport, by shard.",
    {
        "spec": object_(
            "The export and the shards.",
            export=checked(export("The APIExport. Immutable."), SAME_EXPORT),
            partition=text("The Partition that selects the shards; empty: all shards."),
            requires=("export",),
        ),
        "status": object_(
            "The observed state.",
            endpoints=_endpoints("The URLs, one for each shard."),
            conditions=conditions("Whether export and partition are valid."),
        ),
    },
    columns=(column("Export", ".spec.export.name"), column("Partition", ".spec.partition"), AGE),
)
