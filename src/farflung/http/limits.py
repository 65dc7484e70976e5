"""Limits for one client, in bytes, counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A periodic sweep enforces timeouts, so each may be exceeded by a second, or by a quarter of itself if that is
    less."""

    request_line: int = 32 * 1024  #: bytes of method, target and version
    header_count: int = 256
    header_bytes: int = 64 * 1024  #: names and values of one request, with trailers
    body_bytes: int = 3 * 1024 * 1024  #: as in Kubernetes
    incomplete_bodies: int = 64 * 1024 * 1024  #: bytes of all bodies that have not arrived completely
    pipelined: int = 16  #: requests that are read before their turn
    connections: int = 20_000
    stream_buffer: int = 4 * 1024 * 1024  #: unread events of a watch before it is closed
    write_buffer: int = 64 * 1024  #: unread bytes in the buffer of a connection before nothing more is written
    unread: int = 256 * 1024 * 1024  #: bytes in memory only for clients that do not read, of all connections

    header_timeout: float = 30.0  #: from a request's first byte to the end of its head; also for the TLS handshake
    body_timeout: float = 60.0  #: from the end of the head to the end of the body
    idle_timeout: float = 120.0  #: between requests
    stall_timeout: float = 30.0  #: without progress of a client that has data to read
    linger: float = 2.0  #: between our last byte and the client's

    @property
    def sweep_interval(self) -> float:
        shortest = min(self.header_timeout, self.body_timeout, self.idle_timeout, self.stall_timeout, self.linger)
        return min(1.0, shortest / 4)
