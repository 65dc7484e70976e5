"""`farflung start`: the hub with workspaces.  What differs from `farflung hub`; the rest is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from farflung.cli import fields
from farflung.cli.credentials import KUBECONFIG, Administrator, Context, cluster_at, whole_kubeconfig
from farflung.cli.plugins.contexts import CURRENT, PREVIOUS
from farflung.cli.scheduler_files import Files
from farflung.cli.supervisor import kept_running
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED
from farflung.hub.tenancy import bootstrap
from farflung.hub.tenancy.workspace_authorizer import OPERATORS
from farflung.lib import yaml_loader
from farflung.lib.files import write_private
from farflung.placement.guard import WithdrawalLimits

PROVIDER: Final = f"root:{bootstrap.PROVIDER}"  #: the workspace that has the edge API
IDENTITY: Final = "controllers.identity"  #: the file that says who the controllers are
KEPT: Final = "scheduler-files.json"  #: the files of the global scheduler, as they last made sense
VERBOSE: Final = "3"  #: how much controllers log if the hub logs more than usual
OPERATOR: Final = Administrator("kcp-admin", (OPERATORS, AUTHENTICATED), has_uid=True)
SHARD_ADMINISTRATOR: Final = Administrator("shard-admin", (ADMINISTRATORS, AUTHENTICATED))
ADMINISTRATORS_OF_ALL: Final = (OPERATOR, SHARD_ADMINISTRATOR)

#: controllers ask for these very names
CONTEXTS: Final = (
    Context("base", "base", OPERATOR.name),
    Context("root", "root", OPERATOR.name),
    Context("system:admin", "base", SHARD_ADMINISTRATOR.name),
)


def write_kubeconfig(directory: Path, url: str, ca_pem: bytes, tokens: Mapping[str, str]) -> None:
    """`url`: where the hub is, without a workspace; `tokens`: by the administrators' names.  Who was in a workspace
    stays there."""
    kept, is_there = kept_workspaces(directory / KUBECONFIG, tokens)
    clusters = {"base": cluster_at(url, ca_pem), "root": cluster_at(f"{url}/clusters/root", ca_pem)}
    clusters |= {one.context: cluster_at(f"{url}/clusters/{one.workspace}", ca_pem) for one in kept}
    contexts = [*CONTEXTS, *(Context(one.context, one.context, one.user) for one in kept)]
    current = CURRENT if is_there else "root"
    write_private(directory / KUBECONFIG, whole_kubeconfig(clusters, tokens, contexts, current).encode())


def controllers(
    kubeconfig: Path, limits: WithdrawalLimits, stale_after: float, files: Files, *, verbose: bool
) -> AbstractAsyncContextManager[None]:
    """The controllers in a process of their own, as long as the block lasts, so that they cannot slow the hub."""
    told = options(kubeconfig, limits, stale_after, files, verbose=verbose)
    return kept_running("farflung controllers", [sys.executable, "-m", "farflung", "controllers", *told])


def options(
    kubeconfig: Path, limits: WithdrawalLimits, stale_after: float, files: Files, *, verbose: bool
) -> list[str]:
    """What the controllers are told."""
    where = ["--kubeconfig", str(kubeconfig), "--context", "base", "--provider-path", PROVIDER, "--with-parent"]
    identity = ["--identity-file", str(kubeconfig.with_name(IDENTITY))]
    guard = ["--max-withdraw", f"{limits.share}%", "--max-withdraw-number", str(limits.number)]
    logging = ["--verbosity", VERBOSE] if verbose else []
    kept = ["--kept-files", str(kubeconfig.with_name(KEPT))] if files else []
    return [*where, *identity, *guard, "--stale-after", str(stale_after), *files.options(), *kept, *logging]


WORKSPACE: Final = re.compile(r"/clusters/([a-z0-9][a-z0-9:-]*)")


class Kept(NamedTuple):
    context: str  #: CURRENT or PREVIOUS
    user: str
    workspace: str  #: a path or a cluster


def kept_workspaces(kubeconfig: Path, users: Collection[str]) -> tuple[list[Kept], bool]:
    """Those of the same hub, for one of `users`, as far as the file can be read; and whether one is in the current
    one."""
    try:
        found = yaml_loader.load(kubeconfig.read_bytes())
    except (OSError, yaml.YAMLError):
        return [], False
    kept = [one for one in _kept(found) if one.user in users]
    is_there = fields.text(found, "current-context") == CURRENT and any(one.context == CURRENT for one in kept)
    return kept, is_there


def _kept(kubeconfig: Any) -> Iterator[Kept]:
    servers = {fields.text(one, "name"): one for one in fields.objects(kubeconfig, "clusters")}
    contexts = {fields.text(one, "name"): one for one in fields.objects(kubeconfig, "contexts")}
    base = fields.text(servers.get("base"), "cluster", "server")
    for name in (CURRENT, PREVIOUS):
        context = contexts.get(name)
        server = fields.text(servers.get(fields.text(context, "context", "cluster")), "cluster", "server")
        found = WORKSPACE.fullmatch(server.removeprefix(base)) if base and server.startswith(base) else None
        if found is not None:
            yield Kept(name, fields.text(context, "context", "user"), found[1])
