"""SyncerConfig and EdgeSyncConfig: the objects that a syncer downsyncs and upsyncs, and its report.

A list of names that contains only `*` selects all names.
"""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    conditions,
    flag,
    keyed,
    label_selector,
    listing,
    mapping,
    moment,
    of_condition,
    quantity,
    record,
    text,
    texts,
    whole,
)
from farflung.apis.edge.names import EDGE_GROUP, EDGE_REACHABLE
from farflung.machinery.errors import Obj

_GROUP = text("The API group; empty for the core group.")
_RESOURCES = texts('The resources, as lower-case plurals; `["*"]` for all of the group, [] for none.', "A resource.")

NON_NAMESPACED: Final = record(
    "Objects of one API group that are in no namespace. They fit by their name or by their labels.",
    {
        "apiGroup": _GROUP,
        "resources": _RESOURCES,
        "resourceNames": texts('Their names; `["*"]` for all, [] for none.', "A name."),
        "labelSelectors": listing("Their labels; one of these selectors is enough.", label_selector("Labels.")),
    },
    required=("resources",),
)

DOWNSYNC: Final = record(
    "Objects that fit everything that is said here. What is not said fits every object.",
    {
        "apiGroup": text("The API group; empty for the core group. Every group if it is not said."),
        "resources": texts(
            'The resources, as lower-case plurals; `["*"]` or nothing for every resource.', "A resource."
        ),
        "namespaces": texts(
            'The namespaces; `["*"]` or nothing for every namespace and for objects that are in none.', "A namespace."
        ),
        "namespaceSelectors": listing(
            "The labels of the namespace; one of these selectors is enough. Objects that are in none are taken for "
            "objects in a namespace without labels.",
            label_selector("Labels."),
        ),
        "objectNames": texts('Their names; `["*"]` or nothing for every name.', "A name."),
        "labelSelectors": listing("Their labels; one of these selectors is enough.", label_selector("Labels.")),
        "createOnly": flag("Whether the copies are left alone once they are there."),
        "statusCollectors": texts("The StatusCollectors that are applied to them.", "The name of a StatusCollector."),
    },
)

UPSYNC: Final = record(
    "Objects of one API group.",
    {
        "apiGroup": _GROUP,
        "resources": _RESOURCES,
        "namespaces": texts(
            'Their namespaces; `["*"]` for all, [] for none. Means nothing to objects that are in none.', "A namespace."
        ),
        "names": texts('Their names; `["*"]` for all, [] for none.', "A name."),
    },
    required=("resources",),
)


# --- SyncerConfig ---------------------------------------------------------------------------------


# --- spec -----------------------------------------------------------------------------------------


def _resource(description: str, **further: Obj) -> Obj:
    fields = {
        "group": text("The API group; empty for the core group."),
        "resource": text("The resource, as a lower-case plural."),
        "apiVersion": text("The version in which objects are read and written, without the group."),
        **further,
    }
    return record(description, fields, required=("resource", "apiVersion"))


_IN_ONE_NAMESPACE = record(
    "Objects in one namespace.",
    {"namespace": text("The namespace."), "names": texts('Their names; `["*"]` for all.', "A name.")},
    required=("namespace",),
)

_TOLD = record(
    "What is brought there and back.",
    {
        "namespaceScope": record(
            "All objects of these resources in these namespaces.",
            {
                "namespaces": texts("The namespaces.", "A namespace."),
                "resources": listing("The resources.", _resource("One resource.")),
            },
        ),
        "namespacedObjects": listing(
            "Further objects in namespaces.",
            _resource(
                "Objects of one resource.",
                objectsByNamespace=keyed("Which objects.", _IN_ONE_NAMESPACE, ["namespace"]),
            ),
        ),
        "clusterScope": listing(
            "Objects that are in no namespace.",
            _resource("Objects of one resource.", objects=texts('Their names; `["*"]` for all.', "A name.")),
        ),
        "upsync": listing("The objects that come back.", UPSYNC),
    },
)

# --- what it reports ------------------------------------------------------------------------------

_HEARTBEAT = moment("When the syncer last reported, by its own clock.")

_OBJECTS = record(
    "How many objects there are.",
    {
        "synced": whole("Objects that are at the cluster as they are in the mailbox."),
        "pending": whole("Objects that are on their way."),
        "failing": whole("Objects for which something went wrong and is tried again."),
        "orphaned": whole(
            "Objects at the cluster whose copies in the mailbox are missing without having been deleted. They stay."
        ),
        "upsynced": whole("Objects of the cluster that are in the mailbox."),
    },
)

_PROBLEM = record(
    "What went wrong with one object.",
    {
        "group": text("The API group; empty for the core group."),
        "resource": text("The resource, as a lower-case plural."),
        "namespace": text("The namespace, if the object is in one."),
        "name": text("The name."),
        "direction": text(
            "Where it was going: down to the cluster, up from it, or its status up from it.",
            enum=["down", "up", "status"],
        ),
        "reason": text("What is wrong, as one CamelCase word for programs."),
        "message": text("What is wrong, for people."),
        "lastTry": moment("When it was last tried."),
        "tries": whole("How often it was tried."),
    },
)

_REPORT = record(
    "What the syncer reports. Empty if none was ever here.",
    {
        "lastSyncerHeartbeatTime": _HEARTBEAT,
        "syncedThrough": listing(
            "How far each resource is: every copy up to this resourceVersion is at the cluster, problems aside.",
            record(
                "One resource.",
                {
                    "group": text("Its API group."),
                    "resource": text("Its plural."),
                    "resourceVersion": text("Of the last copy that is at the cluster."),
                },
            ),
        ),
        "syncer": record(
            "Who reports.",
            {"version": text("Its version."), "started": moment("When it was started, by its own clock.")},
        ),
        "edge": record(
            "The cluster that it serves.",
            {
                "uid": text("What tells it from every other: the uid of its namespace kube-system."),
                "version": text("The version of its Kubernetes API."),
            },
        ),
        "capacity": mapping("What all nodes of the cluster have.", quantity("An amount.")),
        "allocatable": mapping(
            "What those of them have for pods that are ready and not cordoned, whoever uses it.", quantity("An amount.")
        ),
        "nodes": record(
            "How many these are.",
            {"all": whole("All of them."), "usable": whole("Those that are ready and not cordoned.")},
        ),
        "objects": _OBJECTS,
        "driftCorrected": whole(
            "How often an object was put right that somebody had changed at the cluster.", format="int64"
        ),
        "problems": listing("What went wrong, by object, some of it if there is much.", _PROBLEM),
        "problemsOmitted": whole("How many more problems there are."),
        "conditions": conditions(
            "Whether the cluster can be reached (EdgeReachable), has everything (Synced), and has objects whose copies "
            "disappeared without being withdrawn (OrphansPresent); False if the cluster does not let its nodes be seen "
            "(CapacityKnown)."
        ),
    },
    default={},
)


SYNCER_CONFIG: Final = Described(
    EDGE_GROUP,
    "syncerconfigs",
    "SyncerConfig",
    "What the syncer of one cluster brings there and back. The one called `the-one` is kept by the system.",
    {"spec": _TOLD, "status": _REPORT},
    short_names=("escfg",),
    columns=(
        column("Synced", ".status.objects.synced", "Objects that are at the cluster", "integer"),
        column("Pending", ".status.objects.pending", "Objects that are on their way", "integer"),
        column("Failing", ".status.objects.failing", "Objects for which something went wrong", "integer"),
        column("Heartbeat", ".status.lastSyncerHeartbeatTime", "When the syncer last reported", "date"),
        column("Orphaned", ".status.objects.orphaned", "Objects whose copies are missing", "integer", 1),
        column("Upsynced", ".status.objects.upsynced", "Objects of the cluster that are here", "integer", 1),
        column("Drift", ".status.driftCorrected", "Changes at the cluster that were put right", "integer", 1),
        column("Reachable", of_condition(EDGE_REACHABLE), "Whether the syncer reaches the cluster", "string", 1),
        column("Version", ".status.edge.version", "The version of the cluster's API", "string", 1),
        AGE,
    ),
    categories=(),
)

# --- EdgeSyncConfig, the older form ---------------------------------------------------------------

_SELECTED = record(
    "Objects of one kind.",
    {
        "group": text("The API group; empty for the core group."),
        "version": text("The version, without the group."),
        "kind": text("The kind, in CamelCase."),
        "namespace": text("The namespace, `*` for every one; empty if the kind has none."),
        "name": text("The name, `*` for every one."),
    },
)

EDGE_SYNC_CONFIG: Final = Described(
    EDGE_GROUP,
    "edgesyncconfigs",
    "EdgeSyncConfig",
    "What a syncer brings to its cluster and back, object by object. SyncerConfigs have taken its place; a syncer does "
    "what either says.",
    {
        "spec": record(
            "What is brought there and back.",
            {
                "downSyncedResources": listing("The objects that go there.", _SELECTED),
                "upSyncedResources": listing("The objects that come back.", _SELECTED),
                "conversions": listing(
                    "Objects that are called something else at the cluster.",
                    record(
                        "Both names of one object.",
                        {
                            "upstream": {**_SELECTED, "description": "As it is here."},
                            "downstream": {**_SELECTED, "description": "As it is at the cluster."},
                        },
                    ),
                ),
            },
        ),
        "status": record("What is known of the syncer.", {"lastSyncerHeartbeatTime": _HEARTBEAT}),
    },
    short_names=("esc",),
    columns=(column("Heartbeat", ".status.lastSyncerHeartbeatTime", "When the syncer last reported", "date", 1), AGE),
    categories=(),
)
