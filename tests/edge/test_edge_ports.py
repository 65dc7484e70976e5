"""Ports of this machine that are forwarded to pods."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
from collections.abc import AsyncIterator

import pytest
from free_ports import free_ports

from farflung.edge import ports
from farflung.edge.ports import MAX_CONNECTIONS, PortForwarder, PortMapping, PortUnavailable, forward_ports, free_port
from farflung.edge.runtimes.base import Address
from farflung.lib.klog import Logger

LOG = Logger(io.StringIO())


@contextlib.asynccontextmanager
async def answering(word: bytes) -> AsyncIterator[Address]:
    """A server that answers with a word and the received data, after the end of that data."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = await reader.read(-1)
        writer.write(word + said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def told(port: int, words: bytes = b"") -> bytes:
    """The whole answer; raises ConnectionError if the connection is aborted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        writer.write_eof()
        return await reader.read(-1)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def mapped(
    *node_ports: int, descriptors: int = 4 * MAX_CONNECTIONS
) -> AsyncIterator[tuple[PortForwarder, list[int]]]:
    free = free_ports(len(node_ports))
    mappings = [PortMapping(node_port, port) for node_port, port in zip(node_ports, free, strict=True)]
    async with forward_ports(mappings, LOG, descriptors) as ports:
        yield ports, [mapping.port for mapping in mappings]


async def test_data_is_forwarded_in_both_directions() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"hello ") as pod:
        await ports.publish("a", 8081, "TCP", pod)

        assert await told(port, b"world") == b"hello world"


async def test_much_is_carried_both_ways() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"") as pod:
        await ports.publish("a", 8081, "TCP", pod)
        much = os.urandom(4_000_000)

        assert await told(port, much) == much


async def test_connections_are_refused_while_no_pod_has_published_the_port() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"hello") as pod:
        for _ in range(2):
            assert await silent(port)
            await ports.publish("a", 8081, "TCP", pod)
            assert await told(port) == b"hello"
            await ports.withdraw("a")
        assert await silent(port)


async def silent(port: int) -> bool:
    try:
        return await told(port) == b""
    except ConnectionError:
        return True


async def test_the_last_publisher_of_a_port_gets_connections_and_then_the_one_before() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"old") as old, answering(b"new") as new:
        await ports.publish("a", 8081, "TCP", old)
        await ports.publish("b", 8081, "TCP", new)
        assert await told(port) == b"new"

        await ports.withdraw("b")
        assert await told(port) == b"old"


async def test_each_port_is_forwarded_to_its_mapping() -> None:
    async with mapped(8081, 8082) as (ports, (first, second)), answering(b"one") as one, answering(b"two") as two:
        await ports.publish("a", 8081, "TCP", one)
        await ports.publish("b", 8082, "TCP", two)
        await ports.publish("c", 9999, "TCP", two)
        await ports.publish("d", 8081, "UDP", two)

        assert (await told(first), await told(second)) == (b"one", b"two")


async def test_connections_are_closed_when_the_pod_withdraws_the_port() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"hello") as pod:
        await ports.publish("a", 8081, "TCP", pod)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"begin")
        await asyncio.sleep(0)

        await ports.withdraw("a")

        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(-1), 60) == b""
        writer.close()


async def test_closing_leaves_no_connection_and_no_port() -> None:
    async with answering(b"hello") as pod:
        async with mapped(8081) as (ports, (port,)):
            await ports.publish("a", 8081, "TCP", pod)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(-1), 60) == b""
        writer.close()
        with pytest.raises(ConnectionError):
            await told(port)


async def test_a_pod_that_does_not_answer_breaks_the_connection() -> None:
    async with mapped(8081) as (ports, (port,)):
        await ports.publish("a", 8081, "TCP", Address("127.0.0.1", free_port("127.0.0.1")))

        assert await silent(port)


async def test_more_connections_than_are_good_are_turned_away() -> None:
    async with mapped(8081) as (ports, (port,)), answering(b"hello") as pod, contextlib.AsyncExitStack() as stack:
        await ports.publish("a", 8081, "TCP", pod)
        opened = []
        for _ in range(MAX_CONNECTIONS + 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            opened.append(reader)

        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(opened[-1].read(1), 60) == b""
        assert not opened[0].at_eof()


async def test_visitors_take_half_of_the_descriptors_at_most() -> None:
    async with mapped(8081, 8082, descriptors=16) as (ports, numbers), contextlib.AsyncExitStack() as stack:
        pod = await stack.enter_async_context(answering(b"hello"))
        for node_port, port in zip((8081, 8082), numbers, strict=True):
            await ports.publish("a", node_port, "TCP", pod)
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in opened:
                stack.callback(writer.close)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(opened[-1][0].read(1), 60) == b""
            assert not opened[0][0].at_eof()


async def test_a_port_that_is_taken_is_found_out_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(PortUnavailable, match=f"port {taken} of 127.0.0.1 is in use"):
            async with forward_ports(
                [PortMapping(8081, free_port("127.0.0.1")), PortMapping(8082, taken)], LOG, 4 * MAX_CONNECTIONS
            ):
                pass
        with pytest.raises(
            PortUnavailable, match=rf"^port {taken} of 127\.0\.0\.1 is in use by process {os.getpid()} \("
        ):
            ports.check_ports([("127.0.0.1", taken)])
    ports.check_ports([("127.0.0.1", taken)])


def test_a_port_that_is_wanted_twice_is_taken_the_second_time() -> None:
    port = free_port("127.0.0.1")

    with pytest.raises(PortUnavailable, match=f"port {port} of 127.0.0.1 is in use"):
        ports.check_ports([("127.0.0.1", port), ("127.0.0.1", port)])


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(
        PortUnavailable, match=r"port 80 of 192\.0\.2\.1 cannot be used: cannot assign requested address"
    ):
        ports.check_ports([("192.0.2.1", 80)])
