"""Which runtime an edge has."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from farflung.edge.runtimes import podman_arguments as words
from farflung.edge.runtimes.base import Runtime, StartError
from farflung.edge.runtimes.podman import Podman, remove_edge_containers
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.podman_calls import run_podman
from farflung.edge.runtimes.podman_output import is_new_enough, last_line, version
from farflung.lib.klog import Logger

KINDS: Final = ("auto", "podman", "process")
PATIENCE: Final = 60.0  #: seconds for all that podman is asked before it is trusted; its first start can be slow


class PodmanUnusable(Exception):
    """podman does not work here.  Why is a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class PodmanInstallation:
    program: str
    version: str


async def select_runtime(
    wanted: str,
    directory: Path,
    process: Callable[[], Runtime],
    instance: str,
    now: Callable[[], datetime],
    log: Logger,
) -> Runtime:
    """`wanted` is one of KINDS.  `auto` is podman where that works, which is found out by trying, and otherwise
    `process()`; why is logged.  Raises Unusable if it has to be podman."""
    if wanted == "process":
        return process()
    try:
        found = await find_podman(directory)
    except PodmanUnusable as problem:
        if wanted == "podman":
            raise
        log.info("pods run as processes of this machine, not in containers", reason=str(problem))
        return process()
    return await Podman.open(found.program, found.version, directory, instance, now, log)


async def find_podman(directory: Path) -> PodmanInstallation:
    """Tries to start a container, as far as that is possible without an image.  Raises Unusable."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await _tried(directory)
    except TimeoutError:
        raise PodmanUnusable(f"podman did not answer within {PATIENCE:.0f} seconds") from None


async def _tried(directory: Path) -> PodmanInstallation:
    if sys.platform != "linux":
        raise PodmanUnusable("podman is used on Linux only")
    program = shutil.which("podman")
    if program is None:
        raise PodmanUnusable("there is no podman on the PATH")
    _check_path(directory)
    found = await _version(program)
    await _start_nothing(program, directory)
    return PodmanInstallation(program, found)


def _check_path(directory: Path) -> None:
    try:
        words.speakable(directory.resolve())
    except StartError as problem:
        raise PodmanUnusable(str(problem)) from None


async def _version(program: str) -> str:
    answer = await run_podman(program, ("info", "--format=json"))
    if not answer.worked:
        raise PodmanUnusable(f"`podman info` failed: {last_line(answer.errors)}")
    try:
        found = version(answer.output)
    except msgspec.MsgspecError:
        raise PodmanUnusable("`podman info` printed something that is not understood") from None
    if not is_new_enough(found):
        raise PodmanUnusable(f"podman {found} is too old, 4.3 or newer is needed")
    return found


async def _start_nothing(program: str, directory: Path) -> None:
    with _empty(directory) as rootfs:
        answer = await run_podman(program, words.probe(Path(rootfs)))
    if answer.code != words.NOT_FOUND:
        raise PodmanUnusable(f"podman cannot start containers: {last_line(answer.errors)}")


def _empty(directory: Path) -> tempfile.TemporaryDirectory[str]:
    """A directory within this one, for as long as it is entered."""
    directory.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=directory.resolve(), prefix="podman-probe-")


async def remove_containers(directory: Path) -> int:
    """Of the edge that was in this directory and whose process has ended: how many there were."""
    program = shutil.which("podman")
    return 0 if program is None else await remove_edge_containers(program, InstanceIdentity.of(directory, instance=""))
