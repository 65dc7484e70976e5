"""Changes of a kubeconfig by `kubectl ws`.

The plugin owns two pairs of a cluster and a context: the current and the previous workspace.  Other content is kept.
"""

from __future__ import annotations

from farflung.cli.plugins.commands import CommandError
from farflung.cli.plugins.kubeconfig import CLUSTERS, CONTEXTS, Kubeconfig, KubeconfigEntry

CURRENT = "workspace.kcp.io/current"
PREVIOUS = "workspace.kcp.io/previous"


def enter(kubeconfig: Kubeconfig, server: str, context: str) -> None:
    """Make the current context one for `server` that is otherwise like `context`; keep the former one as previous."""
    left = _context(kubeconfig, kubeconfig.current_context or context)
    model = _context(kubeconfig, context)
    model_cluster = _cluster(kubeconfig, model)
    _remember(kubeconfig, left)
    kubeconfig.put(CLUSTERS, CURRENT, _with(model_cluster, server=server))
    kubeconfig.put(CONTEXTS, CURRENT, _with(model, cluster=CURRENT))
    kubeconfig.switch(CURRENT)


def go_back(kubeconfig: Kubeconfig) -> None:
    """Exchange the current and the previous context."""
    left = _context(kubeconfig, kubeconfig.current_context)
    previous = kubeconfig.find(CONTEXTS, PREVIOUS)
    if previous is None:
        raise CommandError("no previous workspace found in kubeconfig")
    previous_cluster = _cluster(kubeconfig, previous)
    _remember(kubeconfig, left)
    if previous.body.get("cluster") == PREVIOUS:
        kubeconfig.put(CLUSTERS, CURRENT, previous_cluster)
        previous = _with(previous, cluster=CURRENT)
    kubeconfig.put(CONTEXTS, CURRENT, previous)
    kubeconfig.switch(CURRENT)


def add_context(kubeconfig: Kubeconfig, name: str) -> None:
    """Create a context and a cluster of that name for the current server, and switch to it."""
    context = _context(kubeconfig, kubeconfig.current_context)
    kubeconfig.put(CLUSTERS, name, _cluster(kubeconfig, context))
    kubeconfig.put(CONTEXTS, name, _with(context, cluster=name))
    kubeconfig.switch(name)


def server_of(kubeconfig: Kubeconfig, context: str) -> str:
    return str(_cluster(kubeconfig, _context(kubeconfig, context)).body.get("server", ""))


def _remember(kubeconfig: Kubeconfig, left: KubeconfigEntry) -> None:
    if left.body.get("cluster") == CURRENT:
        kubeconfig.put(CLUSTERS, PREVIOUS, _cluster(kubeconfig, left))
        left = _with(left, cluster=PREVIOUS)
    kubeconfig.put(CONTEXTS, PREVIOUS, left)


def _context(kubeconfig: Kubeconfig, name: str) -> KubeconfigEntry:
    found = kubeconfig.find(CONTEXTS, name)
    if found is None:
        raise CommandError(f'current "{name}" context not found')
    return KubeconfigEntry(dict(found.body), found.origin)


def _cluster(kubeconfig: Kubeconfig, context: KubeconfigEntry) -> KubeconfigEntry:
    name = str(context.body.get("cluster", ""))
    found = kubeconfig.find(CLUSTERS, name)
    if found is None:
        raise CommandError(f'cluster "{name}" not found in kubeconfig')
    return KubeconfigEntry(dict(found.body), found.origin)


def _with(entry: KubeconfigEntry, **fields: str) -> KubeconfigEntry:
    return KubeconfigEntry(entry.body | fields, entry.origin)
