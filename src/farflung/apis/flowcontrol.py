"""FlowSchemas and PriorityLevelConfigurations: resources, validation and printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from farflung.apis.printers import NOTHING, age_of, condition_status, described, name_of, part
from farflung.apis.resource import Group, status
from farflung.apis.validation import (
    Errors,
    Rules,
    check_range,
    check_required_name,
    check_supported,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, required
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

GROUP: Final = "flowcontrol.apiserver.k8s.io"
HIGHEST_PRECEDENCE: Final = 10000


def default_flow_schema(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000
    obj.setdefault("status", {})


def validate_flow_schema(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    check_range(spec.get("matchingPrecedence", 0), 1, HIGHEST_PRECEDENCE, "spec.matchingPrecedence", errors)
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    check_required_name(names.dns_subdomain, level, "spec.priorityLevelConfiguration.name", errors)
    method = spec.get("distinguisherMethod")
    if method is not None:
        methods = ("ByNamespace", "ByUser")
        check_supported(method.get("type", ""), methods, "spec.distinguisherMethod.type", errors)
    for index, rule in enumerate(spec.get("rules") or ()):
        if not rule.get("subjects"):
            errors.append(required(f"spec.rules[{index}].subjects", "subjects must contain at least one value"))
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
            errors.append(required(f"spec.rules[{index}]", detail))
    return errors


def default_priority_level(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    exempt, limited = spec.get("exempt"), spec.get("limited")
    if exempt is not None:
        exempt.setdefault("nominalConcurrencyShares", 0)
        exempt.setdefault("lendablePercent", 0)
    if limited is not None:
        limited.setdefault("nominalConcurrencyShares", 30)
        limited.setdefault("lendablePercent", 0)
        queuing = limited.setdefault("limitResponse", {}).get("queuing")
        if queuing is not None:
            for member, value in QUEUING.items():
                queuing[member] = queuing.get(member) or value
    obj.setdefault("status", {})


QUEUING: Final[Mapping[str, int]] = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}


def validate_priority_level(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    match spec.get("type", ""):
        case "Exempt":
            if spec.get("limited") is not None:
                errors.append(field_forbidden("spec.limited", "must be nil if the type is not Limited"))
        case "Limited":
            if spec.get("exempt") is not None:
                errors.append(field_forbidden("spec.exempt", "must be nil if the type is Limited"))
            if spec.get("limited") is None:
                errors.append(required("spec.limited", "must not be empty when type is Limited"))
            else:
                _check_limited(spec["limited"], "spec.limited", errors)
        case kind:
            check_supported(kind, ("Exempt", "Limited"), "spec.type", errors)
    return errors


def _check_limited(limited: Obj, path: str, errors: Errors) -> None:
    check_range(limited.get("lendablePercent", 0), 0, 100, f"{path}.lendablePercent", errors)
    response = limited.get("limitResponse") or {}
    match response.get("type", ""):
        case "Reject":
            if response.get("queuing") is not None:
                detail = "must be nil if limited.limitResponse.type is not Limited"
                errors.append(field_forbidden(f"{path}.limitResponse.queuing", detail))
        case "Queue":
            if response.get("queuing") is None:
                detail = "must not be empty if limited.limitResponse.type is Limited"
                errors.append(required(f"{path}.limitResponse.queuing", detail))
        case kind:
            check_supported(kind, ("Queue", "Reject"), f"{path}.limitResponse.type", errors)


def _prepare(obj: Obj) -> None:
    obj["status"] = {}


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, "FlowSchema"): Rules(
        name=names.dns_subdomain,
        default=default_flow_schema,
        prepare_create=_prepare,
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate_flow_schema,
        unconditional_update=False,
        generation=True,
    ),
    (GROUP, "PriorityLevelConfiguration"): Rules(
        name=names.dns_subdomain,
        default=default_priority_level,
        prepare_create=_prepare,
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate_priority_level,
        unconditional_update=False,
        generation=True,
    ),
}
