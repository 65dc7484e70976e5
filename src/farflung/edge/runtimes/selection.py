"""Selection of the container runtime of an edge."""

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

from farflung.edge.runtimes import podman_arguments as arguments
from farflung.edge.runtimes.base import Runtime, StartError
from farflung.edge.runtimes.podman import Podman, remove_edge_containers
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.podman_calls import run_podman
from farflung.edge.runtimes.podman_output import is_new_enough, last_line, version
from farflung.lib.klog import Logger

KINDS: Final = ("auto", "podman", "process")
TIMEOUT: Final = 60.0  #: seconds for all checks of podman; its first start can be slow


class PodmanUnusable(Exception):
    """podman does not work on this machine."""


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
    """`wanted` is one of KINDS.  `auto` selects podman if a trial container starts; else it logs the reason and selects
    `process()`.  Raises PodmanUnusable if `wanted` is podman."""
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
    """Start a trial container.  Raises PodmanUnusable."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _check_podman(directory)
    except TimeoutError:
        raise PodmanUnusable(f"podman did not result within {TIMEOUT:.0f} seconds") from None


async def _check_podman(directory: Path) -> PodmanInstallation:
    if sys.platform != "linux":
        raise PodmanUnusable("podman is used on Linux only")
    program = shutil.which("podman")
    if program is None:
        raise PodmanUnusable("podman is not on the PATH")
    directory = _prepare_directory(directory)
    found = await _version(program)
    with tempfile.TemporaryDirectory(dir=directory, prefix="podman-probe-") as rootfs:
        result = await run_podman(program, arguments.probe(Path(rootfs)))
    if result.code != arguments.NOT_FOUND:
        raise PodmanUnusable(f"podman cannot start containers: {last_line(result.errors)}")
    return PodmanInstallation(program, found)


def _prepare_directory(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    try:
        arguments.checked_path(directory)
    except StartError as problem:
        raise PodmanUnusable(str(problem)) from None
    return directory


async def _version(program: str) -> str:
    result = await run_podman(program, ("info", "--format=json"))
    if not result.succeeded:
        raise PodmanUnusable(f"`podman info` failed: {last_line(result.errors)}")
    try:
        found = version(result.output)
    except msgspec.MsgspecError:
        raise PodmanUnusable("`podman info` printed unexpected output") from None
    if not is_new_enough(found):
        raise PodmanUnusable(f"podman {found} is too old; 4.3 or newer is required")
    return found


async def remove_containers(directory: Path) -> int:
    """Remove the containers of a stopped edge, and return their number.  `directory`: its runtime directory."""
    program = shutil.which("podman")
    return 0 if program is None else await remove_edge_containers(program, InstanceIdentity.of(directory, instance=""))
