"""Switching workspaces, like `cd`."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

from farflung.cli.plugins import contexts
from farflung.cli.plugins.access import context_name, resolve
from farflung.cli.plugins.bindings import claim_warnings
from farflung.cli.plugins.commands import CommandCall
from farflung.cli.plugins.errors import ApiFailure, CommandError
from farflung.cli.plugins.kubeconfig import Kubeconfig, change_files
from farflung.cli.plugins.session import (
    BINDINGS,
    ROOT,
    WORKSPACES,
    PluginSession,
    WorkspaceLocation,
    connect,
    is_workspace_path,
    parse_server,
    phase,
    request_path,
    warn,
)

if TYPE_CHECKING:
    from farflung.cli.plugins.connection import PluginConnection

READY = "Ready"
NOTE = (
    "Note: 'kubectl ws' now matches 'cd' semantics: go to home workspace. "
    "'kubectl ws -' to go back. 'kubectl ws .' to print current workspace."
)


def use(call: CommandCall) -> None:
    """`kubectl ws WHERE`, and `kubectl ws` without arguments."""
    if len(call.words) > 1:
        call.show_help()
        return
    where = call.words[0] if call.words else ""
    if where == ".":
        current(call._replace(words=[]))
        return
    with PluginSession(call) as session:
        go(session, where, call.is_set("short"))
    if not call.words:
        print(NOTE)


def use_given(call: CommandCall) -> None:
    """`kubectl ws use WHERE`."""
    if call.words:
        use(call)
    else:
        call.show_help()


def current(call: CommandCall) -> None:
    if call.words:
        call.show_help()
        return
    report(PluginSession(call).access.server, call.is_set("short"))


def go(session: PluginSession, where: str, short: bool) -> None:
    """Switch to a workspace and print it."""
    if where == "-":
        _go_back(session, short)
        return
    kind = ""
    if where in ("", "~", os.environ.get("HOME")):
        target = _home(session)
    elif where == "..":
        target = _parent(session.location())
    elif not is_workspace_path(where):
        raise CommandError(f"invalid workspace name format: {where}")
    elif where == ROOT or where.startswith("system:"):
        target = WorkspaceLocation(session.location().base, where)
    elif ":" in where:
        target = _absolute(session, where)
    else:
        target, kind = _child(session, where)
    context = context_name(session.kubeconfig, session.overrides)
    change_files(session.paths, lambda kubeconfig: contexts.enter(kubeconfig, target.server, context))
    _warn_of_claims(session.connection, target)
    report(target.server, short, kind)


def report(server: str, short: bool, kind: str = "") -> None:
    location = parse_server(server)
    if short:
        if location:
            print(location.path)
    elif location is None:
        print(f'Current workspace is the URL "{server}".')
    else:
        print(f'Current workspace is "{location.path}"' + (f" (type {kind})." if kind else "."))


def _go_back(session: PluginSession, short: bool) -> None:
    kubeconfig = change_files(session.paths, contexts.go_back)
    server = contexts.server_of(kubeconfig, contexts.CURRENT)
    location = parse_server(server)
    if location:
        with closing(_connection_to(kubeconfig, session)) as connection:
            _warn_of_claims(connection, location)
    report(server, short)


def _connection_to(kubeconfig: Kubeconfig, session: PluginSession) -> PluginConnection:
    """A connection for the new current context, whose server or user may differ."""
    overrides = {name: value for name, value in session.overrides.items() if name not in ("context", "server")}
    return connect(resolve(kubeconfig, overrides), overrides)


def _home(session: PluginSession) -> WorkspaceLocation:
    """Keeps the host of the user's URL, whatever host name the hub returns."""
    home = session.connection.get(session.path(ROOT, WORKSPACES, "~")).get("spec", {})
    known = parse_server(str(home.get("URL", "")))
    path = known.path if known else str(home.get("cluster", ""))
    if not is_workspace_path(path):
        raise CommandError("the server does not say where the home workspace is")
    return WorkspaceLocation(session.base, path)


def _parent(location: WorkspaceLocation) -> WorkspaceLocation:
    parent, _, _ = location.path.rpartition(":")
    if parent:
        return WorkspaceLocation(location.base, parent)
    if location.path == ROOT:
        raise CommandError(f'current workspace is "{ROOT}"')
    raise CommandError(f'current workspace "{location.path}" has no parent')


def _absolute(session: PluginSession, where: str) -> WorkspaceLocation:
    location = session.location()
    parent, _, name = where.rpartition(":")
    try:
        session.connection.get(session.path(parent, WORKSPACES, name))
    except ApiFailure as failure:
        if failure.code == 404:
            raise CommandError(f'workspace "{where}" not found') from None
    try:
        groups = session.connection.get(session.path(where, "/apis")).get("groups")
    except ApiFailure as failure:
        if failure.code not in (403, 404):
            raise
        groups = None
    if not groups:
        raise CommandError(f"access to workspace {where} denied")
    return WorkspaceLocation(location.base, where)


def _child(session: PluginSession, name: str) -> tuple[WorkspaceLocation, str]:
    location = session.location()
    workspace = session.connection.get(session.path(location.path, WORKSPACES, name))
    if phase(workspace) != READY:
        raise CommandError(f'workspace "{name}" is not ready')
    return WorkspaceLocation(location.base, f"{location.path}:{name}"), type_of(workspace)


def type_of(workspace: dict[str, Any]) -> str:
    kind = workspace.get("spec", {}).get("type", {})
    return ":".join(part for part in (kind.get("path", ""), kind.get("name", "")) if part)


def _warn_of_claims(connection: PluginConnection, location: WorkspaceLocation) -> None:
    try:
        bindings = connection.get(request_path(location.base, location.path, BINDINGS)).get("items") or []
    except ApiFailure as failure:
        if failure.code not in (403, 404):
            warn(f"error checking APIBindings: {failure}")
        return
    except CommandError as error:
        warn(f"error checking APIBindings: {error}")
        return
    for binding in bindings:
        for line in claim_warnings(binding):
            print(line)
