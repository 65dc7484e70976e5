"""What pods ask for, and what nodes have.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from farflung.machinery.errors import Obj
from farflung.machinery.quantity import QuantityError, parse

PODS: Final = "pods"
ANYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - as pods say that any address is meant

Amounts = dict[str, int]  #: in thousandths of nanos, by resource: exact


class Port(NamedTuple):
    """Of a node."""

    protocol: str
    address: str
    number: int

    def clashes(self, other: Port) -> bool:
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or self.address in ANYWHERE or other.address in ANYWHERE


def host_ports(pod: Obj) -> list[Port]:
    return [
        Port(port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *_sidecars(pod))
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def requests(pod: Obj) -> Amounts:
    """Of all containers together; those that run one after the other before them need only be possible."""
    spec = pod["spec"]
    running = _sum(_asked(container) for container in spec.get("containers") or ())
    beside: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside = _sum((beside, _asked(container)))
            highest = _most(highest, beside)
        else:
            highest = _most(highest, _sum((beside, _asked(container))))
    whole = _sum((_most(_sum((running, beside)), highest), _amounts(spec.get("overhead") or {})))
    return {name: amount for name, amount in whole.items() if amount}


def allocatable(node: Obj) -> Amounts:
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity") or {})


def added(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return _sum((one, other))


def room_for_pods(node: Obj) -> int | None:
    """None if it does not say."""
    status = node.get("status") or {}
    text = (status.get("allocatable") or status.get("capacity") or {}).get(PODS)
    try:
        return None if text is None else parse(str(text)).whole
    except QuantityError:
        return None


def _sidecars(pod: Obj) -> list[Obj]:
    return [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]


def _asked(container: Obj) -> Amounts:
    return _amounts((container.get("resources") or {}).get("requests") or {})


def _amounts(texts: Mapping[str, object]) -> Amounts:
    found: Amounts = {}
    for name, text in texts.items():
        try:
            found[name] = parse(str(text)).nanos
        except QuantityError:
            continue
    return found


def _sum(many: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for amounts in many:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
