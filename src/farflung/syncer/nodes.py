"""The capacity of the edge: the sums over its Nodes, if the syncer may list them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from farflung.apis.edge.names import CAPACITY_KNOWN
from farflung.apis.names import NODES
from farflung.client.errors import Refused
from farflung.client.rest import Client
from farflung.lib.backoff import Backoff
from farflung.lib.klog import Logger
from farflung.machinery import quantity
from farflung.machinery.errors import Obj
from farflung.runtime.cache import CachedObject, Key
from farflung.runtime.environment import Environment
from farflung.runtime.reflector import Reflector
from farflung.syncer.report import ReportCondition

MAX_RETRY_SECONDS: Final = 60.0  #: seconds between two attempts if the edge refuses
LONGEST_MESSAGE: Final = 300  #: characters
FIELDS: Final = ("capacity", "allocatable", "nodes")
WITHHELD: Final = (403, 404, 405)  #: statuses by which a cluster refuses


class NodeCapacity:
    """The target of a reflector.  It stores only the share of each Node."""

    def __init__(self, edge: Client, env: Environment, log: Logger, changed: Callable[[], None]) -> None:
        """`changed`: called when the sums changed."""
        self._edge = edge
        self._env = replace(env, backoff=Backoff(env.backoff.first, MAX_RETRY_SECONDS, env.backoff.random))
        self._log = log
        self._changed = changed
        self._restart = asyncio.Event()
        self._refusal: Refused | None = None
        self._watches = False  #: whether the next thing that fails is a watch
        self._forget()

    def _forget(self) -> None:
        self._sums = CapacitySums()
        self._versions: dict[str, int] = {}
        self._listed = False

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                reflector: Reflector[NodeShare] = Reflector(self._edge, NODES, share_of, self, self._env)
                listening = group.create_task(reflector.run(), name="nodes")
                await self._restart.wait()
                self._restart.clear()
                listening.cancel()

    def reset(self) -> None:
        """The edge is another cluster."""
        self._forget()
        self._restart.set()

    # --- the report -------------------------------------------------------------------------------

    def status(self, before: Obj) -> tuple[Obj, list[ReportCondition]]:
        """The sums, and a condition if the edge refuses the list of Nodes.  Before the first answer, those of the last
        report."""
        if self._listed:
            return self._sums.status(), []
        if self._refusal is not None:
            message = str(self._refusal)[:LONGEST_MESSAGE]
            return {}, [ReportCondition(CAPACITY_KNOWN, False, self._refusal.reason or "Refused", message)]
        return _as_before(before)

    # --- events -----------------------------------------------------------------------------------

    def replace(self, everything: list[CachedObject[NodeShare]], version: int) -> None:
        known = {one.key.name: one for one in everything}
        removed = [self._sums.put(name, None) for name in self._sums.names() if name not in known]
        changed = [self._sums.put(name, one.value) for name, one in known.items()]
        self._versions = {name: one.version for name, one in known.items()}
        if self._refusal is not None:
            self._log.info("the edge allows listing its nodes again")
        if any(removed) or any(changed) or not self._listed:
            self._changed()
        self._listed, self._refusal, self._watches = True, None, True

    def apply(self, changed: CachedObject[NodeShare]) -> None:
        self._versions[changed.key.name] = changed.version
        if self._sums.put(changed.key.name, changed.value):
            self._changed()

    def remove(self, deleted: CachedObject[NodeShare]) -> None:
        self._versions.pop(deleted.key.name, None)
        if self._sums.put(deleted.key.name, None):
            self._changed()

    def advance(self, version: int) -> None:
        """The sums are not stored, so there is nothing to resume."""

    def is_new(self, key: Key, version: int) -> bool:
        return version > self._versions.get(key.name, -1)

    def previous(self, key: Key) -> NodeShare | None:
        return self._sums.get(key.name)

    def trouble(self, what: str, error: Exception) -> None:
        self._log.info(what, v=2, side="edge", error=str(error))
        if not isinstance(error, Refused) or error.status not in WITHHELD:
            return
        if self._watches:  # with the verb list only, the reflector lists again and again
            self._watches = False
            return
        if self._refusal is None:
            self._log.info("the edge does not allow listing its nodes; reporting no capacity", error=str(error))
        if self._listed or self._refusal is None:
            self._changed()
        self._forget()
        self._refusal = error


def _as_before(before: Obj) -> tuple[Obj, list[ReportCondition]]:
    withheld = [
        one for one in before.get("conditions") or () if isinstance(one, dict) and one.get("type") == CAPACITY_KNOWN
    ]
    conditions = [
        ReportCondition(CAPACITY_KNOWN, False, str(one.get("reason")), str(one.get("message"))) for one in withheld[:1]
    ]
    return {name: before[name] for name in FIELDS if name in before}, conditions


ALWAYS: Final = ("cpu", "memory", "pods")  #: resources of every Node
FIRST: Final = (*ALWAYS, "ephemeral-storage")
MAX_NAMES: Final = 16  #: further resources, of a Node and in all
BINARY: Final = re.compile(r"memory|ephemeral-storage|hugepages-.*")  #: resources that are counted in bytes
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
LARGEST: Final = quantity.LARGEST_BINARY * quantity.ONE  #: nanos
READY: Final = "Ready"

Amounts = tuple[tuple[str, int], ...]  #: resources, and nanos of each


class NodeShare(NamedTuple):
    """What one Node adds to the sums."""

    capacity: Amounts
    allocatable: Amounts  #: none if it is not ready or cordoned
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


def share_of(document: bytes) -> NodeShare:
    """Raises msgspec.MsgspecError for anything but a Node."""
    node = _node.decode(document)
    status = node.status or _Status()
    cordoned = node.spec is not None and bool(node.spec.unschedulable)
    usable = not cordoned and _is_ready(status.conditions)
    room = status.allocatable if isinstance(status.allocatable, dict) else status.capacity
    return NodeShare(_amounts(status.capacity), _amounts(room) if usable else (), usable)


def _is_ready(conditions: object) -> bool:
    listed = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return any(one.get("type") == READY and one.get("status") == "True" for one in listed)


def _amounts(value: object) -> Amounts:
    """Invalid amounts are left out."""
    if not isinstance(value, dict):
        return ()
    names = [name for name in value if NAME.fullmatch(name)]
    return tuple((intern(name), nanos) for name in _chosen(names) if (nanos := _nanos(value[name])) is not None)


def _nanos(amount: object) -> int | None:
    try:
        return min(max(quantity.parse(amount).nanos, 0), LARGEST) if isinstance(amount, str) else None
    except quantity.QuantityError:
        return None


def _chosen(names: Iterable[str]) -> list[str]:
    """In the order of the report."""
    known = set(names)
    return [*filter(known.__contains__, FIRST), *sorted(known.difference(FIRST))[:MAX_NAMES]]


class CapacitySums:
    """Exact sums over all Nodes."""

    def __init__(self) -> None:
        self._shares: dict[str, NodeShare] = {}
        self._capacity: dict[str, int] = {}
        self._allocatable: dict[str, int] = {}
        self._usable = 0

    def put(self, name: str, share: NodeShare | None) -> bool:
        """Set the share of a Node; None: it was deleted.  Returns whether it changed."""
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

    def get(self, name: str) -> NodeShare | None:
        return self._shares.get(name)

    def names(self) -> list[str]:
        return list(self._shares)

    def _add(self, share: NodeShare, times: int) -> None:
        self._usable += share.usable * times
        for sums, amounts in ((self._capacity, share.capacity), (self._allocatable, share.allocatable)):
            for name, nanos in amounts:
                sums[name] = sums.get(name, 0) + nanos * times
                if not sums[name]:
                    del sums[name]

    def status(self) -> Obj:
        """`capacity` of all Nodes, `allocatable` of usable ones, and both numbers.  Resources without an amount are
        left out."""
        names = _chosen({*ALWAYS, *self._capacity, *self._allocatable})
        return {
            "capacity": {name: _text(name, self._capacity.get(name, 0)) for name in names},
            "allocatable": {name: _text(name, self._allocatable.get(name, 0)) for name in names},
            "nodes": {"all": len(self._shares), "usable": self._usable},
        }


def _text(name: str, nanos: int) -> str:
    notation = quantity.BINARY if BINARY.fullmatch(name) else quantity.DECIMAL
    return quantity.written(min(nanos, LARGEST), notation)
