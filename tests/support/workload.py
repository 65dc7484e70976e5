"""Objects of the kinds that people send to the edge."""

from __future__ import annotations

from typing import Any, NamedTuple

from farflung.machinery.errors import Obj


class Example(NamedTuple):
    collection: str  #: its path below a cluster
    obj: Obj
    change: Obj  #: a merge patch that the server allows

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.obj['metadata']['name']}"


def example(collection: str, kind: str, name: str = "example", change: Obj | None = None, **sections: Any) -> Example:
    group_version = collection.split("/")[2:4] if collection.startswith("/apis/") else ["v1"]
    metadata = {"name": name, "labels": {"app": name}, "annotations": {"note": "what for"}}
    obj = {"apiVersion": "/".join(group_version), "kind": kind, "metadata": metadata, **sections}
    return Example(collection, obj, {"metadata": {"labels": {"app": None, "tier": "back"}}, **(change or {})})


def core(plural: str) -> str:
    return f"/api/v1/namespaces/default/{plural}"


def namespaced(group_version: str, plural: str) -> str:
    return f"/apis/{group_version}/namespaces/default/{plural}"


RBAC = "rbac.authorization.k8s.io/v1"
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
SUBJECT = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
CONTAINER = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "1500m"}}}
POD_SPEC = {"containers": [CONTAINER], "restartPolicy": "Always"}
TEMPLATE = {"metadata": {"labels": {"app": "example"}}, "spec": POD_SPEC}
SELECTED = {"selector": {"matchLabels": {"app": "example"}}, "template": TEMPLATE}
WIDGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "colour": {"type": "string", "default": "grey"}},
        }
    },
}

#: what every workspace serves; the CRD before the custom resource
EVERYWHERE = [
    example("/api/v1/namespaces", "Namespace"),
    example(core("configmaps"), "ConfigMap", data={"a": "1", "b": "2"}, change={"data": {"a": None, "c": "3"}}),
    example(core("secrets"), "Secret", stringData={"password": "hunter2"}, change={"stringData": {"password": "s3"}}),
    example(core("serviceaccounts"), "ServiceAccount", "robot", imagePullSecrets=[{"name": "registry"}]),
    example(core("limitranges"), "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "2000m"}}]}),
    example(core("resourcequotas"), "ResourceQuota", spec={"hard": {"configmaps": "100"}}),
    example(namespaced(RBAC, "roles"), "Role", rules=[RULE], change={"rules": []}),
    example(
        namespaced(RBAC, "rolebindings"),
        "RoleBinding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "example"},
        subjects=[SUBJECT, {"kind": "User", "name": "alice"}],
        change={"subjects": [SUBJECT]},
    ),
    example(f"/apis/{RBAC}/clusterroles", "ClusterRole", rules=[RULE], change={"rules": [RULE, RULE]}),
    example(
        f"/apis/{RBAC}/clusterroles",
        "ClusterRole",
        "aggregated",
        aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"app": "example"}}]},
    ),
    example(
        f"/apis/{RBAC}/clusterrolebindings",
        "ClusterRoleBinding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "example"},
        subjects=[SUBJECT],
    ),
    example(
        namespaced("coordination.k8s.io/v1", "leases"),
        "Lease",
        spec={"holderIdentity": "me"},
        change={"spec": {"leaseDurationSeconds": 15}},
    ),
    example(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "CustomResourceDefinition",
        "widgets.example.org",
        spec={
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": WIDGET_SCHEMA}},
            ],
        },
        change={"spec": {"names": {"shortNames": ["wid"]}}},
    ),
    example(namespaced("example.org/v1", "widgets"), "Widget", spec={"size": 3}, change={"spec": {"size": None}}),
]

#: what root:compute exports
COMPUTE = [
    example(namespaced("apps/v1", "deployments"), "Deployment", spec=SELECTED, change={"spec": {"replicas": 3}}),
    example(
        core("services"),
        "Service",
        spec={"selector": {"app": "example"}, "ports": [{"port": 80}]},
        change={"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "tls"}]}},
    ),
    example(core("pods"), "Pod", spec=POD_SPEC),
    example(
        namespaced("networking.k8s.io/v1", "ingresses"),
        "Ingress",
        spec={"defaultBackend": {"service": {"name": "example", "port": {"number": 80}}}},
        change={"spec": {"ingressClassName": "nginx"}},
    ),
]

#: what a hub serves that is no workspace
BUILTIN = [
    example(
        core("services"),
        "Service",
        spec={
            "type": "NodePort",
            "ports": [{"name": "fixed", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}],
        },
        change={"spec": {"externalTrafficPolicy": "Local"}},
    ),
    example(core("services"), "Service", "headless", spec={"clusterIP": "None", "ports": [{"port": 80}]}),
    example(
        core("services"),
        "Service",
        "balanced",
        spec={"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]},
        change={"spec": {"type": "ClusterIP", "externalTrafficPolicy": None, "allocateLoadBalancerNodePorts": None}},
    ),
    example(
        core("services"),
        "Service",
        "elsewhere",
        spec={"ports": [{"port": 80}]},
        change={"spec": {"type": "ExternalName", "externalName": "example.org", "ports": None}},
    ),
    example(core("pods"), "Pod", spec=POD_SPEC, change={"spec": {"activeDeadlineSeconds": 60}}),
    example(
        namespaced("batch/v1", "jobs"),
        "Job",
        spec={"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}},
        change={"spec": {"parallelism": 2}},
    ),
    example(
        namespaced("batch/v1", "cronjobs"),
        "CronJob",
        spec={
            "schedule": "1 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}},
        },
        change={"spec": {"suspend": True}},
    ),
    example(namespaced("apps/v1", "daemonsets"), "DaemonSet", spec=SELECTED),
    example(namespaced("apps/v1", "statefulsets"), "StatefulSet", spec={**SELECTED, "serviceName": "example"}),
    example(namespaced("apps/v1", "replicasets"), "ReplicaSet", spec=SELECTED, change={"spec": {"replicas": 0}}),
    example(
        core("persistentvolumeclaims"),
        "PersistentVolumeClaim",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    ),
    example(namespaced("policy/v1", "poddisruptionbudgets"), "PodDisruptionBudget", spec={"minAvailable": "50%"}),
    example("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", provisioner="example.org/none"),
    example("/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", value=7, change={"description": "seven"}),
    example(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        webhooks=[
            {
                "name": "a.example.org",
                "clientConfig": {"url": "https://example.org"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore",
            }
        ],
        change={"webhooks": None},
    ),
]
