"""APIExports: identities, status and endpoints.

An export's identity is a random key in a Secret of its workspace.  Its hash is public, the key is secret: with the key,
another export could access the objects of this one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from farflung.apis.kcp.names import EXTRA_ANNOTATIONS, PATH_ANNOTATION, URLS_READY
from farflung.apis.names import NAME_LABEL
from farflung.hub.catalog import objects
from farflung.hub.tenancy.direct_writes import NAMESPACE, CreationContext, encode_new, minimal_resource, put_missing
from farflung.hub.tenancy.paths import LogicalClusters
from farflung.hub.tenancy.status import ConditionState, merge_conditions
from farflung.machinery.errors import Obj, go_quote
from farflung.store.base import Entry, Store

EXPORTS: Final = "/apis.kcp.io/apiexports/"
SCHEMAS: Final = "/apis.kcp.io/apiresourceschemas/"
ENDPOINT_SLICES: Final = "/apis.kcp.io/apiexportendpointslices/"
SYSTEM_NAMESPACE: Final = "kcp-system"  #: the namespace of identity Secrets
IDENTITY_VALID: Final = "IdentityValid"
KEY: Final = "key"
KEY_BYTES: Final = 32
SECRET: Final = minimal_resource("", "v1", "secrets", "Secret", namespaced=True)


class ExportKey(NamedTuple):
    cluster: str
    name: str


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
    """The Secret that an export references for its identity."""
    reference = ((export.get("spec") or {}).get("identity") or {}).get("secretRef") or {}
    name, namespace = reference.get("name", ""), reference.get("namespace", "")
    return SecretName(namespace, name) if name and namespace else None


def default_secret(export_name: str) -> SecretName:
    return SecretName(SYSTEM_NAMESPACE, export_name)


def with_identity(export: Obj, secret: SecretName) -> None:
    reference = {"name": secret.name, "namespace": secret.namespace}
    export.setdefault("spec", {})["identity"] = {"secretRef": reference}


def new_key(chance: bytes) -> str:
    """A new identity from 32 random bytes."""
    return base64.urlsafe_b64encode(chance).rstrip(b"=").decode()


def new_secret(secret: SecretName, key: str) -> Obj:
    data = {KEY: base64.b64encode(key.encode()).decode()}
    metadata = {"name": secret.name, "namespace": secret.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data, "type": "Opaque"}


def identity_hash(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


class ExportIdentity(NamedTuple):
    """The hash of an export's identity, or the problem with its Secret."""

    hash: str = ""
    problem: str = ""


def read_identity(secret: Obj | None, name: str) -> ExportIdentity:
    """The problem never contains content of the Secret."""
    if secret is None:
        return ExportIdentity(problem=f"secrets {go_quote(name)} not found")
    try:
        key = base64.b64decode((secret.get("data") or {}).get(KEY) or "", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        return ExportIdentity(problem=f"secret {go_quote(name)} has no data at key {go_quote(KEY)}")
    return ExportIdentity(identity_hash(key))


def view_url(external: str, cluster: str, export: str) -> str:
    return f"{external}/services/apiexport/{cluster}/{export}"


def status_of(export: Obj, identity: ExportIdentity, url: str, now: str) -> Obj:
    """The status of an export.  The identity hash never changes, because objects are stored under it."""
    before: Obj = export.get("status") or {}
    known = before.get("identityHash", "")
    valid = ConditionState(IDENTITY_VALID)
    if identity.problem:
        reason = "IdentityVerificationFailed" if known else "IdentityGenerationFailed"
        valid = ConditionState(IDENTITY_VALID, reason, identity.problem)
    elif known and identity.hash != known:
        message = "hash mismatch: the hash of the identity secret must match status.identityHash"
        valid = ConditionState(IDENTITY_VALID, "IdentityVerificationFailed", message)
    status = {**before, "virtualWorkspaces": [{"url": url}]}
    if hash_now := known or identity.hash:
        status["identityHash"] = hash_now
    status["conditions"] = merge_conditions(before.get("conditions") or (), [valid, ConditionState(URLS_READY)], now)
    return status


def extras(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that an export copies to its bindings."""
    return {name: value for name, value in annotations.items() if name.startswith(EXTRA_ANNOTATIONS)}


def schema_names(export: Obj) -> Sequence[str]:
    return (export.get("spec") or {}).get("latestResourceSchemas") or ()


# --- endpoints ------------------------------------------------------------------------------------


def endpoints_status(present: Obj, path: str, name: str, url: str, now: str) -> Obj:
    """The status of an APIExportEndpointSlice.  `url`: empty if the export does not exist."""
    verdicts = [ConditionState("APIExportValid"), ConditionState("EndpointURLsReady"), ConditionState("PartitionValid")]
    if not url:
        verdicts = [ConditionState("APIExportValid", "APIExportNotFound", f"Error getting APIExport {path}|{name}")]
    conditions = merge_conditions((present.get("conditions") or ()) if url else (), verdicts, now)
    return {"endpoints": [{"url": url}] if url else [], "conditions": conditions}


class Exporter:
    def __init__(self, store: Store, clusters: LogicalClusters, context: CreationContext) -> None:
        self._store = store
        self._clusters = clusters
        self._context = context

    async def finish_export(self, cluster: str, export: Obj, old: Obj | None, now: str) -> None:
        """Complete a valid export before it is written: identity, path and status."""
        metadata = export["metadata"]
        metadata.setdefault("annotations", {})[PATH_ANNOTATION] = self._clusters.path_of(cluster)
        secret = identity_secret(export)
        if secret is None:
            secret = (None if old is None else identity_secret(old)) or default_secret(metadata["name"])
            with_identity(export, secret)
            if old is None:
                metadata["generation"] = metadata.get("generation", 1) + 1  # the server changed the spec
            elif export["spec"] == old.get("spec"):
                metadata["generation"] = old["metadata"].get("generation", 1)
            await self._create_identity(cluster, secret, now)
        identity = read_identity(self._secret(cluster, secret), secret.name)
        url = view_url(self._context.url, cluster, metadata["name"])
        export["status"] = status_of(export, identity, url, now)

    async def _create_identity(self, cluster: str, secret: SecretName, now: str) -> None:
        """An existing Secret is kept, so that an export that is created again finds its objects."""
        if self._secret(cluster, secret) is not None:
            return
        namespace = _new_namespace(secret.namespace)
        value = new_secret(secret, new_key(self._context.random_bytes(KEY_BYTES)))
        writes = ((NAMESPACE, namespace), (SECRET, value))
        await put_missing(
            self._store,
            [encode_new(resource, cluster, obj, uid=self._context.new_uid(), now=now) for resource, obj in writes],
        )

    def _secret(self, cluster: str, secret: SecretName) -> Obj | None:
        if "/" in secret.namespace or "/" in secret.name:
            return None
        entry = self._store.get(objects.key(SECRET, cluster, secret.namespace, secret.name))
        return None if entry is None else objects.decode(entry)

    def finish_endpoints(self, cluster: str, endpoints: Obj, now: str) -> None:
        """Complete a valid APIExportEndpointSlice before it is written."""
        export = (endpoints.get("spec") or {}).get("export") or {}
        path, name = export.get("path") or "", export.get("name") or ""
        home = self._clusters.resolve(path) if path else cluster
        url = view_url(self._context.url, home, name) if home and exists(self._store, home, name) else ""
        present = endpoints.get("status") or {}
        endpoints["status"] = endpoints_status(present, path or cluster, name, url, now)


def _new_namespace(name: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": {NAME_LABEL: name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
