"""`farflung edge list`: the state of embedded edges."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from farflung.apis.names import PODS
from farflung.cli.output import NONE, machine_readable, table
from farflung.client.errors import ClientError, KubeconfigError
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.edge.cluster import KUBECONFIG
from farflung.edge.registry import EdgeError, EdgeSpec, EmbeddedEdge, Phase
from farflung.machinery import times

PATIENCE: Final = 5.0  #: seconds for an edge to answer
HEAD: Final = ("NAME", "STATUS", "API", "RUNTIME", "PORTS", "PODS", "AGE")


@dataclass(frozen=True, slots=True)
class EdgeState:
    name: str
    phase: Phase
    spec: EdgeSpec | None  #: None if it cannot be read
    running: int | None  #: pods; None if the edge does not answer
    pods: int | None


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
    phases: list[str] | None = None
    if phase.api:
        try:
            async with asyncio.timeout(PATIENCE), load(str(edge.hub / KUBECONFIG)).transport() as transport:
                pods = await Client(transport, "", "farflung").list(PODS)
                phases = [pod.get("status", {}).get("phase", "") for pod in pods]
        except (ClientError, KubeconfigError, TimeoutError):
            phases = None
    running = None if phases is None else phases.count("Running")
    return EdgeState(edge.name, phase, spec, running, None if phases is None else len(phases))


def printed(found: Sequence[EdgeState], output: str) -> str:
    if output == "json":
        return machine_readable([document(one) for one in found], "json")
    if not found:
        return "No edges found."
    return table([HEAD, *(_row(one) for one in found)])


def document(one: EdgeState) -> dict[str, Any]:
    spec = one.spec
    return {
        "name": one.name,
        "status": one.phase.phase,
        "api": one.phase.api,
        "runtime": one.phase.runtime or (spec.runtime if spec else ""),
        "ports": [
            {"containerPort": mapping.node_port, "hostPort": mapping.port, "listenAddress": mapping.address}
            for mapping in (spec.ports if spec else ())
        ],
        "pods": None if one.pods is None else {"running": one.running, "all": one.pods},
        "created": times.format_seconds(spec.created) if spec else None,
        "context": spec.context if spec else "",
    }


def _row(one: EdgeState) -> tuple[str, ...]:
    spec = one.spec
    return (
        one.name,
        one.phase.phase,
        one.phase.api or NONE,
        one.phase.runtime or (spec.runtime if spec else "?"),
        ",".join(map(str, spec.ports if spec else ())) or NONE,
        NONE if one.pods is None else f"{one.running}/{one.pods}",
        times.human(datetime.now(UTC) - spec.created) if spec else "?",
    )
