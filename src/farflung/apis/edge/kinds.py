"""edge.kcp.io/v1alpha1: EdgePlacement, SinglePlacementSlice, Customizer; and all kinds of the group."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    conditions,
    distinct,
    flag,
    keyed,
    label_selector,
    listing,
    of_condition,
    record,
    text,
    tolerations,
    whole,
)
from farflung.apis.edge.names import EDGE_GROUP, WORKLOAD_PROJECTED
from farflung.apis.edge.summaries import STATUS_COLLECTOR, STATUS_SUMMARY
from farflung.apis.edge.syncer_configs import DOWNSYNC, EDGE_SYNC_CONFIG, NON_NAMESPACED, SYNCER_CONFIG, UPSYNC
from farflung.machinery.errors import Obj

# --- EdgePlacement --------------------------------------------------------------------------------

EDGE_PLACEMENT: Final = Described(
    EDGE_GROUP,
    "edgeplacements",
    "EdgePlacement",
    "Which objects of this workspace go to which places, and which come back. Placements that overlap add up.",
    {
        "spec": record(
            "What goes where.",
            {
                "locationSelectors": listing(
                    "The places: Locations whose labels fit one of these selectors. Without a selector there is no "
                    "place; {} fits every Location that can be seen.",
                    label_selector("Labels of Locations."),
                ),
                "numberOfLocations": whole(
                    "How many of the Locations that fit are used, at most; all of them if it is left out. A Location "
                    "counts if it has a SyncTarget that can be used. Those that are used already are preferred, then "
                    "those that come first by name.",
                    minimum=0,
                ),
                "spreadBy": distinct(
                    "Labels of Locations over whose values the number is spread as evenly as possible. Not to have the "
                    "label is a value, too.",
                    text("A label.", minLength=1, maxLength=317),
                    maxItems=16,
                ),
                "tolerations": tolerations("Taints of Locations and SyncTargets that do not keep this placement away."),
                "where": text(
                    "What else must be true, as a CEL expression of `location` and `target`, which have metadata "
                    "(name, labels, annotations), spec and status: `target.metadata.labels['gpu'] == 'yes'`. "
                    "A SyncTarget for which it is false or fails is not used through that Location.",
                    minLength=1,
                    maxLength=10240,
                ),
                "namespaceSelector": label_selector(
                    "The namespaces whose objects go there, by their labels. {} means every namespace, and so does "
                    "leaving it out unless `downsync` is there."
                ),
                "nonNamespacedObjects": listing("The objects that are in no namespace and go there.", NON_NAMESPACED),
                "downsync": listing(
                    "The objects that go there, in namespaces or not, one by one: those that fit one of these clauses.",
                    DOWNSYNC,
                ),
                "wantSingletonReportedState": flag(
                    "Whether the status of an object that goes to one place only is written back to the object."
                ),
                "upsync": listing("The objects of the places that come back.", UPSYNC),
            },
        ),
        "status": record(
            "What came of it.",
            {
                "specGeneration": whole("The generation of the spec that this is about; 0 if there was none."),
                "matchingLocationCount": whole("How many Locations fit."),
                "conditions": conditions(
                    "Whether the spec can be understood, and as many Locations found as it wants."
                ),
            },
            required=("matchingLocationCount",),
        ),
    },
    short_names=("epl",),
    columns=(
        column("Locations", ".status.matchingLocationCount", "How many Locations fit", "integer", 1),
        column("Ready", of_condition("Ready"), "Whether it is known where it leads", "string", 1),
        column("Reason", of_condition("Ready", "reason"), "Why not, or what is odd about it", "string", 1),
        column("Projected", of_condition(WORKLOAD_PROJECTED), "Whether all copies are made", "string", 1),
        AGE,
    ),
    categories=(),
)

SINGLE_PLACEMENT_SLICE: Final = Described(
    EDGE_GROUP,
    "singleplacementslices",
    "SinglePlacementSlice",
    "Where the EdgePlacement with the same name leads.",
    {
        "destinations": listing(
            "The places, and the cluster that stands for each.",
            record(
                "One place.",
                {
                    "cluster": text("The logical cluster that has both the Location and the SyncTarget."),
                    "locationName": text("The name of the Location."),
                    "syncTargetName": text("The name of the SyncTarget."),
                    "syncTargetUID": text("The uid of the SyncTarget, which tells it from others of that name."),
                },
                required=("cluster", "locationName", "syncTargetName", "syncTargetUID"),
            ),
        )
    },
    required=("destinations",),
    short_names=("sps",),
    status=False,
    categories=(),
)

# --- what is different in each place --------------------------------------------------------------

CUSTOMIZER: Final = Described(
    EDGE_GROUP,
    "customizers",
    "Customizer",
    "How objects that name it in the annotation `edge.kcp.io/customizer` differ from place to place. With the "
    'annotation `edge.kcp.io/expand-parameters: "true"`, `%(name)` in a value is replaced by what the Location has '
    "under that name.",
    {
        "replacements": keyed(
            "What is replaced, in this order.",
            record(
                "One part of an object, and what it becomes.",
                {
                    "path": text("Where the part is, as a JSONPath."),
                    "value": text("What it becomes, as JSON."),
                },
                required=("path", "value"),
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
    """The APIBinding of the export, when `provider` is the path of its workspace."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": EDGE_GROUP},
        "spec": {"reference": {"export": {"path": provider, "name": EDGE_GROUP}}},
    }
