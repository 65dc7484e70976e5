"""Nobody gives what they do not have: checks of roles and bindings before they are written.

Whoever may `escalate` a role, or `bind` one, is free of them, and so are administrators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farflung.apis.names import RBAC_GROUP
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.rbac.coverage import described, missing, quoted
from farflung.hub.auth.rbac.policy import aggregate
from farflung.hub.auth.rbac.rules import Rule, rule_of
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import Target
from farflung.hub.request.user import User, is_administrator
from farflung.machinery.errors import ApiError, Obj, forbidden, go_quote, not_found

FULL_AUTHORITY: Final = (
    rule_of({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
    rule_of({"verbs": ["*"], "nonResourceURLs": ["*"]}),
)
ROLES: Final = ("roles", "clusterroles")


def check_no_escalation(authorizer: Authorizer, user: User, target: Target, new: Obj, old: Obj | None) -> None:
    """Raises 403 if a role or binding, as it is about to be written, allows more than its author may do."""
    if target.group != RBAC_GROUP or is_administrator(user) or (old is not None and only_releases(new, old)):
        return
    if target.plural in ROLES:
        check_role(authorizer, user, target, new, old or {})
    else:
        check_binding(authorizer, user, target, new)


def only_releases(new: Obj, old: Obj) -> bool:
    """Nothing differs but who owns the object and what holds it: the garbage collector must be able to finish."""
    freely = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation")
    return all(
        _without(new["metadata"], freely) == _without(old["metadata"], freely)
        if part == "metadata"
        else new.get(part) == old.get(part)
        for part in new.keys() | old.keys()
    )


def _without(metadata: Obj, names: Sequence[str]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in names}


def check_role(authorizer: Authorizer, user: User, target: Target, new: Obj, old: Obj) -> None:
    escalate = Attributes("escalate", RBAC_GROUP, target.plural, "", target.namespace, target.name)
    if authorizer.decide(target.cluster, user, escalate).allowed:
        return
    wanted = [rule_of(rule) for rule in new.get("rules") or ()]
    if problem := not_held(authorizer, user, target, wanted):
        raise refused(target, new, problem)
    aggregates = new.get("aggregationRule") is not None or old.get("aggregationRule") is not None
    if aggregates and not_held(authorizer, user, target, FULL_AUTHORITY):
        raise refused(target, new, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(authorizer: Authorizer, user: User, target: Target, new: Obj) -> None:
    role = new.get("roleRef") or {}
    kind, name = role.get("kind", ""), role.get("name", "")
    plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(kind)
    if plural is None:
        return  # it will be found invalid
    bind = Attributes("bind", role.get("apiGroup", ""), plural, "", target.namespace, name)
    if authorizer.decide(target.cluster, user, bind).allowed:
        return
    bound = authorizer.role(target.cluster, kind, target.namespace, name)
    if bound is None:
        raise not_found(RBAC_GROUP, target.plural, name)
    if problem := not_held(authorizer, user, target, bound.rules):
        raise refused(target, new, problem)


def not_held(authorizer: Authorizer, user: User, target: Target, wanted: Sequence[Rule]) -> str:
    """What the user would give without having it; empty if there is nothing."""
    owned, errors = authorizer.rules_of(target.cluster, user, target.namespace)
    lacking = missing(owned, wanted)
    if not lacking:
        return ""
    text = (
        f"user {go_quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions not "
        "currently held:\n" + "\n".join(described(lacking))
    )
    return f"{text}; resolution errors: [{aggregate(errors)}]" if errors else text


def refused(target: Target, new: Obj, why: str) -> ApiError:
    return forbidden(RBAC_GROUP, target.plural, target.name or new["metadata"].get("name", ""), why)
