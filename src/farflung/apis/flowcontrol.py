"""FlowSchemas and PriorityLevelConfigurations: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.printers import AGE, NAME, NOTHING, column, condition_status, field, part, printer
from farflung.apis.resource import Group, status
from farflung.apis.rows import (
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    Pointer,
    Range,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Validation,
    When,
    new_status,
)
from farflung.apis.validation import Errors, Rules, keep_spec, keep_status
from farflung.machinery import names
from farflung.machinery.errors import Obj, required

FLOW_SCHEMAS: Final = printer(
    "flowcontrol.v1.FlowSchema",
    NAME,
    field("PriorityLevel", "spec.priorityLevelConfiguration.name"),
    field("MatchingPrecedence", "spec.matchingPrecedence", 0),
    field("DistinguisherMethod", "spec.distinguisherMethod", None, lambda method: (method or {}).get("type", NOTHING)),
    AGE,
    column(
        "MissingPL",
        "references a broken or non-existent PriorityLevelConfiguration",
        lambda obj: condition_status(part(obj, "status").get("conditions"), "Dangling") or "?",
    ),
)
PRIORITY_LEVELS: Final = printer(
    "flowcontrol.v1.PriorityLevelConfiguration",
    NAME,
    field("Type", "spec.type"),
    field("NominalConcurrencyShares", "spec.limited.nominalConcurrencyShares", NOTHING),
    field("Queues", "spec.limited.limitResponse.queuing.queues", NOTHING),
    field("HandSize", "spec.limited.limitResponse.queuing.handSize", NOTHING),
    field("QueueLengthLimit", "spec.limited.limitResponse.queuing.queueLengthLimit", NOTHING),
    AGE,
)


# --- Priority and fairness of requests: the objects, which change nothing here --------------------

FLOW_CONTROL: Final = Group("flowcontrol.apiserver.k8s.io", "v1", "io.k8s.api.flowcontrol.v1.")

RESOURCES: Final = (
    FLOW_CONTROL.stored(
        "flowschemas",
        "FlowSchema",
        printer=FLOW_SCHEMAS,
        namespaced=False,
        subresources=(status("FlowSchema"),),
    ),
    FLOW_CONTROL.stored(
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        printer=PRIORITY_LEVELS,
        namespaced=False,
        subresources=(status("PriorityLevelConfiguration"),),
    ),
)


# --- Rules of FlowSchemas and PriorityLevelConfigurations: defaults and structure -----------------

NO_RULES: Final = "at least one of resourceRules and nonResourceRules has to be non-empty"


def check_rules_present(rule: Obj, path: str, errors: Errors) -> None:
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        errors.append(required(path, NO_RULES))


FLOW_SCHEMA: Final = Validation(
    Always("spec.matchingPrecedence", Range(1, 10000), zero=0),
    Required("spec.priorityLevelConfiguration.name", Format(names.dns_subdomain)),
    Struct("spec.distinguisherMethod", Always("type", Enum("ByNamespace", "ByUser"))),
    Each(
        "spec.rules",
        Required("subjects", detail="subjects must contain at least one value"),
        Check(check_rules_present),
    ),
)

DEFAULT_LEVEL: Final = Defaults(
    Default("spec", {}),
    Struct("spec.exempt", Default("nominalConcurrencyShares", 0), Default("lendablePercent", 0)),
    Struct(
        "spec.limited",
        Default("nominalConcurrencyShares", 30),
        Default("lendablePercent", 0),
        Default("limitResponse", {}),
        Struct(
            "limitResponse.queuing",
            Default("queues", 64, empty=True),
            Default("handSize", 8, empty=True),
            Default("queueLengthLimit", 50, empty=True),
        ),
    ),
    Default("status", {}),
)

LIMITED: Final = Table(
    Always("lendablePercent", Range(0, 100), zero=0),
    When(
        "limitResponse.type",
        "Reject",
        Pointer("limitResponse.queuing", ForbiddenField("must be nil if limited.limitResponse.type is not Limited")),
    ),
    When(
        "limitResponse.type",
        "Queue",
        RequiredPointer("limitResponse.queuing", detail="must not be empty if limited.limitResponse.type is Limited"),
    ),
    Always("limitResponse.type", Enum("Queue", "Reject")),
)
LEVEL: Final = Validation(
    When("spec.type", "Exempt", Pointer("spec.limited", ForbiddenField("must be nil if the type is not Limited"))),
    When(
        "spec.type",
        "Limited",
        Pointer("spec.exempt", ForbiddenField("must be nil if the type is Limited")),
        RequiredPointer("spec.limited", LIMITED, detail="must not be empty when type is Limited"),
    ),
    Always("spec.type", Enum("Exempt", "Limited")),
)


def _rules(default: Defaults, validate: Validation) -> Rules:
    return Rules(
        name=names.dns_subdomain,
        default=default,
        prepare_create=new_status({}),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate,
        unconditional_update=False,
        generation=True,
    )


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (FLOW_CONTROL.name, "FlowSchema"): _rules(
        Defaults(Default("spec.matchingPrecedence", 1000, empty=True), Default("status", {})), FLOW_SCHEMA
    ),
    (FLOW_CONTROL.name, "PriorityLevelConfiguration"): _rules(DEFAULT_LEVEL, LEVEL),
}
