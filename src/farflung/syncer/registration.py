"""Registers a syncer: its ServiceAccount and roles in the mailbox of its SyncTarget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from farflung.apis.edge.names import SYNCER_CONFIGS
from farflung.apis.kcp.names import API_BINDINGS, CLUSTER_ANNOTATION, COMPUTE, SYNC_TARGETS, WORKSPACES
from farflung.apis.names import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, SERVICE_ACCOUNTS, TOKEN_REVIEWS
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.lib.errors import UserError
from farflung.machinery.errors import Obj
from farflung.placement.names import BINDING, THE_ONE, GroupResource, mailbox_name
from farflung.placement.types import ApiBinding, Workspace
from farflung.syncer.manifest import HOME, POLICY, identity, mailbox_objects, policy_objects
from farflung.syncer.rbac import SyncedKinds, mailbox_rules, policy_rules, synced_kinds
from farflung.syncer.tokens import read_token

T = TypeVar("T")
Report = Callable[[str], None]  #: reports progress

PAUSE: Final = 0.2  #: seconds between two requests
WHILE: Final = 2.0  #: seconds without a message
REMIND: Final = 10.0  #: seconds between two messages
COLLECTIONS: Final = {one.kind: one for one in (NAMESPACES, SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)}


class RegistrationError(UserError):
    """Why a syncer cannot be registered."""


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    name: str  #: of the SyncTarget
    provider: str
    lifetime: int  #: seconds
    seconds: float  #: to wait for the mailbox
    allowed: frozenset[GroupResource] = frozenset()
    allowed_up: frozenset[GroupResource] = frozenset()
    everything: bool = False
    token: str = field(default="", repr=False)  #: a former token, which is kept if it is valid for long enough


@dataclass(frozen=True, slots=True)
class Registered:
    uid: str  #: of the SyncTarget
    cluster: str  #: of the mailbox
    token: str = field(repr=False)
    kinds: SyncedKinds


async def register(client: Client, wanted: RegistrationRequest, report: Report, now: Callable[[], float]) -> Registered:
    """`client`: of the workspace with the SyncTarget; `now`: Unix time.  Idempotent, except for the token.  Raises
    ClientError or RegistrationError."""
    target = await sync_target(client, wanted.name)
    uid = target["metadata"]["uid"]
    cluster = await _mailbox(client, target, wanted, report)
    mailbox = client.workspace(cluster)
    spec = (await _config(mailbox, wanted, report)).get("spec") or {}
    kinds = synced_kinds(spec, allowed=wanted.allowed, allowed_up=wanted.allowed_up, everything=wanted.everything)
    name = identity(wanted.name, uid)
    account: Obj = {}
    for obj in mailbox_objects(name, mailbox_rules(kinds, name)):
        applied = await mailbox.apply(COLLECTIONS[obj["kind"]], obj, force=True)
        account = applied if obj["kind"] == "ServiceAccount" else account
    await _allow_status(client.workspace(COMPUTE), policy_objects(name, cluster, policy_rules()), report)
    for option, some in (("--allow", kinds.left_out), ("--allow-upsync", kinds.left_out_up)):
        for group, plural in sorted(some):
            report(f"Warning: {group}/{plural} is not allowed, although a placement selects it; allow it with {option}")
    good = await _is_good(mailbox, wanted, account, now())
    return Registered(uid, cluster, wanted.token if good else await _new_token(mailbox, name, wanted, report), kinds)


async def revoke(client: Client, wanted: RegistrationRequest) -> list[str]:
    """Delete the ServiceAccount and roles, so that its tokens are refused at once.  Returns the deleted objects."""
    target = await sync_target(client, wanted.name)
    workspace = await client.workspace(wanted.provider).get(WORKSPACES, _mailbox_of(target))
    mailbox = client.workspace(msgspec.convert(workspace, Workspace).cluster)
    name = identity(wanted.name, target["metadata"]["uid"])
    deleted = []
    for kind, namespace in (("ServiceAccount", HOME), ("ClusterRoleBinding", ""), ("ClusterRole", "")):
        try:
            await mailbox.delete(COLLECTIONS[kind], name, namespace)
            deleted.append(f"{kind} {name}")
        except NotFound:
            continue
    with suppress(Forbidden, NotFound):  # without the ServiceAccount it grants nothing
        await client.workspace(COMPUTE).delete(CLUSTER_ROLE_BINDINGS, name)
    return deleted


# --- preconditions --------------------------------------------------------------------------------


async def sync_target(client: Client, name: str) -> Obj:
    where = client.prefix.rpartition("/")[2]
    try:
        target = await client.get(SYNC_TARGETS, name)
    except NotFound as error:
        why = "has no SyncTarget " + name if error.details else "does not serve SyncTargets"
        raise RegistrationError(f"the workspace {where} {why}; select another one with --workspace") from None
    if target["metadata"].get("deletionTimestamp"):
        raise RegistrationError(f"the SyncTarget {name} is being deleted")
    return target


async def _mailbox(client: Client, target: Obj, wanted: RegistrationRequest, report: Report) -> str:
    """The logical cluster of the mailbox, when it is ready and has the edge API."""
    name = _mailbox_of(target)
    provider = client.workspace(wanted.provider)

    async def check() -> str | Pending:
        workspace = await _perhaps(provider.get(WORKSPACES, name), Workspace)
        if workspace is None or workspace.is_terminating:
            return Pending(f"the mailbox {wanted.provider}:{name}", "the mailbox controller creates it; is it running?")
        if not workspace.ready:
            return Pending(f"the mailbox {wanted.provider}:{name} to be ready")
        binding = await _perhaps(client.workspace(workspace.cluster).get(API_BINDINGS, BINDING), ApiBinding)
        if binding is None or not binding.bound:
            return Pending(f"the APIBinding {BINDING} in {wanted.provider}:{name}", "the mailbox controller creates it")
        return workspace.cluster

    return await _awaited(check, wanted.seconds, report)


async def _config(mailbox: Client, wanted: RegistrationRequest, report: Report) -> Obj:
    async def check() -> Obj | Pending:
        try:
            return await mailbox.get(SYNCER_CONFIGS, THE_ONE)
        except NotFound:
            return Pending(f"the SyncerConfig {THE_ONE} in the mailbox", "the mailbox controller creates it")

    return await _awaited(check, wanted.seconds, report)


def _mailbox_of(target: Obj) -> str:
    metadata = target["metadata"]
    cluster: str = (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION, "")
    if not cluster:
        raise RegistrationError("the server has no workspaces: its objects have no kcp.io/cluster annotation")
    return mailbox_name(cluster, metadata["uid"])


async def _perhaps(getting: Awaitable[Obj], kind: type[T]) -> T | None:
    try:
        return msgspec.convert(await getting, kind)
    except NotFound:
        return None


# --- waiting --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pending:
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


async def _awaited(check: Callable[[], Awaitable[T | Pending]], seconds: float, report: Report) -> T:
    """The result of `check`, once it is not Pending.  Reports progress, and raises RegistrationError after the
    timeout."""
    loop = asyncio.get_running_loop()
    deadline, reported, remind = loop.time() + seconds, "", 0.0
    first_report = loop.time() + min(WHILE, seconds / 4)
    while True:
        try:
            async with asyncio.timeout(max(deadline - loop.time(), PAUSE)):
                found = await check()
        except TimeoutError:
            raise RegistrationError(f"the server does not answer within {seconds:g} s") from None
        if not isinstance(found, Pending):
            return found
        if loop.time() >= deadline:
            raise RegistrationError(f"gave up after {seconds:g} s of waiting for {found}")
        if loop.time() >= first_report and (str(found) != reported or loop.time() >= remind):
            reported, remind = str(found), loop.time() + REMIND
            report(f"Waiting for {reported}")
        await asyncio.sleep(PAUSE)


# --- objects --------------------------------------------------------------------------------------


async def _allow_status(compute: Client, policy: Iterable[Obj], report: Report) -> None:
    """Optional: needs permission in root:compute."""
    try:
        for obj in policy:
            await compute.apply(COLLECTIONS[obj["kind"]], obj, force=True)
        await _delete_former_policy(compute)
    except (Forbidden, NotFound):
        report(f"Warning: you may not allow syncers to return the status of kinds exported by {COMPUTE}; they will not")


async def _delete_former_policy(compute: Client) -> None:
    """Earlier versions bound the role to a group that ServiceAccounts of tenants could be in."""
    with suppress(NotFound):
        await compute.delete(CLUSTER_ROLE_BINDINGS, POLICY)


async def _new_token(mailbox: Client, name: str, wanted: RegistrationRequest, report: Report) -> str:
    request: Obj = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": name},
        "spec": {"expirationSeconds": wanted.lifetime},
    }
    issued = await mailbox.create(SERVICE_ACCOUNTS, request, HOME, "token")
    seconds = issued["spec"]["expirationSeconds"]
    if seconds < wanted.lifetime:
        report(
            f"Warning: the hub shortens the lifetime of tokens to {seconds / 86400:.3g}d; "
            "its option --service-account-max-token-expiration extends it"
        )
    token: str = issued["status"]["token"]
    return token


async def _is_good(mailbox: Client, wanted: RegistrationRequest, account: Obj, now: float) -> bool:
    """Whether the token is of this ServiceAccount and valid for long enough."""
    read = read_token(wanted.token)
    if read is None or read.lifetime != wanted.lifetime or read.due_in(now) <= 0:
        return False
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": wanted.token}}
    try:
        status = (await mailbox.create(TOKEN_REVIEWS, body)).get("status") or {}
    except ClientError:
        return False
    uid = (status.get("user") or {}).get("uid")
    return status.get("authenticated") is True and uid == account["metadata"]["uid"]
