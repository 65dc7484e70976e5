"""`farflung edge list`: how edges are, as far as that can be seen."""

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
class Seen:
    name: str
    phase: Phase
    spec: EdgeSpec | None  #: None if that cannot be read
    running: int | None  #: pods; None if nobody answers
    pods: int | None


def seen(edges: Sequence[EmbeddedEdge]) -> list[Seen]:
    return asyncio.run(_seen(edges))


async def _seen(edges: Sequence[EmbeddedEdge]) -> list[Seen]:
    return list(await asyncio.gather(*map(_look, edges)))


async def _look(edge: EmbeddedEdge) -> Seen:
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
    return Seen(edge.name, phase, spec, running, None if phases is None else len(phases))


def printed(found: Sequence[Seen], output: str) -> str:
    if output == "json":
        return machine_readable([document(one) for one in found], "json")
    if not found:
        return "No edges found."
    return table([HEAD, *(_row(one) for one in found)])


def document(one: Seen) -> dict[str, Any]:
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


def _row(one: Seen) -> tuple[str, ...]:
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
