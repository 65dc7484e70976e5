"""Ask a container how it is, or tell it what happens to it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

import aiohttp

from farflung.edge.runtimes.base import Address, Runtime, Started
from farflung.machinery.errors import Obj

LONGEST: Final = 1024  #: characters of an answer that are told


@dataclass(frozen=True, slots=True)
class Outcome:
    success: bool
    message: str = ""


def unsupported(container: Obj) -> str:
    """What this node cannot do for a container; empty if it can do everything."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if "grpc" in (container.get(name) or {}):
            return f"{name} asks by gRPC, which this node cannot"
    return ""


def asked_ports(container: Obj) -> set[int]:
    """The ports that probes and hooks name by number: a container listens on them, whether it says so or not."""
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


async def ask(handler: Obj, container: Obj, started: Started, runtime: Runtime, seconds: float) -> Outcome:
    """`handler`: a probe or a hook.  Whatever goes wrong is a failure with a message."""
    try:
        async with asyncio.timeout(seconds):
            return await _ask(handler, container, started, runtime, seconds)
    except TimeoutError:
        return Outcome(
            False, f"command timed out after {seconds:g}s" if "exec" in handler else "context deadline exceeded"
        )


async def _ask(handler: Obj, container: Obj, started: Started, runtime: Runtime, seconds: float) -> Outcome:
    if "exec" in handler:
        code, output = await runtime.execute(started.id, handler["exec"].get("command") or [], seconds)
        return Outcome(code == 0, output[:LONGEST].decode(errors="replace").strip() or f"exit code {code}")
    if "sleep" in handler:
        await asyncio.sleep(float(handler["sleep"].get("seconds") or 0))
        return Outcome(True)
    wanted = handler.get("httpGet") or handler.get("tcpSocket") or {}
    address = _address(wanted, container, started)
    if address is None:
        return Outcome(False, f"port {wanted.get('port')} of the container cannot be reached")
    if "httpGet" in handler:
        return await _get(wanted, address)
    return await _connect(address)


def _address(wanted: Obj, container: Obj, started: Started) -> Address | None:
    port = wanted.get("port")
    if isinstance(port, str) and not port.isdecimal():
        ports = [one for one in container.get("ports") or () if one.get("name") == port]
        port = ports[0].get("containerPort") if ports else None
    if port is None:
        return None
    if host := wanted.get("host"):
        return Address(host, int(port))
    return started.addresses.get(int(port))


async def _connect(address: Address) -> Outcome:
    try:
        _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:
        return Outcome(False, f"dial tcp {address.host}:{address.port}: {error.strerror or error}")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)


async def _get(wanted: Obj, address: Address) -> Outcome:
    """Anything from 200 to 399 is well."""
    scheme = (wanted.get("scheme") or "HTTP").lower()
    path = wanted.get("path") or "/"
    url = f"{scheme}://{_host(address)}{path if path.startswith('/') else f'/{path}'}"
    headers = {"User-Agent": "kube-probe/1.33", "Accept": "*/*", "Connection": "close"}
    headers |= {one.get("name", ""): one.get("value", "") for one in wanted.get("httpHeaders") or ()}
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, ssl=False)) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            body = await answer.content.read(LONGEST)
            if 200 <= answer.status < 400:
                return Outcome(True, body.decode(errors="replace"))
            return Outcome(False, f"HTTP probe failed with statuscode: {answer.status}")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Outcome(False, f'Get "{url}": {error or type(error).__name__}')


def _host(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
