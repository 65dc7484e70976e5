"""Where `kubectl ws` has led in an administrators' kubeconfig, so that one stays there when it is written anew."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from farflung.cli import fields
from farflung.cli.plugins.switching import CURRENT, PREVIOUS
from farflung.lib import yaml_loader

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
