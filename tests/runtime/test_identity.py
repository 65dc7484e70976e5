"""Who a process is after another one was killed, and that it is never somebody who lives."""

from __future__ import annotations

import io
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farflung.lib.klog import Logger
from farflung.runtime import identity as module
from farflung.runtime.identity import identity

QUIET = Logger(io.StringIO())
HOLDER = """
import asyncio, sys
from farflung.runtime.identity import identity
from farflung.lib.klog import Logger

async def hold():
    async with identity(sys.argv[1], Logger(sys.stderr)) as one:
        print(one, flush=True)
        await asyncio.sleep(3600)

asyncio.run(hold())
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.0)
    return tmp_path / "identity"


@pytest.fixture
def holder(file: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def of(file: Path) -> str:
    async with identity(str(file), QUIET) as one:
        return one


async def test_who_comes_after_one_that_was_killed_is_the_same_and_before_that_another(
    file: Path, holder: subprocess.Popen[str]
) -> None:
    first = said(holder)
    assert first
    other = await of(file)
    assert other != first
    holder.kill()
    holder.wait()
    assert await of(file) == first
    assert await of(file) == first


async def test_without_a_file_every_process_has_an_own_identity(file: Path) -> None:
    async with identity("", QUIET) as one, identity("", QUIET) as two:
        assert one != two
    nowhere = file.parent / "none" / "identity"
    assert await of(nowhere) != await of(nowhere)


async def test_a_copy_of_the_file_gives_no_other_process_the_identity(file: Path) -> None:
    first = await of(file)
    copy = file.with_name("copy")
    shutil.copy2(file, copy)
    assert await of(copy) != first
    assert await of(copy) == await of(copy)
    assert await of(file) == first


async def test_another_machine_or_another_start_of_it_is_another_one(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await of(file)
    boot = tmp_path / "boot"
    boot.write_text("another")
    monkeypatch.setattr(module, "BOOT", boot)
    second = await of(file)
    assert second != first
    assert await of(file) == second
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert await of(file) not in (first, second)
    boot.unlink()  # where nobody knows when the machine was started
    assert await of(file) != await of(file)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"identity": 5}', '{"where": [], "identity": "me"}'])
async def test_a_file_that_makes_no_sense_is_written_anew(file: Path, text: str) -> None:
    file.write_text(text)
    first = await of(file)
    assert first not in ("me", "")
    assert await of(file) == first


async def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    file.symlink_to(target)
    assert await of(file)
    assert target.read_text() == "precious"
