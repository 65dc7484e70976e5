"""Defaults and validation of LimitRanges and ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from farflung.apis.core.resources import (
    HUGE_PAGES,
    OF_CONTAINERS,
    OF_QUOTAS,
    Amounts,
    check_container_resource,
    check_quantity,
    may_overcommit,
)
from farflung.apis.rows import (
    Always,
    Check,
    Default,
    Defaults,
    Each,
    ForbiddenField,
    Format,
    InvalidIf,
    Optional,
    Refused,
    Required,
    Table,
    Unique,
    Unless,
    Validation,
    When,
    new_status,
)
from farflung.apis.validation import LARGEST_FOLLOWED, Errors, Rules, keep_spec, keep_status, spec_of
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, invalid_value, required
from farflung.machinery.quantity import ONE, parse

# --- LimitRange -----------------------------------------------------------------------------------

LIMIT_TYPES: Final = frozenset({"Pod", "Container", "PersistentVolumeClaim"})


def default_limit_range(obj: Obj) -> None:
    """A container's limit defaults to the maximum, its request to the limit, or else to the minimum."""
    for limit in spec_of(obj).get("limits") or ():
        if limit.get("type") != "Container":
            continue
        default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
        request = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
        if default:
            limit["default"] = default
        if request:
            limit["defaultRequest"] = request


STANDARD_TYPE: Final = InvalidIf(
    lambda type_: "/" not in type_ and type_ not in LIMIT_TYPES, "must be a standard limit type or fully qualified"
)


def check_storage(limit: Obj, path: str, errors: Errors) -> None:
    if "storage" not in {**(limit.get("min") or {}), **(limit.get("max") or {})}:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{path}.limits", detail))


def check_container_resources(amounts: Amounts, path: str, errors: Errors) -> None:
    for resource in amounts:
        check_container_resource(resource, f"{path}[{resource}]", errors)


def check_resources(amounts: Amounts, path: str, errors: Errors) -> None:
    for resource in amounts:
        check_resource(resource, f"{path}[{resource}]", errors)


def check_resource(resource: str, field: str, errors: Errors) -> None:
    """The name of any resource."""
    if wrong := names.qualified_name(resource):
        errors += [invalid_value(field, resource, message) for message in wrong]
    elif "/" not in resource and not _is_standard(resource):
        errors.append(invalid_value(field, resource, "must be a standard resource type or fully qualified"))


def _is_standard(resource: str) -> bool:
    known = resource in OF_CONTAINERS or resource in OF_QUOTAS
    return known or resource.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


#: of one resource: what may not be larger, its name in words, than what, in words, the field to blame, the value shown
ORDER: Final = (
    ("min", "min value", "max", "max value", "min", "min"),
    ("min", "min value", "defaultRequest", "default request value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request value", "max", "max value", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request value", "default", "default limit value", "defaultRequest", "defaultRequest"),
    ("min", "min value", "default", "default value", "default", "min"),
    ("default", "default value", "max", "max value", "default", "max"),
)


def check_limit_amounts(limit: Obj, path: str, errors: Errors) -> None:
    members = ("max", "min") if limit.get("type") == "Pod" else ("max", "min", "default", "defaultRequest")
    amounts: Mapping[str, Amounts] = {member: limit.get(member) or {} for member in members}
    ratios: Amounts = limit.get("maxLimitRequestRatio") or {}
    for resource in dict.fromkeys(resource for some in (*amounts.values(), ratios) for resource in some):
        of = {member: some[resource] for member, some in amounts.items() if resource in some}
        for smaller, its_name, larger, other_name, blamed, shown in ORDER:
            if smaller in of and larger in of and parse(of[larger]) < parse(of[smaller]):
                detail = f"{its_name} {of[smaller]} is greater than {other_name} {of[larger]}"
                errors.append(invalid_value(f"{path}.{blamed}[{resource}]", of[shown], detail))
        if resource in ratios:
            field = f"{path}.maxLimitRequestRatio[{resource}]"
            _check_ratio(ratios[resource], of.get("min"), of.get("max"), field, errors)
        _check_overcommit(resource, of, path, errors)


def _check_overcommit(resource: str, of: Amounts, path: str, errors: Errors) -> None:
    default, request = of.get("default"), of.get("defaultRequest")
    if default is None or request is None or may_overcommit(resource) or parse(default) == parse(request):
        return
    detail = f"default value {default} must equal to defaultRequest value {request} in {resource}"
    errors.append(invalid_value(f"{path}.defaultRequest[{resource}]", request, detail))


def _check_ratio(ratio: str, low: str | None, high: str | None, field: str, errors: Errors) -> None:
    if parse(ratio).nanos < ONE:
        errors.append(invalid_value(field, ratio, f"ratio {ratio} is less than 1"))
    if low is None or high is None or not parse(low).nanos:
        return
    largest = parse(high).nanos / parse(low).nanos
    if parse(ratio).nanos / ONE > largest:
        errors.append(invalid_value(field, ratio, f"ratio {ratio} is greater than max/min = {largest:f}"))


def known_resources(*members: str) -> Table:
    """Rows that check the names of resources, by the type of the limit."""
    return Table(
        When("type", ("Pod", "Container"), *(Optional(member, check_container_resources) for member in members)),
        Unless("type", ("Pod", "Container"), *(Optional(member, check_resources) for member in members)),
    )


NOT_OF_PODS: Final = ForbiddenField("may not be specified when `type` is 'Pod'")
LIMIT_RANGE: Final = Validation(
    Each(
        "spec.limits",
        Always("type", Format(names.qualified_name, STANDARD_TYPE), Unique()),
        known_resources("max", "min"),
        When("type", "Pod", Optional("default", NOT_OF_PODS), Optional("defaultRequest", NOT_OF_PODS)),
        Unless("type", "Pod", known_resources("default", "defaultRequest")),
        When("type", "PersistentVolumeClaim", Check(check_storage)),
        known_resources("maxLimitRequestRatio"),
        Check(check_limit_amounts),
    )
)


# --- ResourceQuota --------------------------------------------------------------------------------

COMPUTE: Final = frozenset({"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
OF_PODS: Final = COMPUTE | {"pods"}
#: scope → the standard resources it may limit
SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "Terminating": OF_PODS,
    "NotTerminating": OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": OF_PODS,
    "PriorityClass": OF_PODS,
    "CrossNamespacePodAffinity": OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
CONFLICTING: Final = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
ONLY_EXISTS: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def validate_quota(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    hard: Amounts = spec.get("hard") or {}
    check_quota_amounts(hard, "spec.hard", errors)
    scopes = spec.get("scopes") or ()
    for scope in scopes:
        if scope not in SCOPES:
            errors.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
        _check_scope(scope, hard, "spec.scopes", scopes, errors)
    _check_conflicts(scopes, "spec.scopes", scopes, errors)
    if spec.get("scopeSelector") is not None:
        _check_scope_selector(spec, hard, errors)
    return errors


def check_quota_amounts(amounts: Amounts, path: str, errors: Errors) -> None:
    for resource, amount in amounts.items():
        field = f"{path}[{resource}]"
        check_resource(resource, field, errors)
        if "/" not in resource and not _is_for_quota(resource):
            errors.append(invalid_value(field, resource, "must be a standard resource for quota"))
        check_quantity(resource, amount, field, errors)


def _is_for_quota(resource: str) -> bool:
    return resource != "storage" and _is_standard(resource)


def _check_scope(scope: str, hard: Amounts, field: str, shown: object, errors: Errors) -> None:
    allowed = SCOPES.get(scope)
    for resource in sorted(hard):
        if _is_for_quota(resource) and allowed is not None and resource not in allowed:
            errors.append(invalid_value(field, shown, "unsupported scope applied to resource"))


def _check_conflicts(scopes: Iterable[str], field: str, shown: object, errors: Errors) -> None:
    for pair in CONFLICTING:
        if pair <= frozenset(scopes):
            errors.append(invalid_value(field, shown, "conflicting scopes"))


NO_VALUES: Final = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
HAS_VALUES: Final = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
SCOPE_VALUES: Final = Table(
    When("operator", ("In", "NotIn"), Required("values", detail=NO_VALUES)),
    When("operator", ("Exists", "DoesNotExist"), Optional("values", Refused(HAS_VALUES))),
    Unless(
        "operator",
        ("In", "NotIn", "Exists", "DoesNotExist"),
        Always("operator", Refused("not a valid selector operator")),
    ),
)


def _check_scope_selector(spec: Obj, hard: Amounts, errors: Errors) -> None:
    path = "spec.scopeSelector.matchExpressions"
    expressions = spec["scopeSelector"].get("matchExpressions") or ()
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        if scope not in SCOPES:
            errors.append(invalid_value(f"{path}.scopeName", scope, "unsupported scope"))
        _check_scope(scope, hard, path, spec["scopeSelector"], errors)
        if scope in SCOPES and scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            errors.append(invalid_value(f"{path}.operator", operator, ONLY_EXISTS))
        SCOPE_VALUES(expression, path, errors)
    named = [expression.get("scopeName", "") for expression in expressions]
    _check_conflicts(named, path, spec.get("scopes"), errors)


def validate_quota_update(new: Obj, old: Obj) -> list[FieldError]:
    after, before = spec_of(new).get("scopes") or [], spec_of(old).get("scopes") or []
    return [] if set(after) == set(before) else [invalid_value("spec.scopes", after, "field is immutable")]


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("", "LimitRange"): Rules(
        name=names.dns_subdomain,
        default=default_limit_range,
        validate=LIMIT_RANGE,
        create_on_update=True,
        largest=LARGEST_FOLLOWED,
    ),
    ("", "ResourceQuota"): Rules(
        name=names.dns_subdomain,
        default=Defaults(Default("spec", {}), Default("status", {})),
        prepare_create=new_status({}),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        validate=validate_quota,
        validate_update=validate_quota_update,
        validate_status=Validation(
            Optional("status.hard", check_quota_amounts), Optional("status.used", check_quota_amounts)
        ),
        returns_deleted=True,
        largest=LARGEST_FOLLOWED,
    ),
}
