"""Evaluation of the rules of a custom resource, `x-kubernetes-validations`, on objects.

    validations = Validations(tree)                  once for a version of a CustomResourceDefinition
    validations.check(new, old, budget, warnings)    for every object: its errors

A rule that uses `oldSelf` needs an old value: the property of the same name, or the item with the same keys.  Items of
other lists have none.  The error of another rule about an unchanged value becomes a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.crd import RuleNode, ValidationRule
from farflung.machinery.cel.language.budget import MAX_WORK_PER_OBJECT, OVER, PER_CALL, PER_OBJECT, Meter, OverBudget
from farflung.machinery.cel.language.types import Type, TypeKind, optional_of
from farflung.machinery.cel.language.values import NO_SUCH_OVERLOAD, NONE, EvaluationError, OptionalValue
from farflung.machinery.errors import FieldError, Obj, duplicate, field_forbidden, go_quote, invalid_value, required
from farflung.machinery.turns import ALLOWANCE

ROOT: Final = "<nil>"  #: how Go prints the path of the object itself
LONGEST_MESSAGE: Final = 5 * 1024  #: bytes of the result of a messageExpression
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
MESSAGE_OUT_OF_BUDGET: Final = (
    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
)

VISIT: Final = 64  #: work of going to one value

Path = tuple[Any, str] | None  #: the parent's path and a suffix
Before = tuple["_Place", Any, Any] | None  #: a place, its value, and its old value


class Validations:
    """The rules of one schema, compiled.  It never changes, and is shared by all checks."""

    def __init__(self, tree: RuleNode) -> None:
        self._root = _Place(tree, Adapters())

    def check(
        self,
        new: Obj,
        old: Obj | None = None,
        budget: int = PER_OBJECT,
        warnings: list[str] | None = None,
    ) -> list[FieldError]:
        """The errors of an object that is valid by its schema.  `warnings` gets the errors of unchanged values."""
        walk = _Walk(budget, [] if warnings is None else warnings)
        with suppress(_StopError):
            walk.visit(self._root, None, new, old, None)
        return walk.errors


class _StopError(Exception):
    """No further rules are evaluated."""


class _Place:
    """A node of the tree with its programs."""

    __slots__ = ("adapters", "additional", "items", "keys", "properties", "rules", "schema_type", "type")

    def __init__(self, node: RuleNode, adapters: Adapters) -> None:
        self.type = node.type
        self.schema_type = node.schema_type
        self.adapters = adapters
        self.rules = tuple(_Rule(rule, node.type, adapters) for rule in node.rules)
        self.properties = tuple((name, _Place(child, adapters)) for name, child in node.properties.items())
        self.items = None if node.items is None else _Place(node.items, adapters)
        self.additional = None if node.additional is None else _Place(node.additional, adapters)
        self.keys = node.list_keys

    def optional(self, value: Any) -> OptionalValue:
        """A value as an optional one, which programs do not adapt."""
        if value is None:
            return NONE
        adapter = self.adapters.of(self.type)
        return OptionalValue(value if adapter is None else adapter(Meter(), value))


class _Rule:
    __slots__ = ("message", "name", "program", "rule")

    def __init__(self, rule: ValidationRule, of: Type, adapters: Adapters) -> None:
        variables = {"self": of, "oldSelf": optional_of(of) if rule.optional_old_self else of}
        self.rule = rule
        self.program = Program(rule.program.tree, variables, adapters)
        self.message = None
        if rule.message_expression is not None:
            self.message = Program(rule.message_expression.tree, variables, adapters)
        self.name = rule.message or rule.program.text.strip()  #: the name of the rule in errors

    def error(self, path: str, schema_type: str, detail: str) -> FieldError:
        if self.rule.field_path:
            path = self.rule.field_path if path == ROOT else f"{path}.{self.rule.field_path}"
        match self.rule.reason:
            case "FieldValueForbidden":
                return field_forbidden(path, detail)
            case "FieldValueRequired":
                return required(path, detail)
            case "FieldValueDuplicate":
                return duplicate(path, schema_type)
        return invalid_value(path, schema_type, detail)


class _Walk:
    """One check of one object."""

    __slots__ = ("allowance", "budget", "compared", "errors", "warnings", "worked")

    def __init__(self, budget: int, warnings: list[str]) -> None:
        self.compared: tuple[Before, bool] = (None, False)  #: the last comparison, because all items of a list share it
        self.budget = budget
        self.errors: list[FieldError] = []
        self.warnings = warnings
        self.worked = 0
        self.allowance = ALLOWANCE.get()

    # --- the way through the object ---------------------------------------------------------------

    def visit(self, place: _Place, path: Path, new: Any, old: Any, ancestor: Before) -> None:
        """`ancestor` is the nearest value around this one that has an old value, if this one has none."""
        if new is None:
            return
        before = ancestor if old is None else (place, new, old)
        if place.rules:
            self._apply(place, path, new, old, before)
        if type(new) is dict:
            self._visit_map(place, path, new, old if type(old) is dict else {}, before)
        elif type(new) is list and place.items is not None:
            items = place.items
            if self.allowance is not None:
                self.allowance.take(VISIT * len(new))
            olds = _by_keys(old, place.keys) if place.keys and type(old) is list else {}
            for index, item in enumerate(new):
                self.visit(items, (path, f"[{index}]"), item, olds.get(_keys_of(item, place.keys)), before)

    def _visit_map(self, place: _Place, path: Path, new: Obj, old: Obj, before: Before) -> None:
        additional = place.additional
        if self.allowance is not None:
            self.allowance.take(VISIT * len(new))
        if additional is not None:
            for key, value in new.items():
                self.visit(additional, (path, f"[{key}]"), value, old.get(key), before)
        for name, child in place.properties:
            value = new.get(name)
            if value is not None:
                self.visit(child, (path, f".{name}"), value, old.get(name), before)

    # --- rules ------------------------------------------------------------------------------------

    def _apply(self, place: _Place, path: Path, new: Any, old: Any, before: Before) -> None:
        if self.budget <= 0:
            self._stop(place, path, OUT_OF_BUDGET)
        for rule in place.rules:
            if rule.rule.uses_old_self and old is None and not rule.rule.optional_old_self:
                continue
            variables = {"self": new, "oldSelf": old}
            if rule.rule.optional_old_self:
                variables["oldSelf"] = place.optional(old)
            if not self._holds(rule, place, path, variables):
                self._refuse(rule, place, path, variables, before)

    def _holds(self, rule: _Rule, place: _Place, path: Path, variables: Mapping[str, Any]) -> bool:
        run = rule.program.start(variables, min(PER_CALL, self.budget))
        over: OverBudget | None = None
        failure = ""
        outcome: object = False
        try:
            outcome = rule.program.evaluate(run)
        except OverBudget as error:
            over = error
        except EvaluationError as error:
            failure = str(error)
        self.worked += run.worked
        if run.spent > self.budget or self.worked > MAX_WORK_PER_OBJECT:
            self._stop(place, path, OUT_OF_BUDGET)
        self.budget -= run.spent
        if over is not None:
            why = f"no further validation rules will be run due to call cost exceeds limit for rule: {rule.name}"
            self._stop(place, path, f"'{OVER}': {why}")
        if failure:
            self.errors.append(invalid_value(_written(path), place.schema_type, _failed(failure, rule)))
            return True
        return outcome is True

    def _refuse(self, rule: _Rule, place: _Place, path: Path, variables: Mapping[str, Any], before: Before) -> None:
        is_warning = not rule.rule.uses_old_self and self._is_unchanged(before)
        written = _written(path)
        stopped, detail = self._message(rule, variables)
        if stopped:
            error = invalid_value(written, place.schema_type, detail)
        else:
            error = rule.error(written, place.schema_type, detail)
        if is_warning:
            self.warnings.append(str(error))
        else:
            self.errors.append(error)
        if stopped:
            raise _StopError

    def _is_unchanged(self, before: Before) -> bool:
        if self.compared[0] is not before:
            self.compared = before, _unchanged(before)
        return self.compared[1]

    def _message(self, rule: _Rule, variables: Mapping[str, Any]) -> tuple[bool, str]:
        """The message, and whether it reports an exceeded budget."""
        text = ""
        if rule.message is not None and rule.rule.message_expression is not None:
            run = rule.message.start(variables, min(PER_CALL, self.budget))
            over = False
            try:
                text = str(rule.message.evaluate(run)).strip()
            except OverBudget:
                over = True
            except EvaluationError:
                pass
            if run.spent > self.budget:
                return True, MESSAGE_OUT_OF_BUDGET
            if over:
                text = go_quote(rule.rule.message_expression.text)
                why = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
                return True, f"{why}: {text}"
            self.budget -= run.spent
        if text and "\n" not in text and len(text.encode("utf-8", "replace")) <= LONGEST_MESSAGE:
            return False, text
        return False, rule.rule.message or f"failed rule: {rule.name}"

    def _stop(self, place: _Place, path: Path, why: str) -> None:
        self.errors.append(invalid_value(_written(path), place.schema_type, why))
        raise _StopError


def _failed(why: str, rule: _Rule) -> str:
    if why.startswith(NO_SUCH_OVERLOAD):
        unmatched = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{why}': {unmatched}: {rule.name}"
    return f"{why} evaluating rule: {rule.name}"


def _written(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return "".join(reversed(parts)).removeprefix(".") or ROOT


# --- old values -----------------------------------------------------------------------------------


def _keys_of(item: Any, keys: tuple[str, ...]) -> Any:
    """The key of an item; None if it lacks key fields."""
    if not keys or type(item) is not dict:
        return None
    values = tuple(item.get(key) for key in keys)
    return None if any(type(value) in (dict, list) for value in values) else values


def _by_keys(items: list[Any], keys: tuple[str, ...]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(_keys_of(item, keys), item)
    found.pop(None, None)
    return found


def _unchanged(before: Before) -> bool:
    if before is None:
        return False
    place, new, old = before
    return _same(place.type, new, old)


def _same(of: Type, new: Any, old: Any) -> bool:
    """Whether two values are the same; items with keys may have changed their places."""
    if type(new) is not type(old):
        return False
    if type(new) is dict:
        if new.keys() != old.keys():
            return False
        types = {field.property: field.type for field in of.fields.values()} if of.kind is TypeKind.OBJECT else {}
        inner = of.parameters[1] if of.kind is TypeKind.MAP else of
        return all(
            _same(types.get(key, inner), value, old[key])
            if key in types or of.kind is TypeKind.MAP
            else value == old[key]
            for key, value in new.items()
        )
    if type(new) is list and of.kind is TypeKind.LIST and of.list_type == "map":
        olds = _by_keys(old, of.list_keys)
        return len(new) == len(old) and all(
            (key := _keys_of(item, of.list_keys)) in olds and _same(of.parameters[0], item, olds[key]) for item in new
        )
    return bool(new == old)
