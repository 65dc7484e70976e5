"""`authorizer`: the CEL library by which expressions of policies check permissions.

    authorizer.group('apps').resource('deployments').namespace('shop').check('create').allowed()
    authorizer.serviceAccount('shop', 'robot').path('/metrics').check('get').reason()
    authorizer.requestResource.check('delete').allowed()

Field and label selectors are accepted and ignored: RBAC does not know them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from farflung.machinery import names
from farflung.machinery.cel.language.budget import Meter, Metered
from farflung.machinery.cel.language.declarations import Function, Overload
from farflung.machinery.cel.language.types import BOOL, STRING, Type, TypeKind
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library.costs import COST_OF_CHECK, of_authorization

AUTHORIZER: Final = Type(TypeKind.OPAQUE, "kubernetes.authorization.Authorizer")
PATH_CHECK: Final = Type(TypeKind.OPAQUE, "kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = Type(TypeKind.OPAQUE, "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = Type(TypeKind.OPAQUE, "kubernetes.authorization.ResourceCheck")
_WORK_OF_CHECK: Final = 3_000

DECISION: Final = Type(TypeKind.OPAQUE, "kubernetes.authorization.Decision")


class AuthorizerValue(ABC):
    """The permissions of one user."""

    TYPE_NAME: ClassVar[str] = AUTHORIZER.name

    @abstractmethod
    def as_service_account(self, namespace: str, name: str) -> AuthorizerValue:
        """The permissions of a ServiceAccount."""

    @abstractmethod
    def check_path(self, path: str, verb: str) -> DecisionValue: ...

    @abstractmethod
    def check_resource(self, check: ResourceCheck, verb: str) -> DecisionValue: ...


@dataclass(frozen=True, slots=True)
class PathCheck:
    TYPE_NAME: ClassVar[str] = PATH_CHECK.name

    authorizer: AuthorizerValue
    path: str

    def decide(self, verb: str) -> DecisionValue:
        return self.authorizer.check_path(self.path, verb)


@dataclass(frozen=True, slots=True)
class GroupCheck:
    TYPE_NAME: ClassVar[str] = GROUP_CHECK.name

    authorizer: AuthorizerValue
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    TYPE_NAME: ClassVar[str] = RESOURCE_CHECK.name

    authorizer: AuthorizerValue
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def decide(self, verb: str) -> DecisionValue:
        return self.authorizer.check_resource(self, verb)


@dataclass(frozen=True, slots=True)
class DecisionValue:
    TYPE_NAME: ClassVar[str] = DECISION.name

    allowed: bool
    reason: str


def as_account(authorizer: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if names.dns_subdomain(name):
        raise EvaluationError("Invalid service account name")
    if names.dns_label(namespace):
        raise EvaluationError("Invalid service account namespace")
    return authorizer.as_service_account(namespace, name)


def of_path(authorizer: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(authorizer, path)


def of_resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(check.authorizer, check.group, resource)


def _checked(meter: Meter, check: PathCheck | ResourceCheck, verb: str) -> DecisionValue:
    """It takes much less time than its cost."""
    meter.forgive(COST_OF_CHECK)
    meter.work(_WORK_OF_CHECK)
    return check.decide(verb)


def _member(name: str, *overloads: tuple[str, tuple[Type, ...], Type, Callable[..., Any]]) -> Function:
    cost = of_authorization if name == "check" else None
    return Function(
        name,
        tuple(
            Overload(id, arguments, result, member=True, implementation=implementation, cost=cost)
            for id, arguments, result, implementation in overloads
        ),
    )


def _part(name: str) -> Function:
    """A function that sets one attribute of the resource to check."""

    def with_part(check: ResourceCheck, value: str) -> ResourceCheck:
        changed: dict[str, Any] = {name: value}
        return replace(check, **changed)

    return _member(name, (f"resourcecheck_{name}", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, with_part))


def _selector(name: str) -> Function:
    of = (RESOURCE_CHECK, STRING)
    return _member(name, (f"authorizer_{name.lower()}", of, RESOURCE_CHECK, lambda check, selector: check))


LIBRARY: Final = (
    _member("path", ("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, of_path)),
    _member("group", ("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck)),
    _member("serviceAccount", ("authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, as_account)),
    _member("resource", ("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, of_resource)),
    _part("subresource"),
    _part("namespace"),
    _part("name"),
    _selector("fieldSelector"),
    _selector("labelSelector"),
    _member(
        "check",
        (
            "pathcheck_check",
            (PATH_CHECK, STRING),
            DECISION,
            Metered(_checked),
        ),
        (
            "resourcecheck_check",
            (RESOURCE_CHECK, STRING),
            DECISION,
            Metered(_checked),
        ),
    ),
    _member("allowed", ("decision_allowed", (DECISION,), BOOL, lambda decided: decided.allowed)),
    _member("reason", ("decision_reason", (DECISION,), STRING, lambda decided: decided.reason)),
    _member("errored", ("decision_errored", (DECISION,), BOOL, lambda decided: False)),
    _member("error", ("decision_error", (DECISION,), STRING, lambda decided: "")),
)
