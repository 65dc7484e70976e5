"""What every namespace has from its first moment: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from farflung.hub import objects
from farflung.hub.controllers.loopback import Inside, collection_path, object_path
from farflung.hub.controllers.namespaces import NAMESPACES, Scope, scope_of
from farflung.hub.controllers.reconcile_queue import Work
from farflung.hub.controllers.stored_kinds import KeptKinds
from farflung.hub.namespaces import is_terminating, namespace_key
from farflung.machinery.errors import ApiError, Obj
from farflung.store.base import Change, Store, Subscription

WORKERS: Final = 8
ACCOUNTS: Final = "/core/serviceaccounts/"
CONFIG_MAPS: Final = "/core/configmaps/"
ACCOUNT: Final = "default"
AUTHORITY: Final = "kube-root-ca.crt"
DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class Accounts:
    def __init__(self, store: Store, kinds: KeptKinds, inside: Inside, authority: str) -> None:
        """`authority`: the certificates, in PEM, that clients inside a cluster are to trust."""
        self._store = store
        self._inside = inside
        self._accounts = kinds.builtin(ACCOUNTS)
        self._config_maps = kinds.builtin(CONFIG_MAPS)
        self._data = {"ca.crt": authority}
        self._subscriptions: list[Subscription] = []
        self.work: Work[Scope] = Work("accounts", self._look, workers=WORKERS)

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [
            subscribe(NAMESPACES, self._hear_namespaces),
            subscribe(ACCOUNTS, self._hear_accounts),
            subscribe(CONFIG_MAPS, self._hear_config_maps),
        ]
        for entry in self._store.list(NAMESPACES).entries:
            self.work.add(scope_of(entry.key))

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _hear_namespaces(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is None:
                self.work.add(scope_of(change.key))

    def _hear_accounts(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None and change.key.endswith("/" + ACCOUNT):
                self.work.add(scope_of(change.key))

    def _hear_config_maps(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.endswith("/" + AUTHORITY) and change.previous is not None:
                self.work.add(scope_of(change.key))

    async def _look(self, scope: Scope) -> None:
        if self._is_open(scope):
            try:
                await asyncio.gather(self._ensure_account(scope), self._ensure_authority(scope))
            except ApiError:
                if self._is_open(scope):
                    raise

    def _is_open(self, scope: Scope) -> bool:
        namespace = self._store.get(namespace_key(*scope))
        return namespace is not None and not is_terminating(namespace)

    async def _ensure_account(self, scope: Scope) -> None:
        if self._store.get(objects.key(self._accounts, *scope, ACCOUNT)) is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
            await self._inside.request("POST", collection_path(self._accounts, *scope), account)

    async def _ensure_authority(self, scope: Scope) -> None:
        key = objects.key(self._config_maps, *scope, AUTHORITY)
        entry = self._store.get(key)
        if entry is None:
            await self._inside.request("POST", collection_path(self._config_maps, *scope), self._authority())
            return
        present = objects.decode(entry)
        if present.get("data") != self._data and "deletionTimestamp" not in present["metadata"]:
            await self._inside.request("PUT", object_path(self._config_maps, key), present | {"data": self._data})

    def _authority(self) -> Obj:
        metadata = {"name": AUTHORITY, "annotations": {"kubernetes.io/description": DESCRIPTION}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._data}
