"""Exports as they are written: an identity, where they are, and where their owners see them.

The namespace and the Secret of an identity come first, because nobody misses them if the export never comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from farflung.hub import objects
from farflung.hub.tenancy import api_exports as exports
from farflung.hub.tenancy.api_exports import PATH, SecretName
from farflung.hub.tenancy.direct_writes import NAMESPACE, kind, put_missing, written
from farflung.hub.tenancy.paths import Clusters
from farflung.machinery.errors import Obj
from farflung.store.base import Store

SECRET: Final = kind("", "v1", "secrets", "Secret", namespaced=True)


class Exporter:
    def __init__(
        self,
        store: Store,
        clusters: Clusters,
        *,
        url: str,
        new_uid: Callable[[], str],
        random: Callable[[int], bytes],
    ) -> None:
        """`url`: of the hub, as its clients see it; `random`: so many bytes."""
        self._store = store
        self._clusters = clusters
        self._url = url
        self._new_uid = new_uid
        self._random = random

    async def settle(self, cluster: str, export: Obj, old: Obj | None, now: str) -> None:
        """A valid export, before it is written: it gets its identity, where it is and what it is seen by."""
        metadata = export["metadata"]
        metadata.setdefault("annotations", {})[PATH] = self._clusters.path_of(cluster)
        secret = exports.identity_secret(export)
        if secret is None:
            secret = (None if old is None else exports.identity_secret(old)) or exports.default_secret(metadata["name"])
            exports.with_identity(export, secret)
            if old is None:
                metadata["generation"] = metadata.get("generation", 1) + 1  # that is a change, if not the client's
            elif export["spec"] == old.get("spec"):
                metadata["generation"] = old["metadata"].get("generation", 1)
            await self._make_identity(cluster, secret, now)
        identity = exports.identity_in(self._secret(cluster, secret), secret.name)
        url = exports.view_url(self._url, cluster, metadata["name"])
        export["status"] = exports.status_of(export, identity, url, now)

    async def _make_identity(self, cluster: str, secret: SecretName, now: str) -> None:
        """A Secret that is there stays: an export that comes again finds its objects."""
        if self._secret(cluster, secret) is not None:
            return
        namespace = _new_namespace(secret.namespace)
        value = exports.new_secret(secret, exports.new_key(self._random(exports.KEY_BYTES)))
        writes = ((NAMESPACE, namespace), (SECRET, value))
        await put_missing(
            self._store,
            [written(resource, cluster, obj, uid=self._new_uid(), now=now) for resource, obj in writes],
        )

    def _secret(self, cluster: str, secret: SecretName) -> Obj | None:
        if "/" in secret.namespace or "/" in secret.name:
            return None
        entry = self._store.get(objects.key(SECRET, cluster, secret.namespace, secret.name))
        return None if entry is None else objects.decode(entry)

    def settle_endpoints(self, cluster: str, endpoints: Obj, now: str) -> None:
        """A valid APIExportEndpointSlice, before it is written."""
        export = (endpoints.get("spec") or {}).get("export") or {}
        path, name = export.get("path") or "", export.get("name") or ""
        home = self._clusters.resolve(path) if path else cluster
        url = exports.view_url(self._url, home, name) if home and exports.exists(self._store, home, name) else ""
        present = endpoints.get("status") or {}
        endpoints["status"] = exports.endpoints_status(present, path or cluster, name, url, now)


def _new_namespace(name: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
