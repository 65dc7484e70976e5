"""What `kubectl get` shows of priority and fairness."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import NOTHING, age_of, condition_status, described, name_of, part
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Column, Printer


def flow_schema_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        part(spec, "distinguisherMethod").get("type", NOTHING),
        age_of(obj, now),
        condition_status(part(obj, "status").get("conditions"), "Dangling") or "?",
    ]


FLOW_SCHEMAS: Final = Printer(
    (
        NAME,
        described("PriorityLevel", "flowcontrol.v1.PriorityLevelConfigurationReference.name"),
        described("MatchingPrecedence", "flowcontrol.v1.FlowSchemaSpec.matchingPrecedence"),
        described("DistinguisherMethod", "flowcontrol.v1.FlowSchemaSpec.distinguisherMethod"),
        AGE,
        Column("MissingPL", description="references a broken or non-existent PriorityLevelConfiguration"),
    ),
    flow_schema_cells,
)


def priority_level_cells(obj: Obj, now: datetime) -> list[Any]:
    spec = part(obj, "spec")
    limited = part(spec, "limited")
    queuing = part(limited, "limitResponse", "queuing")
    return [
        name_of(obj),
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", NOTHING),
        queuing.get("queues", NOTHING),
        queuing.get("handSize", NOTHING),
        queuing.get("queueLengthLimit", NOTHING),
        age_of(obj, now),
    ]


PRIORITY_LEVELS: Final = Printer(
    (
        NAME,
        described("Type", "flowcontrol.v1.PriorityLevelConfigurationSpec.type"),
        described(
            "NominalConcurrencyShares",
            "flowcontrol.v1.LimitedPriorityLevelConfiguration.nominalConcurrencyShares",
        ),
        described("Queues", "flowcontrol.v1.QueuingConfiguration.queues"),
        described("HandSize", "flowcontrol.v1.QueuingConfiguration.handSize"),
        described("QueueLengthLimit", "flowcontrol.v1.QueuingConfiguration.queueLengthLimit"),
        AGE,
    ),
    priority_level_cells,
)
