"""What the Nodes of a cluster have for work.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from farflung.machinery import quantity
from farflung.machinery.errors import Obj

ALWAYS: Final = ("cpu", "memory", "pods")  #: what every Node has
FIRST: Final = (*ALWAYS, "ephemeral-storage")
MOST_NAMES: Final = 16  #: resources beside these, of a Node and in all
BINARY: Final = re.compile(r"memory|ephemeral-storage|hugepages-.*")  #: resources that are counted in bytes
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
LARGEST: Final = quantity.LARGEST_BINARY * quantity.ONE  #: nanos
READY: Final = "Ready"

Amounts = tuple[tuple[str, int], ...]  #: resources, and nanos of each


class Share(NamedTuple):
    """What one Node adds."""

    capacity: Amounts
    allocatable: Amounts  #: none if it takes no new work: it is not ready, or was cordoned
    usable: bool


class _Spec(msgspec.Struct):
    unschedulable: Any = None


class _Status(msgspec.Struct):
    capacity: Any = None
    allocatable: Any = None
    conditions: Any = None


class _Node(msgspec.Struct):
    spec: _Spec | None = None
    status: _Status | None = None


_node: Final = msgspec.json.Decoder(_Node)


def share_of(document: bytes) -> Share:
    """Raises msgspec.MsgspecError if it is no Node."""
    node = _node.decode(document)
    status = node.status or _Status()
    cordoned = node.spec is not None and bool(node.spec.unschedulable)
    usable = not cordoned and _is_ready(status.conditions)
    room = status.allocatable if isinstance(status.allocatable, dict) else status.capacity
    return Share(_amounts(status.capacity), _amounts(room) if usable else (), usable)


def _is_ready(conditions: object) -> bool:
    told = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return any(one.get("type") == READY and one.get("status") == "True" for one in told)


def _amounts(said: object) -> Amounts:
    """What makes no sense is not there."""
    if not isinstance(said, dict):
        return ()
    names = [name for name in said if NAME.fullmatch(name)]
    return tuple((intern(name), nanos) for name in _chosen(names) if (nanos := _nanos(said[name])) is not None)


def _nanos(said: object) -> int | None:
    try:
        return min(max(quantity.parse(said).nanos, 0), LARGEST) if isinstance(said, str) else None
    except quantity.QuantityError:
        return None


def _chosen(names: Iterable[str]) -> list[str]:
    """In the order in which they are told."""
    known = set(names)
    return [*filter(known.__contains__, FIRST), *sorted(known.difference(FIRST))[:MOST_NAMES]]


class Sums:
    """Over all Nodes that were put, whatever the order."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}
        self._capacity: dict[str, int] = {}
        self._allocatable: dict[str, int] = {}
        self._usable = 0

    def put(self, name: str, share: Share | None) -> bool:
        """What a Node adds from now on; None: it is gone.  Whether that is news."""
        before = self._shares.get(name)
        if before == share:
            return False
        if before is not None:
            self._add(before, -1)
            del self._shares[name]
        if share is not None:
            self._add(share, 1)
            self._shares[name] = share
        return True

    def get(self, name: str) -> Share | None:
        return self._shares.get(name)

    def names(self) -> list[str]:
        return list(self._shares)

    def _add(self, share: Share, times: int) -> None:
        self._usable += share.usable * times
        for sums, amounts in ((self._capacity, share.capacity), (self._allocatable, share.allocatable)):
            for name, nanos in amounts:
                sums[name] = sums.get(name, 0) + nanos * times
                if not sums[name]:
                    del sums[name]

    def told(self) -> Obj:
        """`capacity`, of all Nodes, `allocatable`, of those that take new work, and how many these are.  What nobody
        has is not named."""
        names = _chosen({*ALWAYS, *self._capacity, *self._allocatable})
        return {
            "capacity": {name: _text(name, self._capacity.get(name, 0)) for name in names},
            "allocatable": {name: _text(name, self._allocatable.get(name, 0)) for name in names},
            "nodes": {"all": len(self._shares), "usable": self._usable},
        }


def _text(name: str, nanos: int) -> str:
    notation = quantity.BINARY if BINARY.fullmatch(name) else quantity.DECIMAL
    return quantity.written(min(nanos, LARGEST), notation)
