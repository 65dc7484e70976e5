"""`farflung edge list`: the state of embedded edges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from farflung.apis.names import PODS
from farflung.cli.output import NONE, printer, table
from farflung.client.errors import ClientError, KubeconfigError
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.edge.cluster import KUBECONFIG
from farflung.edge.ports import PortMapping
from farflung.edge.registry import EdgeError, EdgeSpec, EmbeddedEdge
from farflung.inspect.results import Result
from farflung.machinery import times

ANSWER_SECONDS: Final = 5.0  #: seconds for an edge to answer
HEAD: Final = ("NAME", "STATUS", "API", "RUNTIME", "PORTS", "PODS", "AGE")


class EdgePort(Result, frozen=True):
    container_port: int
    host_port: int
    listen_address: str


class EdgePods(Result, frozen=True):
    running: int
    all: int


class EdgeState(Result, frozen=True):
    name: str
    status: str
    api: str
    runtime: str
    ports: list[EdgePort]
    pods: EdgePods | None  #: None: the edge does not answer
    created: str | None
    context: str


def edge_states(edges: Sequence[EmbeddedEdge]) -> list[EdgeState]:
    return asyncio.run(_edge_states(edges))


async def _edge_states(edges: Sequence[EmbeddedEdge]) -> list[EdgeState]:
    return list(await asyncio.gather(*map(_read_state, edges)))


async def _read_state(edge: EmbeddedEdge) -> EdgeState:
    phase = edge.phase
    try:
        spec: EdgeSpec | None = edge.spec
    except EdgeError:
        spec = None
    pods: EdgePods | None = None
    if phase.api:
        with suppress(ClientError, KubeconfigError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), load(str(edge.hub / KUBECONFIG)).transport() as transport:
                found = await Client(transport, "", "farflung").list(PODS)
                running = sum(pod.get("status", {}).get("phase") == "Running" for pod in found)
                pods = EdgePods(running, len(found))
    return EdgeState(
        edge.name,
        phase.phase,
        phase.api,
        phase.runtime or (spec.runtime if spec else ""),
        [EdgePort(one.node_port, one.port, one.address) for one in (spec.ports if spec else ())],
        pods,
        times.format_seconds(spec.created) if spec else None,
        spec.context if spec else "",
    )


@printer
def printed(found: Sequence[EdgeState]) -> Iterator[str]:
    now = datetime.now(UTC)
    yield table([HEAD, *(_row(one, now) for one in found)]) if found else "No edges found."


def _row(one: EdgeState, now: datetime) -> list[str]:
    ports = [str(PortMapping(port.container_port, port.host_port, port.listen_address)) for port in one.ports]
    return [
        one.name,
        one.status,
        one.api or NONE,
        one.runtime or "?",
        ",".join(ports) or NONE,
        NONE if one.pods is None else f"{one.pods.running}/{one.pods.all}",
        times.age(one.created, now) if one.created else "?",
    ]
