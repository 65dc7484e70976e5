"""How a kubeconfig changes when somebody goes to another workspace.

Two pairs of a cluster and a context belong to the plugin: where one is, and where one was.  Everything else in the
files stays as it is, whatever it is.
"""

from __future__ import annotations

from farflung.cli.plugins.errors import CommandError
from farflung.cli.plugins.kubeconfig import CLUSTERS, CONTEXTS, Entry, Kubeconfig

CURRENT = "workspace.kcp.io/current"
PREVIOUS = "workspace.kcp.io/previous"


def enter(kubeconfig: Kubeconfig, server: str, context: str) -> None:
    """Make the current context one for `server` that is otherwise like `context`; remember the one left."""
    left = _context(kubeconfig, kubeconfig.current_context or context)
    model = _context(kubeconfig, context)
    model_cluster = _cluster(kubeconfig, model)
    _remember(kubeconfig, left)
    kubeconfig.put(CLUSTERS, CURRENT, _with(model_cluster, server=server))
    kubeconfig.put(CONTEXTS, CURRENT, _with(model, cluster=CURRENT))
    kubeconfig.switch(CURRENT)


def go_back(kubeconfig: Kubeconfig) -> None:
    """Exchange where one is and where one was."""
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
    """Give the current context's server a context and a cluster of that name, and switch to it."""
    context = _context(kubeconfig, kubeconfig.current_context)
    kubeconfig.put(CLUSTERS, name, _cluster(kubeconfig, context))
    kubeconfig.put(CONTEXTS, name, _with(context, cluster=name))
    kubeconfig.switch(name)


def server_of(kubeconfig: Kubeconfig, context: str) -> str:
    return str(_cluster(kubeconfig, _context(kubeconfig, context)).body.get("server", ""))


def _remember(kubeconfig: Kubeconfig, left: Entry) -> None:
    if left.body.get("cluster") == CURRENT:
        kubeconfig.put(CLUSTERS, PREVIOUS, _cluster(kubeconfig, left))
        left = _with(left, cluster=PREVIOUS)
    kubeconfig.put(CONTEXTS, PREVIOUS, left)


def _context(kubeconfig: Kubeconfig, name: str) -> Entry:
    found = kubeconfig.find(CONTEXTS, name)
    if found is None:
        raise CommandError(f'current "{name}" context not found')
    return Entry(dict(found.body), found.origin)


def _cluster(kubeconfig: Kubeconfig, context: Entry) -> Entry:
    name = str(context.body.get("cluster", ""))
    found = kubeconfig.find(CLUSTERS, name)
    if found is None:
        raise CommandError(f'cluster "{name}" not found in kubeconfig')
    return Entry(dict(found.body), found.origin)


def _with(entry: Entry, **fields: str) -> Entry:
    return Entry(entry.body | fields, entry.origin)
