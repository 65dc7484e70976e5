"""The objects that run a syncer in its cluster, and those that give it access to its mailbox.  Equal arguments have
equal results, to the byte."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from farflung.apis.edge.names import KUBECONFIG_CHECKSUM
from farflung.apis.kcp.names import CONSUMER, CONSUMING_ACCOUNT
from farflung.apis.names import RBAC_GROUP
from farflung.machinery.errors import Obj

PREFIX: Final = "farflung-syncer"
HOME: Final = "farflung-syncer"  #: the namespace of a syncer's ServiceAccount in its mailbox
POLICY: Final = (
    "farflung-syncers"  #: the role of all syncers in the workspace of an export with a maximal permission policy
)
KNOWN: Final = {"app.kubernetes.io/name": PREFIX}  #: labels of all objects here
LABEL_LENGTH: Final = 63
HASH_LENGTH: Final = 8

CREDENTIALS: Final = "/etc/farflung"  #: the mounted kubeconfig
STATE: Final = "/var/lib/farflung"  #: the writable directory
HEALTH_PORT: Final = 10206
USER: Final = 65532  #: the usual `nonroot`


def identity(target: str, uid: str) -> str:
    """The name of a SyncTarget's syncer on both sides, a DNS label.  It depends on the uid, so that a SyncTarget of the
    same name has another one."""
    suffix = hashlib.sha256(uid.encode()).hexdigest()[:HASH_LENGTH]
    readable = re.sub(r"[^a-z0-9-]+", "-", target.lower())[: LABEL_LENGTH - len(PREFIX) - HASH_LENGTH - 2].strip("-")
    return f"{PREFIX}-{readable}-{suffix}" if readable else f"{PREFIX}-{suffix}"


# --- in the mailbox -------------------------------------------------------------------------------


def mailbox_objects(name: str, rules: Sequence[Obj]) -> list[Obj]:
    """In the order of their application."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": HOME}
    return _labelled(
        [
            _object("v1", "Namespace", HOME),
            _object("v1", "ServiceAccount", name, HOME),
            *_granted(name, rules, subject),
        ],
        KNOWN,
    )


def policy_objects(name: str, mailbox: str, rules: Sequence[Obj]) -> list[Obj]:
    """For the workspace of an export: the role of all syncers, and its binding to this ServiceAccount of this mailbox,
    a logical cluster.  Namespaces and ServiceAccounts of other workspaces may have the same names."""
    user = f"{CONSUMER}{CONSUMING_ACCOUNT}{mailbox}:{HOME}:{name}"
    return _labelled(_granted(name, rules, {"apiGroup": RBAC_GROUP, "kind": "User", "name": user}, POLICY), KNOWN)


def _granted(name: str, rules: Sequence[Obj], subject: Obj, role_name: str = "") -> list[Obj]:
    """`name`: of the binding, and of the role by default."""
    role = _object(f"{RBAC_GROUP}/v1", "ClusterRole", role_name or name) | {"rules": list(rules)}
    binding = _object(f"{RBAC_GROUP}/v1", "ClusterRoleBinding", name) | {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role_name or name},
        "subjects": [subject],
    }
    return [role, binding]


def _labelled(objects: list[Obj], labels: Mapping[str, str]) -> list[Obj]:
    for obj in objects:
        obj["metadata"]["labels"] = dict(labels)
    return objects


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Obj:
    metadata: Obj = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


# --- the kubeconfig -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MailboxServer:
    """The address of a mailbox for its syncer."""

    url: str  #: with the path of the mailbox
    authority: bytes = b""  #: certificates in PEM; empty: those of the machine
    name: str = ""  #: in the server's certificate, if it differs from the URL
    insecure: bool = False  #: do not verify the certificate


def kubeconfig(server: MailboxServer, user: Mapping[str, str]) -> str:
    """`user`: its credentials, `token` or `tokenFile`."""
    cluster: dict[str, Any] = {"server": server.url}
    if server.authority:
        cluster["certificate-authority-data"] = base64.b64encode(server.authority).decode()
    if server.name:
        cluster["tls-server-name"] = server.name
    if server.insecure:
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "mailbox", "cluster": cluster}],
        "users": [{"name": "syncer", "user": dict(user)}],
        "contexts": [{"name": "mailbox", "context": {"cluster": "mailbox", "user": "syncer", "namespace": HOME}}],
        "current-context": "mailbox",
    }
    return yaml.safe_dump(config, sort_keys=False)


# --- at the edge ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncerInstallation:
    """The parameters of a syncer's manifest."""

    target: str  #: the name of its SyncTarget
    uid: str
    server: MailboxServer
    token: str = field(repr=False)
    rules: Sequence[Obj]
    image: str
    namespace: str = ""  #: default: one named after the syncer
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""  #: a PersistentVolumeClaim for the journal; default: an emptyDir

    @property
    def name(self) -> str:
        return identity(self.target, self.uid)

    @property
    def home(self) -> str:
        return self.namespace or self.name


def edge_objects(syncer: SyncerInstallation) -> list[Obj]:
    """In the order of their application."""
    name, home = syncer.name, syncer.home
    config = kubeconfig(syncer.server, {"tokenFile": "token"})
    secret = _object("v1", "Secret", name, home) | {
        "type": "Opaque",
        "data": {"kubeconfig": _base64(config), "token": _base64(syncer.token)},
    }
    objects = [
        _object("v1", "Namespace", home),
        _object("v1", "ServiceAccount", name, home),
        *_granted(name, syncer.rules, {"kind": "ServiceAccount", "name": name, "namespace": home}),
        secret,
        _deployment(syncer, hashlib.sha256(config.encode()).hexdigest()[:16]),
    ]
    return _labelled(objects, {**syncer.labels, **_labels(syncer)})


def _labels(syncer: SyncerInstallation) -> dict[str, str]:
    return {**KNOWN, "app.kubernetes.io/instance": syncer.name}


def _deployment(syncer: SyncerInstallation, checksum: str) -> Obj:
    pod: Obj = {
        "metadata": {"labels": {**syncer.labels, **_labels(syncer)}, "annotations": {KUBECONFIG_CHECKSUM: checksum}},
        "spec": {
            "serviceAccountName": syncer.name,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(syncer)],
            "volumes": [
                {"name": "credentials", "secret": {"secretName": syncer.name, "defaultMode": 0o440}},
                {"name": "state", **_state(syncer)},
            ],
        },
    }
    return _object("apps/v1", "Deployment", syncer.name, syncer.home) | {
        "spec": {
            "replicas": syncer.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _labels(syncer)},
            "template": pod,
        },
    }


def _container(syncer: SyncerInstallation) -> Obj:
    return {
        "name": "syncer",
        "image": syncer.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "syncer",
            f"--from-kubeconfig={CREDENTIALS}/kubeconfig",
            f"--sync-target-name={syncer.target}",
            f"--sync-target-uid={syncer.uid}",
            f"--state-directory={STATE}/syncer",
            f"--token-secret={syncer.home}/{syncer.name}",
            f"--server-bind-address=:{HEALTH_PORT}",
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 10},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "initialDelaySeconds": 10,
            "periodSeconds": 20,
            "failureThreshold": 6,
        },
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "credentials", "mountPath": CREDENTIALS, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }


def _state(syncer: SyncerInstallation) -> Obj:
    if syncer.claim:
        return {"persistentVolumeClaim": {"claimName": syncer.claim}}
    return {"emptyDir": {"sizeLimit": "1Gi"}}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# --- files ----------------------------------------------------------------------------------------


def as_yaml(objects: Iterable[Obj]) -> str:
    return "---\n".join(yaml.safe_dump(obj, sort_keys=False) for obj in objects)


def find_token(text: str) -> str:
    """The token in a manifest or kubeconfig of this module; empty if there is none."""
    try:
        documents = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
        for one in documents:
            if one.get("kind") == "Secret":
                return base64.b64decode(one["data"]["token"], validate=True).decode()
            if one.get("kind") == "Config":
                return str(one["users"][0]["user"]["token"])
    except (yaml.YAMLError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        pass
    return ""
