"""Configuration files of kind (`kind: Cluster`, `kind.x-k8s.io/v1alpha4`).  Unsupported fields are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from farflung.edge.ports import PortMapping
from farflung.machinery.codec import yaml
from farflung.machinery.errors import Malformed

API_VERSION: Final = "kind.x-k8s.io/v1alpha4"
MAX_SIZE: Final = 1 << 20  #: bytes
MAX_MAPPINGS: Final = 256
LOCAL: Final = "127.0.0.1"
ANY_PORT: Final = (0, -1)
CLUSTER_FIELDS: Final = ("kind", "apiVersion", "name", "nodes", "networking")
NODE_FIELDS: Final = ("role", "extraPortMappings")
MAPPING_FIELDS: Final = ("containerPort", "hostPort", "listenAddress", "protocol")
NETWORKING_FIELDS: Final = ("apiServerAddress", "apiServerPort")


class ConfigError(Exception):
    """What is wrong, and where."""


@dataclass(frozen=True, slots=True)
class KindCluster:
    name: str = ""
    api_address: str = LOCAL
    api_port: int = 0  #: 0: any
    mappings: tuple[PortMapping, ...] = ()  #: with port 0 for any


def read(text: bytes) -> KindCluster:
    """Raises ConfigError."""
    if len(text) > MAX_SIZE:
        raise ConfigError(f"it is larger than {MAX_SIZE >> 20} MiB")
    try:
        parsed = yaml.parse(text)
    except Malformed as error:
        raise ConfigError(error.why) from None
    if parsed.problems:
        raise ConfigError(parsed.problems[0])
    return _cluster(parsed.value)


def _cluster(value: Any) -> KindCluster:
    config = _object(value, "it")
    if config.get("kind") != "Cluster" or config.get("apiVersion") != API_VERSION:
        raise ConfigError(f"it is not a Cluster of {API_VERSION}")
    _check_fields(config, CLUSTER_FIELDS, "")
    networking = _object(config.get("networking") or {}, "networking")
    _check_fields(networking, NETWORKING_FIELDS, "networking.")
    nodes = _list(config.get("nodes") or [{}], "nodes")
    if len(nodes) != 1:
        raise ConfigError(f"it has {len(nodes)} nodes; an embedded edge has one")
    return KindCluster(
        _text(config, "name", ""),
        _address(networking, "apiServerAddress", "networking."),
        _port(networking, "apiServerPort", "networking."),
        _mappings(nodes[0]),
    )


def _mappings(value: Any) -> tuple[PortMapping, ...]:
    node = _object(value, "nodes[0]")
    _check_fields(node, NODE_FIELDS, "nodes[0].")
    if (role := node.get("role") or "control-plane") != "control-plane":
        raise ConfigError(f"nodes[0].role is {_shown(role)}; the only node is the control-plane")
    listed = _list(node.get("extraPortMappings") or [], "nodes[0].extraPortMappings")
    if len(listed) > MAX_MAPPINGS:
        raise ConfigError(f"nodes[0].extraPortMappings has {len(listed)} entries; the limit is {MAX_MAPPINGS}")
    found = tuple(_mapping(one, f"nodes[0].extraPortMappings[{number}]") for number, one in enumerate(listed))
    taken: set[tuple[str, int]] = set()
    for number, mapping in enumerate(found):
        where = (mapping.address, mapping.port)
        if mapping.port and where in taken:
            raise ConfigError(f"nodes[0].extraPortMappings[{number}].hostPort {mapping.port} is a duplicate")
        taken.add(where)
    return found


def _mapping(value: Any, path: str) -> PortMapping:
    mapping = _object(value, path)
    _check_fields(mapping, MAPPING_FIELDS, f"{path}.")
    protocol = _text(mapping, "protocol", f"{path}.") or "TCP"
    if protocol.upper() != "TCP":
        raise ConfigError(f"{path}.protocol is {_shown(protocol)}; only TCP is forwarded")
    node_port = _port(mapping, "containerPort", f"{path}.")
    if not node_port:
        raise ConfigError(f"{path}.containerPort is missing")
    return PortMapping(
        node_port, _port(mapping, "hostPort", f"{path}."), _address(mapping, "listenAddress", f"{path}.")
    )


def _port(section: Mapping[str, Any], name: str, path: str) -> int:
    value = section.get(name)
    if value is None or value in ANY_PORT:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise ConfigError(f"{path}{name} is {_shown(value)}, which is not a port")
    return value


def _address(section: Mapping[str, Any], name: str, path: str) -> str:
    value = _text(section, name, path)
    if not value:
        return LOCAL
    try:
        return str(ip_address(value))
    except ValueError:
        raise ConfigError(f"{path}{name} is {_shown(value)}, which is not an IP address") from None


def _text(section: Mapping[str, Any], name: str, path: str) -> str:
    value = section.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{path}{name} is {_shown(value)}, which is not a string")
    return value


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not an object")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{path} is not a list")
    return value


def _check_fields(section: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    for name in section:
        if name not in known:
            raise ConfigError(f"{path}{_shown(name)[1:-1]} is not supported by embedded edges")


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) else "something else"
    return text if len(text) <= 60 else f"{text[:60]}…"
