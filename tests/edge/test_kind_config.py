"""Configuration files of kind."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.kind_config import ConfigError, KindCluster, read
from farflung.edge.ports import PortMapping

HEAD = b"kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"

GUILDER = (
    HEAD
    + b"""nodes:
- role: control-plane
  extraPortMappings:
  - containerPort: 8081
    hostPort: 8083
  - containerPort: 8082
    hostPort: 8082
"""
)


def test_the_ports_of_the_seeds_are_mapped_to_this_machine_alone() -> None:
    assert read(GUILDER) == KindCluster(
        mappings=(PortMapping(8081, 8083, "127.0.0.1"), PortMapping(8082, 8082, "127.0.0.1"))
    )


def test_all_fields_are_optional() -> None:
    assert read(HEAD) == KindCluster()


def test_all_supported_fields_are_read() -> None:
    config = (
        HEAD
        + b"""name: florin
networking: {apiServerAddress: "0.0.0.0", apiServerPort: 7443}
nodes:
- extraPortMappings:
  - {containerPort: 80, listenAddress: "::", protocol: tcp}
"""
    )

    assert read(config) == KindCluster("florin", "0.0.0.0", 7443, (PortMapping(80, 0, "::"),))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"", "it is not an object"),
        (b"- a", "it is not an object"),
        (b"kind: Pod", "it is not a Cluster of kind.x-k8s.io/v1alpha4"),
        (b"a: &a [*a]", "anchor 'a' value contains itself"),
        (b"a: 1\na: 2", 'key "a" already set in map'),
        (b"a: [", "line"),
        (HEAD + b"nodes: [{}, {role: worker}]", "it has 2 nodes; an embedded edge has one"),
        (HEAD + b"nodes: [{role: worker}]", "nodes[0].role is 'worker'; the only node is the control-plane"),
        (HEAD + b"nodes: [{image: x}]", "nodes[0].image is not supported by embedded edges"),
        (HEAD + b"featureGates: {}", "featureGates is not supported by embedded edges"),
        (HEAD + b"networking: {ipFamily: dual}", "networking.ipFamily is not supported by embedded edges"),
        (HEAD + b"nodes: 3", "nodes is not a list"),
        (HEAD + b"nodes: [{extraPortMappings: [{hostPort: 3}]}]", "containerPort is missing"),
        (HEAD + b"nodes: [{extraPortMappings: [{containerPort: 70000}]}]", "is 70000, which is not a port"),
        (HEAD + b"nodes: [{extraPortMappings: [{containerPort: yes}]}]", "is True, which is not a port"),
        (HEAD + b"nodes: [{extraPortMappings: [{containerPort: '80'}]}]", "is '80', which is not a port"),
        (
            HEAD + b"nodes: [{extraPortMappings: [{containerPort: 80, protocol: UDP}]}]",
            "nodes[0].extraPortMappings[0].protocol is 'UDP'; only TCP is forwarded",
        ),
        (
            HEAD + b"nodes: [{extraPortMappings: [{containerPort: 80, listenAddress: here}]}]",
            "nodes[0].extraPortMappings[0].listenAddress is 'here', which is not an IP address",
        ),
        (
            HEAD + b"nodes: [{extraPortMappings: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]",
            "nodes[0].extraPortMappings[1].hostPort 5 is a duplicate",
        ),
        (b"#" * (1 << 20) + b"#", "it is larger than 1 MiB"),
    ],
)
def test_unsupported_fields_are_refused_with_their_path(config: bytes, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(config)

    assert why in str(refused.value)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "containerPort", "hostPort", "extraPortMappings", "protocol", "x"]), inner
        ),
    ),
    max_leaves=10,
)


@given(nodes=VALUES, networking=VALUES, name=VALUES)
def test_hostile_files_are_read_or_refused(nodes: object, networking: object, name: object) -> None:
    config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4"}
    text = json.dumps(config | {"nodes": nodes, "networking": networking, "name": name}).encode()
    try:
        cluster = read(text)
    except ConfigError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 300
    else:
        assert isinstance(cluster, KindCluster)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with contextlib.suppress(ConfigError):
        read(HEAD + text)
