"""StatusSummary, the aggregated status of all copies of an object, and StatusCollector, a CEL query over copies."""

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
    date_time,
    integer,
    map_list,
    mapping,
    number,
    object_,
    of_condition,
    text,
    texts,
)
from farflung.apis.edge.names import EDGE_GROUP
from farflung.machinery.errors import Obj

# --- StatusSummary: results of StatusCollectors ---------------------------------------------------

_CELL = object_(
    "One value, in the field that `type` names.",
    type=text("The type.", enum=["String", "Number", "Bool", "Object", "Array", "Null"]),
    string=text("A text."),
    float=text("A number, as a text."),
    bool=boolean("True or false."),
    object=anything("An object."),
    array=array("A list.", {"description": "An entry.", "x-kubernetes-preserve-unknown-fields": True}),
    requires=("type",),
)
_ANSWER = object_(
    "The result of one StatusCollector.",
    name=text("The name of the StatusCollector."),
    columnNames=texts("The headings.", "A heading."),
    rows=array(
        "The rows, in order.",
        object_("One row.", columns=array("One value for each heading.", _CELL), requires=("columns",)),
    ),
    rowsLeftOut=integer("The number of rows beyond the limit."),
    errors=array(
        "Copies for which an expression failed. They are not in the rows.",
        object_(
            "One failure.",
            cluster=text("The logical cluster of the SyncTarget."),
            syncTargetName=text("The name of the SyncTarget."),
            columnName=text("The heading, or `filter`."),
            message=text("The error."),
        ),
    ),
    errorsLeftOut=integer("The number of failures beyond the limit."),
    requires=("name",),
)

# --- StatusSummary --------------------------------------------------------------------------------

_COPIES = object_(
    "Numbers of destinations.",
    expected=integer("Clusters that should have a copy."),
    reporting=integer("Clusters with a copy that has a status."),
    missing=integer("Clusters without a copy."),
    stale=integer("Clusters with a stale heartbeat."),
    broken=integer("Clusters whose copy is broken."),
    progressing=integer("Clusters that do not run the current generation of the copy yet. Broken copies do not count."),
    requires=("expected", "reporting", "missing", "stale", "broken"),
)
_STATISTICS = object_(
    "Statistics of a number over all copies.",
    count=integer("The number of copies that have it."),
    sum=number("The sum."),
    min=number("The minimum."),
    max=number("The maximum."),
    requires=("count", "sum", "min", "max"),
)
_BROKEN = object_(
    "One cluster.",
    cluster=text("The logical cluster of the SyncTarget."),
    locationName=text("The name of the Location."),
    syncTargetName=text("The name of the SyncTarget."),
    reason=text("The cause, as one CamelCase word for programs."),
    message=text("The cause, for people."),
    since=date_time("When it broke, if known."),
    requires=("cluster", "syncTargetName", "reason"),
)


def _counts(description: str, of: str) -> Obj:
    return mapping(description, mapping(of, integer("The number of copies.")))


STATUS_SUMMARY: Final = CustomKind(
    EDGE_GROUP,
    "statussummaries",
    "StatusSummary",
    "The aggregated status of all copies of one object of one EdgePlacement. It is in the namespace of the object, or "
    "in `edge-status` for cluster-scoped objects. The status summarizer writes it.",
    {
        "subject": object_(
            "The object.",
            group=text("Its API group; empty for the core group."),
            version=text("Its version."),
            kind=text("Its kind."),
            resource=text("Its resource, as a lower-case plural."),
            namespace=text("Its namespace; empty for cluster-scoped objects."),
            name=text("Its name."),
            uid=text("Its uid."),
            requires=("version", "kind", "resource", "name"),
        ),
        "destinations": _COPIES,
        "observedAt": date_time("When the newest status in this summary was observed."),
        "aggregates": mapping("The numbers of the status, by their paths in it.", _STATISTICS),
        "conditions": _counts(
            "The conditions of the status, by their types.", "The number of copies by status of the condition."
        ),
        "values": _counts("Short texts of the status, by their paths in it.", "The number of copies by text."),
        "broken": array("Clusters whose copy is broken, up to a limit.", _BROKEN),
        "brokenTruncated": integer("The number of broken copies beyond the limit."),
        "collected": map_list("Results of StatusCollectors.", _ANSWER, ["name"]),
    },
    required=("subject", "destinations"),
    namespaced=True,
    status=False,
    short_names=("ssum",),
    columns=(
        column("Kind", ".subject.kind", "The kind of the object"),
        column("Object", ".subject.name", "The name of the object"),
        column("Expected", ".destinations.expected", "Clusters that should have a copy", "integer"),
        column("Reporting", ".destinations.reporting", "Clusters with a copy that has a status", "integer"),
        column("Broken", ".destinations.broken", "Clusters whose copy is broken", "integer"),
        column("Progressing", ".destinations.progressing", "Clusters that do not run the copy yet", "integer", 1),
        column("Missing", ".destinations.missing", "Clusters without a copy", "integer", 1),
        column("Stale", ".destinations.stale", "Clusters with a stale heartbeat", "integer", 1),
        AGE,
    ),
    categories=(),
)

# --- StatusCollector ------------------------------------------------------------------------------

_EXPRESSION = text(
    "A CEL expression of `inventory` (the cluster), `obj` (the object without its status), `returned` (the status of "
    "the copy) and `propagation` (when the status was observed)."
)
_DEFINED = object_(
    "A named expression.",
    name=text("The heading.", minLength=1),
    **{"def": _EXPRESSION},
    requires=("name", "def"),
)
_COMBINED = object_(
    "A value that is computed over all copies.",
    name=text("The heading.", minLength=1),
    type=text("The function.", enum=["COUNT", "SUM", "AVG", "MIN", "MAX"]),
    subject={
        **_EXPRESSION,
        "description": "The argument of the function; omitted for COUNT. " + _EXPRESSION["description"],
    },
    requires=("name", "type"),
)


def _some(name: str) -> str:
    """A CEL expression: the list is not empty."""
    return f"has(self.{name}) && size(self.{name}) > 0"


STATUS_COLLECTOR: Final = CustomKind(
    EDGE_GROUP,
    "statuscollectors",
    "StatusCollector",
    "A query over the status of all copies of an object, with the result in its StatusSummary. EdgePlacements name it "
    "in `spec.downsync[].statusCollectors`.",
    {
        "spec": checked(
            object_(
                "The query: a row for each copy (`select`), or values over all copies (`combinedFields`).",
                filter={
                    **_EXPRESSION,
                    "description": "Selects copies; all if omitted. " + _EXPRESSION["description"],
                },
                select=array("The columns of a row for each copy.", _DEFINED),
                combinedFields=array("The columns that are computed over all copies.", _COMBINED),
                groupBy=array("Groups the copies; each group has a row.", _DEFINED),
                limit=integer("The maximal number of rows.", minimum=1, maximum=1000, default=20),
            ),
            (f"!({_some('select')} && {_some('combinedFields')})", "select and combinedFields exclude each other"),
            (f"!({_some('groupBy')}) || ({_some('combinedFields')})", "groupBy needs combinedFields"),
        ),
        "status": object_(
            "The observed state of the query.",
            observedGeneration=integer("The observed generation of the query."),
            conditions=conditions("Valid: the query is valid."),
            errors=texts("Errors of the query.", "An error, with its field."),
        ),
    },
    required=("spec",),
    short_names=("sc",),
    columns=(
        column("Valid", of_condition("Valid"), "Whether the query is valid"),
        column("Reason", of_condition("Valid", "message"), "Message of the condition Valid", priority=1),
        AGE,
    ),
    categories=(),
)
