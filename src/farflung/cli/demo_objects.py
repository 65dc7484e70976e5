"""Objects of the demo: two clusters, two workloads and their EdgePlacements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.kcp.names import APIS_GROUP, WORKLOAD_GROUP
from farflung.machinery.errors import Obj

EDGE: Final = "edge.kcp.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """An embedded edge, with its SyncTarget and Location."""

    name: str
    ports: dict[int, int]  #: port of the node → index of PAGES
    target: str
    location: str
    target_labels: dict[str, str]
    location_labels: dict[str, str]

    def kind_config(self, first_port: int) -> Obj:
        mappings = [{"containerPort": inner, "hostPort": first_port + page} for inner, page in self.ports.items()]
        node = {"role": "control-plane", "extraPortMappings": mappings}
        return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}

    def sync_target(self) -> Obj:
        return {
            "apiVersion": "workload.kcp.io/v1alpha1",
            "kind": "SyncTarget",
            "metadata": {"name": self.target, "labels": self.target_labels},
            "spec": {"cells": {"demo": self.name}},
        }

    def place(self) -> Obj:
        resource = {"group": WORKLOAD_GROUP, "version": "v1alpha1", "resource": "synctargets"}
        return {
            "apiVersion": "scheduling.kcp.io/v1alpha1",
            "kind": "Location",
            "metadata": {"name": self.location, "labels": self.location_labels},
            "spec": {"resource": resource, "instanceSelector": {"matchLabels": self.target_labels}},
        }


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    """A web site in a workspace of its own."""

    name: str
    workspace: str
    namespace: str
    deployment: str
    port: int  #: of the node
    sentence: str
    placement: str
    where: dict[str, str]

    def binding(self, name: str, path: str, export: str) -> Obj:
        return {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIBinding",
            "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": path, "name": export}}},
        }

    def bindings(self, provider: str) -> list[Obj]:
        return [
            self.binding("bind-kube", "root:compute", "kubernetes"),
            self.binding("bind-espw", provider, EDGE_GROUP),
        ]

    @property
    def page(self) -> str:
        return f"<!DOCTYPE html>\n<html>\n  <body>\n    {self.sentence}\n  </body>\n</html>\n"

    def home(self) -> Obj:
        metadata = {"name": self.namespace, "labels": {self.name: "si"}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}

    def content(self) -> Obj:
        metadata = {"name": "httpd-htdocs", "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"index.html": self.page}}

    def server(self) -> Obj:
        labels = {"app": self.name}
        container = {
            "name": "httpd",
            "image": "library/httpd:2.4",
            "ports": [{"name": "http", "containerPort": 80, "hostPort": self.port, "protocol": "TCP"}],
            "volumeMounts": [{"name": "htdocs", "readOnly": True, "mountPath": "/usr/local/apache2/htdocs"}],
        }
        volume = {"name": "htdocs", "configMap": {"name": "httpd-htdocs", "optional": False}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.deployment, "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "volumes": [volume]},
                },
            },
        }

    def edge_placement(self) -> Obj:
        bindings = {"apiGroup": APIS_GROUP, "resources": ["apibindings"], "resourceNames": ["bind-kube"]}
        return {
            "apiVersion": EDGE,
            "kind": "EdgePlacement",
            "metadata": {"name": self.placement},
            "spec": {
                "locationSelectors": [{"matchLabels": self.where}],
                "namespaceSelector": {"matchLabels": {self.name: "si"}},
                "nonNamespacedObjects": [bindings],
            },
        }


CLUSTERS: Final = (
    DemoCluster(
        "florin",
        {8081: 0},
        "sync-target-f",
        "location-f",
        {"example": "si", "extended": "non"},
        {"env": "prod"},
    ),
    DemoCluster(
        "guilder",
        {8081: 2, 8082: 1},
        "sync-target-g",
        "location-g",
        {"example": "si", "extended": "si"},
        {"env": "prod", "extended": "si"},
    ),
)
COMMON: Final = DemoWorkload(
    "common",
    "wmw-c",
    "commonstuff",
    "commond",
    8081,
    "This is a common web site.",
    "edge-placement-c",
    {"env": "prod"},
)
SPECIAL: Final = DemoWorkload(
    "special",
    "wmw-s",
    "specialstuff",
    "speciald",
    8082,
    "This is a special web site.",
    "edge-placement-s",
    {"env": "prod", "extended": "si"},
)
#: cluster and workload of each page; ports are consecutive
PAGES: Final = (("florin", COMMON), ("guilder", SPECIAL), ("guilder", COMMON))
