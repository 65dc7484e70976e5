"""Calls of podman, tested with a shell instead."""

import asyncio
import os
from pathlib import Path

import pytest

from farflung.edge.runtimes import podman_calls
from farflung.edge.runtimes.podman_calls import run_podman, run_podman_truncated

SHELL = "/bin/sh"


async def test_standard_input_of_any_size_can_be_read_as_a_file() -> None:
    given = b"x" * 300_000
    answer = await run_podman(SHELL, ("-c", "cat /proc/self/fd/0; echo why >&2; exit 3"), given)
    assert (answer.code, answer.output, answer.errors) == (3, given, b"why\n")
    assert not answer.succeeded


async def test_nothing_given_is_nothing_to_read() -> None:
    assert (await run_podman(SHELL, ("-c", "cat"))).output == b""


async def test_a_call_does_not_wait_for_background_processes(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid}; echo started"
    try:
        async with asyncio.timeout(60):
            assert (await run_podman(SHELL, ("-c", script))).output == b"started\n"
            os.kill(int(pid.read_text()), 9)
            assert await run_podman_truncated(SHELL, ("-c", script), 100) == (0, b"started\n")
    finally:
        os.kill(int(pid.read_text()), 9)


async def test_only_the_beginning_of_the_output_is_kept() -> None:
    code, output = await run_podman_truncated(
        SHELL, ("-c", "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"), 10
    )
    assert (code, output) == (0, b"0\n1\n2\n3\n4\n")


async def test_errors_are_kept_with_the_rest() -> None:
    assert await run_podman_truncated(SHELL, ("-c", "echo a; echo b >&2; exit 1"), 100) == (1, b"a\nb\n")


@pytest.mark.parametrize("way", ["ask", "beginning"])
@pytest.mark.parametrize("first", ["", "trap '' TERM; "], ids=["obedient", "deaf"])
async def test_a_cancelled_call_is_stopped(
    tmp_path: Path, way: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman_calls, "GRACE", 0.1)
    pid = tmp_path / "pid"
    arguments = ("-c", f"{first}echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000")
    asking = asyncio.create_task(
        run_podman(SHELL, arguments) if way == "ask" else run_podman_truncated(SHELL, arguments, 10)
    )
    async with asyncio.timeout(60):
        while not pid.exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
