"""A process beside another: started again, and ended with it, however that ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hub_process import PATIENCE, eventually

from farflung.lib.backoff import Backoff
from farflung.lib.supervisor import kept_running

pytestmark = pytest.mark.slow  # processes

PARENT = str(Path(__file__).parents[1] / "support" / "supervising.py")
QUICK = Backoff(0.01, 0.01, lambda: 1.0)


def child(directory: Path, *, heeds: bool = True) -> str:
    """A program that writes down its number, and ends with its standard input; `heeds`: or when it is told to."""
    ignore = "" if heeds else "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    return f"""
import os, pathlib, signal, sys
{ignore}
signal.signal(signal.SIGINT, lambda *_: pathlib.Path({str(directory / "interrupted")!r}).touch())
new = pathlib.Path({str(directory / "new")!r})
new.write_text(str(os.getpid()))
new.rename({str(directory / "number")!r})
sys.stdin.read()
"""


def number(directory: Path, *, other_than: int = 0) -> int:
    """Of the child that runs now."""
    file = directory / "number"

    def there() -> bool:
        return file.exists() and int(file.read_text()) != other_than

    eventually(there, "a child")
    return int(file.read_text())


def gone(process: int) -> bool:
    """Also one that nobody has taken leave of counts as gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def parent(text: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, PARENT, text],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "running\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with parent(child(tmp_path)):
        first = number(tmp_path)
        os.kill(first, signal.SIGKILL)
        second = number(tmp_path, other_than=first)
        os.kill(second, signal.SIGTERM)
        number(tmp_path, other_than=second)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    with parent(child(tmp_path)) as process:
        running = number(tmp_path)
        process.send_signal(how)
        assert process.wait(PATIENCE) == 0
        assert gone(running)


def test_a_child_ends_with_its_parent_even_if_that_had_no_time_to_end_it(tmp_path: Path) -> None:
    with parent(child(tmp_path)) as process:
        running = number(tmp_path)
        process.kill()
        eventually(lambda: gone(running), "the end of the child")


def test_an_interrupt_from_the_terminal_reaches_the_parent_alone_and_ends_both(tmp_path: Path) -> None:
    with parent(child(tmp_path)) as process:
        running = number(tmp_path)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert gone(running)
    assert not (tmp_path / "interrupted").exists()


def test_a_child_that_does_not_heed_is_ended_after_a_while(tmp_path: Path) -> None:
    deaf = child(tmp_path, heeds=False).replace("sys.stdin.read()", "while True: signal.pause()")
    with parent(deaf) as process:
        running = number(tmp_path)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert gone(running)


async def test_a_missing_program_is_tried_again_and_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with kept_running("the child", ["/no/such/program"], backoff=QUICK), asyncio.timeout(PATIENCE):
        while len(caplog.messages) < 3:
            await asyncio.sleep(0)
    assert caplog.messages[0].startswith("the child cannot be started: no such file or directory; restarting")


@pytest.mark.parametrize("text", ["echo started; exec sleep 1000", "exit 7"])
async def test_a_child_is_awaited_until_it_prints_or_ends(text: str) -> None:
    async with kept_running("the child", ["sh", "-c", text], backoff=QUICK) as ready, asyncio.timeout(PATIENCE):
        assert not ready.is_set()
        await ready.wait()


async def test_a_child_that_prints_more_than_a_pipe_holds_does_not_stop(tmp_path: Path) -> None:
    text = f"head -c 1000000 /dev/zero; touch {tmp_path}/done; exec sleep 1000"
    async with kept_running("the child", ["sh", "-c", text], backoff=QUICK), asyncio.timeout(PATIENCE):
        while not (tmp_path / "done").exists():
            await asyncio.sleep(0.01)


async def test_how_it_ended_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with kept_running("the child", ["sh", "-c", "exit 7"], backoff=QUICK), asyncio.timeout(PATIENCE):
        while not caplog.messages:
            await asyncio.sleep(0.01)
    assert caplog.messages[0].startswith("the child ended with exit code 7; restarting")


async def test_a_block_that_ends_before_the_child_began_leaves_nothing(tmp_path: Path) -> None:
    async with kept_running("the child", ["sleep", "1000"], backoff=QUICK):
        pass
    assert [task for task in asyncio.all_tasks() if task.get_name() == "the child"] == []


async def test_what_the_block_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="something else"):
        async with kept_running("the child", [sys.executable, "-c", child(tmp_path)], backoff=QUICK):
            raise OSError("something else")
