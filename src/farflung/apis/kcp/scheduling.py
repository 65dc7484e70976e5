"""scheduling.kcp.io: Locations and Placements."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    conditions,
    distinct,
    keyed,
    label_selector,
    listing,
    record,
    taints,
    text,
    whole,
)
from farflung.apis.kcp.names import SCHEDULING_GROUP
from farflung.apis.kcp.references import path, sync_targets

LABEL_PATTERN: Final = (
    r"([a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?/)?"
    r"([a-zA-Z0-9][-a-zA-Z0-9_.]{0,61})?[a-zA-Z0-9]"
)

_AVAILABLE_LABEL = record(
    "A label that instances at this location have.",
    {
        "key": text("The label.", maxLength=255, pattern=f"^{LABEL_PATTERN}$"),
        "values": distinct(
            "The values that there are.",
            text("A value.", maxLength=63, pattern=f"^(|{LABEL_PATTERN})$"),
            minItems=1,
        ),
        "description": text("What it means, for people."),
    },
    required=("key", "values"),
)

LOCATION: Final = Described(
    SCHEDULING_GROUP,
    "locations",
    "Location",
    "A place: a set of SyncTargets of this workspace that are as good as each other.",
    {
        "spec": record(
            "What the place is.",
            {
                "resource": sync_targets("The resource whose instances make up the place."),
                "description": text("What the place is, for people."),
                "availableSelectorLabels": keyed(
                    "Labels by which instances of the place can be told apart.", _AVAILABLE_LABEL, ["key"]
                ),
                "instanceSelector": label_selector(
                    "Which instances belong to the place; all of them if {}.", default={}
                ),
                "taints": taints("Marks that keep placements away that do not tolerate them."),
            },
            required=("resource",),
        ),
        "status": record(
            "The kind of the instances at the location.",
            {
                "instances": whole("How many instances there are."),
                "availableInstances": whole("How many of them are ready and take work."),
            },
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

PLACEMENT: Final = Described(
    SCHEDULING_GROUP,
    "placements",
    "Placement",
    "One location for some namespaces of this workspace. Kept for clients that know it; nothing is done with it.",
    {
        "spec": record(
            "Which namespaces, and which locations are good.",
            {
                "locationResource": sync_targets("The resource whose instances the locations are made of."),
                "locationSelectors": listing(
                    "Which locations are good; one selector is enough.", label_selector("One.")
                ),
                "locationWorkspace": path("The workspace that the locations are in; this one if it is not said."),
                "namespaceSelector": label_selector("Which namespaces; all of them if it is not said."),
            },
            required=("locationResource",),
        ),
        "status": record(
            "What was chosen.",
            {
                "phase": text(
                    "Pending, Unbound when a location is chosen, Bound when a namespace uses it.",
                    enum=["Pending", "Bound", "Unbound"],
                    default="Pending",
                ),
                "selectedLocation": record(
                    "The location.",
                    {"path": path("The workspace it is in."), "locationName": text("Its name.")},
                    required=("path", "locationName"),
                ),
                "conditions": conditions("How choosing went."),
            },
        ),
    },
    columns=(AGE,),
    snapshot="v221212-cf67ac73a",
)
