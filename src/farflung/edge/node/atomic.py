"""Volumes that change as a whole: whoever reads them sees all files of before or all of now.

..2026_11_16_06_30_00.k3j2/    the files
..data                         a link to that directory, replaced at once
index.html                     a link to ..data/index.html
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from farflung.edge.node.payloads import Payload

DATA: Final = "..data"
NEXT: Final = "..data_tmp"


def write(directory: Path, payload: Payload, moment: datetime) -> None:
    """Make the volume have exactly these files.  Raises OSError; then it is as it was before."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    stamp = moment.strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    try:
        _fill(fresh, payload)
        _point(directory, fresh.name)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _link(directory, {path.partition("/")[0] for path in payload})
    for entry in directory.iterdir():
        if entry.name.startswith("..") and entry.name not in (DATA, fresh.name):
            shutil.rmtree(entry, ignore_errors=True)


def _fill(fresh: Path, payload: Payload) -> None:
    fresh.chmod(0o755)
    for path, file in payload.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
            os.fchmod(descriptor, file.mode & 0o777)


def _point(directory: Path, name: str) -> None:
    upcoming = directory / NEXT
    upcoming.unlink(missing_ok=True)
    upcoming.symlink_to(name)
    upcoming.replace(directory / DATA)


def _link(directory: Path, names: set[str]) -> None:
    for name in sorted(names):
        with suppress(FileExistsError):
            (directory / name).symlink_to(f"{DATA}/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            if entry.is_dir() and not entry.is_symlink():  # made by a container
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
