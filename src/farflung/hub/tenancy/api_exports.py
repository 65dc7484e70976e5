"""APIExports: the identity that keeps their objects apart, and where their owners see them.

An export's identity is a random key in a Secret of its workspace; everybody may know its hash, and nobody else the key:
whoever has it can make an export that reads the objects of this one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from farflung.apis.kcp.names import EXTRA_ANNOTATIONS, PATH_ANNOTATION, URLS_READY
from farflung.apis.names import NAME_LABEL
from farflung.hub.catalog import objects
from farflung.hub.tenancy.direct_writes import NAMESPACE, kind, put_missing, written
from farflung.hub.tenancy.paths import Clusters
from farflung.hub.tenancy.status import Verdict, merged
from farflung.machinery.errors import Obj, go_quote
from farflung.store.base import Entry, Store

EXPORTS: Final = "/apis.kcp.io/apiexports/"
SCHEMAS: Final = "/apis.kcp.io/apiresourceschemas/"
ENDPOINT_SLICES: Final = "/apis.kcp.io/apiexportendpointslices/"
SYSTEM_NAMESPACE: Final = "kcp-system"  #: where identities are kept
IDENTITY_VALID: Final = "IdentityValid"
KEY: Final = "key"
KEY_BYTES: Final = 32
SECRET: Final = kind("", "v1", "secrets", "Secret", namespaced=True)


class SecretName(NamedTuple):
    namespace: str
    name: str


def export_key(cluster: str, name: str) -> str:
    return f"{EXPORTS}{cluster}/{name}"


def schema_key(cluster: str, name: str) -> str:
    return f"{SCHEMAS}{cluster}/{name}"


def entry_of(store: Store, cluster: str, name: str) -> Entry | None:
    return store.get(export_key(cluster, name)) if name and "/" not in name else None


def exists(store: Store, cluster: str, name: str) -> bool:
    return entry_of(store, cluster, name) is not None


def identity_secret(export: Obj) -> SecretName | None:
    """Where an export says that its identity is."""
    reference = ((export.get("spec") or {}).get("identity") or {}).get("secretRef") or {}
    name, namespace = reference.get("name", ""), reference.get("namespace", "")
    return SecretName(namespace, name) if name and namespace else None


def default_secret(export_name: str) -> SecretName:
    return SecretName(SYSTEM_NAMESPACE, export_name)


def with_identity(export: Obj, secret: SecretName) -> None:
    reference = {"name": secret.name, "namespace": secret.namespace}
    export.setdefault("spec", {})["identity"] = {"secretRef": reference}


def new_key(chance: bytes) -> str:
    """An identity, of 32 random bytes."""
    return base64.urlsafe_b64encode(chance).rstrip(b"=").decode()


def new_secret(secret: SecretName, key: str) -> Obj:
    data = {KEY: base64.b64encode(key.encode()).decode()}
    metadata = {"name": secret.name, "namespace": secret.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data, "type": "Opaque"}


def identity_hash(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


class Identity(NamedTuple):
    """What is known of an export's identity: its hash, or else what is wrong."""

    hash: str = ""
    problem: str = ""


def identity_in(secret: Obj | None, name: str) -> Identity:
    """Never says anything of what is in the Secret."""
    if secret is None:
        return Identity(problem=f"secrets {go_quote(name)} not found")
    try:
        key = base64.b64decode((secret.get("data") or {}).get(KEY) or "", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        return Identity(problem=f"secret {go_quote(name)} has no data at key {go_quote(KEY)}")
    return Identity(identity_hash(key))


def view_url(external: str, cluster: str, export: str) -> str:
    return f"{external}/services/apiexport/{cluster}/{export}"


def status_of(export: Obj, identity: Identity, url: str, now: str) -> Obj:
    """The status of an export.  The hash of an identity never changes, because objects are stored under it."""
    before: Obj = export.get("status") or {}
    known = before.get("identityHash", "")
    valid = Verdict(IDENTITY_VALID)
    if identity.problem:
        reason = "IdentityVerificationFailed" if known else "IdentityGenerationFailed"
        valid = Verdict(IDENTITY_VALID, reason, identity.problem)
    elif known and identity.hash != known:
        message = "hash mismatch: the hash of the identity secret must match status.identityHash"
        valid = Verdict(IDENTITY_VALID, "IdentityVerificationFailed", message)
    status = {**before, "virtualWorkspaces": [{"url": url}]}
    if hash_now := known or identity.hash:
        status["identityHash"] = hash_now
    status["conditions"] = merged(before.get("conditions") or (), [valid, Verdict(URLS_READY)], now)
    return status


def extras(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that an export hands on to its bindings."""
    return {name: value for name, value in annotations.items() if name.startswith(EXTRA_ANNOTATIONS)}


def schema_names(export: Obj) -> Sequence[str]:
    return (export.get("spec") or {}).get("latestResourceSchemas") or ()


# --- where an export is seen ------------------------------------------------------------------------


def endpoints_status(present: Obj, path: str, name: str, url: str, now: str) -> Obj:
    """The status of an APIExportEndpointSlice; without a URL there is no such export."""
    verdicts = [Verdict("APIExportValid"), Verdict("EndpointURLsReady"), Verdict("PartitionValid")]
    if not url:
        verdicts = [Verdict("APIExportValid", "APIExportNotFound", f"Error getting APIExport {path}|{name}")]
    conditions = merged((present.get("conditions") or ()) if url else (), verdicts, now)
    return {"endpoints": [{"url": url}] if url else [], "conditions": conditions}


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
        metadata.setdefault("annotations", {})[PATH_ANNOTATION] = self._clusters.path_of(cluster)
        secret = identity_secret(export)
        if secret is None:
            secret = (None if old is None else identity_secret(old)) or default_secret(metadata["name"])
            with_identity(export, secret)
            if old is None:
                metadata["generation"] = metadata.get("generation", 1) + 1  # that is a change, if not the client's
            elif export["spec"] == old.get("spec"):
                metadata["generation"] = old["metadata"].get("generation", 1)
            await self._make_identity(cluster, secret, now)
        identity = identity_in(self._secret(cluster, secret), secret.name)
        url = view_url(self._url, cluster, metadata["name"])
        export["status"] = status_of(export, identity, url, now)

    async def _make_identity(self, cluster: str, secret: SecretName, now: str) -> None:
        """A Secret that is there stays: an export that comes again finds its objects."""
        if self._secret(cluster, secret) is not None:
            return
        namespace = _new_namespace(secret.namespace)
        value = new_secret(secret, new_key(self._random(KEY_BYTES)))
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
        url = view_url(self._url, home, name) if home and exists(self._store, home, name) else ""
        present = endpoints.get("status") or {}
        endpoints["status"] = endpoints_status(present, path or cluster, name, url, now)


def _new_namespace(name: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": {NAME_LABEL: name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
