"""edge.kcp.io/v1alpha1: EdgePlacement, SinglePlacementSlice, Customizer; and all kinds of the group."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    column,
    conditions,
    distinct,
    integer,
    label_selector,
    map_list,
    object_,
    of_condition,
    text,
    tolerations,
)
from farflung.apis.edge.names import EDGE_GROUP, SELECTED_COUNT, WORKLOAD_PROJECTED
from farflung.apis.edge.summaries import STATUS_COLLECTOR, STATUS_SUMMARY
from farflung.apis.edge.syncer_configs import DOWNSYNC, EDGE_SYNC_CONFIG, NON_NAMESPACED, SYNCER_CONFIG, UPSYNC
from farflung.machinery.errors import Obj

# --- EdgePlacement --------------------------------------------------------------------------------

EDGE_PLACEMENT: Final = CustomKind(
    EDGE_GROUP,
    "edgeplacements",
    "EdgePlacement",
    "Selects objects of this workspace and the Locations to copy them to, and objects to upsync from there. "
    "Overlapping placements add up.",
    {
        "spec": object_(
            "The desired placement.",
            locationSelectors=array(
                "Selects the Locations whose labels match one of these selectors. An empty list selects none; {} "
                "selects all visible Locations.",
                label_selector("Labels of Locations."),
            ),
            numberOfLocations=integer(
                "The maximal number of selected Locations; all matching ones by default. A Location counts if it "
                "has a SyncTarget that can be used. Locations that are selected already are preferred, then "
                "Locations in the order of their names.",
                minimum=0,
            ),
            spreadBy=distinct(
                "Keys of Location labels. The selected Locations are spread as evenly as possible over their "
                "values; Locations without the label count as one more value.",
                text("A label key.", minLength=1, maxLength=317),
                maxItems=16,
            ),
            tolerations=tolerations("Tolerated taints of Locations and SyncTargets."),
            where=text(
                "A CEL expression of `location` and `target`, which have metadata (name, labels, annotations), "
                "spec and status: `target.metadata.labels['gpu'] == 'yes'`. A pair of a Location and a SyncTarget "
                "for which it is false or fails is not selected.",
                minLength=1,
                maxLength=10240,
            ),
            namespaceSelector=label_selector(
                "Selects the namespaces whose objects are downsynced, by their labels. {} selects every "
                "namespace; so does omitting it, unless `downsync` is set."
            ),
            nonNamespacedObjects=array("Cluster-scoped objects to downsync.", NON_NAMESPACED),
            downsync=array(
                "Objects to downsync, namespaced and cluster-scoped: those that match one of these clauses.",
                DOWNSYNC,
            ),
            wantSingletonReportedState=boolean(
                "Whether the status of the only copy is returned to an object with exactly one destination."
            ),
            upsync=array("Objects to upsync from the selected clusters.", UPSYNC),
        ),
        "status": object_(
            "The observed state.",
            specGeneration=integer("The observed generation of the spec."),
            matchingLocationCount=integer("The number of matching Locations."),
            **{
                SELECTED_COUNT: integer(
                    "The number of objects that are copied to each destination, without the namespaces and definitions "
                    "that are copied with them."
                )
            },
            conditions=conditions(
                "Ready: the spec is valid, selects objects, and has as many destinations as it asks for. "
                "WorkloadProjected: the copies are in the mailboxes."
            ),
            requires=("matchingLocationCount",),
        ),
    },
    short_names=("epl",),
    columns=(
        column("Locations", ".status.matchingLocationCount", "Number of matching Locations", "integer", 1),
        column("Objects", f".status.{SELECTED_COUNT}", "Number of selected objects", "integer", 1),
        column("Ready", of_condition("Ready"), "Status of the condition Ready", "string"),
        column("Reason", of_condition("Ready", "reason"), "Reason of the condition Ready", "string", 1),
        column("Projected", of_condition(WORKLOAD_PROJECTED), "Whether all copies are in the mailboxes", "string", 1),
        AGE,
    ),
    categories=(),
)

SINGLE_PLACEMENT_SLICE: Final = CustomKind(
    EDGE_GROUP,
    "singleplacementslices",
    "SinglePlacementSlice",
    "The destinations of the EdgePlacement with the same name.",
    {
        "destinations": array(
            "The destinations.",
            object_(
                "One destination.",
                cluster=text("The logical cluster that has both the Location and the SyncTarget."),
                locationName=text("The name of the Location."),
                syncTargetName=text("The name of the SyncTarget."),
                syncTargetUID=text("The uid of the SyncTarget."),
                requires=("cluster", "locationName", "syncTargetName", "syncTargetUID"),
            ),
        )
    },
    required=("destinations",),
    short_names=("sps",),
    status=False,
    categories=(),
)

# --- Customizer -----------------------------------------------------------------------------------

CUSTOMIZER: Final = CustomKind(
    EDGE_GROUP,
    "customizers",
    "Customizer",
    "Replacements in the copies of objects that name it in the annotation `edge.kcp.io/customizer`. With the "
    'annotation `edge.kcp.io/expand-parameters: "true"`, `%(name)` in a value is replaced by the label or annotation '
    "of that name of the Location.",
    {
        "replacements": map_list(
            "The replacements, in this order.",
            object_(
                "One replacement.",
                path=text("The JSONPath of the replaced value."),
                value=text("The new value, as JSON."),
                requires=("path", "value"),
            ),
            ["path"],
        )
    },
    namespaced=True,
    status=False,
    categories=(),
)

KINDS: Final = {
    one.kind: one
    for one in (
        EDGE_PLACEMENT,
        SINGLE_PLACEMENT_SLICE,
        SYNCER_CONFIG,
        EDGE_SYNC_CONFIG,
        CUSTOMIZER,
        STATUS_SUMMARY,
        STATUS_COLLECTOR,
    )
}


def api_export() -> Obj:
    """The APIExport of all kinds, to be created where their APIResourceSchemas are."""
    kinds = sorted(KINDS.values(), key=lambda one: one.plural)
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": EDGE_GROUP},
        "spec": {"latestResourceSchemas": [one.resource_schema_name for one in kinds]},
    }


def api_binding(provider: str) -> Obj:
    """The APIBinding of the export.  `provider`: the path of its workspace; empty: the hub finds it."""
    export = {"path": provider, "name": EDGE_GROUP} if provider else {"name": EDGE_GROUP}
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": EDGE_GROUP},
        "spec": {"reference": {"export": export}},
    }
