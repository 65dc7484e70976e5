"""What this machine is, as a Node says it."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Final

from farflung.lib.version import __version__
from farflung.machinery.errors import Obj

VERSION: Final = f"v1.33.0+farflung-{__version__}"  #: of what we act like
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
MOST_PODS: Final = 110
ADDRESS: Final = "127.0.0.1"  #: of the node and of its pods: what they listen on is for this machine


def capacity(directory: Path) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(directory).total // 1024}Ki",
        "pods": str(MOST_PODS),
    }


def labels(name: str) -> dict[str, str]:
    said = {"hostname": name, "os": "linux", "arch": architecture()}
    return {f"kubernetes.io/{label}": value for label, value in said.items()}


def architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def information(runtime: str) -> Obj:
    return {
        "machineID": _line("/etc/machine-id"),
        "systemUUID": "",
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _system(),
        "containerRuntimeVersion": runtime,
        "kubeletVersion": VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
