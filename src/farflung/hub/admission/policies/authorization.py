"""`authorizer`: how expressions of policies ask what somebody may do.

    authorizer.group('apps').resource('deployments').namespace('shop').check('create').allowed()
    authorizer.serviceAccount('shop', 'robot').path('/metrics').check('get').reason()
    authorizer.requestResource.check('delete').allowed()

Selectors may be given and are not looked at: RBAC has no opinion about them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from farflung.hub.auth.attributes import Attributes
from farflung.hub.auth.rbac.policy import Decision
from farflung.hub.auth.user import SERVICE_ACCOUNT, User
from farflung.machinery import names
from farflung.machinery.cel.declarations import Function, Overload
from farflung.machinery.cel.types import BOOL, STRING, Kind, Type
from farflung.machinery.cel.values import EvaluationError

AUTHORIZER: Final = Type(Kind.OPAQUE, "kubernetes.authorization.Authorizer")
PATH_CHECK: Final = Type(Kind.OPAQUE, "kubernetes.authorization.PathCheck")
GROUP_CHECK: Final = Type(Kind.OPAQUE, "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK: Final = Type(Kind.OPAQUE, "kubernetes.authorization.ResourceCheck")
DECISION: Final = Type(Kind.OPAQUE, "kubernetes.authorization.Decision")

COST_OF_CHECK: Final = 350_000

Decide = Callable[[User, Attributes], Decision]


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody whose rights can be asked for."""

    TYPE_NAME: ClassVar[str] = AUTHORIZER.name

    decide: Decide
    user: User
    cluster: str


@dataclass(frozen=True, slots=True)
class PathCheck:
    TYPE_NAME: ClassVar[str] = PATH_CHECK.name

    asking: Asking
    path: str


@dataclass(frozen=True, slots=True)
class GroupCheck:
    TYPE_NAME: ClassVar[str] = GROUP_CHECK.name

    asking: Asking
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    TYPE_NAME: ClassVar[str] = RESOURCE_CHECK.name

    asking: Asking
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    TYPE_NAME: ClassVar[str] = DECISION.name

    allowed: bool
    reason: str


def as_account(asking: Asking, namespace: str, name: str) -> Asking:
    if names.dns_subdomain(name):
        raise EvaluationError("Invalid service account name")
    if names.dns_label(namespace):
        raise EvaluationError("Invalid service account namespace")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return replace(asking, user=User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, cluster=asking.cluster))


def of_path(asking: Asking, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(asking, path)


def of_resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(check.asking, check.group, resource)


def check_path(check: PathCheck, verb: str) -> Decided:
    decision = check.asking.decide(check.asking.user, Attributes(verb, path=check.path))
    return Decided(decision.allowed, decision.reason)


def check_resource(check: ResourceCheck, verb: str) -> Decided:
    asked = Attributes(verb, check.group, check.resource, check.subresource, check.namespace, check.name)
    decision = check.asking.decide(check.asking.user, asked)
    return Decided(decision.allowed, decision.reason)


def cost_of_check(_: tuple[Any, ...], __: Any) -> int:
    return COST_OF_CHECK


def _member(name: str, *overloads: tuple[str, tuple[Type, ...], Type, Callable[..., Any]]) -> Function:
    cost = cost_of_check if name == "check" else None
    return Function(
        name,
        tuple(
            Overload(id, arguments, result, member=True, implementation=implementation, cost=cost)
            for id, arguments, result, implementation in overloads
        ),
    )


def _part(name: str) -> Function:
    """A function that says one more thing about the resource."""

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
        ("pathcheck_check", (PATH_CHECK, STRING), DECISION, check_path),
        ("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, check_resource),
    ),
    _member("allowed", ("decision_allowed", (DECISION,), BOOL, lambda decided: decided.allowed)),
    _member("reason", ("decision_reason", (DECISION,), STRING, lambda decided: decided.reason)),
    _member("errored", ("decision_errored", (DECISION,), BOOL, lambda decided: False)),
    _member("error", ("decision_error", (DECISION,), STRING, lambda decided: "")),
)
