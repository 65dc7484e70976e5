"""Kill a process in the middle of a function, at any call."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


def killed_at(call: int, work: Callable[[], object], files: tuple[str, ...]) -> bool:
    """Run a function in another process, which kills itself at this call of functions in these files.  Returns whether
    it reached that call."""
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        assert status in (0, signal.SIGKILL)
        return status != 0
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if frame.f_code.co_filename.endswith(files) and event in ("call", "c_call", "c_return"):
            calls += 1
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.setprofile(count)
        work()
        sys.setprofile(None)
        os._exit(0)
    finally:
        os._exit(1)
