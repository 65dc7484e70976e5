"""Adds contexts to kubeconfig files and removes them, as kind does."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from farflung.machinery.codec import yaml as kubernetes_yaml
from farflung.machinery.errors import Malformed

SECTIONS: Final = (("clusters", "cluster"), ("contexts", "context"), ("users", "user"))
OF_HUB: Final = "root"  #: a context of every hub's kubeconfig
LOCK_TIMEOUT: Final = 10.0  #: seconds
POLL_INTERVAL: Final = 0.05  #: seconds

Config = dict[str, Any]


class ContextError(Exception):
    """A kubeconfig cannot be read or written."""


def file_of(environment: Mapping[str, str], explicit: str = "") -> Path:
    """The file to write: of several the first that exists, else the last."""
    if explicit:
        return Path(explicit)
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named:
        return Path("~/.kube/config").expanduser()
    return next((path for path in named if path.exists()), named[-1])


def current(path: Path) -> str:
    """The name of the current context.  Raises ContextError."""
    try:
        return str(_read(path).get("current-context") or "")
    except OSError as error:
        raise ContextError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def add(path: Path, name: str, cluster: Config, user: Config) -> None:
    """Add or replace cluster, user and context of this name, and make it the current context, unless the kubeconfig is
    a hub's.  Raises ContextError."""
    values = {"clusters": cluster, "contexts": {"cluster": name, "user": name}, "users": user}

    def change(config: Config) -> None:
        for section, inner in SECTIONS:
            entries = [one for one in config.get(section) or [] if one.get("name") != name]
            config[section] = [*entries, {"name": name, inner: values[section]}]
        if not (config.get("current-context") and any(one.get("name") == OF_HUB for one in config["contexts"])):
            config["current-context"] = name

    _change(path, change)


def remove(path: Path, name: str) -> None:
    """Does nothing if it does not exist.  Raises ContextError."""
    if not path.exists():
        return

    def change(config: Config) -> None:
        for section, _ in SECTIONS:
            config[section] = [one for one in config.get(section) or [] if one.get("name") != name]
        if config.get("current-context") == name:
            config["current-context"] = ""

    _change(path, change)


def _change(path: Path, change: Callable[[Config], None]) -> None:
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target):
            config = _read(target)
            before = yaml.safe_dump(config)
            change(config)
            if yaml.safe_dump(config) != before:
                _write(target, config)
    except OSError as error:
        raise ContextError(f"cannot change {path}: {(error.strerror or str(error)).lower()}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """With a lock file, as kubectl does."""
    lock = path.with_name(f"{path.name}.lock")
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > until:
                raise ContextError(f"another process is writing {path}; if that is not so, remove {lock}") from None
            time.sleep(POLL_INTERVAL)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _read(path: Path) -> Config:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    try:
        config = kubernetes_yaml.parse(content).value if content.strip() else None
    except Malformed as error:
        raise ContextError(f"{path} is not YAML: {error.why.removeprefix('yaml: ')}") from None
    config = {"apiVersion": "v1", "kind": "Config"} if config is None else config
    if not isinstance(config, dict) or not all(_are_entries(config.get(section)) for section, _ in SECTIONS):
        raise ContextError(f"{path} is not a kubeconfig")
    return config


def _are_entries(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, dict) for one in value))


def _write(path: Path, config: Config) -> None:
    """Atomically, with the old mode; for root, also with the old owner."""
    before = path.stat() if path.exists() else None
    unfinished = path.with_name(f"{path.name}.farflung-{os.getpid()}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            yaml.safe_dump(config, file, sort_keys=False, allow_unicode=True)
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            if os.geteuid() == 0:
                os.chown(unfinished, before.st_uid, before.st_gid)
            unfinished.chmod(stat.S_IMODE(before.st_mode))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
