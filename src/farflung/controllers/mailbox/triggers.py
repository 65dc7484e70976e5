"""Changes to the names of mailboxes to reconcile.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from farflung.placement.names import BINDING, THE_ONE, is_mailbox_name, mailbox_name
from farflung.placement.syncer_config import SyncerHeartbeat
from farflung.placement.types import ApiBinding, SyncTarget, Workspace
from farflung.runtime.cache import CacheChange, Key


class Mailboxes:
    """Which SyncTarget, workspace and logical cluster belong together."""

    def __init__(self) -> None:
        self._targets: dict[str, Key] = {}  #: the SyncTarget of a mailbox
        self._workspaces: dict[str, Key] = {}  #: the Workspace object of a mailbox
        self._names: dict[str, str] = {}  #: the mailbox of a cluster

    def clear(self) -> None:
        for index in (self._targets, self._workspaces, self._names):
            index.clear()

    def names(self) -> set[str]:
        return {*self._targets, *self._workspaces}

    def target(self, name: str) -> Key | None:
        return self._targets.get(name)

    def workspace(self, name: str) -> Key | None:
        return self._workspaces.get(name)

    def of_cluster(self, cluster: str) -> str | None:
        """The mailbox with that logical cluster."""
        return self._names.get(cluster)

    def on_target(self, change: CacheChange[SyncTarget]) -> Iterator[str]:
        if change.old is not None and change.new is not None and change.old.metadata == change.new.metadata:
            return  # only its status changed
        names = [
            mailbox_name(change.key.cluster, one.metadata.uid) if one is not None else ""
            for one in (change.old, change.new)
        ]
        for name in filter(None, dict.fromkeys(names)):
            if name == names[1]:
                self._targets[name] = change.key
            else:
                self._targets.pop(name, None)
            yield name

    def on_workspace(self, change: CacheChange[Workspace]) -> Iterator[str]:
        name = change.key.name
        if not is_mailbox_name(name):
            return
        self._workspaces[name] = change.key
        if change.old is not None:
            self._names.pop(change.old.cluster, None)
        if change.new is None:
            del self._workspaces[name]
        if change.new is not None and change.new.cluster:
            self._names[change.new.cluster] = name
        yield name

    def on_binding(self, change: CacheChange[ApiBinding]) -> Iterator[str]:
        if change.key.name == BINDING:
            yield from self._in_cluster(change.key.cluster)

    def on_config(self, change: CacheChange[SyncerHeartbeat]) -> Iterator[str]:
        if change.key.name == THE_ONE and (change.old is None or change.new is None):
            yield from self._in_cluster(change.key.cluster)

    def _in_cluster(self, cluster: str) -> Iterator[str]:
        name = self.of_cluster(cluster)
        if name is not None:
            yield name
