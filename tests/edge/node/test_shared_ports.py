"""Which containers share a network."""

from typing import Any

from farflung.edge.node.container_spec import shared_ports


def container(port: int, **more: Any) -> dict[str, Any]:
    return {"name": f"c{port}", "ports": [{"containerPort": port}], **more}


def test_a_container_that_is_alone_shares_nothing() -> None:
    assert shared_ports({"spec": {"containers": [container(80)]}}) is None
    assert shared_ports({"spec": {"initContainers": [container(81)], "containers": [container(80)]}}) is None


def test_containers_that_run_together_share_the_ports_of_all() -> None:
    assert shared_ports({"spec": {"containers": [container(80), container(79), {"name": "quiet"}]}}) == (79, 80)
    sidecar = container(81, restartPolicy="Always")
    assert shared_ports({"spec": {"initContainers": [sidecar, container(7)], "containers": [container(80)]}}) == (
        80,
        81,
    )
