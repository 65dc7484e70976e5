"""CEL expressions of admission policies: their variables and types, and their compilation.

Objects and parameters have the type dyn, since a policy may match several kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.apis.admissionregistration import authorizer
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.generator import Computed
from farflung.machinery.cel.language.budget import COMPILED
from farflung.machinery.cel.language.declarations import Functions, functions
from farflung.machinery.cel.language.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Type,
    TypeField,
    TypeKind,
    list_of,
    map_of,
    object_type,
)
from farflung.machinery.cel.language.values import RUN_TIME_NAMES
from farflung.machinery.cel.library import KUBERNETES
from farflung.machinery.errors import Obj
from farflung.machinery.turns import Steps, spend

FUNCTIONS: Final[Functions] = functions(KUBERNETES.values(), authorizer.LIBRARY)

TEXTS: Final = list_of(STRING)
LABELS: Final = map_of(STRING, STRING)


def _object(name: str, fields: Mapping[str, Type]) -> Type:
    return object_type(f"kubernetes.{name}", {name: TypeField(of, name) for name, of in fields.items()})


KIND: Final = _object("GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
RESOURCE: Final = _object("GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
USER_INFO: Final = _object(
    "UserInfo", {"username": STRING, "uid": STRING, "groups": TEXTS, "extra": map_of(STRING, TEXTS)}
)
REQUEST: Final = _object(
    "AdmissionRequest",
    {
        "kind": KIND,
        "resource": RESOURCE,
        "subResource": STRING,
        "requestKind": KIND,
        "requestResource": RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": USER_INFO,
        "dryRun": BOOL,
        "options": DYN,
    },
)
NAMESPACE_METADATA: Final = _object(
    "NamespaceMetadata",
    {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": LABELS,
        "annotations": LABELS,
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": TEXTS,
    },
)
NAMESPACE_CONDITION: Final = _object(
    "NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
NAMESPACE: Final = _object(
    "Namespace",
    {
        "metadata": NAMESPACE_METADATA,
        "spec": _object("NamespaceSpec", {"finalizers": TEXTS}),
        "status": _object("NamespaceStatus", {"conditions": list_of(NAMESPACE_CONDITION), "phase": STRING}),
    },
)

OBJECTS: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "request": REQUEST,
    "namespaceObject": NAMESPACE,
}
PARAMS: Final[Mapping[str, Type]] = {"params": DYN}
AUTHORIZER: Final[Mapping[str, Type]] = {
    "authorizer": authorizer.AUTHORIZER,
    "authorizer.requestResource": authorizer.RESOURCE_CHECK,
}
VARIABLES: Final = "variables"

#: the names of everything that an evaluation is given, whether an expression may use it or not
GIVEN: Final[Mapping[str, Type]] = {VARIABLES: DYN, **OBJECTS, **PARAMS, **AUTHORIZER}


# --- The expressions of a policy, compiled, or what is wrong with them ----------------------------

MAX_EXPRESSIONS: Final = 1000  #: of one policy
MAX_TEXT: Final = 200_000  #: characters of its expressions

_SCALARS: Final = frozenset(
    {
        TypeKind.BOOL,
        TypeKind.BYTES,
        TypeKind.DOUBLE,
        TypeKind.DURATION,
        TypeKind.INT,
        TypeKind.NULL,
        TypeKind.STRING,
        TypeKind.TIMESTAMP,
        TypeKind.UINT,
    }
)


@dataclass(frozen=True, slots=True)
class PolicyExpression:
    text: str
    program: Program | None  #: None if it cannot be evaluated
    error: str = ""  #: why


class PolicyCompiler:
    """Compiles one policy: later expressions know the variables that were compiled before."""

    def __init__(self, *, params: bool, variables: bool) -> None:
        self._given: Mapping[str, Type] = {**OBJECTS, **(PARAMS if params else {})}
        self._fields: dict[str, TypeField] = {}  #: of `variables`, so far
        self._composed: dict[str, Type] = dict(self._given)
        if variables:
            self._composed[VARIABLES] = object_type(f"kubernetes.{VARIABLES}", self._fields)
        self._computed: dict[str, Computed] = {}
        self._adapters = Adapters()

    def condition(self, text: str) -> PolicyExpression:
        """A condition of a match: it is about the request alone, and has no variables."""
        return self._compiled(text, {**self._given, **AUTHORIZER}, (BOOL,))

    def variable(self, name: str, text: str) -> PolicyExpression:
        try:
            checked = ExpressionEnvironment({**self._composed, **AUTHORIZER}, FUNCTIONS).compile(text)
        except CompileError as error:
            expression, of = PolicyExpression(text, None, f"compilation failed: {error}"), DYN
        else:
            expression = PolicyExpression(text, Program(checked.tree, GIVEN, self._adapters, self._computed))
            of = _kept(checked.type)
        self._fields[name] = TypeField(of, name)
        self._composed[f"{VARIABLES}.{name}"] = of
        self._computed[f"{VARIABLES}.{name}"] = Computed(VARIABLES, name)
        return expression

    def validation(self, text: str) -> PolicyExpression:
        return self._compiled(text, {**self._composed, **AUTHORIZER}, (BOOL,))

    def message(self, text: str) -> PolicyExpression:
        return self._compiled(text, self._composed, (STRING,))

    def audit(self, text: str) -> PolicyExpression:
        return self._compiled(text, {**self._composed, **AUTHORIZER}, (STRING, NULL))

    def _compiled(self, text: str, given: Mapping[str, Type], results: tuple[Type, ...]) -> PolicyExpression:
        try:
            checked = ExpressionEnvironment(given, FUNCTIONS).compile(text)
        except CompileError as error:
            return PolicyExpression(text, None, f"compilation failed: {error}")
        if checked.type in results:
            return PolicyExpression(text, Program(checked.tree, GIVEN, self._adapters, self._computed))
        wanted = f"one of [{' '.join(map(_shown, results))}]" if len(results) > 1 else _shown(results[0])
        return PolicyExpression(text, None, f"must evaluate to {wanted} but got {_shown(checked.type)}")


def _kept(of: Type) -> Type:
    """The type of a variable at its use: scalars, and lists and maps of them, keep their type; others become dyn."""
    if of.kind in _SCALARS:
        return of
    if of.kind is TypeKind.LIST:
        return list_of(_kept(of.parameters[0]))
    if of.kind is TypeKind.MAP:
        return map_of(_kept(of.parameters[0]), _kept(of.parameters[1]))
    return DYN


def _shown(of: Type) -> str:
    name = RUN_TIME_NAMES.get(of.name, of.name)
    return f"{name}({', '.join(map(_shown, of.parameters))})" if of.parameters else name


# --- whole policies -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyValidation:
    expression: PolicyExpression
    message: str
    message_expression: PolicyExpression | None
    reason: str


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Everything of a policy that is evaluated."""

    conditions: tuple[PolicyExpression, ...]
    variables: Mapping[str, PolicyExpression]
    validations: tuple[PolicyValidation, ...]
    audits: Mapping[str, PolicyExpression]  #: by key


def policy_steps(spec: Obj) -> Steps[CompiledPolicy]:
    """Compile a valid policy."""
    compiler = PolicyCompiler(params=spec.get("paramKind") is not None, variables=bool(spec.get("variables")))
    conditions: list[PolicyExpression] = []
    for one in spec.get("matchConditions") or ():
        yield COMPILED * len(one["expression"])
        conditions.append(compiler.condition(one["expression"]))
    variables: dict[str, PolicyExpression] = {}
    for one in spec.get("variables") or ():
        yield COMPILED * len(one["expression"])
        variables[one["name"]] = compiler.variable(one["name"], one["expression"])
    validations: list[PolicyValidation] = []
    for one in spec.get("validations") or ():
        expression, message = one["expression"], one.get("messageExpression")
        yield COMPILED * (len(expression) + len(message or ""))
        compiled = compiler.validation(expression), one.get("message", "").strip()
        reason = one.get("reason") or "Invalid"
        validations.append(PolicyValidation(*compiled, compiler.message(message) if message else None, reason))
    audits: dict[str, PolicyExpression] = {}
    for one in spec.get("auditAnnotations") or ():
        yield COMPILED * len(one["valueExpression"])
        audits[one["key"]] = compiler.audit(one["valueExpression"])
    return CompiledPolicy(tuple(conditions), variables, tuple(validations), audits)


def excess(spec: Obj) -> str:
    """Why the expressions of a policy are too large to compile; empty if they are not.  Raises TurnOver if the current
    task has an allowance that is too small for that."""
    texts = list(_texts(spec))
    if len(texts) > MAX_EXPRESSIONS:
        return f"more than {MAX_EXPRESSIONS} expressions are not supported"
    if sum(map(len, texts)) > MAX_TEXT:
        return f"expressions of more than {MAX_TEXT} characters are not supported"
    spend(COMPILED * sum(map(len, texts)))
    return ""


def _texts(spec: Obj) -> Iterable[str]:
    for part in ("matchConditions", "variables", "validations", "auditAnnotations"):
        for one in spec.get(part) or ():
            for name in ("expression", "messageExpression", "valueExpression"):
                if text := one.get(name):
                    yield text
