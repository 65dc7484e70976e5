"""Ports of this machine that cannot be had, and who has them."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
LISTENING: Final = "0A"  #: the state of a socket, as /proc/net/tcp has it
LONGEST: Final = 80  #: characters of a command line that are shown


class PortTaken(Exception):
    """A sentence that says which port, and if it can be known whose it is."""


def check(wanted: Iterable[tuple[str, int]]) -> None:
    """Whether each (address, port) can be listened on, all of them at once.  Raises PortTaken."""
    with contextlib.ExitStack() as stack:
        for address, port in wanted:
            stack.enter_context(_listening(address, port))


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    probe = socket.socket(family)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        probe.close()
        raise PortTaken(sentence(address, port, error)) from None
    return probe


def sentence(address: str, port: int, error: OSError) -> str:
    where = f"port {port} of {address}"
    if error.errno == errno.EADDRINUSE:
        holder = next(holders(port), "")
        return f"{where} is in use by {holder}" if holder else f"{where} is in use"
    return f"{where} cannot be used: {(error.strerror or str(error)).lower()}"


def holders(port: int) -> Iterator[str]:
    """The processes that listen on a port of any address, as far as we may see them: `process 123 (nginx -g …)`."""
    sockets = set(_inodes(port))
    if not sockets:
        return
    for directory in sorted(PROC.glob("[0-9]*"), key=lambda one: int(one.name)):
        with contextlib.suppress(OSError):
            if any(_is_one(descriptor, sockets) for descriptor in (directory / "fd").iterdir()):
                yield f"process {directory.name} ({_command(directory)})"


def _is_one(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return str(descriptor.readlink()) in sockets
    except OSError:
        return False


def _inodes(port: int) -> Iterator[str]:
    """What the descriptors of sockets that listen there lead to: `socket:[4711]`."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _command(directory: Path) -> str:
    words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    shown = "".join(char if char.isprintable() else "?" for char in words)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
