"""`farflung start`: what a hub with workspaces has in addition to `farflung hub`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

from farflung.cli.credentials import (
    CONTROLLERS_KUBECONFIG,
    KUBECONFIG,
    KubeconfigContext,
    KubeconfigUser,
    cluster_at,
    whole_kubeconfig,
)
from farflung.cli.plugins import kubeconfig as kubeconfig_files
from farflung.cli.plugins.commands import CommandError
from farflung.cli.plugins.contexts import CURRENT, PREVIOUS
from farflung.cli.plugins.session import parse_server
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED
from farflung.hub.tenancy import paths
from farflung.hub.tenancy.controller_roles import CONTROLLERS, user_of
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.lib.files import write_private
from farflung.lib.supervisor import kept_running
from farflung.machines.files.scheduler_files import SchedulerFiles
from farflung.placement.guard import WithdrawalLimits

PROVIDER: Final = f"root:{paths.PROVIDER}"  #: exports the edge API
IDENTITY: Final = "controllers.identity"  #: file with the Lease identity of the controllers
KEPT: Final = "scheduler-files.json"  #: last valid copy of the global scheduler's files
VERBOSE: Final = "3"  #: log level of the controllers with --verbose
OPERATOR: Final = KubeconfigUser("kcp-admin", (OPERATORS, AUTHENTICATED), has_uid=True)
SHARD_ADMINISTRATOR: Final = KubeconfigUser("shard-admin", (ADMINISTRATORS, AUTHENTICATED))
ADMINISTRATORS_OF_ALL: Final = (OPERATOR, SHARD_ADMINISTRATOR)
#: users of the controllers, by the names of their contexts
CONTROLLER_USERS: Final = {name: KubeconfigUser(user_of(name), (AUTHENTICATED,)) for name in CONTROLLERS}
USERS: Final = (*ADMINISTRATORS_OF_ALL, *CONTROLLER_USERS.values())

#: names that controllers use
CONTEXTS: Final = (
    KubeconfigContext("base", "base", OPERATOR.name),
    KubeconfigContext("root", "root", OPERATOR.name),
    KubeconfigContext("system:admin", "base", SHARD_ADMINISTRATOR.name),
)


def write_kubeconfig(directory: Path, url: str, ca_pem: bytes, tokens: Mapping[str, str]) -> None:
    """`url`: without a workspace; `tokens`: by user.  Contexts of `kubectl ws` and of other servers are kept."""
    base, users = {"base": cluster_at(url, ca_pem)}, {one.name: tokens[one.name] for one in CONTROLLER_USERS.values()}
    own = [KubeconfigContext(name, "base", user.name) for name, user in CONTROLLER_USERS.items()]
    write_private(directory / CONTROLLERS_KUBECONFIG, whole_kubeconfig(base, users, own, "").encode())
    tokens = {one.name: tokens[one.name] for one in ADMINISTRATORS_OF_ALL}
    kept, is_there = kept_workspaces(directory / KUBECONFIG, tokens)
    clusters = {"base": cluster_at(url, ca_pem), "root": cluster_at(f"{url}/clusters/root", ca_pem)}
    clusters |= {one.context: cluster_at(f"{url}/clusters/{one.workspace}", ca_pem) for one in kept}
    contexts = [*CONTEXTS, *(KubeconfigContext(one.context, one.context, one.user) for one in kept)]
    current = CURRENT if is_there else "root"
    path = directory / KUBECONFIG
    write_private(path, whole_kubeconfig(clusters, tokens, contexts, current, before=path).encode())


def controllers(
    kubeconfig: Path, limits: WithdrawalLimits, stale_after: float, files: SchedulerFiles, *, verbose: bool
) -> AbstractAsyncContextManager[asyncio.Event]:
    """Run the controllers in a second process until the block ends, so that they cannot slow down the hub.  Yields an
    event that is set when they work."""
    arguments = options(kubeconfig, limits, stale_after, files, verbose=verbose)
    return kept_running("farflung controllers", [sys.executable, "-m", "farflung", "controllers", *arguments])


def options(
    kubeconfig: Path, limits: WithdrawalLimits, stale_after: float, files: SchedulerFiles, *, verbose: bool
) -> list[str]:
    """Options of `farflung controllers`."""
    own = kubeconfig.with_name(CONTROLLERS_KUBECONFIG)
    where = ["--kubeconfig", str(own), "--provider-path", PROVIDER, "--with-parent"]
    identity = ["--identity-file", str(kubeconfig.with_name(IDENTITY))]
    guard = ["--max-withdraw", f"{limits.share}%", "--max-withdraw-number", str(limits.number)]
    logging = ["--verbosity", VERBOSE] if verbose else []
    kept = ["--kept-files", str(kubeconfig.with_name(KEPT))] if files else []
    return [*where, *identity, *guard, "--stale-after", str(stale_after), *files.options(), *kept, *logging]


class KeptContext(NamedTuple):
    context: str  #: CURRENT or PREVIOUS
    user: str
    workspace: str  #: path or logical cluster


def kept_workspaces(kubeconfig: Path, users: Collection[str]) -> tuple[list[KeptContext], bool]:
    """Contexts of `kubectl ws` for this hub and these users; and whether one is current."""
    try:
        found = kubeconfig_files.load([kubeconfig])
    except CommandError:
        return [], False
    kept = [one for one in _kept_contexts(found) if one.user in users]
    is_there = found.current_context == CURRENT and any(one.context == CURRENT for one in kept)
    return kept, is_there


def _kept_contexts(kubeconfig: kubeconfig_files.Kubeconfig) -> Iterator[KeptContext]:
    base = _server(kubeconfig, "base")
    for name in (CURRENT, PREVIOUS):
        context = kubeconfig.find(kubeconfig_files.CONTEXTS, name)
        location = None if context is None else parse_server(_server(kubeconfig, context.body.get("cluster")))
        if context is not None and location is not None and location.base == base:
            yield KeptContext(name, str(context.body.get("user", "")), location.path)


def _server(kubeconfig: kubeconfig_files.Kubeconfig, cluster: Any) -> str:
    found = kubeconfig.find(kubeconfig_files.CLUSTERS, cluster) if isinstance(cluster, str) else None
    return "" if found is None else str(found.body.get("server", ""))
