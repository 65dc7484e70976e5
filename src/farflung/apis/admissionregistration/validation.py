"""Defaults and validation of webhook configurations and admission policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from farflung.apis.names import POLICIES_GROUP
from farflung.apis.rows import (
    ITSELF,
    Always,
    Default,
    Defaults,
    Each,
    Enum,
    ForbiddenField,
    Format,
    IfPresent,
    InvalidIf,
    Optional,
    Pointer,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unique,
    Unless,
    Validation,
    When,
    new_status,
)
from farflung.apis.validation import (
    LARGEST_FOLLOWED,
    Errors,
    Rules,
    check_name,
    check_required_name,
    check_selector,
    keep_spec,
    keep_status,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, duplicate, field_forbidden, invalid_value, required, too_many

if TYPE_CHECKING:  # CEL is loaded with the first policy or webhook
    from farflung.apis.admissionregistration.expressions import PolicyCompiler, PolicyExpression

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
FAILURE_POLICIES: Final = ("Fail", "Ignore")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
MAX_CONDITIONS: Final = 64
MAX_AUDIT_ANNOTATIONS: Final = 20
LONGEST_VALUE_EXPRESSION: Final = 5 * 1024  #: bytes

# --- defaults -------------------------------------------------------------------------------------


MATCH_DEFAULTS: Final = (
    Default("matchPolicy", "Equivalent"),
    Default("namespaceSelector", {}),
    Default("objectSelector", {}),
)
RESOURCES_DEFAULTS: Final = (
    *MATCH_DEFAULTS,
    Each("resourceRules", Default("scope", "*")),
    Each("excludeResourceRules", Default("scope", "*")),
)


def webhook_defaults(*more: Default) -> Defaults:
    return Defaults(
        Each(
            "webhooks",
            *MATCH_DEFAULTS,
            Default("failurePolicy", "Fail"),
            Default("timeoutSeconds", 10),
            *more,
            Each("rules", Default("scope", "*")),
            Struct("clientConfig.service", Default("port", 443)),
        )
    )


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
        WEBHOOK(webhook, path, errors)
        compiler = PolicyCompiler(params=False, variables=False)
        _check_conditions(webhook.get("matchConditions") or (), f"{path}.matchConditions", compiler, errors)
        _check_review_versions(webhook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions", errors)
        name = webhook.get("name", "")
        if name and name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return errors


def check_full_name(name: str, field: str, errors: Errors) -> None:
    """A domain of at least three parts."""
    if wrong := names.dns_subdomain(name):
        errors.append(invalid_value(field, name, ",".join(wrong)))
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        errors.append(invalid_value(field, name, detail))


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


def _check_service_port(port: int, field: str, errors: Errors) -> None:
    for message in names.port_number(port):
        errors.append(invalid_value(field, port, f"port is not valid: {message}"))


def _check_url_path(path: str, field: str, errors: Errors) -> None:
    if path == "/":
        return
    if not path.startswith("/"):
        errors.append(invalid_value(field, path, "must start with a '/'"))
    for index, segment in enumerate(path.removeprefix("/").removesuffix("/").split("/")):
        if not segment:
            errors.append(invalid_value(field, path, f"segment[{index}] may not be empty"))
            continue
        for message in names.dns_subdomain(segment):
            errors.append(invalid_value(field, path, f"segment[{index}]: {message}"))


check_webhook_service: Final = Table(
    Required("name", detail="service name is required"),
    Required("namespace", detail="service namespace is required"),
    Always("port", _check_service_port, zero=443),
    Optional("path", _check_url_path),
)


# --- rules ----------------------------------------------------------------------------------------


def _check_alone(values: Sequence[str], field: str, errors: Errors, *, what: str, wildcard: str = "*") -> None:
    if len(values) > 1 and wildcard in values:
        detail = f"if '{wildcard}' is present, must not specify other {what}"
        errors.append(invalid_value(field, values, detail))


def _check_not_empty(text: str, field: str, errors: Errors) -> None:
    if not text:
        errors.append(required(field))


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
    _check_alone(resources, field, errors, what="resources", wildcard="*/*")
    if "*" in resources and bare:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(field, resources, detail))


RULE: Final = Table(
    Required("operations", partial(_check_alone, what="operations")),
    Each("operations", Enum("*", "CONNECT", "CREATE", "DELETE", "UPDATE")),
    Required("apiGroups", partial(_check_alone, what="API groups")),
    Required("apiVersions", partial(_check_alone, what="API versions")),
    Each("apiVersions", _check_not_empty),
    Always("resources", _check_resources, zero=()),
    Pointer("scope", Enum("*", "Cluster", "Namespaced")),
)
WEBHOOK: Final = Table(
    Required("name", check_full_name),
    Each("rules", RULE),
    Pointer("failurePolicy", Enum(*FAILURE_POLICIES)),
    Pointer("matchPolicy", Enum(*MATCH_POLICIES)),
    RequiredPointer("sideEffects", Enum(*SIDE_EFFECTS), detail=f"must specify one of {', '.join(SIDE_EFFECTS)}"),
    Always(
        "timeoutSeconds",
        InvalidIf("not 1 <= {v} <= 30", "the timeout value must be between 1 and 30 seconds"),
        zero=10,
    ),
    Optional("namespaceSelector", check_selector),
    Optional("objectSelector", check_selector),
    Pointer("reinvocationPolicy", Enum("IfNeeded", "Never")),
    Always("clientConfig", _check_client, zero={}),
)

# --- expressions ----------------------------------------------------------------------------------


def _check_expression(expression: PolicyExpression, field: str, errors: Errors) -> None:
    if expression.error:
        errors.append(invalid_value(field, expression.text, expression.error))


def _check_conditions(conditions: Sequence[Obj], path: str, compiler: PolicyCompiler, errors: Errors) -> None:
    if len(conditions) > MAX_CONDITIONS:
        errors.append(too_many(path, len(conditions), MAX_CONDITIONS))
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        expression = condition.get("expression", "").strip()
        if not expression:
            errors.append(required(f"{path}[{index}].expression"))
        else:
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
    POLICY(spec, "spec", errors)
    _check_conditions(spec.get("matchConditions") or (), "spec.matchConditions", compiler, errors)
    for index, variable in enumerate(spec.get("variables") or ()):
        _check_variable(variable, f"spec.variables[{index}]", compiler, errors)
    validations, audits = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not audits:
        detail = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for index, validation in enumerate(validations):
        _check_validation(validation, f"spec.validations[{index}]", compiler, errors)
    _check_audits(obj["metadata"].get("name", ""), audits, compiler, errors)
    return errors


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


MATCH: Final = Table(
    Always("matchPolicy", Enum(*MATCH_POLICIES)),
    Optional("namespaceSelector", check_selector),
    Optional("objectSelector", check_selector),
    *(
        Each(member, Each("resourceNames", Format(names.path_segment), Unique()), RULE)
        for member in ("resourceRules", "excludeResourceRules")
    ),
)
POLICY: Final = Table(
    Always("failurePolicy", Enum(*FAILURE_POLICIES)),
    Struct("paramKind", _check_param_kind),
    RequiredPointer("matchConstraints", MATCH, Required("resourceRules")),
)


def _check_variable(variable: Obj, path: str, compiler: PolicyCompiler, errors: Errors) -> None:
    from farflung.machinery.cel.parser import RESERVED

    name = variable.get("name", "")
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif names.c_identifier(name) or name in RESERVED:
        errors.append(invalid_value(f"{path}.name", name, "name is not a valid CEL identifier"))
    if not variable.get("expression", "").strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        _check_expression(compiler.variable(name, variable["expression"]), f"{path}.expression", errors)


REASON: Final = Table(Pointer("reason", Enum("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")))


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
    REASON(validation, path, errors)


def _check_audits(policy: str, audits: Sequence[Obj], compiler: PolicyCompiler, errors: Errors) -> None:
    path = "spec.auditAnnotations"
    if len(audits) > MAX_AUDIT_ANNOTATIONS:
        detail = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
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


# --- bindings -------------------------------------------------------------------------------------


def _check_warned_once(actions: Sequence[str], field: str, errors: Errors) -> None:
    if {"Deny", "Warn"} <= set(actions):
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.append(invalid_value(field, actions, detail))


EXCLUSIVE: Final = ForbiddenField("name and selector are mutually exclusive")
BINDING: Final = Validation(
    Required("spec.policyName", Format(names.dns_subdomain)),
    Struct(
        "spec.paramRef",
        Optional("name", Format(names.path_segment)),
        Unless("name", "", IfPresent("selector", Always("name", EXCLUSIVE), Always("selector", EXCLUSIVE))),
        When("name", "", RequiredPointer("selector", named=ITSELF, detail="one of name or selector must be specified")),
        Optional("selector", check_selector),
        RequiredPointer("parameterNotFoundAction", Enum("Allow", "Deny")),
    ),
    Struct("spec.matchResources", MATCH, named="spec.matchResouces"),
    Each("spec.validationActions", Enum("Audit", "Deny", "Warn"), Unique()),
    Optional("spec.validationActions", _check_warned_once),
    Required("spec.validationActions", detail="at least one validation action is required"),
)


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


def uncalled(new: Obj, old: Obj | None) -> list[str]:
    """Warns that the hub does not call webhooks."""
    return ["webhooks are stored, but this server does not call them"] if old is None else []


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (POLICIES_GROUP, "ValidatingWebhookConfiguration"): _rules(
        webhook_defaults(), validate_webhooks, warnings=uncalled
    ),
    (POLICIES_GROUP, "MutatingWebhookConfiguration"): _rules(
        webhook_defaults(Default("reinvocationPolicy", "Never")), validate_webhooks, warnings=uncalled
    ),
    (POLICIES_GROUP, "ValidatingAdmissionPolicy"): _rules(
        Defaults(
            Default("spec.failurePolicy", "Fail"),
            Struct("spec.matchConstraints", *RESOURCES_DEFAULTS),
            Default("status", {}),
        ),
        validate_policy,
        prepare_create=new_status({}),
        prepare_update=keep_status,
        prepare_status=keep_spec,
        largest=LARGEST_FOLLOWED,
    ),
    (POLICIES_GROUP, "ValidatingAdmissionPolicyBinding"): _rules(
        Defaults(Default("spec", {}), Struct("spec.matchResources", *RESOURCES_DEFAULTS)),
        BINDING,
        largest=LARGEST_FOLLOWED,
    ),
}
