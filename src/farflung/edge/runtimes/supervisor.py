"""A program that runs one command and kills all its descendants afterwards.

    python -I -S supervisor.py      standard input: a request as one line of JSON, then instructions, one per line

It kills all descendants, in whatever session they are, when the command exits and when standard input is closed.  So
nothing survives the process that started it, even if that is killed.  It imports no other module of the project, so
that it starts within milliseconds.

The request: `command`, `environment`, `directory`.  The instruction: TERM.  The exit code is that of the command; 128
plus the number of the signal that killed it; 126 or 127, with a line on standard error, if it cannot be started.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
CONTROL: Final = 0  #: descriptor of the instructions
POLL_INTERVAL: Final = 0.05  #: seconds


def _prctl(what: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(what, argument, 0, 0, 0)


def _read_request() -> tuple[bytes, bytes]:
    """The request, and the beginning of the instructions.  Empty if standard input is closed."""
    received = b""
    while b"\n" not in received:
        data = os.read(CONTROL, 65536)
        if not data:
            return b"", b""
        received += data
    request, _, instructions = received.partition(b"\n")
    return request, instructions


def _start(request: dict[str, Any], supervisor: int) -> int:
    """The process id of the command.  Returns after exec: before, the child would ignore signals."""
    begun, begins = os.pipe()
    child = os.fork()
    if child:
        os.close(begins)
        os.read(begun, 1)  # returns when exec closes the other end
        os.close(begun)
        return child
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(128 + signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, CONTROL)
        os.close(nothing)
        os.chdir(request["directory"])
        os.execvpe(request["command"][0], request["command"], request["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{request['command'][0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    except BaseException:
        os._exit(126)


def _children() -> list[int]:
    """Child processes of this process, in all sessions."""
    mine, found = str(os.getpid()), []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parent = file.read().rpartition(b")")[2].split()[1].decode()
            except (OSError, IndexError):
                continue
            if parent == mine:
                found.append(int(name))
    return found


def _kill_descendants() -> None:
    """Orphans become children of this process (PR_SET_CHILD_SUBREAPER), so that the loop finds all descendants."""
    while True:
        for child in _children():
            try:
                os.kill(child, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        select.select([], [], [], POLL_INTERVAL)


def _reap(command: int) -> int | None:
    """The exit code of the command, if it has ended."""
    code = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not child:
            return code
        if child == command:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _supervise(command: int, woken: int, instructions: bytes) -> int:
    """Wait until the command exits or standard input is closed.  Returns the exit code."""
    while (code := _reap(command)) is None:
        *lines, instructions = instructions.split(b"\n")
        if b"TERM" in lines:
            os.kill(command, signal.SIGTERM)
        ready = select.select([CONTROL, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        if CONTROL in ready:
            data = os.read(CONTROL, 4096)
            if not data:
                return 128 + signal.SIGKILL
            instructions += data
    return code


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    request, instructions = _read_request()
    if not request:
        return
    command = _start(json.loads(request), os.getpid())
    for descriptor in (1, 2):
        os.close(descriptor)
    code = _supervise(command, woken, instructions)
    _kill_descendants()
    os._exit(code)


if __name__ == "__main__":
    main()
