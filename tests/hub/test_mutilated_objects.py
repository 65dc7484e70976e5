"""Objects of many kinds, mutilated at random: the hub stores or refuses them, and never fails."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator

from examples import examples
from hub_harness import TABLE, LocalHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farflung.machinery.errors import Obj

SELECTOR = {"matchLabels": {"a": "b"}}
POD = {
    "containers": [
        {
            "name": "main",
            "image": "nginx",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}],
            "resources": {"limits": {"cpu": "1"}},
            "livenessProbe": {"httpGet": {"port": 80, "path": "/"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
    ],
    "volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    ],
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
OBJECTS: dict[str, Obj] = {
    "/api/v1/namespaces/default/configmaps": {"data": {"a": "b"}, "binaryData": {"c": "AAEC"}},
    "/api/v1/namespaces/default/secrets": {"type": "Opaque", "data": {"a": "YQ=="}, "stringData": {"x": "y"}},
    "/api/v1/namespaces/default/services": {
        "spec": {"type": "NodePort", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], "selector": {}}
    },
    "/api/v1/namespaces/default/serviceaccounts": {"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}]},
    "/api/v1/namespaces/default/pods": {"spec": POD},
    "/apis/apps/v1/namespaces/default/deployments": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "/apis/batch/v1/namespaces/default/cronjobs": {
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}},
        }
    },
    "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies": {
        "spec": {"podSelector": SELECTOR, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}
    },
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers": {
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Value", "averageValue": "1"}}}
            ],
        }
    },
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles": {
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    },
}
VERBS = [
    ("POST", "", "application/json"),
    ("PUT", "/calm", "application/json"),
    ("PUT", "/calm/status", "application/json"),
    ("PATCH", "/calm", "application/merge-patch+json"),
    ("PATCH", "/calm", "application/strategic-merge-patch+json"),
    ("PATCH", "/calm", "application/apply-patch+yaml"),
    ("PATCH", "/calm/status", "application/merge-patch+json"),
]

words = st.sampled_from(
    ["", "a", "-", "\0", "A B", "../..", "x" * 300, "1.2.3.4", "::1", "1Gi", "-5", "1e9", "100%", "NaN", "v1", "a/b/c"]
)
numbers = st.sampled_from([0, 1, -1, 2**31, 2**63, 1.5, 1e300])
names = st.sampled_from(
    [
        "",
        "a",
        "name",
        "metadata",
        "finalizers",
        "uid",
        "managedFields",
        "ownerReferences",
        "deletionTimestamp",
        "resourceVersion",
        "generateName",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "f:a",
        "k:{",
    ]
)
junk = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(names, below, max_size=2),
    max_leaves=4,
)


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for name, below in value.items():
            yield from places(below, (*path, name))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from places(below, (*path, index))


@st.composite
def mutilated(draw: st.DrawFn, obj: Obj) -> Obj:
    """The object with one or two of its parts replaced, or with something more."""
    obj = copy.deepcopy(obj)
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from([place for place in places(obj) if place]))
        parent: object = obj
        for step in path:
            parent = parent[step]  # type: ignore[index]
        if isinstance(parent, dict) and draw(st.booleans()):
            last = draw(names)
        parent[last] = draw(junk)  # type: ignore[index]
    return obj


@settings(max_examples=examples(400), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_mutilated_object_makes_the_hub_fail(data: st.DataObject) -> None:
    collection = data.draw(st.sampled_from(list(OBJECTS)))
    method, suffix, content_type = data.draw(st.sampled_from(VERBS))
    named = {"metadata": {"name": "calm"}, **OBJECTS[collection]}
    body = data.draw(mutilated(named))
    query = "fieldManager=fuzz&fieldValidation=" + data.draw(st.sampled_from(["Strict", "Warn", "Ignore"]))

    async def send() -> None:
        hub = await LocalHub.in_memory().furnish()
        await hub.create(collection, named)
        answer = await hub.request(method, collection + suffix, body, query=query, content_type=content_type)
        assert answer.status < 500, (answer.body, body)
        assert answer.json["kind"]
        assert (await hub.get(collection, accept=TABLE)).status == 200

    asyncio.run(send())
