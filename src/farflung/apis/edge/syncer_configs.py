"""SyncerConfig and EdgeSyncConfig: the objects that a syncer downsyncs and upsyncs, and its report.

A list of names that contains only `*` selects all names.
"""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    column,
    conditions,
    date_time,
    integer,
    label_selector,
    map_list,
    mapping,
    object_,
    of_condition,
    quantity,
    text,
    texts,
)
from farflung.apis.edge.names import EDGE_GROUP, EDGE_REACHABLE, TRANSLATES_GENERATIONS
from farflung.machinery.errors import Obj

_GROUP = text("The API group; empty for the core group.")
_RESOURCES = texts('The resources, as lower-case plurals; `["*"]` for all of the group, [] for none.', "A resource.")

NON_NAMESPACED: Final = object_(
    "Cluster-scoped objects of one API group, selected by name or by labels.",
    apiGroup=_GROUP,
    resources=_RESOURCES,
    resourceNames=texts('Their names; `["*"]` for all, [] for none.', "A name."),
    labelSelectors=array("Label selectors, of which one must match.", label_selector("Labels.")),
    requires=("resources",),
)

DOWNSYNC: Final = object_(
    "Objects that match all fields of this clause. An omitted field matches every object.",
    apiGroup=text("The API group; empty for the core group. All groups if omitted."),
    resources=texts('The resources, as lower-case plurals; `["*"]` or empty for all.', "A resource."),
    namespaces=texts(
        'The namespaces; `["*"]` or empty for all namespaces and for cluster-scoped objects.', "A namespace."
    ),
    namespaceSelectors=array(
        "Label selectors of the namespace, of which one must match. Cluster-scoped objects match as if their "
        "namespace had no labels.",
        label_selector("Labels."),
    ),
    objectNames=texts('Their names; `["*"]` or empty for all.', "A name."),
    labelSelectors=array("Label selectors, of which one must match.", label_selector("Labels.")),
    createOnly=boolean("Whether copies are only created, and not updated afterwards."),
    statusCollectors=texts("StatusCollectors to evaluate for the objects.", "The name of a StatusCollector."),
)

UPSYNC: Final = object_(
    "Objects of one API group.",
    apiGroup=_GROUP,
    resources=_RESOURCES,
    namespaces=texts(
        'Their namespaces; `["*"]` for all, [] for none. Ignored for cluster-scoped objects.', "A namespace."
    ),
    names=texts('Their names; `["*"]` for all, [] for none.', "A name."),
    requires=("resources",),
)


# --- SyncerConfig: spec ---------------------------------------------------------------------------


def _resource(description: str, **further: Obj) -> Obj:
    fields = {
        "group": text("The API group; empty for the core group."),
        "resource": text("The resource, as a lower-case plural."),
        "apiVersion": text("The version in which objects are read and written, without the group."),
        **further,
    }
    return object_(description, **fields, requires=("resource", "apiVersion"))


_IN_ONE_NAMESPACE = object_(
    "Objects in one namespace.",
    namespace=text("The namespace."),
    names=texts('Their names; `["*"]` for all.', "A name."),
    requires=("namespace",),
)

_SPEC = object_(
    "The objects to downsync and upsync.",
    namespaceScope=object_(
        "All objects of these resources in these namespaces.",
        namespaces=texts("The namespaces.", "A namespace."),
        resources=array("The resources.", _resource("One resource.")),
    ),
    namespacedObjects=array(
        "Single namespaced objects.",
        _resource(
            "Objects of one resource.",
            objectsByNamespace=map_list("The objects by namespace.", _IN_ONE_NAMESPACE, ["namespace"]),
        ),
    ),
    clusterScope=array(
        "Cluster-scoped objects.",
        _resource("Objects of one resource.", objects=texts('Their names; `["*"]` for all.', "A name.")),
    ),
    upsync=array("Objects to upsync.", UPSYNC),
)

# --- SyncerConfig: status -------------------------------------------------------------------------

_HEARTBEAT = date_time("When the syncer last reported, by its own clock.")

_OBJECTS = object_(
    "Numbers of objects.",
    synced=integer("Objects at the cluster that equal their copies in the mailbox."),
    pending=integer("Objects that are not applied yet."),
    failing=integer("Objects whose last attempt failed; the syncer retries."),
    orphaned=integer(
        "Objects at the cluster whose copies disappeared from the mailbox without being withdrawn. They stay."
    ),
    upsynced=integer("Objects of the cluster that are upsynced to the mailbox."),
)

_PROBLEM = object_(
    "A failure of one object.",
    group=text("The API group; empty for the core group."),
    resource=text("The resource, as a lower-case plural."),
    namespace=text("The namespace; empty for cluster-scoped objects."),
    name=text("The name."),
    direction=text(
        "The direction: down to the cluster, up from it, or its status up from it.",
        enum=["down", "up", "status"],
    ),
    reason=text("The cause, as one CamelCase word for programs."),
    message=text("The cause, for people."),
    lastTry=date_time("The time of the last attempt."),
    tries=integer("The number of attempts."),
)

_REPORT = object_(
    "The syncer's report. Empty before the first syncer reports.",
    lastSyncerHeartbeatTime=_HEARTBEAT,
    syncedThrough=array(
        "Progress by resource: every copy up to this resourceVersion is at the cluster, except problems.",
        object_(
            "One resource.",
            group=text("Its API group."),
            resource=text("Its plural."),
            resourceVersion=text("The resourceVersion of the last copy at the cluster."),
        ),
    ),
    syncer=object_(
        "The syncer.",
        version=text("Its version."),
        started=date_time("When it was started, by its own clock."),
        **{
            TRANSLATES_GENERATIONS: boolean(
                "Whether `observedGeneration` in the status that it returns is a generation of the copy."
            )
        },
    ),
    edge=object_(
        "The cluster.",
        uid=text("Its identity: the uid of its namespace kube-system."),
        version=text("The version of its Kubernetes API."),
    ),
    capacity=mapping("The sum of the capacity of all nodes.", quantity("An amount.")),
    allocatable=mapping(
        "The sum of the allocatable resources of all ready, schedulable nodes.", quantity("An amount.")
    ),
    nodes=object_("Numbers of nodes.", all=integer("All nodes."), usable=integer("Ready, schedulable nodes.")),
    objects=_OBJECTS,
    driftCorrected=integer("The number of reverted changes to objects at the cluster.", format="int64"),
    problems=array("Failures by object, up to a limit.", _PROBLEM),
    problemsOmitted=integer("The number of problems beyond the limit."),
    conditions=conditions(
        "EdgeReachable: the cluster answers. Synced: it has all objects. OrphansPresent: it has objects whose "
        "copies disappeared without being withdrawn. CapacityKnown: the syncer may list its nodes."
    ),
    facets={"default": {}},
)


SYNCER_CONFIG: Final = CustomKind(
    EDGE_GROUP,
    "syncerconfigs",
    "SyncerConfig",
    "Configures the syncer of one cluster, and has its report. Controllers maintain the SyncerConfig `the-one`.",
    {"spec": _SPEC, "status": _REPORT},
    short_names=("escfg",),
    columns=(
        column("Synced", ".status.objects.synced", "Objects that are applied to the cluster", "integer"),
        column("Pending", ".status.objects.pending", "Objects that are not applied yet", "integer"),
        column("Failing", ".status.objects.failing", "Objects whose last attempt failed", "integer"),
        column("Heartbeat", ".status.lastSyncerHeartbeatTime", "When the syncer last reported", "date"),
        column("Orphaned", ".status.objects.orphaned", "Objects whose copies are missing", "integer", 1),
        column("Upsynced", ".status.objects.upsynced", "Objects that are upsynced to the mailbox", "integer", 1),
        column("Drift", ".status.driftCorrected", "Reverted changes at the cluster", "integer", 1),
        column("Reachable", of_condition(EDGE_REACHABLE), "Whether the syncer reaches the cluster", "string", 1),
        column("Version", ".status.edge.version", "The version of the cluster's API", "string", 1),
        AGE,
    ),
    categories=(),
)

# --- EdgeSyncConfig, the older form ---------------------------------------------------------------

_SELECTED = object_(
    "Objects of one kind.",
    group=text("The API group; empty for the core group."),
    version=text("The version, without the group."),
    kind=text("The kind, in CamelCase."),
    namespace=text("The namespace, `*` for all; empty for cluster-scoped kinds."),
    name=text("The name, `*` for all."),
)

EDGE_SYNC_CONFIG: Final = CustomKind(
    EDGE_GROUP,
    "edgesyncconfigs",
    "EdgeSyncConfig",
    "Objects that a syncer downsyncs and upsyncs. Deprecated: use SyncerConfig. A syncer follows both.",
    {
        "spec": object_(
            "The objects to downsync and upsync.",
            downSyncedResources=array("Objects to downsync.", _SELECTED),
            upSyncedResources=array("Objects to upsync.", _SELECTED),
            conversions=array(
                "Objects with another name at the cluster.",
                object_(
                    "Both names of one object.",
                    upstream={**_SELECTED, "description": "In the mailbox."},
                    downstream={**_SELECTED, "description": "At the cluster."},
                ),
            ),
        ),
        "status": object_("The observed state of the syncer.", lastSyncerHeartbeatTime=_HEARTBEAT),
    },
    short_names=("esc",),
    columns=(column("Heartbeat", ".status.lastSyncerHeartbeatTime", "When the syncer last reported", "date", 1), AGE),
    categories=(),
)
