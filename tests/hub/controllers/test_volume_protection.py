"""Claims and volumes stay as long as they are used."""

from __future__ import annotations

from house import House

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def pod(claim: str, **spec: object) -> dict[str, object]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    containers = [{"name": "main", "image": "nginx"}]
    return {"metadata": {"name": "user"}, "spec": {"containers": containers, "volumes": [volume], **spec}}


async def made(house: House, claim: str) -> None:
    answer = await house.client.request("POST", CLAIMS, {"metadata": {"name": claim}, "spec": SPEC})
    assert answer["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_an_unused_claim_is_deleted_at_once(house: House) -> None:
    await made(house, "free")
    await house.client.request("DELETE", f"{CLAIMS}/free")
    await house.settle()
    assert await house.find("persistentvolumeclaims", "free") is None


async def test_a_claim_is_deleted_after_the_pod_that_uses_it_even_after_a_restart(house: House) -> None:
    await made(house, "held")
    await house.client.request("POST", PODS, pod("held", nodeName="n1"))
    await house.client.request("DELETE", f"{CLAIMS}/held")
    await house.settle()
    assert await house.find("persistentvolumeclaims", "held") is not None
    await house.restart()
    await house.settle()
    assert await house.find("persistentvolumeclaims", "held") is not None
    await house.client.request("DELETE", f"{PODS}/user", {"gracePeriodSeconds": 0})
    await house.settle()
    assert await house.find("persistentvolumeclaims", "held") is None


async def test_a_pod_without_a_node_holds_no_claim(house: House) -> None:
    await made(house, "wanted")
    await house.client.request("POST", PODS, pod("wanted"))
    await house.client.request("DELETE", f"{CLAIMS}/wanted")
    await house.settle()
    assert await house.find("persistentvolumeclaims", "wanted") is None


async def test_a_volume_is_deleted_when_no_claim_is_bound_to_it(house: House) -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}
    await house.client.request("POST", VOLUMES, {"metadata": {"name": "disk"}, "spec": spec})
    volume = await house.client.request("GET", f"{VOLUMES}/disk")
    await house.client.request("PUT", f"{VOLUMES}/disk/status", volume | {"status": {"phase": "Bound"}})
    await house.client.request("DELETE", f"{VOLUMES}/disk")
    await house.settle()
    assert await house.find("persistentvolumes", "disk") is not None
    volume = await house.client.request("GET", f"{VOLUMES}/disk")
    await house.client.request("PUT", f"{VOLUMES}/disk/status", volume | {"status": {"phase": "Released"}})
    await house.settle()
    assert await house.find("persistentvolumes", "disk") is None
