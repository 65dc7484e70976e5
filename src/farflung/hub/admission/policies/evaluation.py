"""Evaluation of one policy for one request.

    decide(compiled, given, fails=True, limit=10_000_000) ─► PolicyDecision

It terminates: every expression has a cost limit, and so have all expressions of a policy together.  It raises TurnOver
if the current task has an allowance, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, cast

import orjson

from farflung.apis.admissionregistration.authorizer import AuthorizerValue, DecisionValue, ResourceCheck
from farflung.apis.admissionregistration.expressions import (
    VARIABLES,
    CompiledPolicy,
    PolicyExpression,
    PolicyValidation,
    policy_steps,
)
from farflung.lib.worker_pool import Ask
from farflung.machinery.cel.language.budget import PER_CALL, PER_OBJECT, OverBudget
from farflung.machinery.cel.language.values import EvaluationError, type_name
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.turns import at_once

AUTHORIZER: Final = "authorizer"
REQUEST_RESOURCE: Final = "authorizer.requestResource"
PER_POLICY: Final = PER_OBJECT  #: cost limit of the validations of a policy, for one binding and parameter
OF_CONDITIONS: Final = PER_OBJECT // 4  #: cost limit of its matchConditions
LONGEST_MESSAGE: Final = 5 * 1024  #: bytes of a message
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"

_UNKNOWN: Final = object()
_UNDER_WAY: Final = object()


@dataclass(frozen=True, slots=True)
class Objection:
    message: str
    reason: str = "Invalid"


@dataclass(slots=True)
class PolicyDecision:
    objections: list[Objection] = field(default_factory=list)  #: handled by the binding's validationActions
    failures: list[Objection] = field(default_factory=list)  #: refuse the request in any case
    annotations: list[str] = field(default_factory=list)  #: keys of audit annotations
    spent: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of an expression, in place of its value."""

    text: str


class _OutOfBudgetError(Exception):
    """The expressions together exceed their cost limit."""


class Composition:
    """`variables`: each is evaluated when it is first used.  Its cost counts for the policy, not for the expression."""

    __slots__ = ("_expressions", "_given", "_values", "left", "spent", "worked")

    def __init__(self, expressions: Mapping[str, PolicyExpression], given: Mapping[str, Any]) -> None:
        self._expressions = expressions
        self._given = {**given, VARIABLES: self}
        self._values: dict[str, Any] = {}
        self.left = PER_CALL  #: cost limit of one expression
        self.spent = 0
        self.worked = 0  #: of all evaluations, because their values may share data

    @property
    def given(self) -> Mapping[str, Any]:
        return self._given

    def get(self, name: str) -> object:
        """For `has`: whether the variable exists."""
        return True if name in self._expressions else None

    def value(self, name: str) -> Any:
        found = self._values.get(name, _UNKNOWN)
        if found is _UNKNOWN:
            self._values[name] = _UNDER_WAY
            found = self._values[name] = self._evaluated(name)
        if found is _UNDER_WAY:
            raise EvaluationError(f"composited variable {go_quote(name)} fails to evaluate: it refers to itself")
        if type(found) is _Failure:
            raise EvaluationError(found.text)
        return found

    def _evaluated(self, name: str) -> Any:
        expression = self._expressions[name]
        if expression.program is None:
            return _Failure(f"composited variable {go_quote(name)} fails to compile: {expression.error}")
        run = expression.program.start(self._given, max(self.left - self.spent, 0), self.worked)
        try:
            return expression.program.evaluate(run)
        except (EvaluationError, OverBudget) as error:
            return _Failure(f"composited variable {go_quote(name)} fails to evaluate: {error}")
        finally:
            self.spent += run.spent
            self.worked = max(self.worked, run.worked)


class _Evaluation:
    """Expressions that share variables and a cost limit."""

    __slots__ = ("_composition", "_limit", "spent")

    def __init__(self, compiled: CompiledPolicy, given: Mapping[str, Any], limit: int) -> None:
        self._composition = Composition(compiled.variables, given)
        self._limit = limit
        self.spent = 0

    def value(self, expression: PolicyExpression) -> Any:
        """The value, or a _Failure.  Raises _OutOfBudgetError."""
        program = expression.program
        if program is None:
            return _Failure(f"compilation error: {expression.error}")
        composition = self._composition
        composition.left = min(PER_CALL, self._limit - self.spent)
        run = program.start(composition.given, composition.left, composition.worked)
        value: Any
        try:
            value = program.evaluate(run)
        except (EvaluationError, OverBudget) as error:
            value = _Failure(f"expression '{expression.text}' resulted in error: {error}")
        composition.worked = max(composition.worked, run.worked)
        self.spent += run.spent + composition.spent
        composition.spent = 0
        if self.spent > self._limit:
            raise _OutOfBudgetError
        return value


def decide(
    compiled: CompiledPolicy, given: Mapping[str, Any], *, fails: bool, limit: int = PER_POLICY
) -> PolicyDecision:
    """`given`: all values except the variables; `fails`: whether failurePolicy is Fail."""
    verdict = PolicyDecision()
    if compiled.conditions:
        conditions = _Evaluation(compiled, given, min(OF_CONDITIONS, limit))
        concerned = _conditions_hold(conditions, compiled.conditions, verdict, fails=fails)
        verdict.spent += conditions.spent
        if not concerned:
            return verdict
    validating = _Evaluation(compiled, given, limit)
    try:
        for validation in compiled.validations:
            _validate(validating, validation, verdict, fails=fails)
    except _OutOfBudgetError:
        verdict.objections = [Objection(OUT_OF_BUDGET)] if fails else []
        return verdict
    finally:
        verdict.spent += validating.spent
    if compiled.audits:
        _annotate(compiled, given, verdict, fails=fails, limit=limit)
    return verdict


def _conditions_hold(
    evaluation: _Evaluation, conditions: Iterable[PolicyExpression], verdict: PolicyDecision, *, fails: bool
) -> bool:
    """A false condition decides; otherwise errors do."""
    errors: list[str] = []
    try:
        for condition in conditions:
            value = evaluation.value(condition)
            if value is False:
                return False
            if type(value) is _Failure:
                errors.append(value.text)
    except _OutOfBudgetError:
        errors = [OUT_OF_BUDGET]
    if errors and fails:
        distinct = list(dict.fromkeys(errors))
        verdict.objections.append(Objection(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"))
    return not errors


def _validate(evaluation: _Evaluation, validation: PolicyValidation, verdict: PolicyDecision, *, fails: bool) -> None:
    value = evaluation.value(validation.expression)
    if value is True:
        return
    if type(value) is not _Failure:
        verdict.objections.append(Objection(_message(evaluation, validation), validation.reason))
    elif fails:
        verdict.objections.append(Objection(value.text))


def _message(evaluation: _Evaluation, validation: PolicyValidation) -> str:
    message: Any = ""
    if validation.message_expression is not None:
        message = evaluation.value(validation.message_expression)
        message = message.strip() if type(message) is str else ""
    if message and "\n" not in message and len(message.encode("utf-8", "replace")) <= LONGEST_MESSAGE:
        return str(message)
    return validation.message or f"failed expression: {validation.expression.text.strip()}"


def _annotate(
    compiled: CompiledPolicy, given: Mapping[str, Any], verdict: PolicyDecision, *, fails: bool, limit: int
) -> None:
    evaluation = _Evaluation(compiled, given, limit)
    try:
        for key, expression in compiled.audits.items():
            value = evaluation.value(expression)
            if type(value) is str:
                if value.strip():
                    verdict.annotations.append(key)
            elif type(value) is not _Failure:
                _refuse_annotation(expression, value, verdict)
            elif fails:
                verdict.failures.append(Objection(value.text))
    except _OutOfBudgetError:
        verdict.objections = [Objection(OUT_OF_BUDGET)] if fails else []
    verdict.spent += evaluation.spent


def _refuse_annotation(expression: PolicyExpression, value: Any, verdict: PolicyDecision) -> None:
    if value is not None:
        why = f"valueExpression '{expression.text}' resulted in unsupported return type: {type_name(value)}. "
        verdict.failures.append(Objection(why + "Return type must be either string or null."))


# --- in a worker process --------------------------------------------------------------------------

#: group, resource, subresource, namespace and name
ResourceParts = tuple[str, str, str, str, str]
#: the namespace and name of a ServiceAccount (None: the user of the request), a path or resource, and a verb
PermissionQuestion = tuple[tuple[str, str] | None, str | ResourceParts, str]


def sent(given: Obj) -> tuple[Obj, ResourceParts]:
    """What expressions are given, for a worker: without the permissions, which it asks for."""
    values = {name: value for name, value in given.items() if name not in (AUTHORIZER, REQUEST_RESOURCE)}
    return values, parts_of(given[REQUEST_RESOURCE])


def parts_of(check: ResourceCheck) -> ResourceParts:
    return check.group, check.resource, check.subresource, check.namespace, check.name


def decide_in_worker(
    ask: Ask, spec: bytes, values: Obj, resource: ResourceParts, fails: bool, limit: int
) -> PolicyDecision:
    permissions = AskedPermissions(ask)
    given = {**values, AUTHORIZER: permissions, REQUEST_RESOURCE: ResourceCheck(permissions, *resource)}
    return decide(policy_of(spec), given, fails=fails, limit=limit)


@lru_cache(maxsize=64)
def policy_of(spec: bytes) -> CompiledPolicy:
    """A policy, compiled once per worker."""
    return at_once(policy_steps(orjson.loads(spec)))


@dataclass(frozen=True, slots=True)
class AskedPermissions(AuthorizerValue):
    """The `authorizer` of expressions in a worker."""

    ask: Ask
    account: tuple[str, str] | None = None

    def as_service_account(self, namespace: str, name: str) -> AuthorizerValue:
        return replace(self, account=(namespace, name))

    def check_path(self, path: str, verb: str) -> DecisionValue:
        return cast(DecisionValue, self.ask((self.account, path, verb)))

    def check_resource(self, check: ResourceCheck, verb: str) -> DecisionValue:
        return cast(DecisionValue, self.ask((self.account, parts_of(check), verb)))


def answered(question: PermissionQuestion, permissions: AuthorizerValue) -> DecisionValue:
    """In the hub: the answer for the user of the request."""
    account, asked, verb = question
    if account is not None:
        permissions = permissions.as_service_account(*account)
    if isinstance(asked, str):
        return permissions.check_path(asked, verb)
    return permissions.check_resource(ResourceCheck(permissions, *asked), verb)
