"""Creating workspaces and contexts, and the tree of workspaces."""

from __future__ import annotations

import re
from typing import Any

from farflung.cli.plugins import contexts
from farflung.cli.plugins.commands import CommandCall
from farflung.cli.plugins.errors import ApiFailure, CommandError
from farflung.cli.plugins.kubeconfig import CONTEXTS, change_files
from farflung.cli.plugins.navigation import READY, go, type_of
from farflung.cli.plugins.session import (
    ROOT,
    WORKSPACES,
    PluginSession,
    WorkspaceLocation,
    parse_server,
    phase,
    wait_until,
)

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
    workspace, existed = _created(session, location, call, name)
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


def _created(
    session: PluginSession, location: WorkspaceLocation, call: CommandCall, name: str
) -> tuple[dict[str, Any], bool]:
    """The workspace, and whether it existed before."""
    spec: dict[str, Any] = {}
    if call.flags.get("type"):
        path, _, kind = call.flags["type"].rpartition(":")
        spec["type"] = {"name": kind.lower()} | ({"path": path} if path else {})
    if call.flags.get("location-selector"):
        from farflung.cli.plugins.creation import parse_label_selector

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
