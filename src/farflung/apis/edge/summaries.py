"""StatusSummary, the aggregated status of all copies of an object, and StatusCollector, a CEL query over copies."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    anything,
    checked,
    column,
    conditions,
    flag,
    keyed,
    listing,
    mapping,
    moment,
    number,
    of_condition,
    record,
    text,
    texts,
    whole,
)
from farflung.apis.edge.names import EDGE_GROUP
from farflung.machinery.errors import Obj

# --- StatusSummary: results of StatusCollectors ---------------------------------------------------

_CELL = record(
    "One value, in the field that `type` names.",
    {
        "type": text("The type.", enum=["String", "Number", "Bool", "Object", "Array", "Null"]),
        "string": text("A text."),
        "float": text("A number, as a text."),
        "bool": flag("True or false."),
        "object": anything("An object."),
        "array": listing("A list.", {"description": "An entry.", "x-kubernetes-preserve-unknown-fields": True}),
    },
    required=("type",),
)
_ANSWER = record(
    "The result of one StatusCollector.",
    {
        "name": text("The name of the StatusCollector."),
        "columnNames": texts("The headings.", "A heading."),
        "rows": listing(
            "The rows, in order.",
            record("One row.", {"columns": listing("One value for each heading.", _CELL)}, required=("columns",)),
        ),
        "rowsLeftOut": whole("The number of rows beyond the limit."),
        "errors": listing(
            "Copies for which an expression failed. They are not in the rows.",
            record(
                "One failure.",
                {
                    "cluster": text("The logical cluster of the SyncTarget."),
                    "syncTargetName": text("The name of the SyncTarget."),
                    "columnName": text("The heading, or `filter`."),
                    "message": text("The error."),
                },
            ),
        ),
        "errorsLeftOut": whole("The number of failures beyond the limit."),
    },
    required=("name",),
)

# --- StatusSummary --------------------------------------------------------------------------------

_COPIES = record(
    "Numbers of destinations.",
    {
        "expected": whole("Clusters that should have a copy."),
        "reporting": whole("Clusters with a copy that has a status."),
        "missing": whole("Clusters without a copy."),
        "stale": whole("Clusters with a stale heartbeat."),
        "broken": whole("Clusters whose copy is broken."),
        "progressing": whole(
            "Clusters that do not run the current generation of the copy yet. Broken copies do not count."
        ),
    },
    required=("expected", "reporting", "missing", "stale", "broken"),
)
_STATISTICS = record(
    "Statistics of a number over all copies.",
    {
        "count": whole("The number of copies that have it."),
        "sum": number("The sum."),
        "min": number("The minimum."),
        "max": number("The maximum."),
    },
    required=("count", "sum", "min", "max"),
)
_BROKEN = record(
    "One cluster.",
    {
        "cluster": text("The logical cluster of the SyncTarget."),
        "locationName": text("The name of the Location."),
        "syncTargetName": text("The name of the SyncTarget."),
        "reason": text("The cause, as one CamelCase word for programs."),
        "message": text("The cause, for people."),
        "since": moment("When it broke, if known."),
    },
    required=("cluster", "syncTargetName", "reason"),
)


def _counts(description: str, of: str) -> Obj:
    return mapping(description, mapping(of, whole("The number of copies.")))


STATUS_SUMMARY: Final = Described(
    EDGE_GROUP,
    "statussummaries",
    "StatusSummary",
    "The aggregated status of all copies of one object of one EdgePlacement. It is in the namespace of the object, or "
    "in `edge-status` for cluster-scoped objects. The status summarizer writes it.",
    {
        "subject": record(
            "The object.",
            {
                "group": text("Its API group; empty for the core group."),
                "version": text("Its version."),
                "kind": text("Its kind."),
                "resource": text("Its resource, as a lower-case plural."),
                "namespace": text("Its namespace; empty for cluster-scoped objects."),
                "name": text("Its name."),
                "uid": text("Its uid."),
            },
            required=("version", "kind", "resource", "name"),
        ),
        "destinations": _COPIES,
        "observedAt": moment("When the newest status in this summary was observed."),
        "aggregates": mapping("The numbers of the status, by their paths in it.", _STATISTICS),
        "conditions": _counts(
            "The conditions of the status, by their types.", "The number of copies by status of the condition."
        ),
        "values": _counts("Short texts of the status, by their paths in it.", "The number of copies by text."),
        "broken": listing("Clusters whose copy is broken, up to a limit.", _BROKEN),
        "brokenTruncated": whole("The number of broken copies beyond the limit."),
        "collected": keyed("Results of StatusCollectors.", _ANSWER, ["name"]),
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
_DEFINED = record(
    "A named expression.",
    {"name": text("The heading.", minLength=1), "def": _EXPRESSION},
    required=("name", "def"),
)
_COMBINED = record(
    "A value that is computed over all copies.",
    {
        "name": text("The heading.", minLength=1),
        "type": text("The function.", enum=["COUNT", "SUM", "AVG", "MIN", "MAX"]),
        "subject": {
            **_EXPRESSION,
            "description": "The argument of the function; omitted for COUNT. " + _EXPRESSION["description"],
        },
    },
    required=("name", "type"),
)


def _some(name: str) -> str:
    """A CEL expression: the list is not empty."""
    return f"has(self.{name}) && size(self.{name}) > 0"


STATUS_COLLECTOR: Final = Described(
    EDGE_GROUP,
    "statuscollectors",
    "StatusCollector",
    "A query over the status of all copies of an object, with the result in its StatusSummary. EdgePlacements name it "
    "in `spec.downsync[].statusCollectors`.",
    {
        "spec": checked(
            record(
                "The query: a row for each copy (`select`), or values over all copies (`combinedFields`).",
                {
                    "filter": {
                        **_EXPRESSION,
                        "description": "Selects copies; all if omitted. " + _EXPRESSION["description"],
                    },
                    "select": listing("The columns of a row for each copy.", _DEFINED),
                    "combinedFields": listing("The columns that are computed over all copies.", _COMBINED),
                    "groupBy": listing("Groups the copies; each group has a row.", _DEFINED),
                    "limit": whole("The maximal number of rows.", minimum=1, maximum=1000, default=20),
                },
            ),
            (f"!({_some('select')} && {_some('combinedFields')})", "select and combinedFields exclude each other"),
            (f"!({_some('groupBy')}) || ({_some('combinedFields')})", "groupBy needs combinedFields"),
        ),
        "status": record(
            "The observed state of the query.",
            {
                "observedGeneration": whole("The observed generation of the query."),
                "conditions": conditions("Valid: the query is valid."),
                "errors": texts("Errors of the query.", "An error, with its field."),
            },
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
