"""Whatever is sent where limits and quotas hold is answered, and never by a fault of the hub."""

from __future__ import annotations

from typing import Any

from examples import examples
from hub_harness import PODS, LocalHub, pod
from hypothesis import given, settings
from hypothesis import strategies as st

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SERVICES = "/api/v1/namespaces/default/services"
AMOUNTS = ["1", "0", "-1", "1e1000", "9999Ei", "1n", "0.000000001", "1e-1000", "x", "", None, 7, -3, 1.5]
RESOURCES = ["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "", "requests.cpu", "ephemeral-storage", "storage"]

amounts = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(AMOUNTS), max_size=3)
requirements = st.one_of(
    st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts}), st.sampled_from([None, {}, [], "x"])
)
containers = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "b", "", None])},
            optional={
                "image": st.just("i"),
                "resources": requirements,
                "restartPolicy": st.sampled_from(["Always", "", None]),
            },
        ),
        st.none(),
    ),
    max_size=3,
)
pods = st.fixed_dictionaries(
    {},
    optional={
        "containers": containers,
        "initContainers": containers,
        "overhead": amounts,
        "resources": requirements,
        "priorityClassName": st.sampled_from(["", None, "none"]),
        "activeDeadlineSeconds": st.sampled_from([0, 1, -1, None, 2**70]),
        "affinity": st.sampled_from([None, {}, {"podAffinity": None}]),
    },
)


async def limited() -> LocalHub:
    hub = await LocalHub.in_memory().furnish()
    everything = {"cpu": "1", "example.com/gpu": "1", "memory": "1Mi"}
    limits = [{"type": kind, "max": everything, "maxLimitRequestRatio": {"cpu": "2"}} for kind in ("Pod", "Container")]
    limits.append({"type": "PersistentVolumeClaim", "max": {"storage": "1"}})
    await hub.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    hard = {"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi", "requests.example.com/gpu": "1"}
    hard |= {"services": "3", "services.nodeports": "2", "requests.storage": "1Gi", "count/pods": "5"}
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await hub.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    scopes = ["NotTerminating", "NotBestEffort"]
    await hub.create(quotas, {"metadata": {"name": "r"}, "spec": {"hard": {"pods": "1"}, "scopes": scopes}})
    return hub


@settings(max_examples=examples(80))
@given(st.lists(pods, min_size=1, max_size=4), st.lists(requirements, max_size=3), st.integers(0, 3))
async def test_no_pod_and_no_claim_breaks_the_hub(specs: list[Any], wanted: list[Any], ports: int) -> None:
    hub = await limited()
    for number, spec in enumerate(specs):
        answer = await hub.post(PODS, pod(f"p{number}") | {"spec": spec})
        assert answer.status in (201, 400, 403, 422), answer.body
    for number, resources in enumerate(wanted):
        claim = {"metadata": {"name": f"c{number}"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
        answer = await hub.post(CLAIMS, claim)
        assert answer.status in (201, 400, 403, 422), answer.body
    service = {"type": "NodePort", "ports": [{"name": f"n{port}", "port": port + 1} for port in range(ports)]}
    answer = await hub.post(SERVICES, {"metadata": {"name": "s"}, "spec": service})
    assert answer.status in (201, 403, 422), answer.body
    usage = hub.quotas.usage_of("/core/resourcequotas/root/default/q")
    assert usage is not None
    assert usage.taken() == usage.used
    assert not [name for name, amount in usage.used.items() if usage.quota.hard[name] < amount or amount.nanos < 0]
