"""What `kubectl get` shows of every built-in kind."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.apis import definitions
from farflung.apis.autoscaling import SCALES
from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.printers import labels_text, selector_text, shortened
from farflung.machinery.schema import model
from farflung.machinery.schema.model import Schema

BY_NAME = {f"{one.qualified}/{one.version}": one for one in BUILTIN}
NOW = datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)
METADATA = {"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}


def cells(name: str, **fields: Any) -> list[Any]:
    return BY_NAME[name].printer.cells({"metadata": METADATA, **fields}, NOW)


CASES: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {
    "bindings/v1": [({}, ["x", "2024-01-01T00:00:00Z"])],
    "componentstatuses/v1": [
        ({}, ["x", "Unknown", "", ""]),
        ({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}, ["x", "Healthy", "ok", ""]),
        ({"conditions": [{"type": "Healthy", "status": "False", "error": "e"}]}, ["x", "Unhealthy", "", "e"]),
    ],
    "configmaps/v1": [({"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}, ["x", 3, "30s"])],
    "endpoints/v1": [
        ({}, ["x", "<none>", "30s"]),
        (
            {"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"port": 80}]}]},
            ["x", "10.0.0.1:80,[::1]:80", "30s"],
        ),
        (
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(5)]}]},
            ["x", "10.0.0.0,10.0.0.1,10.0.0.2 + 2 more...", "30s"],
        ),
    ],
    "events/v1": [
        (
            {
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
                "type": "Normal",
                "reason": "Started",
                "message": " hello\n",
                "source": {"component": "kubelet", "host": "n1"},
                "firstTimestamp": "2024-01-01T00:00:10Z",
                "lastTimestamp": "2024-01-01T00:00:20Z",
                "count": 2,
            },
            ["10s", "Normal", "Started", "pod/p", "spec.containers{c}", "kubelet, n1", "hello", "20s", 2, "x"],
        ),
        (
            {
                "involvedObject": {"kind": "Node"},
                "eventTime": "2024-01-01T00:00:20.000000Z",
                "reportingComponent": "c",
                "reportingInstance": "i",
            },
            ["10s", "", "", "node", "", "c, i", "", "10s", 1, "x"],
        ),
        (
            {
                "eventTime": "2024-01-01T00:00:00.000000Z",
                "series": {"count": 7, "lastObservedTime": "2024-01-01T00:00:25.000000Z"},
            },
            ["5s", "", "", "", "", "", "", "30s", 7, "x"],
        ),
        ({}, ["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "x"]),
    ],
    "limitranges/v1": [({}, ["x", "2024-01-01T00:00:00Z"])],
    "namespaces/v1": [({"status": {"phase": "Terminating"}}, ["x", "Terminating", "30s"])],
    "nodes/v1": [
        (
            {
                "metadata": {**METADATA, "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "db"}},
                "spec": {"unschedulable": True},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1", "osImage": "Linux"},
                },
            },
            [
                "x",
                "Ready,SchedulingDisabled",
                "db,worker",
                "30s",
                "v1",
                "10.0.0.1",
                "<none>",
                "Linux",
                "<unknown>",
                "<unknown>",
            ],
        ),
        (
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            ["x", "NotReady", "<none>", "30s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
        ),
        ({}, ["x", "Unknown", "<none>", "30s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
    ],
    "persistentvolumeclaims/v1": [
        (
            {"spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}},
            ["x", "Pending", "", "", "", "fast", "<unset>", "30s", "<unset>"],
        ),
        (
            {
                "spec": {"volumeName": "v", "volumeMode": "Block"},
                "status": {
                    "phase": "Bound",
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                },
            },
            ["x", "Bound", "v", "1Gi", "RWO,RWX", "", "<unset>", "30s", "Block"],
        ),
    ],
    "persistentvolumes/v1": [
        (
            {
                "metadata": {**METADATA, "deletionTimestamp": "2024-01-01T00:00:00Z"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadOnlyMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": "n", "name": "c"},
                },
                "status": {"phase": "Bound", "reason": "r"},
            },
            ["x", "1Gi", "ROX", "Retain", "Terminating", "n/c", "", "<unset>", "r", "30s", "<unset>"],
        ),
    ],
    "podtemplates/v1": [({"template": TEMPLATE}, ["x", "c,d", "i,", "a=b"])],
    "replicationcontrollers/v1": [
        (
            {"spec": {"replicas": 3, "selector": {"a": "b"}, "template": TEMPLATE}, "status": {"replicas": 2}},
            ["x", 3, 2, 0, "30s", "c,d", "i,", "a=b"],
        ),
    ],
    "resourcequotas/v1": [
        (
            {"status": {"hard": {"pods": "3", "limits.cpu": "2", "cpu": "1"}, "used": {"pods": "1"}}},
            ["x", "cpu: 0/1, pods: 1/3", "limits.cpu: 0/2", "30s"],
        ),
        ({}, ["x", "", "", "30s"]),
    ],
    "secrets/v1": [({"type": "Opaque", "data": {"a": "eA=="}}, ["x", "Opaque", 1, "30s"])],
    "serviceaccounts/v1": [({"secrets": [{"name": "t"}]}, ["x", 1, "30s"])],
    "services/v1": [
        (
            {
                "spec": {
                    "type": "ClusterIP",
                    "clusterIPs": ["10.0.0.1"],
                    "ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "nodePort": 30443, "protocol": "UDP"}],
                    "selector": {"c": "d", "a": "b"},
                }
            },
            ["x", "ClusterIP", "10.0.0.1", "<none>", "80/TCP,443:30443/UDP", "30s", "a=b,c=d"],
        ),
        (
            {"spec": {"type": "ExternalName", "externalName": "example.com"}},
            ["x", "ExternalName", "<none>", "example.com", "<none>", "30s", "<none>"],
        ),
        (
            {
                "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "externalIPs": ["1.2.3.4"]},
                "status": {"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "9.9.9.9"}]}},
            },
            ["x", "LoadBalancer", "10.0.0.1", "9.9.9.9,b,1.2.3.4", "<none>", "30s", "<none>"],
        ),
        ({"spec": {"type": "LoadBalancer"}}, ["x", "LoadBalancer", "<none>", "<pending>", "<none>", "30s", "<none>"]),
        ({}, ["x", "", "<none>", "<unknown>", "<none>", "30s", "<none>"]),
    ],
    "apiservices.apiregistration.k8s.io/v1": [
        ({}, ["x", "Local", "Unknown", "30s"]),
        (
            {
                "spec": {"service": {"namespace": "n", "name": "s"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "reason": "Gone"}]},
            },
            ["x", "n/s", "False (Gone)", "30s"],
        ),
    ],
    "controllerrevisions.apps/v1": [
        (
            {
                "metadata": {
                    **METADATA,
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": True}
                    ],
                },
                "revision": 4,
            },
            ["x", "statefulset.apps/s", 4, "30s"],
        ),
        ({}, ["x", "<none>", 0, "30s"]),
    ],
    "daemonsets.apps/v1": [
        (
            {
                "spec": {"selector": SELECTOR, "template": TEMPLATE},
                "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3},
            },
            ["x", 5, 4, 3, 0, 0, "<none>", "30s", "c,d", "i,", "a=b"],
        ),
    ],
    "deployments.apps/v1": [
        (
            {
                "spec": {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
            },
            ["x", "1/2", 2, 1, "30s", "c,d", "i,", "a=b"],
        ),
        ({}, ["x", "0/0", 0, 0, "30s", "", "", ""]),
    ],
    "replicasets.apps/v1": [
        (
            {"spec": {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}, "status": {"replicas": 1}},
            ["x", 2, 1, 0, "30s", "c,d", "i,", "a=b"],
        ),
        ({}, ["x", 0, 0, 0, "30s", "", "", "<none>"]),
    ],
    "statefulsets.apps/v1": [({"spec": {"replicas": 1, "template": TEMPLATE}}, ["x", "0/1", "30s", "c,d", "i,"])],
    "horizontalpodautoscalers.autoscaling/v1": [
        (
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "maxReplicas": 3,
                    "targetCPUUtilizationPercentage": 80,
                }
            },
            ["x", "Deployment/d", "cpu: <unknown>/80%", "<unset>", 3, 0, "30s"],
        ),
    ],
    "horizontalpodautoscalers.autoscaling/v2": [
        (
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "metrics": [
                        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}},
                        {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
                        {"type": "Object", "object": {"target": {"value": "5"}}},
                    ],
                },
                "status": {
                    "currentReplicas": 2,
                    "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 12}}}],
                },
            },
            ["x", "Deployment/d", "cpu: 12%/50%, <unknown>/10 + 1 more...", "1", 3, 2, "30s"],
        ),
        (
            {
                "spec": {
                    "maxReplicas": 1,
                    "metrics": [
                        {"type": "External", "external": {"target": {"averageValue": "7"}}},
                        {
                            "type": "ContainerResource",
                            "containerResource": {"name": "memory", "target": {"averageValue": "1Gi"}},
                        },
                    ],
                },
                "status": {"currentMetrics": [{"external": {"current": {"averageValue": "3"}}}]},
            },
            ["x", "/", "3/7 (avg), memory: <unknown>/1Gi", "<unset>", 1, 0, "30s"],
        ),
        ({"spec": {"metrics": [{"type": "New"}]}}, ["x", "/", "<unknown type>", "<unset>", 0, 0, "30s"]),
        ({}, ["x", "/", "<none>", "<unset>", 0, 0, "30s"]),
    ],
    "cronjobs.batch/v1": [
        (
            {
                "spec": {"schedule": "* * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}},
                "status": {"active": [{}], "lastScheduleTime": "2024-01-01T00:00:10Z"},
            },
            ["x", "* * * * *", "<none>", "False", 1, "20s", "30s", "c,d", "i,", "<none>"],
        ),
        ({}, ["x", "", "<none>", "<unset>", 0, "<none>", "30s", "", "", "<none>"]),
    ],
    "jobs.batch/v1": [
        (
            {
                "spec": {"completions": 3, "selector": SELECTOR, "template": TEMPLATE},
                "status": {
                    "succeeded": 3,
                    "startTime": "2024-01-01T00:00:00Z",
                    "completionTime": "2024-01-01T00:00:05Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["x", "Complete", "3/3", "5s", "30s", "c,d", "i,", "a=b"],
        ),
        (
            {"spec": {"parallelism": 4}, "status": {"startTime": "2024-01-01T00:00:10Z"}},
            ["x", "Running", "0/1 of 4", "20s", "30s", "", "", "<none>"],
        ),
        (
            {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
            ["x", "Suspended", "0/1", "", "30s", "", "", "<none>"],
        ),
        (
            {
                "metadata": {**METADATA, "deletionTimestamp": "2024-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
            },
            ["x", "Terminating", "0/1", "", "30s", "", "", "<none>"],
        ),
        (
            {
                "metadata": {**METADATA, "deletionTimestamp": "2024-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "Failed", "status": "True"}]},
            },
            ["x", "Failed", "0/1", "", "30s", "", "", "<none>"],
        ),
    ],
    "certificatesigningrequests.certificates.k8s.io/v1": [
        (
            {"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600}},
            ["x", "30s", "s", "u", "60m", "Pending"],
        ),
        (
            {"status": {"conditions": [{"type": "Approved"}, {"type": "Failed"}], "certificate": "eA=="}},
            ["x", "30s", "<none>", "", "<none>", "Approved,Failed,Issued"],
        ),
        (
            {"status": {"conditions": [{"type": "Approved"}, {"type": "Denied"}]}},
            ["x", "30s", "<none>", "", "<none>", "Denied"],
        ),
    ],
    "ingressclasses.networking.k8s.io/v1": [
        ({"spec": {"controller": "c"}}, ["x", "c", "<none>", "30s"]),
        (
            {"spec": {"controller": "c", "parameters": {"apiGroup": "example.com", "kind": "K", "name": "n"}}},
            ["x", "c", "K.example.com/n", "30s"],
        ),
    ],
    "ingresses.networking.k8s.io/v1": [
        ({}, ["x", "<none>", "*", "", "80", "30s"]),
        (
            {
                "spec": {"ingressClassName": "n", "rules": [{"host": f"h{n}"} for n in range(5)], "tls": [{}]},
                "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
            },
            ["x", "n", "h0,h1,h2 + 2 more...", "1.2.3.4", "80, 443", "30s"],
        ),
    ],
    "ipaddresses.networking.k8s.io/v1": [
        ({}, ["x", "<none>"]),
        ({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}, ["x", "services/n/s"]),
    ],
    "networkpolicies.networking.k8s.io/v1": [
        ({"spec": {"podSelector": {}}}, ["x", "<none>", "30s"]),
        ({"spec": {"podSelector": SELECTOR}}, ["x", "a=b", "30s"]),
    ],
    "servicecidrs.networking.k8s.io/v1": [
        ({"spec": {"cidrs": ["10.0.0.0/8", "fd00::/8"]}}, ["x", "10.0.0.0/8,fd00::/8", "30s"])
    ],
    "poddisruptionbudgets.policy/v1": [
        (
            {"spec": {"minAvailable": 1}, "status": {"disruptionsAllowed": 2}},
            ["x", "1", "N/A", 2, "30s"],
        ),
        ({"spec": {"maxUnavailable": "50%"}}, ["x", "N/A", "50%", 0, "30s"]),
    ],
    "rolebindings.rbac.authorization.k8s.io/v1": [
        (
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "User", "name": "u"},
                    {"kind": "User", "name": "v"},
                    {"kind": "Group", "name": "g"},
                    {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                ],
            },
            ["x", "Role/r", "30s", "u, v", "g", "n/s"],
        )
    ],
    "clusterrolebindings.rbac.authorization.k8s.io/v1": [
        ({"roleRef": {"kind": "ClusterRole", "name": "r"}}, ["x", "ClusterRole/r", "30s", "", "", ""])
    ],
    "roles.rbac.authorization.k8s.io/v1": [({}, ["x", "2024-01-01T00:00:00Z"])],
    "clusterroles.rbac.authorization.k8s.io/v1": [({}, ["x", "2024-01-01T00:00:00Z"])],
    "csidrivers.storage.k8s.io/v1": [
        ({}, ["x", True, False, False, "<unset>", False, "<none>", "30s"]),
        (
            {
                "spec": {
                    "attachRequired": False,
                    "tokenRequests": [{"audience": "a"}],
                    "volumeLifecycleModes": ["Persistent"],
                }
            },
            ["x", False, False, False, "a", False, "Persistent", "30s"],
        ),
    ],
    "csinodes.storage.k8s.io/v1": [({"spec": {"drivers": [{}]}}, ["x", 1, "30s"])],
    "csistoragecapacities.storage.k8s.io/v1": [
        ({"storageClassName": "c"}, ["x", "c", "<unset>"]),
        ({"capacity": "1Gi"}, ["x", "", "1Gi"]),
    ],
    "storageclasses.storage.k8s.io/v1": [
        (
            {
                "metadata": {**METADATA, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "p",
            },
            ["x (default)", "p", "Delete", "Immediate", False, "30s"],
        )
    ],
    "volumeattachments.storage.k8s.io/v1": [
        (
            {
                "spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
                "status": {"attached": True},
            },
            ["x", "a", "v", "n", True, "30s"],
        )
    ],
    "volumeattributesclasses.storage.k8s.io/v1": [({"driverName": "d"}, ["x", "d", "30s"])],
    "mutatingwebhookconfigurations.admissionregistration.k8s.io/v1": [({"webhooks": [{}, {}]}, ["x", 2, "30s"])],
    "validatingwebhookconfigurations.admissionregistration.k8s.io/v1": [({}, ["x", 0, "30s"])],
    "validatingadmissionpolicies.admissionregistration.k8s.io/v1": [
        ({"spec": {"validations": [{}]}}, ["x", 1, "<unset>", "30s"]),
        ({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}, ["x", 0, "v1/ConfigMap", "30s"]),
    ],
    "validatingadmissionpolicybindings.admissionregistration.k8s.io/v1": [
        ({"spec": {"policyName": "p"}}, ["x", "p", "<unset>", "30s"]),
        ({"spec": {"paramRef": {"name": "n"}}}, ["x", "", "*/n", "30s"]),
        ({"spec": {"paramRef": {"selector": SELECTOR}}}, ["x", "", "a=b", "30s"]),
    ],
    "customresourcedefinitions.apiextensions.k8s.io/v1": [({}, ["x", "2024-01-01T00:00:00Z"])],
    "priorityclasses.scheduling.k8s.io/v1": [
        ({"value": 5, "preemptionPolicy": "Never"}, ["x", 5, False, "30s", "Never"])
    ],
    "leases.coordination.k8s.io/v1": [
        ({"spec": {"holderIdentity": "me"}}, ["x", "me", "30s"]),
        ({}, ["x", "", "30s"]),
    ],
    "runtimeclasses.node.k8s.io/v1": [({"handler": "h"}, ["x", "h", "30s"])],
    "endpointslices.discovery.k8s.io/v1": [
        (
            {
                "addressType": "IPv4",
                "ports": [{"port": 80}, {"name": "web"}, {}],
                "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}],
            },
            ["x", "IPv4", "80,web,*", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "30s"],
        ),
        ({}, ["x", "", "<unset>", "<unset>", "30s"]),
    ],
    "deviceclasses.resource.k8s.io/v1": [({}, ["x", "30s"])],
    "resourceclaimtemplates.resource.k8s.io/v1": [({}, ["x", "30s"])],
    "resourceclaims.resource.k8s.io/v1": [
        ({}, ["x", "pending", "30s"]),
        ({"status": {"allocation": {}, "reservedFor": [{}]}}, ["x", "allocated,reserved", "30s"]),
        ({"metadata": {**METADATA, "deletionTimestamp": "2024-01-01T00:00:00Z"}}, ["x", "deleted", "30s"]),
    ],
    "resourceslices.resource.k8s.io/v1": [
        ({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}}, ["x", "n", "d", "p", "30s"])
    ],
    "flowschemas.flowcontrol.apiserver.k8s.io/v1": [
        (
            {
                "spec": {
                    "priorityLevelConfiguration": {"name": "p"},
                    "matchingPrecedence": 5,
                    "distinguisherMethod": {"type": "ByUser"},
                },
                "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
            },
            ["x", "p", 5, "ByUser", "30s", "False"],
        ),
        ({}, ["x", "", 0, "<none>", "30s", "?"]),
    ],
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io/v1": [
        (
            {
                "spec": {
                    "type": "Limited",
                    "limited": {
                        "nominalConcurrencyShares": 20,
                        "limitResponse": {"queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}},
                    },
                }
            },
            ["x", "Limited", 20, 64, 6, 50, "30s"],
        ),
        ({"spec": {"type": "Exempt"}}, ["x", "Exempt", "<none>", "<none>", "<none>", "<none>", "30s"]),
    ],
}


@pytest.mark.parametrize(("name", "fields", "expected"), [(name, *case) for name in CASES for case in CASES[name]])
def test_a_row_says_what_matters_of_an_object(name, fields, expected):
    assert cells(name, **fields) == expected


def test_the_newer_form_of_an_event_is_printed_like_the_older_one():
    older, expected = CASES["events/v1"][0]
    newer = {
        "regarding": older["involvedObject"],
        "type": older["type"],
        "reason": older["reason"],
        "note": older["message"],
        "deprecatedSource": older["source"],
        "deprecatedFirstTimestamp": older["firstTimestamp"],
        "deprecatedLastTimestamp": older["lastTimestamp"],
        "deprecatedCount": older["count"],
    }
    assert cells("events.events.k8s.io/v1", **newer) == expected


def test_a_scale_says_how_many_are_wanted_and_how_many_there_are():
    scale = {"metadata": METADATA, "spec": {"replicas": 3}, "status": {"replicas": 2}}
    assert SCALES.cells(scale, NOW) == ["x", 3, 2, "30s"]


def test_every_stored_kind_has_a_case():
    tested = {*CASES, "pods/v1", "events.events.k8s.io/v1"}
    assert {name for name, one in BY_NAME.items() if "get" in one.verbs} <= tested


def test_an_object_that_says_nothing_still_makes_a_row():
    for one in BUILTIN:
        assert len(one.printer.cells({"metadata": {}}, NOW)) == len(one.printer.columns)


def test_columns_of_a_kind_have_different_names_and_all_but_one_are_described():
    for one in BUILTIN:
        names = [column.name for column in one.printer.columns]
        assert len(names) == len(set(names))
        undescribed = {column.name for column in one.printer.columns if not column.description}
        assert undescribed <= {"Handler"}, one.qualified


# --- any object of the right types makes a row ----------------------------------------------------

WORDS = ("", "a", "True", "False", "Ready", "Always", "2024-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "nonsense", "é")
SCALARS: dict[str, tuple[Any, ...]] = {
    model.STRING: WORDS,
    model.INTEGER: (0, 1, -1, 2**31 - 1),
    model.NUMBER: (0.5,),
    model.BOOLEAN: (True, False),
    model.INT_OR_STRING: (1, "50%"),
    model.QUANTITY: ("1Gi", "0"),
    model.ANY: ({}, 1, "x"),
}


def any_value(schema: Schema, dice: random.Random, depth: int) -> Any:
    if schema.kind == model.OBJECT:
        names = sorted(schema.property_names)
        chosen = [name for name in names if dice.random() < 0.6] if depth else []
        members = {name: schema.member(name) for name in chosen}
        return {name: any_value(member, dice, depth - 1) for name, member in members.items() if member}
    if schema.kind == model.MAP:
        return {dice.choice(WORDS): any_value(schema.values, dice, depth - 1) for _ in range(dice.randrange(3))}
    if schema.kind == model.LIST:
        return [any_value(schema.items, dice, depth - 1) for _ in range(dice.randrange(3))]
    return dice.choice(SCALARS[schema.kind])


@given(st.integers(0, 2**32))
@settings(max_examples=examples(15))
def test_any_object_of_the_right_types_makes_a_row(seed):
    dice = random.Random(seed)
    for one in BUILTIN:
        obj = any_value(definitions.schema(one.definition), dice, 5)
        row = one.printer.cells(obj, NOW)
        assert len(row) == len(one.printer.columns)
        orjson.dumps(row)
        for read in one.selectable.values():
            assert isinstance(read(obj), str)


# --- parts of cells ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, "<none>"),
        ({}, "<none>"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchLabels": {"m": "1"},
                "matchExpressions": [
                    {"key": "z", "operator": "Exists"},
                    {"key": "a", "operator": "In", "values": ["2", "1"]},
                    {"key": "b", "operator": "NotIn", "values": ["3"]},
                    {"key": "c", "operator": "DoesNotExist"},
                ],
            },
            "a in (1,2),b notin (3),!c,m=1,z",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, "<error>"),
    ],
)
def test_selectors_are_shown_in_one_line(selector, expected):
    assert selector_text(selector) == expected


def test_labels_are_shown_sorted():
    assert labels_text({"b": "2", "a": ""}) == "a=,b=2"
    assert labels_text(None) == "<none>"


def test_long_lists_are_cut_off_and_say_so():
    assert shortened([1, 2, 3]) == "1,2,3"
    assert shortened([1, 2, 3, 4, 5]) == "1,2,3 + 2 more..."
    assert shortened([]) == "<unset>"
