"""`kubectl ws`: switches workspaces like `cd`, creates workspaces and contexts, and prints their tree."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn

from farflung.cli.plugins import commands, contexts
from farflung.cli.plugins.bindings import claim_warnings
from farflung.cli.plugins.commands import (
    BOOL,
    CONNECTION,
    KUBECONFIG,
    LOGGING,
    ApiFailure,
    CommandCall,
    CommandError,
    Flag,
    PluginCommand,
)
from farflung.cli.plugins.kubeconfig import CONTEXTS, Kubeconfig, change_files, context_name, load, resolve
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
    wait_until,
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
    warnings = _claim_warnings(session.connection, target)
    change_files(session.paths, lambda kubeconfig: contexts.enter(kubeconfig, target.server, context))
    print(warnings, end="")
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
    kubeconfig = load(session.paths)
    contexts.go_back(kubeconfig)
    server = contexts.server_of(kubeconfig, contexts.CURRENT)
    location = parse_server(server)
    warnings = ""
    if location:
        with closing(_connection_to(kubeconfig, session)) as connection:
            warnings = _claim_warnings(connection, location)
    change_files(session.paths, contexts.go_back)
    print(warnings, end="")
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
        if missing := _missing_ancestor(session, where):
            raise CommandError(f'workspace "{missing}" not found')
        raise CommandError(f"access to workspace {where} denied: it does not exist, or you may not enter it")
    return WorkspaceLocation(location.base, where)


def _missing_ancestor(session: PluginSession, where: str) -> str:
    """The first workspace of a path that does not exist; empty if the user may not know."""
    first, *names = where.split(":")
    path = first
    for name in names:
        try:
            session.connection.get(session.path(path, WORKSPACES, name))
        except ApiFailure as failure:
            return f"{path}:{name}" if failure.code == 404 else ""
        path = f"{path}:{name}"
    return ""


def _child(session: PluginSession, name: str) -> tuple[WorkspaceLocation, str]:
    location = session.location()
    workspace = session.connection.get(session.path(location.path, WORKSPACES, name))
    if phase(workspace) != READY:
        raise CommandError(f'workspace "{name}" is not ready')
    return WorkspaceLocation(location.base, f"{location.path}:{name}"), type_of(workspace)


def type_of(workspace: dict[str, Any]) -> str:
    kind = workspace.get("spec", {}).get("type", {})
    return ":".join(part for part in (kind.get("path", ""), kind.get("name", "")) if part)


def _claim_warnings(connection: PluginConnection, location: WorkspaceLocation) -> str:
    """Lines about permission claims that are neither accepted nor rejected.  Raises CommandError if the server cannot
    be reached."""
    try:
        bindings = connection.get(request_path(location.base, location.path, BINDINGS)).get("items") or []
    except ApiFailure as failure:
        if failure.code not in (403, 404):
            warn(f"error checking APIBindings: {failure}")
        return ""
    return "".join(f"{line}\n" for binding in bindings for line in claim_warnings(binding))


READY_TIMEOUT = 60.0
NO_BREAK = "\N{NO-BREAK SPACE}"  #: as in kcp's trees


def create(call: CommandCall) -> None:
    if len(call.words) != 1:
        raise CommandError(f"accepts 1 arg(s), received {len(call.words)}")
    with PluginSession(call) as session:
        _create(session, call, call.words[0])


def _create(session: PluginSession, call: CommandCall, name: str) -> None:
    location = session.location()
    kind = call.flags.get("type", "")
    if call.is_set("ignore-existing") and kind and not kind.startswith(f"{ROOT}:"):
        raise CommandError("--ignore-existing must not be used with non-absolute type path")
    try:
        workspace, existed = _created(session, location, call, name)
    except ApiFailure as failure:
        if failure.code != 409 or not call.is_set("enter") or kind:
            raise
        _enter_existing(session, name, str(failure))
    words = f'Workspace "{name}" (type {type_of(workspace)})'
    if not existed:
        print(f"{words} created. Waiting for it to be ready...", flush=True)
    elif kind and type_of(workspace) != kind.lower():
        raise CommandError(
            f'workspace "{name}" cannot be created with type {kind}, '
            f"it already exists with different type {type_of(workspace)}"
        )
    elif phase(workspace) != READY:
        print(f"{words} already exists. Waiting for it to be ready...", flush=True)
    else:
        print(f"{words} already exists.")
    _wait_until_ready(session, location, workspace)
    print(f"{words} is ready to use.")
    if call.is_set("enter"):
        go(session, name, short=False)


def _enter_existing(session: PluginSession, name: str, failure: str) -> NoReturn:
    """Fails, and enters the workspace, because the commands that follow are meant for it."""
    go(session, name, short=False)
    raise CommandError(f'{failure}; you are in it now, and "kubectl ws {session.location().path}:{name}" enters it')


def _created(
    session: PluginSession, location: WorkspaceLocation, call: CommandCall, name: str
) -> tuple[dict[str, Any], bool]:
    """The workspace, and whether it existed before."""
    spec: dict[str, Any] = {}
    if call.flags.get("type"):
        path, _, kind = call.flags["type"].rpartition(":")
        spec["type"] = {"name": kind.lower()} | ({"path": path} if path else {})
    if call.flags.get("location-selector"):
        spec["location"] = {"selector": parse_label_selector(call.flags["location-selector"])}
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}
    try:
        return session.connection.post(session.path(location.path, WORKSPACES), body), False
    except ApiFailure as failure:
        if failure.code != 409 or not call.is_set("ignore-existing"):
            raise
    return session.connection.get(session.path(location.path, WORKSPACES, name)), True


def _wait_until_ready(session: PluginSession, location: WorkspaceLocation, workspace: dict[str, Any]) -> None:
    if phase(workspace) == READY:
        return
    path = session.path(location.path, WORKSPACES, workspace["metadata"]["name"])
    if not wait_until(lambda: phase(session.connection.get(path)) == READY, READY_TIMEOUT):
        raise CommandError("timed out waiting for the condition")


def create_context(call: CommandCall) -> None:
    if len(call.words) > 1:
        call.show_help()
        return
    session = PluginSession(call)
    before = session.kubeconfig
    server = contexts.server_of(before, before.current_context)
    location = parse_server(server)
    if location is None:
        raise CommandError(f'current URL "{server}" does not point to a workspace')
    name = call.words[0] if call.words else location.path
    existed = before.find(CONTEXTS, name) is not None
    if existed and not call.is_set("overwrite"):
        raise CommandError(f'context "{name}" already exists in kubeconfig, use --overwrite to update it')
    change_files(session.paths, lambda kubeconfig: contexts.add_context(kubeconfig, name))
    if not existed:
        print(f'Created context "{name}" and switched to it.')
    elif before.current_context == name:
        print(f'Updated context "{name}".')
    else:
        print(f'Updated context "{name}" and switched to it.')


def tree(call: CommandCall) -> None:
    with PluginSession(call) as session:
        print("\n".join(_tree_lines(session, call.is_set("full"))) + "\n")


def _tree_lines(session: PluginSession, full: bool) -> list[str]:
    top = session.location('current config context URL "{}" does not point to workspace').path
    lines = ["."]
    waiting = [(top, "", True, True)]
    while waiting:
        path, indent, last, must_be_seen = waiting.pop()
        name = path if full else path.rpartition(":")[2]
        lines.append(f"{indent}{'└── ' if last else '├── '}{name}")
        children = [f"{path}:{child}" for child in _children(session, path, must_be_seen)]
        deeper = indent + ("    " if last else f"│{NO_BREAK}{NO_BREAK} ")
        waiting += [(child, deeper, child == children[-1], False) for child in reversed(children)]
    return lines


def _children(session: PluginSession, path: str, must_be_seen: bool) -> list[str]:
    """Names of the workspaces in one; empty if the user has no access."""
    try:
        items = session.connection.get(session.path(path, WORKSPACES)).get("items") or []
    except ApiFailure as failure:
        if failure.code == 404 or (failure.code == 403 and not must_be_seen):
            return []
        raise
    return sorted(str(item["metadata"]["name"]) for item in items)


_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_EQUAL = re.compile(rf"\s*({_KEY})\s*(!=|==|=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_COMMA = re.compile(r",(?![^(]*\))")


def parse_label_selector(text: str) -> dict[str, Any]:
    """`a=b,c in (d, e),!f` as matchLabels and matchExpressions."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for term in _COMMA.split(text):
        if match := _EQUAL.fullmatch(term):
            key, operator, value = match.groups()
            if operator == "!=":
                expressions.append({"key": key, "operator": "NotIn", "values": [value]})
            else:
                labels[key] = value
        elif match := _SET.fullmatch(term):
            values = [value.strip() for value in match[3].split(",")]
            operator = "In" if match[2] == "in" else "NotIn"
            expressions.append({"key": match[1], "operator": operator, "values": values})
        elif match := _EXISTS.fullmatch(term):
            expressions.append({"key": match[2], "operator": "DoesNotExist" if match[1] else "Exists"})
        else:
            raise CommandError(f'unable to parse the label selector "{text}"')
    selector: dict[str, Any] = {}
    if labels:
        selector["matchLabels"] = labels
    if expressions:
        selector["matchExpressions"] = expressions
    return selector


SHORT = Flag("short", "Print only the name of the workspace, e.g. for integration into the shell prompt", BOOL)

EXAMPLES = """
\t# shows the workspace you are currently using
\tkubectl workspace .

\t# enter a given workspace (this will change the current-context of your current KUBECONFIG)
\tkubectl workspace use my-workspace

\t# short-hand for the use syntax
\tkubectl workspace my-workspace

\t# enter a given absolute workspace
\tkubectl workspace root:default:my-workspace

\t# enter the parent workspace
\tkubectl workspace ..

\t# enter the previous workspace
\tkubectl workspace -

\t# go to your home workspace
\tkubectl workspace

\t# create a workspace and immediately enter it
\tkubectl workspace create my-workspace --enter

\t# create a context with the current workspace, e.g. root:default:my-workspace
\tkubectl workspace create-context

\t# create a context with the current workspace, named context-name
\tkubectl workspace create-context context-name
"""

COMMANDS = (
    PluginCommand(
        "create",
        "Creates a new workspace",
        create,
        example="kcp workspace create <workspace name> [--type=<type>] "
        "[--enter [--ignore-not-ready]] --ignore-existing",
        flags=(
            Flag("enter", "Immediately enter the created workspace", BOOL),
            Flag(
                "ignore-existing",
                "Ignore if the workspace already exists. Requires none or absolute type path.",
                BOOL,
            ),
            Flag(
                "location-selector",
                "A label selector to select the scheduling location of the created workspace.",
            ),
            Flag("type", "A workspace type. The default type depends on where this child workspace is created."),
            KUBECONFIG,
        ),
    ),
    PluginCommand(
        "create-context [<context-name>] [--overwrite]",
        "Create a kubeconfig context for the current workspace",
        create_context,
        example="kcp workspace create-context",
        flags=(Flag("overwrite", "Overwrite the context if it already exists", BOOL), KUBECONFIG),
    ),
    PluginCommand(
        "current [--short]",
        "Print the current workspace. Same as 'kubectl ws .'.",
        current,
        example="kcp workspace current",
        flags=(SHORT, KUBECONFIG),
    ),
    PluginCommand(
        "tree",
        "Print the current workspace tree.",
        tree,
        example="kcp workspace tree",
        flags=(Flag("full", "Show full workspace names", BOOL, "f"), KUBECONFIG),
    ),
    PluginCommand(
        "use <workspace>|..|.|-|~|<root:absolute:workspace>",
        "Uses the given workspace as the current workspace. "
        "Using - means previous workspace, .. means parent workspace, . mean current, ~ means home workspace",
        use_given,
        flags=(SHORT, KUBECONFIG),
    ),
)

WORKSPACE = PluginCommand(
    "workspace [create|create-context|use|current|<workspace>|..|.|-|~|<root:absolute:workspace>]",
    "Manages KCP workspaces",
    use,
    example=EXAMPLES,
    aliases=("ws", "workspaces"),
    flags=(SHORT, KUBECONFIG),
    inherited=CONNECTION,
    commands=COMMANDS,
)


def main() -> int:
    """`kubectl ws`, `kubectl workspace` and `kubectl workspaces`."""
    root = WORKSPACE._replace(inherited=(*LOGGING, *CONNECTION))
    return commands.main(root, sys.argv[1:], "Error")
