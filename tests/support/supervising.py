"""A process that keeps another one running: `supervising.py TEXT_OF_THE_CHILD`."""

from __future__ import annotations

import asyncio
import signal
import sys

from farflung.lib.backoff import Backoff
from farflung.lib.supervisor import kept_running


async def main(text: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    backoff = Backoff(0.05, 0.05, lambda: 1.0)
    async with kept_running("the child", [sys.executable, "-c", text], backoff=backoff, grace=0.5):
        print("running", flush=True)
        await stopped.wait()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
