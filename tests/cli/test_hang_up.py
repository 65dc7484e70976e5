"""What SIGHUP means to who reads files: they are to be read again, or the terminal is gone."""

from __future__ import annotations

import os
import pty
import signal
import sys

import pytest

SCRIPT = """
import asyncio, os, signal, sys
from farflung.cli.controllers import _on_hang_up

async def wait():
    heard = asyncio.Queue()
    reaction = _on_hang_up(lambda: heard.put_nowait("read"), lambda: heard.put_nowait("stop"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reaction)
    os.write(int(sys.argv[1]), b"up,")
    os.write(int(sys.argv[1]), (await heard.get()).encode())

asyncio.run(wait())
"""


@pytest.mark.parametrize(("before", "meaning"), [("", "stop"), ("trap '' HUP; ", "read")], ids=["plain", "nohup"])
def test_a_terminal_that_is_closed_ends_those_that_were_not_told_to_outlive_it(before: str, meaning: str) -> None:
    reading, writing = os.pipe()
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
        os.set_inheritable(writing, True)
        os.execv("/bin/sh", ["sh", "-c", f'{before}exec "$0" -c "$1" "$2"', sys.executable, SCRIPT, str(writing)])
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read(3) == "up,"
        os.close(terminal)
        assert said.read() == meaning
    os.waitpid(process, 0)
