"""Pods of a node that does not exist."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

from cluster import NODE, Cluster, cluster

from farflung.apis.names import NODES, PODS
from farflung.client.errors import NotFound


async def bound(one: Cluster, name: str, to: str) -> None:
    container = {"name": "main", "image": "httpd"}
    metadata = {"name": name, "namespace": "default"}
    await one.create(PODS, {"metadata": metadata, "spec": {"nodeName": to, "containers": [container]}})


async def after_a_while(one: Cluster, gone: str, *others: str) -> None:
    """Advance the clock and touch the pods until one of them is deleted."""
    numbers = count()

    async def is_gone() -> bool:
        one.house.ahead += timedelta(seconds=15)
        for name in (*others, gone):
            try:
                await one.patch(PODS, name, {"metadata": {"labels": {"look": str(next(numbers))}}})
            except NotFound:
                assert name == gone
                return True
        return False

    await one.eventually(is_gone, f"the end of {gone}")


async def test_pods_of_a_node_that_never_existed_are_deleted_and_others_stay() -> None:
    async with cluster() as one:
        one.kubelet.held = True
        await bound(one, "lost", "elsewhere")
        await bound(one, "here", NODE)
        for name in ("lost", "here"):
            await one.client.delete(PODS, name, "default")
        await after_a_while(one, "lost", "here")
        assert [pod["metadata"]["name"] for pod in await one.pods()] == ["here"]


async def test_pods_of_a_deleted_node_are_deleted() -> None:
    async with cluster() as one:
        one.kubelet.held = True
        await bound(one, "here", NODE)
        await one.client.delete(NODES, NODE)
        await after_a_while(one, "here")
