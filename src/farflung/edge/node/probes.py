"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from multidict import CIMultiDict

from farflung.client.errors import ClientError
from farflung.client.transport import HttpTransport, OutgoingRequest, Reply
from farflung.edge.runtimes.base import Address, Runtime, StartedContainer
from farflung.machinery.errors import Obj

MAX_BODY: Final = 1024  #: bytes of a response that are read


@dataclass(frozen=True, slots=True)
class ProbeResult:
    success: bool
    message: str = ""


def find_unsupported_probe(container: Obj) -> str:
    """Empty if all probes are supported."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if "grpc" in (container.get(name) or {}):
            return f"{name} uses gRPC, which this node does not support"
    return ""


def handler_ports(container: Obj) -> set[int]:
    """Ports that probes and hooks name by number; the container need not declare them."""
    lifecycle = container.get("lifecycle") or {}
    probes = [container.get(name) or {} for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    hooks = [lifecycle.get(name) or {} for name in ("postStart", "preStop")]
    found = set()
    for handler in (*probes, *hooks):
        for member in ("httpGet", "tcpSocket"):
            wanted = handler.get(member) or {}
            if isinstance(wanted.get("port"), int) and not wanted.get("host"):
                found.add(wanted["port"])
    return found


async def run_handler(
    handler: Obj, container: Obj, started: StartedContainer, runtime: Runtime, seconds: float
) -> ProbeResult:
    """`handler`: a probe or a hook.  Every error is a failed result with a message."""
    try:
        async with asyncio.timeout(seconds):
            return await _run_handler(handler, container, started, runtime, seconds)
    except TimeoutError:
        return ProbeResult(
            False, f"command timed out after {seconds:g}s" if "exec" in handler else "context deadline exceeded"
        )


async def _run_handler(
    handler: Obj, container: Obj, started: StartedContainer, runtime: Runtime, seconds: float
) -> ProbeResult:
    if "exec" in handler:
        code, output = await runtime.execute(started.id, handler["exec"].get("command") or [], seconds)
        return ProbeResult(code == 0, output[:MAX_BODY].decode(errors="replace").strip() or f"exit code {code}")
    if "sleep" in handler:
        await asyncio.sleep(float(handler["sleep"].get("seconds") or 0))
        return ProbeResult(True)
    wanted = handler.get("httpGet") or handler.get("tcpSocket") or {}
    address = _address(wanted, container, started)
    if address is None:
        return ProbeResult(False, f"port {wanted.get('port')} of the container is not reachable")
    if "httpGet" in handler:
        return await _get(wanted, address, seconds)
    return await _connect(address)


def _address(wanted: Obj, container: Obj, started: StartedContainer) -> Address | None:
    port = wanted.get("port")
    if isinstance(port, str) and not port.isdecimal():
        ports = [one for one in container.get("ports") or () if one.get("name") == port]
        port = ports[0].get("containerPort") if ports else None
    if port is None:
        return None
    if host := wanted.get("host"):
        return Address(host, int(port))
    return started.addresses.get(int(port))


async def _connect(address: Address) -> ProbeResult:
    try:
        _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, ValueError, OverflowError) as error:  # ValueError: invalid host; OverflowError: invalid port
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        return ProbeResult(False, f"dial tcp {address.host}:{address.port}: {cause}")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ProbeResult(True)


async def _get(wanted: Obj, address: Address, seconds: float) -> ProbeResult:
    """Status 200 to 399 is a success, and redirects are not followed.  Certificates are not verified, as in kubelet."""
    scheme = (wanted.get("scheme") or "HTTP").lower()
    server, target = f"{scheme}://{_host(address)}", _target(wanted.get("path") or "/")
    headers = CIMultiDict({"User-Agent": "kube-probe/1.33", "Accept": "*/*", "Connection": "close"})
    headers.update((one.get("name", ""), one.get("value", "")) for one in wanted.get("httpHeaders") or ())
    try:
        async with (
            HttpTransport(server, tls=_unverified_tls() if scheme == "https" else None) as transport,
            transport.open(OutgoingRequest("GET", target, headers, patience=seconds)) as reply,
        ):
            body = await _read_body(reply)
            if 200 <= reply.status < 400:
                return ProbeResult(True, body.decode(errors="replace"))
            return ProbeResult(False, f"HTTP probe failed with statuscode: {reply.status}")
    except (ClientError, ValueError) as error:
        return ProbeResult(False, f'Get "{server}{target}": {error or type(error).__name__}')


async def _read_body(reply: Reply) -> bytes:
    """At most MAX_BODY bytes of the body."""
    body = b""
    async for chunk in reply.chunks():
        body += chunk
        if len(body) >= MAX_BODY:
            break
    return body[:MAX_BODY]


def _target(path: str) -> str:
    """Path and query, percent-encoded where necessary."""
    path, _, _ = path.partition("#")
    return quote(path if path.startswith("/") else f"/{path}", safe="/?%:@!$&'()*+,;=~[]")


def _unverified_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe with the defaults of the API."""

    handler: Obj
    delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    successes: int = 1  #: successThreshold
    failures: int = 3  #: failureThreshold
    grace: float | None = None  #: terminationGracePeriodSeconds of the probe

    @classmethod
    def of(cls, probe: Obj) -> Probe:
        grace = probe.get("terminationGracePeriodSeconds")
        return cls(
            probe,
            float(probe.get("initialDelaySeconds") or 0),
            float(probe.get("periodSeconds") or 10),
            float(probe.get("timeoutSeconds") or 1),
            int(probe.get("successThreshold") or 1),
            int(probe.get("failureThreshold") or 3),
            None if grace is None else float(grace),
        )


@dataclass(frozen=True, slots=True)
class ProbeCount:
    """Results in a row.  `passing` changes after as many equal results as the threshold."""

    passing: bool | None = None  #: None: not known yet
    last: bool | None = None
    row: int = 0

    def after(self, success: bool, probe: Probe) -> ProbeCount:
        row = self.row + 1 if success == self.last else 1
        counted = replace(self, last=success, row=row)
        needed = probe.successes if success else probe.failures
        return replace(counted, passing=success) if row >= needed else counted
