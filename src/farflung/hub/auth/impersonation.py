"""Taking a request for somebody else's: the Impersonate-* headers, each of them subject to access control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.hub.request.attributes import Attributes, Authorization
from farflung.hub.request.user import ANONYMOUS, AUTHENTICATED, SERVICE_ACCOUNT, UNAUTHENTICATED, User, is_administrator
from farflung.machinery import names
from farflung.machinery.errors import bad_request

PREFIX: Final = "impersonate-"
EXTRA: Final = "impersonate-extra-"


def impersonated(sender: User, headers: Mapping[str, str], authorizer: Authorization, cluster: str) -> User:
    """Whom a request is to be taken for.  Raises 403 unless the sender may be all of that."""
    if not any(name.startswith(PREFIX) for name in headers):
        return sender
    name = next(iter(values(headers, "impersonate-user")), "")
    groups = values(headers, "impersonate-group")
    uid = next(iter(values(headers, "impersonate-uid")), "")
    extra = tuple(sorted((key, values(headers, header)) for key, header in extra_headers(headers)))
    if not name:
        raise bad_request("requested impersonation without impersonating a user")
    for attributes in requests(name, groups, uid, extra):
        authorizer.check(cluster, sender, attributes)
    # whom the roles of a cluster let somebody be, they are there alone; so is every ServiceAccount
    everywhere = is_administrator(sender) and not name.startswith(SERVICE_ACCOUNT)
    reach = sender.cluster if everywhere else cluster
    return User(name, all_groups(name, groups), uid, extra, reach)


def values(headers: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A header that was sent several times holds its values in lines of their own.  Bytes mean UTF-8."""
    sent = headers.get(name)
    return () if sent is None else tuple(sent.encode("latin-1", "replace").decode(errors="replace").split("\n"))


def extra_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for header in headers:
        if header.startswith(EXTRA) and header != EXTRA:
            yield unquote(header.removeprefix(EXTRA)), header


def requests(
    name: str, groups: tuple[str, ...], uid: str, extra: tuple[tuple[str, tuple[str, ...]], ...]
) -> Iterator[Attributes]:
    """What the sender must be allowed, in the order in which it is looked at."""
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
    """(namespace, name) of a ServiceAccount's user."""
    parts = name.removeprefix(SERVICE_ACCOUNT).split(":") if name.startswith(SERVICE_ACCOUNT) else []
    if len(parts) != 2 or names.dns_label(parts[0]) or names.dns_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def all_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups that were asked for, and those that everybody of that name is in."""
    account = account_of(name)
    if not groups and account is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if name == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)
