"""What one client may take from the server, in bytes, counts and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are coarse: a sweep enforces them, so each may last a second (or a quarter of itself, if that is less)
    longer than it says."""

    request_line: int = 32 * 1024  #: bytes of method, target and version
    header_count: int = 256
    header_bytes: int = 64 * 1024  #: all names and values of one request together, trailers included
    body_bytes: int = 3 * 1024 * 1024  #: as Kubernetes
    pipelined: int = 16  #: requests read ahead of the answer that is due
    connections: int = 20_000
    stream_buffer: int = 4 * 1024 * 1024  #: what a watcher may leave unread before it is cut off

    header_timeout: float = 30.0  #: from a request's first byte to the end of its head; also for the TLS handshake
    body_timeout: float = 60.0  #: from the end of the head to the end of the body
    idle_timeout: float = 120.0  #: between requests
    stall_timeout: float = 30.0  #: without a byte taken by a client that has more than the socket holds to take
    linger: float = 2.0  #: between our last byte and the client's

    @property
    def sweep_interval(self) -> float:
        shortest = min(self.header_timeout, self.body_timeout, self.idle_timeout, self.stall_timeout, self.linger)
        return min(1.0, shortest / 4)
