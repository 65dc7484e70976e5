"""ServiceAccounts and their tokens.

Every namespace gets the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.  A Secret of the type
`kubernetes.io/service-account-token` gets the token of its ServiceAccount, and is deleted with it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from farflung.apis.names import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_UID
from farflung.http.certificates import CertificateHolder
from farflung.hub.auth.service_account_tokens import ServiceAccount, ServiceAccountTokens
from farflung.hub.catalog import objects
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.controllers.loopback import LoopbackClient, collection_path, object_path
from farflung.hub.controllers.namespaces import NAMESPACES, NamespaceRef, namespace_ref
from farflung.hub.controllers.reconcile_queue import ReconcileQueue
from farflung.hub.controllers.stored_kinds import StoredKinds
from farflung.machinery.errors import ApiError
from farflung.store.base import Change, Entry, Store, Subscription

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
TOKEN_WORKERS: Final = 4
SECRETS: Final = "/core/secrets/"
TYPE: Final = "kubernetes.io/service-account-token"
MARK: Final = TYPE.encode()


class ServiceAccountsController:
    def __init__(
        self, store: Store, kinds: StoredKinds, client: LoopbackClient, certificates: CertificateHolder
    ) -> None:
        self._store = store
        self._client = client
        self._certificates = certificates
        self._accounts = kinds.builtin(ACCOUNTS)
        self._config_maps = kinds.builtin(CONFIG_MAPS)
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[NamespaceRef] = ReconcileQueue("accounts", self._reconcile, workers=WORKERS)

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [
            subscribe(NAMESPACES, self._on_namespaces),
            subscribe(ACCOUNTS, self._on_accounts),
            subscribe(CONFIG_MAPS, self._on_config_maps),
        ]
        self._certificates.subscribe(self._enqueue_all)
        self._enqueue_all()

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def _enqueue_all(self, *_: object) -> None:
        for entry in self._store.list(NAMESPACES).entries:
            self.queue.add(namespace_ref(entry.key))

    def _on_namespaces(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is None:
                self.queue.add(namespace_ref(change.key))

    def _on_accounts(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None and change.key.endswith("/" + ACCOUNT):
                self.queue.add(namespace_ref(change.key))

    def _on_config_maps(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.endswith("/" + AUTHORITY) and change.previous is not None:
                self.queue.add(namespace_ref(change.key))

    async def _reconcile(self, scope: NamespaceRef) -> None:
        if self._is_active(scope):
            try:
                await asyncio.gather(self._ensure_account(scope), self._ensure_authority(scope))
            except ApiError:
                if self._is_active(scope):
                    raise

    def _is_active(self, scope: NamespaceRef) -> bool:
        namespace = self._store.get(objects.namespace_key(*scope))
        return namespace is not None and not objects.is_terminating(namespace)

    async def _ensure_account(self, scope: NamespaceRef) -> None:
        if self._store.get(objects.key(self._accounts, *scope, ACCOUNT)) is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
            await self._client.request("POST", collection_path(self._accounts, *scope), account)

    async def _ensure_authority(self, scope: NamespaceRef) -> None:
        key = objects.key(self._config_maps, *scope, AUTHORITY)
        entry, data = self._store.get(key), {"ca.crt": self._certificates.bundle}
        if entry is None:
            metadata = {"name": AUTHORITY, "annotations": {"kubernetes.io/description": DESCRIPTION}}
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            await self._client.request("POST", collection_path(self._config_maps, *scope), obj)
            return
        present = objects.decode(entry)
        if present.get("data") != data and "deletionTimestamp" not in present["metadata"]:
            await self._client.request("PUT", object_path(self._config_maps, key), present | {"data": data})


class _Metadata(msgspec.Struct):
    uid: str
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None


class TokenSecret(msgspec.Struct):
    metadata: _Metadata
    type: str = ""
    data: dict[str, str] | None = None
    immutable: bool | None = None

    @property
    def account_name(self) -> str:
        return (self.metadata.annotations or {}).get(SERVICE_ACCOUNT_NAME, "")

    @property
    def account_uid(self) -> str:
        """Empty: any account of that name."""
        return (self.metadata.annotations or {}).get(SERVICE_ACCOUNT_UID, "")


_decode = msgspec.json.Decoder(TokenSecret).decode


def token_secret(entry: Entry | None) -> TokenSecret | None:
    """None for Secrets of other types, nearly all of which are not decoded."""
    if entry is None or MARK not in entry.value:
        return None
    secret = _decode(entry.value)
    return secret if secret.type == TYPE and secret.account_name else None


class FillSecret(NamedTuple):
    key: str


class RemoveSecretReference(NamedTuple):
    """Remove a deleted Secret from its account's list of secrets."""

    account: str  #: a key
    secret: str  #: a name


class TokensController:
    def __init__(
        self,
        store: Store,
        kinds: StoredKinds,
        client: LoopbackClient,
        tokens: ServiceAccountTokens,
        certificates: CertificateHolder,
    ) -> None:
        self._store = store
        self._client = client
        self._tokens = tokens
        self._certificates = certificates
        self._secrets = kinds.builtin(SECRETS)
        self._accounts = kinds.builtin(ACCOUNTS)
        self._of_account: dict[str, set[str]] = {}  #: key of an account → keys of its Secrets
        self._subscriptions: list[Subscription] = []
        self.queue: ReconcileQueue[FillSecret | RemoveSecretReference] = ReconcileQueue(
            "token-secrets", self._reconcile, workers=TOKEN_WORKERS
        )

    def start(self) -> None:
        subscribe = self._store.subscribe
        self._subscriptions = [subscribe(SECRETS, self._on_secrets), subscribe(ACCOUNTS, self._on_accounts)]
        for entry in self._store.list(SECRETS).entries:
            if (secret := token_secret(entry)) is not None:
                self._track(entry.key, secret)
        self._tokens.subscribe(self._enqueue_all)
        self._certificates.subscribe(self._enqueue_all)

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    # --- changes ----------------------------------------------------------------------------------

    def _enqueue_all(self, *_: object) -> None:
        for keys in self._of_account.values():
            for key in keys:
                self.queue.add(FillSecret(key))

    def _track(self, key: str, secret: TokenSecret) -> None:
        self._of_account.setdefault(account_key(key, secret), set()).add(key)
        self.queue.add(FillSecret(key))

    def _on_secrets(self, changes: Sequence[Change]) -> None:
        for change in changes:
            old, new = token_secret(change.previous), token_secret(change.entry)
            if old is not None and (new is None or new.account_name != old.account_name):
                self._untrack(change.key, old)
            if new is not None:
                self._track(change.key, new)

    def _untrack(self, key: str, secret: TokenSecret) -> None:
        account = account_key(key, secret)
        keys = self._of_account.get(account, set())
        keys.discard(key)
        if not keys:
            self._of_account.pop(account, None)
        self.queue.add(RemoveSecretReference(account, objects.name_in(key)[1]))

    def _on_accounts(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.entry is None or change.previous is None:
                for key in self._of_account.get(change.key, ()):
                    self.queue.add(FillSecret(key))

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, task: FillSecret | RemoveSecretReference) -> None:
        if isinstance(task, FillSecret):
            await self._fill(task.key)
        else:
            await self._forget(task)

    async def _fill(self, key: str) -> None:
        entry = self._store.get(key)
        secret = token_secret(entry)
        if entry is None or secret is None or secret.metadata.deletionTimestamp is not None:
            return
        account = self._account(account_key(key, secret))
        path = object_path(self._secrets, key)
        if account is None or secret.account_uid not in ("", account.uid):
            await self._client.delete(path, policy="Background", uid=secret.metadata.uid)
            return
        missing = self._missing(account, objects.name_in(key)[1], secret.data or {})
        if missing and not secret.immutable:
            annotations = {SERVICE_ACCOUNT_NAME: account.name, SERVICE_ACCOUNT_UID: account.uid}
            change = {"metadata": {"annotations": annotations}, "data": missing}
            await self._client.patch(path, change, uid=secret.metadata.uid, revision=entry.revision)

    def _missing(self, account: ServiceAccount, name: str, data: dict[str, str]) -> dict[str, str]:
        missing = {}
        authority = encoded(self._certificates.bundle)
        if data.get("ca.crt") != authority:
            missing["ca.crt"] = authority
        if not data.get("namespace"):
            missing["namespace"] = encoded(account.namespace)
        if not data.get("token") or self._tokens.is_revoked(decoded(data["token"])):
            missing["token"] = encoded(self._tokens.issue_legacy(account, name))
        return missing

    def _account(self, key: str) -> ServiceAccount | None:
        entry = self._store.get(key)
        if entry is None:
            return None
        return ServiceAccount(cluster_in(key), *objects.name_in(key), objects.decode(entry)["metadata"]["uid"])

    async def _forget(self, task: RemoveSecretReference) -> None:
        entry = self._store.get(task.account)
        namespace = objects.name_in(task.account)[0]
        secret_key = objects.key(self._secrets, cluster_in(task.account), namespace, task.secret)
        if entry is None or self._store.get(secret_key) is not None:
            return
        account = objects.decode(entry)
        named = account.get("secrets") or []
        left = [reference for reference in named if reference.get("name") != task.secret]
        if len(left) < len(named):
            path, uid = object_path(self._accounts, task.account), account["metadata"]["uid"]
            await self._client.patch(path, {"secrets": left or None}, uid=uid, revision=entry.revision)


def account_key(key: str, secret: TokenSecret) -> str:
    """The key of a Secret's account, which is in the same namespace."""
    return f"{ACCOUNTS}{cluster_in(key)}/{objects.name_in(key)[0]}/{secret.account_name}"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Empty for what is not text in base64."""
    try:
        return base64.b64decode(text).decode()
    except ValueError:
        return ""
