"""scheduling.kcp.io: Locations and Placements."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    column,
    conditions,
    distinct,
    integer,
    label_selector,
    map_list,
    object_,
    taints,
    text,
)
from farflung.apis.kcp.names import SCHEDULING_GROUP
from farflung.apis.kcp.references import path, sync_targets

LABEL_PATTERN: Final = (
    r"([a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?/)?"
    r"([a-zA-Z0-9][-a-zA-Z0-9_.]{0,61})?[a-zA-Z0-9]"
)

_AVAILABLE_LABEL = object_(
    "A label that instances at this location have.",
    key=text("The label.", maxLength=255, pattern=f"^{LABEL_PATTERN}$"),
    values=distinct(
        "The existing values.",
        text("A value.", maxLength=63, pattern=f"^(|{LABEL_PATTERN})$"),
        minItems=1,
    ),
    description=text("A description of the label."),
    requires=("key", "values"),
)

LOCATION: Final = CustomKind(
    SCHEDULING_GROUP,
    "locations",
    "Location",
    "A set of equivalent SyncTargets of this workspace.",
    {
        "spec": object_(
            "The definition of the location.",
            resource=sync_targets("The resource of the instances."),
            description=text("A description of the location."),
            availableSelectorLabels=map_list("Labels that distinguish the instances.", _AVAILABLE_LABEL, ["key"]),
            instanceSelector=label_selector("Selects the instances; {}: all.", default={}),
            taints=taints("Taints, which exclude placements that do not tolerate them."),
            requires=("resource",),
        ),
        "status": object_(
            "The observed instances.",
            instances=integer("The number of instances."),
            availableInstances=integer("The number of instances that are ready and schedulable."),
        ),
    },
    columns=(
        column("Resource", ".spec.resource.resource", "Type of the workspace"),
        column("Available", ".status.availableInstances", "Available instances in this location"),
        column("Instances", ".status.instances", "Instances in this location"),
        column("Labels", r".metadata.annotations['scheduling\.kcp\.dev/labels']", "The common labels of this location"),
        AGE,
    ),
    snapshot="v221006-eaaf199d",
)

PLACEMENT: Final = CustomKind(
    SCHEDULING_GROUP,
    "placements",
    "Placement",
    "One location for namespaces of this workspace. Served for kcp's clients; the system ignores it.",
    {
        "spec": object_(
            "The namespaces and the locations.",
            locationResource=sync_targets("The resource of the locations' instances."),
            locationSelectors=array(
                "Selects locations; one of the selectors must match.", label_selector("A selector.")
            ),
            locationWorkspace=path("The workspace of the locations; by default this one."),
            namespaceSelector=label_selector("Selects namespaces; empty: all."),
            requires=("locationResource",),
        ),
        "status": object_(
            "The selected location.",
            phase=text(
                "Pending; Unbound: a location is selected; Bound: a namespace uses it.",
                enum=["Pending", "Bound", "Unbound"],
                default="Pending",
            ),
            selectedLocation=object_(
                "The location.",
                path=path("Its workspace."),
                locationName=text("Its name."),
                requires=("path", "locationName"),
            ),
            conditions=conditions("Conditions of the placement."),
        ),
    },
    columns=(AGE,),
    snapshot="v221212-cf67ac73a",
)
