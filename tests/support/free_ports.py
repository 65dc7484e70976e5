"""Ports of this machine for servers that tests start later, or in another process."""

from __future__ import annotations

import random
import socket

#: below the blocks of own_ports.py, and the ports that Linux gives to clients: these would take one before it is used
FIRST, LAST = 10_000, 20_999

_chance = random.SystemRandom()  # worker processes of pytest must not choose the same ports
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports on which no process listens now, none of them returned before in this process."""
    found: list[int] = []
    while len(found) < count:
        port = _chance.randint(FIRST, LAST)
        if port not in _given and is_free(port):
            _given.add(port)
            found.append(port)
    return found


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
