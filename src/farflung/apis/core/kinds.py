"""The core group."""

from __future__ import annotations

from typing import Final

from farflung.apis.core import printers
from farflung.apis.core import printers as pods
from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.apis.resource import (
    ALL_VERBS,
    CHANGE,
    PROXY,
    SCALE,
    Group,
    SelectableFields,
    Subresource,
    count,
    flag,
    status,
    text,
)
from farflung.machinery.errors import Obj

CORE: Final = Group("", "v1", "io.k8s.api.core.v1.")


def event_source(event: Obj) -> str:
    source: str = (event.get("source") or {}).get("component") or ""
    return source or event.get("reportingComponent") or ""


EVENT_FIELDS: Final[SelectableFields] = {
    "involvedObject.kind": text("involvedObject", "kind"),
    "involvedObject.namespace": text("involvedObject", "namespace"),
    "involvedObject.name": text("involvedObject", "name"),
    "involvedObject.uid": text("involvedObject", "uid"),
    "involvedObject.apiVersion": text("involvedObject", "apiVersion"),
    "involvedObject.resourceVersion": text("involvedObject", "resourceVersion"),
    "involvedObject.fieldPath": text("involvedObject", "fieldPath"),
    "reason": text("reason"),
    "reportingComponent": text("reportingComponent"),
    "source": event_source,
    "type": text("type"),
}

POD_FIELDS: Final[SelectableFields] = {
    "spec.nodeName": text("spec", "nodeName"),
    "spec.host": text("spec", "nodeName"),
    "spec.restartPolicy": text("spec", "restartPolicy"),
    "spec.schedulerName": text("spec", "schedulerName"),
    "spec.serviceAccountName": text("spec", "serviceAccountName"),
    "spec.hostNetwork": flag("spec", "hostNetwork"),
    "status.phase": text("status", "phase"),
    "status.podIP": text("status", "podIP"),
    "status.podIPs": lambda _: "",
    "status.nominatedNodeName": text("status", "nominatedNodeName"),
}

POD_SUBRESOURCES: Final = (
    Subresource("attach", ("create", "get"), "PodAttachOptions"),
    Subresource("binding", ("create",), "Binding"),
    Subresource("ephemeralcontainers", CHANGE, "Pod"),
    Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
    Subresource("exec", ("create", "get"), "PodExecOptions"),
    Subresource("log", ("get",), "Pod"),
    Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
    Subresource("proxy", PROXY, "PodProxyOptions"),
    Subresource("resize", CHANGE, "Pod"),
    status("Pod"),
)

RESOURCES: Final = (
    CORE.virtual("bindings", "Binding", namespaced=True),
    CORE.virtual(
        "componentstatuses",
        "ComponentStatus",
        printer=printers.COMPONENT_STATUSES,
        short_names=("cs",),
        verbs=("get", "list"),
        deprecated="v1 ComponentStatus is deprecated in v1.19+",
    ),
    CORE.stored("configmaps", "ConfigMap", printer=printers.CONFIG_MAPS, short_names=("cm",)),
    CORE.stored(
        "endpoints",
        "Endpoints",
        printer=printers.ENDPOINTS,
        short_names=("ep",),
        deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    CORE.stored("events", "Event", printer=printers.EVENTS, short_names=("ev",), selectable=EVENT_FIELDS),
    CORE.stored("limitranges", "LimitRange", short_names=("limits",)),
    CORE.stored(
        "namespaces",
        "Namespace",
        printer=printers.NAMESPACES,
        namespaced=False,
        short_names=("ns",),
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=(Subresource("finalize", ("update",), "Namespace"), status("Namespace")),
        selectable={"status.phase": text("status", "phase")},
    ),
    CORE.stored(
        "nodes",
        "Node",
        printer=printers.NODES,
        namespaced=False,
        short_names=("no",),
        subresources=(Subresource("proxy", PROXY, "NodeProxyOptions"), status("Node")),
        selectable={"spec.unschedulable": flag("spec", "unschedulable")},
    ),
    CORE.stored(
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        printer=printers.PERSISTENT_VOLUME_CLAIMS,
        short_names=("pvc",),
        subresources=(status("PersistentVolumeClaim"),),
    ),
    CORE.stored(
        "persistentvolumes",
        "PersistentVolume",
        printer=printers.PERSISTENT_VOLUMES,
        namespaced=False,
        short_names=("pv",),
        subresources=(status("PersistentVolume"),),
    ),
    CORE.stored(
        "pods",
        "Pod",
        printer=pods.PODS,
        short_names=("po",),
        categories=("all",),
        subresources=POD_SUBRESOURCES,
        selectable=POD_FIELDS,
    ),
    CORE.stored(
        "podtemplates",
        "PodTemplate",
        printer=printers.POD_TEMPLATES,
    ),
    CORE.stored(
        "replicationcontrollers",
        "ReplicationController",
        printer=printers.REPLICATION_CONTROLLERS,
        short_names=("rc",),
        categories=("all",),
        subresources=(SCALE, status("ReplicationController")),
        selectable={"status.replicas": count("status", "replicas")},
    ),
    CORE.stored(
        "resourcequotas",
        "ResourceQuota",
        printer=printers.RESOURCE_QUOTAS,
        short_names=("quota",),
        subresources=(status("ResourceQuota"),),
    ),
    CORE.stored("secrets", "Secret", printer=printers.SECRETS, selectable={"type": text("type")}),
    CORE.stored(
        "serviceaccounts",
        "ServiceAccount",
        printer=printers.SERVICE_ACCOUNTS,
        short_names=("sa",),
        subresources=(Subresource("token", ("create",), "TokenRequest", AUTHENTICATION_GROUP, "v1"),),
    ),
    CORE.stored(
        "services",
        "Service",
        printer=printers.SERVICES,
        short_names=("svc",),
        categories=("all",),
        subresources=(Subresource("proxy", PROXY, "ServiceProxyOptions"), status("Service")),
        selectable={"spec.clusterIP": text("spec", "clusterIP"), "spec.type": text("spec", "type")},
    ),
)
