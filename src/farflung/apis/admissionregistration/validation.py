"""Defaults and validation of webhook configurations and admission policies.

The expressions of MutatingAdmissionPolicies must be present, but are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from farflung.apis.names import POLICIES_GROUP
from farflung.apis.validation import (
    Errors,
    Rules,
    check_name,
    check_required_name,
    check_selector,
    check_supported,
    keep_status,
    keeps,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import (
    FieldError,
    Obj,
    duplicate,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
    too_many,
)

if TYPE_CHECKING:  # CEL is loaded with the first policy or webhook
    from farflung.apis.admissionregistration.expressions import PolicyCompiler, PolicyExpression

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
FAILURE_POLICIES: Final = ("Fail", "Ignore")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES: Final = ("*", "Cluster", "Namespaced")
REINVOCATION_POLICIES: Final = ("IfNeeded", "Never")
VALIDATION_ACTIONS: Final = ("Audit", "Deny", "Warn")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
NOT_FOUND_ACTIONS: Final = ("Allow", "Deny")
MOST_CONDITIONS: Final = 64
MOST_AUDIT_ANNOTATIONS: Final = 20
LONGEST_VALUE_EXPRESSION: Final = 5 * 1024  #: bytes

# --- defaults -------------------------------------------------------------------------------------


def default_webhooks(obj: Obj, *, mutating: bool) -> None:
    for webhook in obj.get("webhooks") or ():
        _default_match(webhook)
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("timeoutSeconds", 10)
        if mutating:
            webhook.setdefault("reinvocationPolicy", "Never")
        _default_scopes(webhook.get("rules"))
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def _default_match(holder: Obj) -> None:
    holder.setdefault("matchPolicy", "Equivalent")
    holder.setdefault("namespaceSelector", {})
    holder.setdefault("objectSelector", {})


def _default_scopes(rules: Iterable[Obj] | None) -> None:
    for rule in rules or ():
        rule.setdefault("scope", "*")


def default_policy(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _default_resources(spec.get("matchConstraints"))


def default_validating_policy(obj: Obj) -> None:
    default_policy(obj)
    obj.setdefault("status", {})


def default_policy_binding(obj: Obj) -> None:
    _default_resources(obj.setdefault("spec", {}).get("matchResources"))


def _default_resources(resources: Obj | None) -> None:
    if resources is None:
        return
    _default_match(resources)
    _default_scopes(resources.get("resourceRules"))
    _default_scopes(resources.get("excludeResourceRules"))


# --- webhooks -------------------------------------------------------------------------------------


def validate_webhooks(obj: Obj) -> list[FieldError]:
    from farflung.apis.admissionregistration.expressions import PolicyCompiler, excess

    errors: Errors = []
    conditions = [one for webhook in obj.get("webhooks") or () for one in webhook.get("matchConditions") or ()]
    if why := excess({"matchConditions": conditions}):
        return [field_forbidden("webhooks", why)]
    seen: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        _check_webhook(webhook, path, PolicyCompiler(params=False, variables=False), errors)
        _check_review_versions(webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions", errors)
        name = webhook.get("name", "")
        if name and name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return errors


def _check_webhook(webhook: Obj, path: str, compiler: PolicyCompiler, errors: Errors) -> None:
    check_full_name(webhook.get("name", ""), f"{path}.name", errors)
    for index, rule in enumerate(webhook.get("rules") or ()):
        _check_rule(rule, f"{path}.rules[{index}]", errors)
    _check_optional(webhook, "failurePolicy", FAILURE_POLICIES, path, errors)
    _check_optional(webhook, "matchPolicy", MATCH_POLICIES, path, errors)
    if webhook.get("sideEffects") is None:
        errors.append(required(f"{path}.sideEffects", "must specify one of " + ", ".join(SIDE_EFFECTS)))
    _check_optional(webhook, "sideEffects", SIDE_EFFECTS, path, errors)
    timeout = webhook.get("timeoutSeconds", 10)
    if not 1 <= timeout <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid_value(f"{path}.timeoutSeconds", timeout, detail))
    check_selector(webhook.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    check_selector(webhook.get("objectSelector"), f"{path}.objectSelector", errors)
    _check_optional(webhook, "reinvocationPolicy", REINVOCATION_POLICIES, path, errors)
    _check_client(webhook.get("clientConfig") or {}, f"{path}.clientConfig", errors)
    _check_conditions(webhook.get("matchConditions") or (), f"{path}.matchConditions", compiler, errors)


def check_full_name(name: str, field: str, errors: Errors) -> None:
    """A domain of at least three parts."""
    if not name:
        errors.append(required(field))
    elif wrong := names.dns_subdomain(name):
        errors.append(invalid_value(field, name, ",".join(wrong)))
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        errors.append(invalid_value(field, name, detail))


def _check_optional(holder: Obj, member: str, choices: Sequence[str], path: str, errors: Errors) -> None:
    value = holder.get(member)
    if value is not None:
        check_supported(value, choices, f"{path}.{member}", errors)


def _check_review_versions(versions: Sequence[str], field: str, errors: Errors) -> None:
    known = ", ".join(REVIEW_VERSIONS)
    if not versions:
        errors.append(required(field, f"must specify one of {known}"))
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            errors.append(invalid_value(f"{field}[{index}]", version, "duplicate version"))
            continue
        seen.add(version)
        check_name(names.dns_1035_label, version, f"{field}[{index}]", errors)
    if seen.isdisjoint(REVIEW_VERSIONS):
        errors.append(invalid_value(field, versions, f"must include at least one of {known}"))


def _check_client(client: Obj, path: str, errors: Errors) -> None:
    url, service = client.get("url"), client.get("service")
    if url is not None and service is None:
        check_webhook_url(url, f"{path}.url", errors)
    elif service is not None and url is None:
        check_webhook_service(service, f"{path}.service", errors)
    else:
        errors.append(required(path, "exactly one of url or service is required"))


def check_webhook_url(url: str, field: str, errors: Errors) -> None:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        errors.append(required(field, f"url must be a valid URL: {error}{form}"))
        return
    if parts.scheme != "https":
        detail = "'https' is the only allowed URL scheme" + form
        errors.append(invalid_value(field, parts.scheme, detail))
    if not host:
        errors.append(invalid_value(field, "", "host must be specified" + form))
    if parts.username is not None:
        errors.append(invalid_value(field, parts.username, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid_value(field, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid_value(field, parts.query, "query parameters are not permitted in the URL"))


def check_webhook_service(service: Obj, path: str, errors: Errors) -> None:
    if not service.get("name"):
        errors.append(required(f"{path}.name", "service name is required"))
    if not service.get("namespace"):
        errors.append(required(f"{path}.namespace", "service namespace is required"))
    port = service.get("port", 443)
    for message in names.port_number(port):
        errors.append(invalid_value(f"{path}.port", port, f"port is not valid: {message}"))
    url_path = service.get("path")
    if url_path in (None, "", "/"):
        return
    if not url_path.startswith("/"):
        errors.append(invalid_value(f"{path}.path", url_path, "must start with a '/'"))
    for index, segment in enumerate(url_path.removeprefix("/").removesuffix("/").split("/")):
        if not segment:
            errors.append(invalid_value(f"{path}.path", url_path, f"segment[{index}] may not be empty"))
            continue
        for message in names.dns_subdomain(segment):
            errors.append(invalid_value(f"{path}.path", url_path, f"segment[{index}]: {message}"))


# --- rules ----------------------------------------------------------------------------------------


def _check_rule(rule: Obj, path: str, errors: Errors) -> None:
    operations = rule.get("operations") or ()
    if not operations:
        errors.append(required(f"{path}.operations"))
    _check_alone(operations, "*", f"{path}.operations", "operations", errors)
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, OPERATIONS))
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if not groups:
        errors.append(required(f"{path}.apiGroups"))
    _check_alone(groups, "*", f"{path}.apiGroups", "API groups", errors)
    if not versions:
        errors.append(required(f"{path}.apiVersions"))
    _check_alone(versions, "*", f"{path}.apiVersions", "API versions", errors)
    for index, version in enumerate(versions):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    _check_resources(rule.get("resources") or (), f"{path}.resources", errors)
    _check_optional(rule, "scope", SCOPES, path, errors)


def _check_alone(values: Sequence[str], wildcard: str, field: str, what: str, errors: Errors) -> None:
    if len(values) > 1 and wildcard in values:
        detail = f"if '{wildcard}' is present, must not specify other {what}"
        errors.append(invalid_value(field, values, detail))


def _check_resources(resources: Sequence[str], field: str, errors: Errors) -> None:
    if not resources:
        errors.append(required(field))
    whole: set[str] = set()  # x, of x/*
    everywhere: set[str] = set()  # x, of */x
    bare = False
    for index, resource in enumerate(resources):
        if not resource:
            errors.append(required(f"{field}[{index}]"))
            continue
        name, slash, subresource = resource.partition("/")
        if not slash:
            bare = resource != "*"
            continue
        if name in whole:
            detail = f"if '{name}/*' is present, must not specify {resource}"
            errors.append(invalid_value(f"{field}[{index}]", resource, detail))
        if subresource in everywhere:
            detail = f"if '*/{subresource}' is present, must not specify {resource}"
            errors.append(invalid_value(f"{field}[{index}]", resource, detail))
        if subresource == "*":
            whole.add(name)
        if name == "*":
            everywhere.add(subresource)
    _check_alone(resources, "*/*", field, "resources", errors)
    if "*" in resources and bare:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(field, resources, detail))


def _check_expression(expression: PolicyExpression, field: str, errors: Errors) -> None:
    if expression.error:
        errors.append(invalid_value(field, expression.text, expression.error))


def _check_conditions(conditions: Sequence[Obj], path: str, compiler: PolicyCompiler | None, errors: Errors) -> None:
    if len(conditions) > MOST_CONDITIONS:
        errors.append(too_many(path, len(conditions), MOST_CONDITIONS))
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        expression = condition.get("expression", "").strip()
        if not expression:
            errors.append(required(f"{path}[{index}].expression"))
        elif compiler is not None:
            _check_expression(compiler.condition(expression), f"{path}[{index}].expression", errors)
        name = condition.get("name", "")
        check_required_name(names.qualified_name, name, f"{path}[{index}].name", errors)
        if name and name in seen:
            errors.append(duplicate(f"{path}[{index}].name", name))
        seen.add(name)


# --- policies -------------------------------------------------------------------------------------


def validate_policy(obj: Obj) -> list[FieldError]:
    from farflung.apis.admissionregistration.expressions import PolicyCompiler, excess

    errors: Errors = []
    spec = spec_of(obj)
    if why := excess(spec):
        return [field_forbidden("spec", why)]
    compiler = PolicyCompiler(params=spec.get("paramKind") is not None, variables=bool(spec.get("variables")))
    _check_policy_base(spec, compiler, errors)
    validations, audits = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not audits:
        detail = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for index, validation in enumerate(validations):
        _check_validation(validation, f"spec.validations[{index}]", compiler, errors)
    _check_audits(obj["metadata"].get("name", ""), audits, compiler, errors)
    return errors


def validate_mutating_policy(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = spec_of(obj)
    _check_policy_base(spec, None, errors)
    if not spec.get("mutations"):
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    return errors


def _check_policy_base(spec: Obj, compiler: PolicyCompiler | None, errors: Errors) -> None:
    check_supported(spec.get("failurePolicy", ""), FAILURE_POLICIES, "spec.failurePolicy", errors)
    if spec.get("paramKind") is not None:
        _check_param_kind(spec["paramKind"], "spec.paramKind", errors)
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.append(required("spec.matchConstraints"))
    else:
        _check_match(constraints, "spec.matchConstraints", errors)
        if not constraints.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
    _check_conditions(spec.get("matchConditions") or (), "spec.matchConditions", compiler, errors)
    for index, variable in enumerate(spec.get("variables") or ()):
        _check_variable(variable, f"spec.variables[{index}]", compiler, errors)


def _check_param_kind(param: Obj, path: str, errors: Errors) -> None:
    api_version, kind = param.get("apiVersion", ""), param.get("kind", "")
    group, _, version = api_version.rpartition("/")
    if not api_version:
        errors.append(required(f"{path}.apiVersion"))
    elif "/" in group:
        detail = f"unexpected GroupVersion string: {api_version}"
        errors.append(invalid_value(f"{path}.apiVersion", api_version, detail))
    else:
        if group and (wrong := names.dns_subdomain(group)):
            errors.append(invalid_value(f"{path}.apiVersion", group, ",".join(wrong)))
        if not version:
            errors.append(invalid_value(f"{path}.apiVersion", api_version, "version must be specified"))
        elif wrong := names.dns_1035_label(version):
            errors.append(invalid_value(f"{path}.apiVersion", version, ",".join(wrong)))
    if not kind:
        errors.append(required(f"{path}.kind"))
    elif wrong := names.dns_1035_label(kind.lower()):
        detail = "may have mixed case, but should otherwise match: " + ",".join(wrong)
        errors.append(invalid_value(f"{path}.kind", kind, detail))


def _check_match(resources: Obj, path: str, errors: Errors) -> None:
    check_supported(resources.get("matchPolicy", ""), MATCH_POLICIES, f"{path}.matchPolicy", errors)
    check_selector(resources.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    check_selector(resources.get("objectSelector"), f"{path}.objectSelector", errors)
    for member in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(member) or ()):
            _check_named_rule(rule, f"{path}.{member}[{index}]", errors)


def _check_named_rule(rule: Obj, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        check_name(names.path_segment, name, f"{path}.resourceNames[{index}]", errors)
        if name in seen:
            errors.append(duplicate(f"{path}.resourceNames[{index}]", name))
        seen.add(name)
    _check_rule(rule, path, errors)


def _check_variable(variable: Obj, path: str, compiler: PolicyCompiler | None, errors: Errors) -> None:
    from farflung.machinery.cel.parser import RESERVED

    name = variable.get("name", "")
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif names.c_identifier(name) or name in RESERVED:
        errors.append(invalid_value(f"{path}.name", name, "name is not a valid CEL identifier"))
    if not variable.get("expression", "").strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    elif compiler is not None:
        _check_expression(compiler.variable(name, variable["expression"]), f"{path}.expression", errors)


def _check_validation(validation: Obj, path: str, compiler: PolicyCompiler, errors: Errors) -> None:
    message = validation.get("message", "")
    if not validation.get("expression", "").strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        _check_expression(compiler.validation(validation["expression"]), f"{path}.expression", errors)
    expression = validation.get("messageExpression", "")
    if expression and not expression.strip():
        errors.append(invalid_value(f"{path}.messageExpression", expression, "must be non-empty if specified"))
    elif expression:
        _check_expression(compiler.message(expression), f"{path}.messageExpression", errors)
    if message and not message.strip():
        errors.append(invalid_value(f"{path}.message", message, "message must be non-empty if specified"))
    elif not {"\n", "\r"}.isdisjoint(message.strip()):
        errors.append(invalid_value(f"{path}.message", message, "message must not contain line breaks"))
    _check_optional(validation, "reason", REASONS, path, errors)


def _check_audits(policy: str, audits: Sequence[Obj], compiler: PolicyCompiler, errors: Errors) -> None:
    path = "spec.auditAnnotations"
    if len(audits) > MOST_AUDIT_ANNOTATIONS:
        detail = f"must not have more than {MOST_AUDIT_ANNOTATIONS} auditAnnotations"
        errors.append(invalid_value(path, audits, detail))
    seen: set[str] = set()
    for index, audit in enumerate(audits):
        key = audit.get("key", "")
        if policy:
            check_name(names.qualified_name, f"{policy}/{key}", f"{path}[{index}].key", errors)
        else:
            errors.append(invalid_value(f"{path}[{index}].key", key, "requires metadata.name be non-empty"))
        text = audit.get("valueExpression", "")
        trimmed = text.strip()
        if not trimmed:
            errors.append(required(f"{path}[{index}].valueExpression", "valueExpression is not specified"))
        elif len(trimmed.encode(errors="replace")) > LONGEST_VALUE_EXPRESSION:
            errors.append(
                required(
                    f"{path}[{index}].valueExpression", f"must not exceed {LONGEST_VALUE_EXPRESSION} bytes in length"
                )
            )
        elif why := compiler.audit(trimmed).error:
            errors.append(invalid_value(f"{path}[{index}].valueExpression", text, why))
        if key in seen:
            errors.append(duplicate(f"{path}[{index}].key", key))
        seen.add(key)


def validate_policy_binding(obj: Obj, *, acts: bool) -> list[FieldError]:
    """`acts`: the binding says what happens to a request that breaks the policy."""
    errors: Errors = []
    spec = spec_of(obj)
    check_required_name(names.dns_subdomain, spec.get("policyName", ""), "spec.policyName", errors)
    if spec.get("paramRef") is not None:
        _check_param(spec["paramRef"], errors)
    if spec.get("matchResources") is not None:
        _check_match(spec["matchResources"], "spec.matchResouces", errors)
    if acts:
        _check_actions(spec.get("validationActions") or (), errors)
    return errors


def _check_param(param: Obj, errors: Errors) -> None:
    path = "spec.paramRef"
    name, selector = param.get("name", ""), param.get("selector")
    if name:
        check_name(names.path_segment, name, f"{path}.name", errors)
        if selector is not None:
            for member in ("name", "selector"):
                errors.append(field_forbidden(f"{path}.{member}", "name and selector are mutually exclusive"))
    elif selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    check_selector(selector, f"{path}.selector", errors)
    action = param.get("parameterNotFoundAction")
    if action is None:
        errors.append(required(f"{path}.parameterNotFoundAction"))
    else:
        check_supported(action, NOT_FOUND_ACTIONS, f"{path}.parameterNotFoundAction", errors)


def _check_actions(actions: Sequence[str], errors: Errors) -> None:
    path = "spec.validationActions"
    seen: set[str] = set()
    for index, action in enumerate(actions):
        check_supported(action, VALIDATION_ACTIONS, f"{path}[{index}]", errors)
        if action in seen:
            errors.append(duplicate(f"{path}[{index}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.append(invalid_value(path, actions, detail))
    if not actions:
        errors.append(required(path, "at least one validation action is required"))


# --- the kinds ------------------------------------------------------------------------------------


def _rules(default: Callable[[Obj], None], validate: Callable[[Obj], list[FieldError]], **more: Any) -> Rules:
    return Rules(
        name=names.dns_subdomain,
        default=default,
        validate=validate,
        unconditional_update=False,
        generation=True,
        short_finalizers=True,
        **more,
    )


def _without_status(obj: Obj) -> None:
    obj["status"] = {}


def uncalled(new: Obj, old: Obj | None) -> list[str]:
    """Warns that the hub does not call webhooks."""
    return ["webhooks are stored, but this server does not call them"] if old is None else []


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (POLICIES_GROUP, "ValidatingWebhookConfiguration"): _rules(
        partial(default_webhooks, mutating=False), validate_webhooks, warnings=uncalled
    ),
    (POLICIES_GROUP, "MutatingWebhookConfiguration"): _rules(
        partial(default_webhooks, mutating=True), validate_webhooks, warnings=uncalled
    ),
    (POLICIES_GROUP, "ValidatingAdmissionPolicy"): _rules(
        default_validating_policy,
        validate_policy,
        prepare_create=_without_status,
        prepare_update=keep_status,
        prepare_status=keeps("spec"),
    ),
    (POLICIES_GROUP, "ValidatingAdmissionPolicyBinding"): _rules(
        default_policy_binding, partial(validate_policy_binding, acts=True)
    ),
    (POLICIES_GROUP, "MutatingAdmissionPolicy"): _rules(default_policy, validate_mutating_policy),
    (POLICIES_GROUP, "MutatingAdmissionPolicyBinding"): _rules(
        default_policy_binding, partial(validate_policy_binding, acts=False)
    ),
}
