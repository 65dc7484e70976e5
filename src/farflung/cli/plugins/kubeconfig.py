"""Kubeconfig files: several merged into one and changed without losing other content; server and user of a context."""

from __future__ import annotations

import copy
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from farflung.cli.plugins import yaml_text
from farflung.cli.plugins.commands import CommandError

CLUSTERS, CONTEXTS, USERS = "clusters", "contexts", "users"
BODY = {CLUSTERS: "cluster", CONTEXTS: "context", USERS: "user"}  #: the field with the content of an entry
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")  #: relative to the file


class KubeconfigEntry:
    """A cluster, context or user, and its file."""

    __slots__ = ("body", "origin")

    def __init__(self, body: dict[str, Any], origin: Path) -> None:
        self.body = body
        self.origin = origin


class Kubeconfig:
    """Merged files.  The first file with a name, or with a current context, takes precedence."""

    def __init__(self, documents: dict[Path, dict[str, Any]]) -> None:
        self.documents = documents
        self.changed: list[Path] = []

    @property
    def current_context(self) -> str:
        return next((name for name in map(_current, self.documents.values()) if name), "")

    @property
    def empty(self) -> bool:
        return not any(document.get(section) for document in self.documents.values() for section in BODY)

    def find(self, section: str, name: str) -> KubeconfigEntry | None:
        for path, document in self.documents.items():
            item = _item(document, section, name)
            if item is not None:
                return KubeconfigEntry(item.get(BODY[section]) or {}, path)
        return None

    def put(self, section: str, name: str, entry: KubeconfigEntry) -> None:
        """Write an entry into the file that has its name, else into the file of the entry that it was made from."""
        known = self.find(section, name)
        destination = known.origin if known else entry.origin
        body = copy.deepcopy(entry.body)
        _move_paths(body, entry.origin, destination)
        document = self.documents[destination]
        item = _item(document, section, name)
        if item is None:
            document[section] = [*_items(document, section), {"name": name, BODY[section]: body}]
        else:
            item[BODY[section]] = body
        self._touch(destination)

    def switch(self, context: str) -> None:
        holder = next((path for path, document in self.documents.items() if _current(document)), None)
        destination = holder or next(iter(self.documents))
        self.documents[destination]["current-context"] = context
        self._touch(destination)

    def _touch(self, path: Path) -> None:
        """In the order of the last change, so that no reference precedes its target."""
        if path in self.changed:
            self.changed.remove(path)
        self.changed.append(path)


def locations(explicit: str, environment: Mapping[str, str]) -> list[Path]:
    """The files that kubectl would read, existing or not."""
    if explicit:
        return [Path(explicit)]
    names = [name for name in environment.get("KUBECONFIG", "").split(":") if name]
    if names:
        return [Path(name) for name in dict.fromkeys(names)]
    return [Path(environment.get("HOME", "/"), ".kube", "config")]


def load(paths: list[Path]) -> Kubeconfig:
    """The content of existing files."""
    documents = {}
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandError(f'error loading config file "{path}": {reason}') from None
        except UnicodeDecodeError as error:
            raise CommandError(f'error loading config file "{path}": {error}') from None
        documents[path] = parse(text, path)
    return Kubeconfig(documents)


def parse(text: str, path: Path) -> dict[str, Any]:
    try:
        document = yaml_text.load(text)
    except ValueError as error:
        raise CommandError(f'error loading config file "{path}": {error}') from None
    if document is None:
        document = {}
    if not isinstance(document, dict) or not all(isinstance(document.get(section) or [], list) for section in BODY):
        raise CommandError(f'error loading config file "{path}": this is not a kubeconfig')
    return document


def render(document: dict[str, Any]) -> str:
    """In the order in which kubectl writes."""
    ordered: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "preferences": {}} | document
    for section in BODY:
        if ordered.get(section):
            ordered[section] = sorted(ordered[section], key=_name)
    return yaml_text.dump(ordered)


def _current(document: dict[str, Any]) -> str:
    name = document.get("current-context")
    return name if isinstance(name, str) else ""


def _name(item: Any) -> str:
    return str(item.get("name", "")) if isinstance(item, dict) else ""


def _items(document: dict[str, Any], section: str) -> list[Any]:
    return document.get(section) or []


def _item(document: dict[str, Any], section: str, name: str) -> dict[str, Any] | None:
    for item in _items(document, section):
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(BODY[section]) or {}, dict):
            return item
    return None


def _move_paths(body: dict[str, Any], origin: Path, destination: Path) -> None:
    if origin.parent == destination.parent:
        return
    for field in PATHS:
        value = body.get(field)
        if isinstance(value, str) and value:
            body[field] = str(resolved_path(value, origin))


def resolved_path(value: str, origin: Path) -> Path:
    """The file of `value` in a kubeconfig at `origin`."""
    return (origin.parent / value).absolute()


LOCK_SECONDS = 10.0  #: seconds to wait for another writer


def change_files(paths: list[Path], edit: Callable[[Kubeconfig], None]) -> Kubeconfig:
    """Read the files again, edit them and write the changed ones, under kubectl's lock."""
    with ExitStack() as locks:
        for lock in sorted({lock for path in paths if path.exists() for lock in _locks(path)}):
            locks.enter_context(_locked(lock))
        kubeconfig = load(paths)
        edit(kubeconfig)
        for path in kubeconfig.changed:
            replace_file(path, render(kubeconfig.documents[path]))
    return kubeconfig


def replace_file(path: Path, text: str) -> None:
    """Replace the content atomically; keeps mode, symbolic links and, where allowed, the owner."""
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
    """kubectl's lock file beside the kubeconfig and, for a symbolic link, the one beside its target.  Directories are
    resolved, so that two paths to one lock are equal."""
    return Path(f"{path.parent.resolve() / path.name}.lock"), Path(f"{path.resolve()}.lock")


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    deadline = time.monotonic() + LOCK_SECONDS
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


UNCONFIGURED = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
)


class PluginAccess:
    """One server and one user.  Paths in `cluster` and `user` are absolute."""

    __slots__ = ("cluster", "user")

    def __init__(self, cluster: dict[str, Any], user: dict[str, Any]) -> None:
        self.cluster = cluster
        self.user = user

    @property
    def server(self) -> str:
        return str(self.cluster["server"])


def resolve(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> PluginAccess:
    """The access of the current context, with the flags in `overrides`."""
    context = _context(kubeconfig, overrides)
    cluster = _referred(kubeconfig, CLUSTERS, context, "cluster", 'cluster "{}" does not exist')
    named = {"user": overrides["user"]} if overrides.get("user") else context
    user = _referred(kubeconfig, USERS, named, "user", 'auth info "{}" does not exist')
    _override_cluster(cluster, overrides)
    _override_user(user, overrides)
    if not cluster.get("server"):
        raise CommandError(UNCONFIGURED)
    return PluginAccess(cluster, user)


def context_name(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> str:
    return overrides.get("context") or kubeconfig.current_context


def _context(kubeconfig: Kubeconfig, overrides: Mapping[str, str]) -> dict[str, Any]:
    name = context_name(kubeconfig, overrides)
    found = kubeconfig.find(CONTEXTS, name)
    if found is not None:
        return found.body
    if overrides.get("context"):
        raise CommandError(f'context "{name}" does not exist')
    if not overrides.get("server"):
        raise CommandError(UNCONFIGURED if kubeconfig.empty or not name else f'context "{name}" does not exist')
    return {}


def _referred(
    kubeconfig: Kubeconfig, section: str, context: dict[str, Any], field: str, missing: str
) -> dict[str, Any]:
    name = context.get(field)
    if not name:
        return {}
    found = kubeconfig.find(section, name)
    if found is None:
        raise CommandError(missing.format(name))
    return _with_absolute_paths(found)


def _with_absolute_paths(entry: KubeconfigEntry) -> dict[str, Any]:
    body = dict(entry.body)
    for field in PATHS:
        if body.get(field):
            body[field] = str(resolved_path(body[field], entry.origin))
    execution = body.get("exec")
    if isinstance(execution, dict) and "/" in str(execution.get("command", "")):
        body["exec"] = execution | {"command": str(resolved_path(execution["command"], entry.origin))}
    return body


def _override_cluster(cluster: dict[str, Any], overrides: Mapping[str, str]) -> None:
    if overrides.get("server"):
        cluster["server"] = overrides["server"]
        cluster.pop("tls-server-name", None)
    for field in ("tls-server-name", "proxy-url"):
        if overrides.get(field):
            cluster[field] = overrides[field]
    authority, insecure = overrides.get("certificate-authority"), overrides.get("insecure-skip-tls-verify") == "true"
    if authority or insecure:
        for field in ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"):
            cluster.pop(field, None)
    if authority:
        cluster["certificate-authority"] = str(Path(authority).absolute())
    if insecure:
        cluster["insecure-skip-tls-verify"] = True


def _override_user(user: dict[str, Any], overrides: Mapping[str, str]) -> None:
    if overrides.get("token"):
        user.pop("tokenFile", None)
        user.pop("exec", None)
        user["token"] = overrides["token"]
    for field in ("username", "password", "as-uid"):
        if overrides.get(field):
            user[field] = overrides[field]
