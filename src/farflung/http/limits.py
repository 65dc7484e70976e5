"""Limits of what clients may send, and of the memory of bodies that have not arrived completely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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


class Receiver(Protocol):
    """A connection that receives a body."""

    def refuse_body(self) -> None:
        """Drop the body and answer with 429.  The budget has released it already."""


class BodyBudget:
    """Limits the bytes of all incomplete bodies together.

    If they exceed the limit, the sender with the most bytes loses its largest body, so a sender can only exhaust its
    own share.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._senders: dict[str, dict[Receiver, int]] = {}
        self._sender_of: dict[Receiver, str] = {}
        self.total = 0

    def hold(self, receiver: Receiver, sender: str, size: int) -> None:
        """`size`: bytes of the receiver's body so far.  May refuse any body, also this one."""
        bodies = self._senders.setdefault(sender, {})
        self._sender_of[receiver] = sender
        self.total += size - bodies.get(receiver, 0)
        bodies[receiver] = size
        while self.total > self._limit:
            most = max(self._senders.values(), key=lambda bodies: sum(bodies.values()))
            largest = max(most, key=most.__getitem__)
            self.release(largest)
            largest.refuse_body()

    def release(self, receiver: Receiver) -> None:
        """The body is complete or dropped."""
        sender = self._sender_of.pop(receiver, None)
        if sender is None:
            return
        bodies = self._senders[sender]
        self.total -= bodies.pop(receiver)
        if not bodies:
            del self._senders[sender]
