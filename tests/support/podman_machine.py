"""podman of this machine, and a small image with its busybox."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from farflung.edge.runtimes.selection import PodmanUnusable, find_podman

#: says `entry` and what follows; `command` if nothing does
CHANGES = ('ENTRYPOINT ["/bin/echo", "entry"]', 'CMD ["command"]', "ENV FROM_IMAGE=yes")
APPLETS = ("cat", "echo", "env", "httpd", "id", "pwd", "seq", "sh", "sleep", "touch", "true")


def settle(directory: Path) -> None:
    """Lower podman's limits where it may not raise them, as in many sandboxes."""
    try:
        asyncio.run(find_podman(directory))
    except PodmanUnusable:
        os.environ["CONTAINERS_CONF"] = str(_modest(directory))
        asyncio.run(find_podman(directory))


def _modest(directory: Path) -> Path:
    path = directory / "containers.conf"
    path.write_text(
        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=30000:30000"]\n'
        + ('[engine]\nruntime = "runc"\n' if shutil.which("runc") else "")
    )
    return path


def build(name: str, directory: Path) -> None:
    archive = directory / "image.tar"
    busybox = shutil.which("busybox")
    assert busybox is not None, "tools/ensure-podman.sh installs busybox-static"
    with tarfile.open(archive, "w") as tar:
        tar.add(busybox, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for folder in ("tmp", "etc", "srv"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
    podman("import", *(f"--change={change}" for change in CHANGES), str(archive), name)


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], check=True, capture_output=True, text=True).stdout
