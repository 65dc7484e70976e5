"""Changes kubeconfig files: one writer at a time, all of a file or nothing, and through links rather than over them."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from farflung.cli.plugins.errors import CommandError
from farflung.cli.plugins.kubeconfig import Kubeconfig, load, render

PATIENCE = 10.0  #: seconds to wait for another writer


def change(paths: list[Path], edit: Callable[[Kubeconfig], None]) -> Kubeconfig:
    """Read the files again, edit them and write what changed, while no other kubectl writes them."""
    with ExitStack() as locks:
        for lock in sorted({lock for path in paths if path.exists() for lock in _locks(path)}):
            locks.enter_context(_locked(lock))
        kubeconfig = load(paths)
        edit(kubeconfig)
        for path in kubeconfig.changed:
            replace(path, render(kubeconfig.documents[path]))
    return kubeconfig


def replace(path: Path, text: str) -> None:
    """Give a file another content at once, keeping its mode, its owner where that is allowed, and links to it."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        status = target.stat()
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            with suppress(PermissionError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, status.st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def _locks(path: Path) -> tuple[Path, Path]:
    """The lock that kubectl takes, too: a file beside the kubeconfig; and, if that is a link, that of the file itself,
    which others may have by another name.  Directories are followed first: two ways to one lock are one lock."""
    return Path(f"{path.parent.resolve() / path.name}.lock"), Path(f"{path.resolve()}.lock")


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE
    while not _taken(lock):
        if time.monotonic() > deadline:
            raise CommandError(f"open {lock}: file exists; if no kubectl is running, remove it")
        time.sleep(0.01)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _taken(lock: Path) -> bool:
    try:
        os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
    except OSError as error:
        if error.errno == errno.EEXIST:
            return False
        raise CommandError(f"open {lock}: {(error.strerror or '').lower()}") from None
    return True
