"""Validation of pod placement: node selectors, affinity, tolerations, taints, topology spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE
from farflung.apis.validation import POSITIVE, Errors, check_name, check_selector, check_supported
from farflung.machinery import names
from farflung.machinery.errors import (
    FieldError,
    Obj,
    duplicate,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
)

EFFECTS: Final = (NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NO_OPERATOR: Final = "not a valid selector operator"


# --- taints and tolerations -----------------------------------------------------------------------


def check_tolerations(tolerations: Iterable[Obj], path: str, errors: Errors) -> None:
    for at, toleration in enumerate(tolerations):
        _check_toleration(toleration, f"{path}[{at}]", errors)


def _check_toleration(toleration: Obj, path: str, errors: Errors) -> None:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        check_name(names.qualified_name, key, f"{path}.key", errors)
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid_value(f"{path}.operator", operator, why))
    if toleration.get("tolerationSeconds") is not None and effect != NO_EXECUTE:
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid_value(f"{path}.effect", effect, why))
    match operator:
        case "Equal" | "":
            if wrong := names.label_value(value):
                errors.append(invalid_value(f"{path}.operator", value, ";".join(wrong)))
        case "Exists":
            if value:
                why = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid_value(f"{path}.operator", value, why))
        case _:
            errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect:
        check_supported(effect, EFFECTS, f"{path}.effect", errors)


def check_taints(taints: Iterable[Obj], path: str, errors: Errors) -> None:
    seen: set[tuple[str, str]] = set()
    for at, taint in enumerate(taints):
        key, effect = taint.get("key", ""), taint.get("effect", "")
        check_name(names.qualified_name, key, f"{path}[{at}].key", errors)
        if wrong := names.label_value(taint.get("value", "")):
            errors.append(invalid_value(f"{path}[{at}].value", taint["value"], ";".join(wrong)))
        if effect:
            check_supported(effect, EFFECTS, f"{path}[{at}].effect", errors)
        else:
            errors.append(required(f"{path}[{at}].effect"))
        if (key, effect) in seen:
            why = "taints must be unique by key and effect pair"
            errors.append(FieldError("Duplicate value", f"{path}[{at}]", taint, why))
        seen.add((key, effect))


# --- node selectors -------------------------------------------------------------------------------


def check_node_selector(selector: Obj, path: str, errors: Errors) -> None:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        errors.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for at, term in enumerate(terms):
        _check_node_term(term, f"{path}.nodeSelectorTerms[{at}]", errors, check_values=True)


def _check_node_term(term: Obj, path: str, errors: Errors, *, check_values: bool) -> None:
    for at, requirement in enumerate(term.get("matchExpressions") or ()):
        _check_node_labels(requirement, f"{path}.matchExpressions[{at}]", errors, check_values=check_values)
    for at, requirement in enumerate(term.get("matchFields") or ()):
        _check_node_fields(requirement, f"{path}.matchFields[{at}]", errors)


def _check_node_labels(requirement: Obj, path: str, errors: Errors, *, check_values: bool) -> None:
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(field_forbidden(f"{path}.values", why))
        case "Gt" | "Lt":
            if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errors.append(required(f"{path}.values", why))
        case operator:
            errors.append(invalid_value(f"{path}.operator", operator, NO_OPERATOR))
    check_name(names.qualified_name, requirement.get("key", ""), f"{path}.key", errors)
    for at, value in enumerate(values if check_values else ()):
        check_name(names.label_value, value, f"{path}.values[{at}]", errors)


def _check_node_fields(requirement: Obj, path: str, errors: Errors) -> None:
    values: Sequence[str] = requirement.get("values") or ()
    operator, key = requirement.get("operator", ""), requirement.get("key", "")
    if operator not in ("In", "NotIn"):
        errors.append(invalid_value(f"{path}.operator", operator, NO_OPERATOR))
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", why))
    if key != "metadata.name":
        errors.append(invalid_value(f"{path}.key", key, "not a valid field selector key"))
        return
    for at, value in enumerate(values):
        check_name(names.dns_subdomain, value, f"{path}.values[{at}]", errors)


# --- affinity -------------------------------------------------------------------------------------


def check_affinity(affinity: Obj, path: str, errors: Errors) -> None:
    if nodes := affinity.get("nodeAffinity"):
        _check_node_affinity(nodes, f"{path}.nodeAffinity", errors)
    for member in ("podAffinity", "podAntiAffinity"):
        if pods := affinity.get(member):
            _check_pod_affinity(pods, f"{path}.{member}", errors)


def _check_node_affinity(affinity: Obj, path: str, errors: Errors) -> None:
    if (selector := affinity.get(REQUIRED)) is not None:
        check_node_selector(selector, f"{path}.{REQUIRED}", errors)

    def check(term: Obj, where: str) -> None:
        _check_node_term(term.get("preference") or {}, f"{where}.preference", errors, check_values=False)

    _check_weighted(affinity.get(PREFERRED) or (), f"{path}.{PREFERRED}", check, errors)


def _check_weighted(terms: Iterable[Obj], path: str, check: Callable[[Obj, str], None], errors: Errors) -> None:
    for at, term in enumerate(terms):
        if not 1 <= term.get("weight", 0) <= 100:
            errors.append(invalid_value(f"{path}[{at}].weight", term.get("weight", 0), "must be in the range 1-100"))
        check(term, f"{path}[{at}]")


def _check_pod_affinity(affinity: Obj, path: str, errors: Errors) -> None:
    for at, term in enumerate(affinity.get(REQUIRED) or ()):
        _check_pod_term(term, f"{path}.{REQUIRED}[{at}]", errors)

    def check(term: Obj, where: str) -> None:
        _check_pod_term(term.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", errors)

    _check_weighted(affinity.get(PREFERRED) or (), f"{path}.{PREFERRED}", check, errors)


def _check_pod_term(term: Obj, path: str, errors: Errors) -> None:
    check_selector(term.get("labelSelector"), f"{path}.labelSelector", errors)
    check_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    for namespace in term.get("namespaces") or ():
        check_name(names.dns_label, namespace, f"{path}.namespace", errors)
    _check_label_keys(term, path, errors)
    key = term.get("topologyKey", "")
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    check_name(names.qualified_name, key, f"{path}.topologyKey", errors)


def _check_label_keys(term: Obj, path: str, errors: Errors) -> None:
    wanted, unwanted = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for member, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and term.get("labelSelector") is None:
            errors.append(field_forbidden(f"{path}.{member}", "must not be specified when labelSelector is not set"))
            continue
        for at, key in enumerate(keys):
            check_name(names.qualified_name, key, f"{path}.{member}[{at}]", errors)
    both = set(unwanted)
    for at, key in enumerate(wanted):
        if key in both:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid_value(f"{path}.matchLabelKeys[{at}]", key, why))


# --- topology spread ------------------------------------------------------------------------------


def check_spread(constraints: Sequence[Obj], path: str, errors: Errors) -> None:
    last = {_spread_key(constraint): at for at, constraint in enumerate(constraints)}
    for at, constraint in enumerate(constraints):
        where = f"{path}[{at}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            errors.append(invalid_value(f"{where}.maxSkew", skew, POSITIVE))
        if not constraint.get("topologyKey"):
            errors.append(required(f"{where}.topologyKey", "can not be empty"))
        action = constraint.get("whenUnsatisfiable", "")
        check_supported(action, ("DoNotSchedule", "ScheduleAnyway"), f"{where}.whenUnsatisfiable", errors)
        key = _spread_key(constraint)
        if last[key] != at:
            errors.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}"))
        _check_spread_options(constraint, where, errors)


def _spread_key(constraint: Obj) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")


def _check_spread_options(constraint: Obj, path: str, errors: Errors) -> None:
    domains, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable", "")
    if domains is not None and domains <= 0:
        errors.append(invalid_value(f"{path}.minDomains", domains, POSITIVE))
    if domains is not None and action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(invalid_value(f"{path}.minDomains", domains, why))
    for member in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if (policy := constraint.get(member)) is not None:
            check_supported(policy, ("Honor", "Ignore"), f"{path}.{member}", errors)
    keys, selector = constraint.get("matchLabelKeys") or (), constraint.get("labelSelector")
    if keys and selector is None:
        errors.append(field_forbidden(f"{path}.matchLabelKeys", "must not be specified when labelSelector is not set"))
    selected = set((selector or {}).get("matchLabels") or ())
    selected.update(expression.get("key", "") for expression in (selector or {}).get("matchExpressions") or ())
    for at, key in enumerate(keys):
        check_name(names.qualified_name, key, f"{path}.matchLabelKeys[{at}]", errors)
        if key in selected:
            errors.append(
                invalid_value(f"{path}.matchLabelKeys[{at}]", key, "exists in both matchLabelKeys and labelSelector")
            )
    check_selector(constraint.get("labelSelector"), f"{path}.labelSelector", errors)
