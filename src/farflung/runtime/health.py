"""What a process shows of itself over HTTP: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Checks = Mapping[str, Callable[[], bool]]
Notes = Callable[[], Iterable[str]]

GRACE: Final = 1.0  #: seconds for answers that are under way when it ends


def application(checks: Checks, registry: CollectorRegistry, notes: Notes = tuple) -> web.Application:
    """`checks`: what has to be true for the process to be ready, by name; `notes`: what people should know who ask,
    although it is ready."""

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_: web.Request) -> web.Response:
        lines = [f"[{'+' if _holds(check) else '-'}]{name}" for name, check in checks.items()]
        good = all(line.startswith("[+]") for line in lines)
        lines += [f"[!]{note}" for note in notes()]
        return web.Response(text="\n".join([*lines, "ok" if good else "not ready", ""]), status=200 if good else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthy),
            web.get("/livez", healthy),
            web.get("/readyz", ready),
            web.get("/metrics", metrics),
        ]
    )
    return app


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # whatever is wrong with it, it is not ready
        return False


def parts_of(address: str) -> tuple[str | None, int]:
    """Host and port; no host: every address.  Raises OSError with a sentence."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise OSError(f"{address!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]") or None, int(port)


@asynccontextmanager
async def served(address: str, checks: Checks, registry: CollectorRegistry, notes: Notes = tuple) -> AsyncIterator[int]:
    """The port, as long as the block lasts.  `address`: `host:port`, or `:port` for every address; empty: nowhere."""
    if not address:
        yield 0
        return
    host, port = parts_of(address)
    runner = web.AppRunner(application(checks, registry, notes), access_log=None, shutdown_timeout=GRACE)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0]
        yield int(bound[1])
    finally:
        await runner.cleanup()
