"""What a process shows of itself over HTTP: /healthz, /livez, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from farflung.http.messages import Handler, Request, Response
from farflung.http.server import serve

Checks = Mapping[str, Callable[[], bool]]
Notes = Callable[[], Iterable[str]]

GRACE: Final = 1.0  #: seconds for answers that are under way when it ends
PLAIN: Final = "text/plain; charset=utf-8"


def handler(checks: Checks, registry: CollectorRegistry, notes: Notes = tuple) -> Handler:
    """`checks`: conditions for the process to be ready, by name; `notes`: warnings that /readyz shows and that do not
    make the process unready."""

    def healthy() -> Response:
        return Response(200, b"ok", PLAIN)

    def ready() -> Response:
        lines = [f"[{'+' if _holds(check) else '-'}]{name}" for name, check in checks.items()]
        good = all(line.startswith("[+]") for line in lines)
        lines += [f"[!]{note}" for note in notes()]
        text = "\n".join([*lines, "ok" if good else "not ready", ""])
        return Response(200 if good else 503, text.encode(), PLAIN)

    def metrics() -> Response:
        return Response(200, generate_latest(registry), CONTENT_TYPE_LATEST)

    pages = {"/healthz": healthy, "/livez": healthy, "/readyz": ready, "/metrics": metrics}

    def answer(request: Request) -> Response:
        page = pages.get(request.path)
        if page is None:
            return Response(404, b"404 page not found\n", PLAIN)
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"method not allowed\n", PLAIN, [("Allow", "GET, HEAD")])
        return page()

    return answer


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
    server = await serve(handler(checks, registry, notes), host=host, port=port, tls=None)
    try:
        yield server.port
    finally:
        await server.stop(GRACE)
