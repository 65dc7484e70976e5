"""Impersonation: the Impersonate-* headers, each of which requires a permission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from farflung.apis.names import AUTHENTICATION_GROUP, SERVICE_ACCOUNT
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, is_administrator
from farflung.machinery import names
from farflung.machinery.errors import bad_request

PREFIX: Final = "impersonate-"
EXTRA: Final = "impersonate-extra-"


def impersonated_user(sender: User, headers: Mapping[str, str], authorizer: Authorization, cluster: str) -> User:
    """The effective user of a request.  Raises 403 unless the sender may impersonate it."""
    if PREFIX not in "\n".join(headers):  # cheaper than a comparison with each name
        return sender
    if not any(name.startswith(PREFIX) for name in headers):
        return sender
    name = next(iter(values(headers, "impersonate-user")), "")
    groups = values(headers, "impersonate-group")
    uid = next(iter(values(headers, "impersonate-uid")), "")
    extra = tuple(sorted((key, values(headers, header)) for key, header in extra_headers(headers)))
    if not name:
        raise bad_request("requested impersonation without impersonating a user")
    for attributes in required_permissions(name, groups, uid, extra):
        authorizer.check(cluster, sender, attributes)
    # permissions of one cluster's roles, and ServiceAccounts, are only valid in that cluster
    everywhere = is_administrator(sender) and not name.startswith(SERVICE_ACCOUNT)
    reach = sender.cluster if everywhere else cluster
    return User(name, effective_groups(name, groups), uid, extra, reach)


def values(headers: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A repeated header has its values in separate lines, encoded in UTF-8."""
    sent = headers.get(name)
    return () if sent is None else tuple(sent.encode("latin-1", "replace").decode(errors="replace").split("\n"))


def extra_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for header in headers:
        if header.startswith(EXTRA) and header != EXTRA:
            yield unquote(header.removeprefix(EXTRA)), header


def required_permissions(
    name: str, groups: tuple[str, ...], uid: str, extra: tuple[tuple[str, tuple[str, ...]], ...]
) -> Iterator[Attributes]:
    """The permissions that the sender needs, in the order in which they are checked."""
    account = account_of(name)
    if account is None:
        yield Attributes("impersonate", resource="users", name=name)
    else:
        yield Attributes("impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
    for group in groups:
        yield Attributes("impersonate", resource="groups", name=group)
    for key, texts in extra:
        for text in texts:
            yield Attributes("impersonate", AUTHENTICATION_GROUP, "userextras", key, name=text)
    if uid:
        yield Attributes("impersonate", AUTHENTICATION_GROUP, "uids", name=uid)


def account_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of a ServiceAccount, from its user name."""
    parts = name.removeprefix(SERVICE_ACCOUNT).split(":") if name.startswith(SERVICE_ACCOUNT) else []
    if len(parts) != 2 or names.dns_label(parts[0]) or names.dns_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def effective_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The requested groups and those that every user of that name is in."""
    account = account_of(name)
    if not groups and account is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if name == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)
