"""Over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import CollectorRegistry, Counter

from farflung.client.transport import HttpTransport, OutgoingRequest
from farflung.runtime.health import parts_of, served

GOOD: Mapping[str, Callable[[], bool]] = {"informers": lambda: True}


async def fetched(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
    async with (
        HttpTransport(f"http://{host}:{port}") as transport,
        transport.open(OutgoingRequest(method, path, {"Connection": "close"})) as reply,
    ):
        return reply.status, (await reply.read()).decode()


async def test_a_process_is_healthy_and_ready_when_all_its_checks_hold() -> None:
    synced = False

    def broken() -> bool:
        raise RuntimeError("a mistake")

    checks: dict[str, Callable[[], bool]] = {"informers": lambda: synced}
    async with served("127.0.0.1:0", checks, CollectorRegistry()) as port:
        assert await fetched(port, "/healthz") == (200, "ok")
        assert await fetched(port, "/livez") == (200, "ok")
        assert await fetched(port, "/readyz") == (503, "[-]informers\nnot ready\n")
        synced = True
        assert await fetched(port, "/readyz") == (200, "[+]informers\nok\n")
        checks["other"] = broken
        assert await fetched(port, "/readyz") == (503, "[+]informers\n[-]other\nnot ready\n")
        assert (await fetched(port, "/elsewhere"))[0] == 404


async def test_what_people_should_know_is_noted_without_a_word_against_the_process() -> None:
    async with served("127.0.0.1:0", GOOD, CollectorRegistry(), lambda: ["files: odd"]) as port:
        assert await fetched(port, "/readyz") == (200, "[+]informers\n[!]files: odd\nok\n")


async def test_figures_are_shown_for_prometheus() -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    async with served("127.0.0.1:0", GOOD, registry) as port:
        status, text = await fetched(port, "/metrics")
    assert status == 200
    assert "things_total 3.0\n" in text


async def test_pages_are_read_and_nothing_else() -> None:
    async with served("127.0.0.1:0", GOOD, CollectorRegistry()) as port:
        assert (await fetched(port, "/healthz", "POST"))[0] == 405
        assert await fetched(port, "/healthz?verbose") == (200, "ok")


async def test_without_a_host_every_address_is_listened_on() -> None:
    async with served(":0", GOOD, CollectorRegistry()) as port:
        for host in ("127.0.0.1", "127.0.0.2"):
            assert await fetched(port, "/healthz", host=host) == (200, "ok")


async def test_nothing_is_served_without_an_address() -> None:
    async with served("", GOOD, CollectorRegistry()) as port:
        assert port == 0


async def test_an_address_in_use_is_an_error_of_the_system() -> None:
    async with served("127.0.0.1:0", GOOD, CollectorRegistry()) as port:
        with pytest.raises(OSError, match="in use"):
            async with served(f"127.0.0.1:{port}", GOOD, CollectorRegistry()):
                pass


async def test_the_health_server_stops_although_clients_stay_connected() -> None:
    async with served("127.0.0.1:0", GOOD, CollectorRegistry()) as port:
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        _, half = await asyncio.open_connection("127.0.0.1", port)
        half.write(b"GET /healthz HTTP/1.1\r\nHos")
        await half.drain()
    for writer in (silent, half):
        writer.close()


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", (None, 8080)),
        ("8080", (None, 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str | None, int]) -> None:
    assert parts_of(address) == parts


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":http", "a:65536", ":-1", "a:٣", "::1:x"])
def test_what_is_no_address_is_said_in_one_sentence(address: str) -> None:
    with pytest.raises(OSError, match="is not an address of the form host:port"):
        parts_of(address)
