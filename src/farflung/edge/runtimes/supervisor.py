"""A process of its own that starts one command and keeps an eye on it.

    python -I -S keeper.py      the work as one line of JSON on standard input, then words, one per line

It ends everything that came of the command, however far that has gone from where it began, when the command itself has
ended, and when standard input does: so nothing outlives who started it, not even if that was killed.  It knows of no
other module, so that it starts within milliseconds.

The work: `command`, `environment`, `directory`.  Words: TERM (ask the command to end).  Its exit code is that of the
command; 128 and the number of a signal that ended it; 126 or 127, with a line on standard error, if it could not be
started.
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
CONTROL: Final = 0  #: the descriptor on which we hear what to do
ROUND: Final = 0.05  #: seconds between two looks at what is left


def _prctl(what: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(what, argument, 0, 0, 0)


def _work() -> tuple[bytes, bytes]:
    """What to do, and what was said after it.  Nothing if nobody wants anything any more."""
    heard = b""
    while b"\n" not in heard:
        data = os.read(CONTROL, 65536)
        if not data:
            return b"", b""
        heard += data
    work, _, words = heard.partition(b"\n")
    return work, words


def _start(work: dict[str, Any], keeper: int) -> int:
    """The process id of the command, when it is that: before, it would not hear what it is told."""
    begun, begins = os.pipe()
    child = os.fork()
    if child:
        os.close(begins)
        os.read(begun, 1)  # nothing comes: the other end closes when the command begins
        os.close(begun)
        return child
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(128 + signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, CONTROL)
        os.close(nothing)
        os.chdir(work["directory"])
        os.execvpe(work["command"][0], work["command"], work["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"{work['command'][0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    except BaseException:
        os._exit(126)


def _children() -> list[int]:
    """Of this process, in whatever session they are."""
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


def _end_everything() -> None:
    """Whoever loses a parent becomes our child, so that in the end nobody is left."""
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
        select.select([], [], [], ROUND)


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


def _kept(command: int, woken: int, words: bytes) -> int:
    """Until the command ends or nobody wants it any more.  Its exit code.  `words`: what was said already."""
    while (code := _reap(command)) is None:
        *lines, words = words.split(b"\n")
        if b"TERM" in lines:
            os.kill(command, signal.SIGTERM)
        ready = select.select([CONTROL, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        if CONTROL in ready:
            data = os.read(CONTROL, 4096)
            if not data:
                return 128 + signal.SIGKILL
            words += data
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
    work, words = _work()
    if not work:
        return
    command = _start(json.loads(work), os.getpid())
    for descriptor in (1, 2):
        os.close(descriptor)
    code = _kept(command, woken, words)
    _end_everything()
    os._exit(code)


if __name__ == "__main__":
    main()
