"""Who may do what.

Administrators may do everything.  Whoever else is known may find out what is served and who they are.  Anybody may
ask for health and version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.resource import Resource
from farflung.hub.auth.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, is_administrator
from farflung.hub.request import Target
from farflung.machinery.errors import ApiError, bad_request, forbidden, unauthorized

PUBLIC: Final = frozenset({"healthz", "livez", "readyz", "version"})
DISCOVERY: Final = PUBLIC | {"api", "apis", "openapi"}
SELF_REVIEWS: Final = frozenset({"SelfSubjectAccessReview", "SelfSubjectReview", "SelfSubjectRulesReview"})


def check_path(user: User, method: str, path: str) -> None:
    """May the user read a document that is no resource?"""
    first = path.split("/", 2)[1]
    if is_administrator(user) or first in PUBLIC or (first in DISCOVERY and AUTHENTICATED in user.groups):
        return
    if user is ANONYMOUS:
        raise unauthorized()
    verb = "get" if method == "HEAD" else method.lower()
    raise ApiError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', {})


def allows(user: User, verb: str, resource: Resource) -> bool:
    if is_administrator(user):
        return True
    return verb == "create" and resource.kind in SELF_REVIEWS and AUTHENTICATED in user.groups


def check_resource(user: User, verb: str, resource: Resource, target: Target) -> None:
    if allows(user, verb, resource):
        return
    if user is ANONYMOUS:
        raise unauthorized()
    what = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {verb} resource "{what}" in API group "{resource.group}" {where}'
    raise forbidden(resource.group, resource.plural, target.name, why)


# --- impersonation --------------------------------------------------------------------------------

IMPERSONATION: Final = frozenset({"impersonate-user", "impersonate-group", "impersonate-uid"})
SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def impersonated(user: User, headers: Mapping[str, str]) -> User:
    """Whom a request is to be taken for.  Only administrators may be somebody else."""
    if IMPERSONATION.isdisjoint(headers):
        return user
    name = headers.get("impersonate-user")
    if not name:
        raise bad_request("requested impersonation without impersonating a user")
    if not is_administrator(user):
        why = f'User "{user.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
        raise forbidden("", "users", name, why)
    groups = tuple(group.strip() for group in headers.get("impersonate-group", "").split(",") if group.strip())
    if not groups and name.startswith(SERVICE_ACCOUNT):
        namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    if UNAUTHENTICATED not in groups and AUTHENTICATED not in groups:
        groups = (*groups, UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED)
    return User(name, groups, headers.get("impersonate-uid", ""))
