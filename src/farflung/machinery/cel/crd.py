"""Compilation of the rules of a custom resource, `x-kubernetes-validations` of its schema.

    validations, errors = compile_validations(schema, "spec.validation.openAPIV3Schema")

The schema must be structural.  As in Kubernetes, errors in the form of rules come before errors in their
expressions, and expressions of a node are compiled only if all rules at the node and below have the right form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from farflung.machinery.cel.call_estimates import INFINITE
from farflung.machinery.cel.environment import Checked, ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.estimate import estimate
from farflung.machinery.cel.language.budget import COMPILED
from farflung.machinery.cel.language.types import BOOL, DYN, STRING, Type, optional_of
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.cel.schema_types import LARGEST_REQUEST, Declarations, Declared
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.turns import Paced, Steps

VISIT: Final = 100  #: work of going to one node
MAX_PER_RULE: Final = 10_000_000
MAX_PER_SCHEMA: Final = 100_000_000
WORTH_NAMING: Final = MAX_PER_SCHEMA // 100
MAX_NAMED: Final = 4  #: of the rules that an error about the cost of a schema lists
LONGEST_MESSAGE: Final = 2048
HINT: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared"
)
REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")

_LINE_BREAK: Final = re.compile(r"[\n\r]")
_HTML: Final = re.compile("[<>&\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One rule.  Its variables are `self` and `oldSelf`, both of the type of its node."""

    program: Checked
    message: str  #: empty: none
    message_expression: Checked | None
    reason: str  #: one of REASONS; FieldValueInvalid by default
    field_path: str  #: of the invalid field, relative to the node: `spec.labels[a]`; empty for the node itself
    uses_old_self: bool  #: in the rule: it applies to changes only, unless `oldSelf` is optional
    optional_old_self: bool  #: `oldSelf` is an optional value


@dataclass(frozen=True, slots=True)
class RuleNode:
    """A part of a schema with rules, or with parts that have rules."""

    type: Type  #: of the values that rules see; dyn if CEL cannot access them
    schema_type: str  #: `object`, `string`; empty for an int-or-string
    rules: tuple[ValidationRule, ...]
    properties: Mapping[str, RuleNode]  #: by key in JSON
    items: RuleNode | None
    additional: RuleNode | None
    list_keys: tuple[str, ...]  #: keys that correlate items before and after a change


Validations = RuleNode


def compile_validations(openapi_schema: Obj, path: str) -> tuple[Validations | None, list[FieldError]]:
    """The tree of the rules (None without rules) and their errors.  `path`: of the schema.  Raises TurnOver if the
    current task has an allowance that is too small."""
    return Paced(lambda: validation_steps(openapi_schema, path)).value


def validation_steps(openapi_schema: Obj, path: str) -> Steps[tuple[Validations | None, list[FieldError]]]:
    compiler = _Compiler(openapi_schema)
    try:
        node = yield from compiler.node(openapi_schema, _Place(path))
    except RecursionError:
        return None, [FieldError("Internal error", path, None, "the schema is nested too deeply")]
    errors = [*compiler.form_errors, *compiler.expression_errors, *compiler.total_errors(path)]
    return (None if errors else node), errors


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a node in the schema."""

    path: str
    cardinality: int | None = 1  #: maximum number of its values in an object; None: unbounded
    uncorrelatable: str | None = None  #: the outermost list whose items have no identity


class _Compiler:
    def __init__(self, root: Obj) -> None:
        self._types = Declarations(root)
        self.form_errors: list[FieldError] = []
        self.expression_errors: list[FieldError] = []
        self._total = 0
        self._expensive: list[tuple[int, str]] = []

    def node(self, schema: Any, place: _Place) -> Steps[RuleNode | None]:
        if not isinstance(schema, dict):
            return None
        yield VISIT
        errors_before = len(self.form_errors)
        additional = yield from self.node(
            schema.get("additionalProperties"), _child(schema, place, "additionalProperties")
        )
        properties = yield from self._properties(schema, place)
        items = yield from self.node(schema.get("items"), _items(schema, place))
        rules: list[ValidationRule] = []
        if schema.get("x-kubernetes-validations"):
            path = place.path
            for index, rule in enumerate(schema["x-kubernetes-validations"]):
                at = f"{path}.x-kubernetes-validations[{index}]"
                self.form_errors.extend(_message_errors(rule, at))
                self.form_errors.extend(_other_form_errors(rule, schema, at))
            if len(self.form_errors) == errors_before:
                rules = yield from self._rules(schema, place)
        if not (rules or properties or items or additional):
            return None
        declared = yield from self._declared(schema, place)
        of = declared.type if declared else DYN
        schema_type = "" if schema.get("x-kubernetes-int-or-string") else schema.get("type") or ""
        keys = schema.get("x-kubernetes-list-map-keys") or () if _is_map_list(schema) else ()
        return RuleNode(of, schema_type, tuple(rules), properties, items, additional, tuple(keys))

    def _declared(self, schema: Obj, place: _Place) -> Steps[Declared | None]:
        yield from self._types.find_all()
        return self._types.of(schema, f"selfType.{place.path}")

    def _properties(self, schema: Obj, place: _Place) -> Steps[dict[str, RuleNode]]:
        found: dict[str, RuleNode] = {}
        for key, child in sorted((schema.get("properties") or {}).items()):
            node = yield from self.node(child, _child(schema, place, f"properties[{key}]"))
            if node is not None:
                found[key] = node
        return found

    # --- expressions ------------------------------------------------------------------------------

    def _rules(self, schema: Obj, place: _Place) -> Steps[list[ValidationRule]]:
        path = f"{place.path}.x-kubernetes-validations"
        declared = yield from self._declared(schema, place)
        if declared is None:
            why = "failed to construct type information for x-kubernetes-validations rules"
            cause = "unable to convert structural schema to CEL declarations"
            self.expression_errors.append(FieldError("Internal error", path, None, f"internal error: {why}: {cause}"))
            return []
        cardinality = place.cardinality
        if cardinality is None:
            cardinality = LARGEST_REQUEST // (declared.shortest + 1)
        compiled: list[ValidationRule] = []
        for index, rule in enumerate(schema["x-kubernetes-validations"]):
            yield COMPILED * (len(rule["rule"]) + len(rule.get("messageExpression") or ""))
            one = self._rule(rule, schema, declared.type, cardinality, place.uncorrelatable, f"{path}[{index}]")
            if one is not None:
                compiled.append(one)
        return compiled

    def _rule(
        self, rule: Obj, schema: Obj, of: Type, cardinality: int, uncorrelatable: str | None, path: str
    ) -> ValidationRule | None:
        optional = bool(rule.get("optionalOldSelf"))
        environment = ExpressionEnvironment({"self": of, "oldSelf": optional_of(of) if optional else of}, KUBERNETES)
        program = self._program(environment, rule, f"{path}.rule")
        if program is None:
            return None
        cost = min(estimate(program, of).high * cardinality, INFINITE)
        self._observe(cost, "estimated rule cost", f"{path}.rule")
        message = self._message_expression(environment, rule, of, f"{path}.messageExpression")
        uses_old_self = "oldSelf" in program.references
        if uses_old_self and uncorrelatable:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            self.expression_errors.append(invalid_value(f"{path}.rule", rule["rule"], detail))
        elif not uses_old_self and rule.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            self.expression_errors.append(invalid_value(f"{path}.optionalOldSelf", optional, detail))
        return ValidationRule(
            program,
            (rule.get("message") or "").strip(),
            message,
            rule.get("reason") or "FieldValueInvalid",
            resolve_field_path(rule.get("fieldPath") or "", schema) or "",
            uses_old_self,
            optional,
        )

    def _program(self, environment: ExpressionEnvironment, rule: Obj, path: str) -> Checked | None:
        try:
            program = environment.compile(rule["rule"])
        except CompileError as error:
            detail = f"compilation failed: {error}"
        else:
            if program.type == BOOL:
                return program
            detail = "cel expression must evaluate to a bool"
        self.expression_errors.append(invalid_value(path, _shown_rule(rule), detail))
        return None

    def _message_expression(self, environment: ExpressionEnvironment, rule: Obj, of: Type, path: str) -> Checked | None:
        text = rule.get("messageExpression")
        if not text:
            return None
        try:
            program = environment.compile(text)
        except CompileError as error:
            detail = f"messageExpression compilation failed: {error}"
        else:
            if program.type == STRING:
                self._observe(estimate(program, of).high, "estimated messageExpression cost", path)
                return program
            detail = "messageExpression must evaluate to a string"
        self.expression_errors.append(invalid_value(path, _shown_rule(rule), detail))
        return None

    # --- costs ------------------------------------------------------------------------------------

    def _observe(self, cost: int, name: str, path: str) -> None:
        if cost > MAX_PER_RULE:
            self.expression_errors.append(field_forbidden(path, _excess(name, cost, MAX_PER_RULE)))
        self._total = min(self._total + cost, INFINITE)
        if cost >= WORTH_NAMING:
            self._expensive.append((cost, path))

    def total_errors(self, path: str) -> list[FieldError]:
        if self._total <= MAX_PER_SCHEMA:
            return []
        detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        most = sorted(self._expensive, key=lambda each: -each[0])[:MAX_NAMED]
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        total = field_forbidden(path, _excess(name, self._total, MAX_PER_SCHEMA))
        return [*(field_forbidden(where, detail) for _, where in most), total]


def _is_map_list(schema: Obj) -> bool:
    return schema.get("x-kubernetes-list-type") == "map"


def _child(schema: Obj, place: _Place, part: str) -> _Place:
    return _Place(f"{place.path}.{part}", _times(place.cardinality, _multiplicity(schema)), place.uncorrelatable)


def _items(schema: Obj, place: _Place) -> _Place:
    uncorrelatable = place.uncorrelatable
    if uncorrelatable is None and not _is_map_list(schema):
        uncorrelatable = place.path
    return _Place(f"{place.path}.items", _times(place.cardinality, _multiplicity(schema)), uncorrelatable)


def _times(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one * other, INFINITE)


def _multiplicity(schema: Obj) -> int | None:
    """The maximum number of items or entries of a value."""
    if schema.get("type") == "array":
        limit = schema.get("maxItems")
    elif schema.get("type") == "object" and schema.get("additionalProperties"):
        limit = schema.get("maxProperties")
    else:
        return 1
    return None if limit is None else max(int(limit), 0)


def _message_errors(rule: Obj, path: str) -> list[FieldError]:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    trimmed = message.strip()
    if not text:
        return [required(f"{path}.rule", "rule is not specified")]
    if message and not trimmed:
        return [invalid_value(f"{path}.message", message, "must be non-empty if specified")]
    if len(message.encode(errors="replace")) > LONGEST_MESSAGE:
        detail = f"must have a maximum length of {LONGEST_MESSAGE} characters"
        return [invalid_value(f"{path}.message", message[:10] + "...", detail)]
    if _LINE_BREAK.search(trimmed):
        return [invalid_value(f"{path}.message", message, "must not contain line breaks")]
    if _LINE_BREAK.search(text) and not trimmed:
        return [required(f"{path}.message", "must be specified if rule contains line breaks")]
    return []


def _other_form_errors(rule: Obj, schema: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    expression, field_path = rule.get("messageExpression") or "", rule.get("fieldPath") or ""
    if expression and not expression.strip():
        errors.append(required(f"{path}.messageExpression", "must be non-empty if specified"))
    if rule.get("reason") is not None and rule["reason"] not in REASONS:
        errors.append(not_supported(f"{path}.reason", rule["reason"], REASONS))
    if field_path and not field_path.strip():
        errors.append(invalid_value(f"{path}.fieldPath", field_path, "must be non-empty if specified"))
    if _LINE_BREAK.search(field_path):
        errors.append(invalid_value(f"{path}.fieldPath", field_path, "must not contain line breaks"))
    if field_path and resolve_field_path(field_path, schema) is None:
        errors.append(invalid_value(f"{path}.fieldPath", field_path, "must be a valid path"))
    return errors


def _shown_rule(rule: Obj) -> orjson.Fragment:
    """The rule as Go's encoder shows its struct, with what HTML might misunderstand escaped."""
    shown = {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = orjson.dumps(shown).decode()
    return orjson.Fragment(_HTML.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def _excess(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        by = "more than 100x"
    elif factor < 1.5:
        by = f"{factor:.6f}x"
    else:
        by = f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {by} ({HINT})"


_FIELD_PART: Final = re.compile(r"\.(?P<name>[^.\[\]']+)|\['(?P<quoted>(?:[^'\\]|\\[abfnrtv'\\])*)'\]")
_FIELD_ESCAPE: Final = re.compile(r"\\(.)")
_FIELD_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def resolve_field_path(text: str, schema: Obj) -> str | None:
    """The path as messages write it: `spec.labels[a]`.  None if the schema has no such field."""
    path = ""
    at = 0
    within: Any = schema
    while at < len(text):
        match = _FIELD_PART.match(text, at)
        if match is None or not isinstance(within, dict):
            return None
        name = match["name"]
        if name is None:
            name = _FIELD_ESCAPE.sub(lambda escape: _FIELD_ESCAPES.get(escape[1], escape[1]), match["quoted"])
        if within.get("properties"):
            within = within["properties"].get(name)
            path = f"{path}.{name}" if path else name
        else:
            within = within.get("additionalProperties")
            path = f"{path}[{name}]"
        if within is None or within is False:
            return None
        at = match.end()
    return path
