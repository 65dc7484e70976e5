"""Server and user of a command: a kubeconfig's context, with overrides of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farflung.cli.plugins.errors import CommandError
from farflung.cli.plugins.kubeconfig import CLUSTERS, CONTEXTS, USERS, Kubeconfig, KubeconfigEntry, resolved_path

UNCONFIGURED = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
)


class PluginAccess:
    """One server and one user.  Paths in `cluster` and `user` are absolute."""

    __slots__ = ("cluster", "user")

    def __init__(self, cluster: dict[str, Any], user: dict[str, Any]) -> None:
        self.cluster = cluster
        self.user = user

    @property
    def server(self) -> str:
        return str(self.cluster["server"])


def resolve(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> PluginAccess:
    """The access of the current context, with the flags in `overrides`."""
    context = _context(kubeconfig, overrides)
    cluster = _referred(kubeconfig, CLUSTERS, context, "cluster", 'cluster "{}" does not exist')
    user = _user(kubeconfig, context, overrides)
    _override_cluster(cluster, overrides)
    _override_user(user, overrides)
    if not cluster.get("server"):
        raise CommandError(UNCONFIGURED)
    return PluginAccess(cluster, user)


def context_name(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> str:
    return overrides.get("context") or kubeconfig.current_context


def _context(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> dict[str, Any]:
    name = context_name(kubeconfig, overrides)
    found = kubeconfig.find(CONTEXTS, name)
    if found is not None:
        return found.body
    if overrides.get("context"):
        raise CommandError(f'context "{name}" does not exist')
    if not overrides.get("server"):
        raise CommandError(UNCONFIGURED if kubeconfig.empty or not name else f'context "{name}" does not exist')
    return {}


def _user(kubeconfig: Kubeconfig, context: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    if overrides.get("user"):
        context = {"user": overrides["user"]}
    return _referred(kubeconfig, USERS, context, "user", 'auth info "{}" does not exist')


def _referred(
    kubeconfig: Kubeconfig, section: str, context: dict[str, Any], field: str, missing: str
) -> dict[str, Any]:
    name = context.get(field)
    if not name:
        return {}
    found = kubeconfig.find(section, name)
    if found is None:
        raise CommandError(missing.format(name))
    return _with_absolute_paths(found)


def _with_absolute_paths(entry: KubeconfigEntry) -> dict[str, Any]:
    body = dict(entry.body)
    for field in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        if body.get(field):
            body[field] = str(resolved_path(body[field], entry.origin))
    execution = body.get("exec")
    if isinstance(execution, dict) and "/" in str(execution.get("command", "")):
        body["exec"] = execution | {"command": str(resolved_path(execution["command"], entry.origin))}
    return body


def _override_cluster(cluster: dict[str, Any], overrides: Mapping[str, str]) -> None:
    if overrides.get("server"):
        cluster["server"] = overrides["server"]
        cluster.pop("tls-server-name", None)
    for field in ("tls-server-name", "proxy-url"):
        if overrides.get(field):
            cluster[field] = overrides[field]
    authority, insecure = overrides.get("certificate-authority"), overrides.get("insecure-skip-tls-verify") == "true"
    if authority or insecure:
        for field in ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"):
            cluster.pop(field, None)
    if authority:
        cluster["certificate-authority"] = str(Path(authority).absolute())
    if insecure:
        cluster["insecure-skip-tls-verify"] = True


def _override_user(user: dict[str, Any], overrides: Mapping[str, str]) -> None:
    if overrides.get("token"):
        user.pop("tokenFile", None)
        user.pop("exec", None)
        user["token"] = overrides["token"]
    for field in ("username", "password", "as-uid"):
        if overrides.get(field):
            user[field] = overrides[field]
