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

# --- answers --------------------------------------------------------------------------------------

_CELL = record(
    "One value; `type` says which of the others is there.",
    {
        "type": text("What it is.", enum=["String", "Number", "Bool", "Object", "Array", "Null"]),
        "string": text("A text."),
        "float": text("A number, as a text."),
        "bool": flag("True or false."),
        "object": anything("An object."),
        "array": listing("A list.", {"description": "An entry.", "x-kubernetes-preserve-unknown-fields": True}),
    },
    required=("type",),
)
_ANSWER = record(
    "What one StatusCollector found.",
    {
        "name": text("The name of the StatusCollector."),
        "columnNames": texts("The headings.", "A heading."),
        "rows": listing(
            "What was found, in order.",
            record("One row.", {"columns": listing("One value for each heading.", _CELL)}, required=("columns",)),
        ),
        "rowsLeftOut": whole("How many more rows there would be without the limit."),
        "errors": listing(
            "Copies for which an expression failed; they are left out.",
            record(
                "One failure.",
                {
                    "cluster": text("The logical cluster of the SyncTarget."),
                    "syncTargetName": text("The name of the SyncTarget."),
                    "columnName": text("The heading, or `filter`."),
                    "message": text("What went wrong."),
                },
            ),
        ),
        "errorsLeftOut": whole("How many more failures there are."),
    },
    required=("name",),
)

# --- summaries ------------------------------------------------------------------------------------

_COPIES = record(
    "How many copies there are.",
    {
        "expected": whole("Clusters that are to have one."),
        "reporting": whole("Clusters that have one with a status."),
        "missing": whole("Clusters that have none yet."),
        "stale": whole("Clusters that were not heard of for too long."),
        "broken": whole("Clusters where something is wrong."),
    },
    required=("expected", "reporting", "missing", "stale", "broken"),
)
_STATISTICS = record(
    "A number over all copies.",
    {
        "count": whole("How many copies have it."),
        "sum": number("Their sum."),
        "min": number("The least."),
        "max": number("The greatest."),
    },
    required=("count", "sum", "min", "max"),
)
_BROKEN = record(
    "One cluster.",
    {
        "cluster": text("The logical cluster of the SyncTarget."),
        "locationName": text("The name of the Location."),
        "syncTargetName": text("The name of the SyncTarget."),
        "reason": text("What is wrong, as one CamelCase word for programs."),
        "message": text("What is wrong, for people."),
        "since": moment("Since when, as far as it is known."),
    },
    required=("cluster", "syncTargetName", "reason"),
)


def _counts(description: str, of: str) -> Obj:
    return mapping(description, mapping(of, whole("How many copies.")))


STATUS_SUMMARY: Final = Described(
    EDGE_GROUP,
    "statussummaries",
    "StatusSummary",
    "The status of all copies of one object that one EdgePlacement brought somewhere. It is in the object's namespace, "
    "or in `edge-status` if the object is in none, and is kept by the system.",
    {
        "subject": record(
            "The object.",
            {
                "group": text("Its API group; empty for the core group."),
                "version": text("Its version."),
                "kind": text("Its kind."),
                "resource": text("Its resource, as a lower-case plural."),
                "namespace": text("Its namespace, if it is in one."),
                "name": text("Its name."),
                "uid": text("Its uid."),
            },
            required=("version", "kind", "resource", "name"),
        ),
        "destinations": _COPIES,
        "observedAt": moment("When the newest status was seen that is in this summary."),
        "aggregates": mapping("The numbers of the status, by their paths in it.", _STATISTICS),
        "conditions": _counts("The conditions of the status, by their types.", "How often each status occurs."),
        "values": _counts("Short texts of the status, by their paths in it.", "How often each text occurs."),
        "broken": listing("Clusters where something is wrong, some of them if they are many.", _BROKEN),
        "brokenTruncated": whole("How many more there are."),
        "collected": keyed("What StatusCollectors found.", _ANSWER, ["name"]),
    },
    required=("subject", "destinations"),
    namespaced=True,
    status=False,
    short_names=("ssum",),
    columns=(
        column("Kind", ".subject.kind", "The kind of the object"),
        column("Object", ".subject.name", "The name of the object"),
        column("Expected", ".destinations.expected", "Clusters that are to have a copy", "integer"),
        column("Reporting", ".destinations.reporting", "Clusters that have a copy with a status", "integer"),
        column("Broken", ".destinations.broken", "Clusters where something is wrong", "integer"),
        column("Missing", ".destinations.missing", "Clusters that have no copy yet", "integer", 1),
        column("Stale", ".destinations.stale", "Clusters that were not heard of for too long", "integer", 1),
        AGE,
    ),
    categories=(),
)

# --- questions ------------------------------------------------------------------------------------

_EXPRESSION = text(
    "In CEL, about `inventory` (the cluster), `obj` (the object without its status), `returned` (its status there) and "
    "`propagation` (when that was seen)."
)
_DEFINED = record(
    "A name, and what it stands for.",
    {"name": text("The heading.", minLength=1), "def": _EXPRESSION},
    required=("name", "def"),
)
_COMBINED = record(
    "A heading, and what is computed over all copies.",
    {
        "name": text("The heading.", minLength=1),
        "type": text("What is computed.", enum=["COUNT", "SUM", "AVG", "MIN", "MAX"]),
        "subject": {
            **_EXPRESSION,
            "description": "What it is computed of; nothing for COUNT. " + _EXPRESSION["description"],
        },
    },
    required=("name", "type"),
)


def _some(name: str) -> str:
    """The rule that a list is there and not empty."""
    return f"has(self.{name}) && size(self.{name}) > 0"


STATUS_COLLECTOR: Final = Described(
    EDGE_GROUP,
    "statuscollectors",
    "StatusCollector",
    "A question about the status of all copies of an object, to be answered in its StatusSummary. EdgePlacements name "
    "it in `spec.downsync[].statusCollectors`.",
    {
        "spec": checked(
            record(
                "The question: a row for each copy (`select`) or numbers over all copies (`combinedFields`).",
                {
                    "filter": {
                        **_EXPRESSION,
                        "description": "Which copies count; all if it is not said. " + _EXPRESSION["description"],
                    },
                    "select": listing("The columns of a row for each copy.", _DEFINED),
                    "combinedFields": listing("The columns that are computed over all copies.", _COMBINED),
                    "groupBy": listing("What divides the copies into groups, each of which gets a row.", _DEFINED),
                    "limit": whole("How many rows there are at most.", minimum=1, maximum=1000, default=20),
                },
            ),
            (f"!({_some('select')} && {_some('combinedFields')})", "select and combinedFields exclude each other"),
            (f"!({_some('groupBy')}) || ({_some('combinedFields')})", "groupBy needs combinedFields"),
        ),
        "status": record(
            "What was observed of the question.",
            {
                "observedGeneration": whole("The generation of the question that this is about."),
                "conditions": conditions("Whether the question can be understood."),
                "errors": texts("What cannot be understood in it.", "What is wrong, and where."),
            },
        ),
    },
    required=("spec",),
    short_names=("sc",),
    columns=(
        column("Valid", of_condition("Valid"), "Whether the question can be understood"),
        column("Reason", of_condition("Valid", "message"), "Why not", priority=1),
        AGE,
    ),
    categories=(),
)
