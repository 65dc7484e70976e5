"""The memory of request bodies that have not arrived completely."""

from __future__ import annotations

from typing import Protocol


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
