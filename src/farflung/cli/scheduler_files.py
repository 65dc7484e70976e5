"""What files tell the global scheduler: which policy decides, and which flavors and sites there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from farflung.client.kubeconfig import KubeconfigError, server_url
from farflung.scheduling.catalogue import CatalogueError
from farflung.scheduling.era import CONF, FILES, Base, read_base
from farflung.scheduling.policy import Policy, PolicyError, default_policy, read_policy
from farflung.scheduling.values import Flavor, Site

#: what differs as soon as a file is another one, whether it was written anew, replaced, or is behind another link
Version: TypeAlias = tuple[int, int, int, int, int] | None
Versions: TypeAlias = Mapping[Path, Version]
Texts: TypeAlias = Callable[[Path], str | None]  #: what is in a file; None: there is no such file


class ConfigurationError(ValueError):
    """A sentence that says what to mend, and where."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What files say; nothing is needed."""

    policy: Policy = field(default_factory=default_policy)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: beside the Clusters of the API
    kubeconfig: str = ""
    master: str = ""  #: the address of the server, if not that of the kubeconfig


class Files:
    """Those that somebody named: a directory, a policy that counts instead of the directory's, both, or nothing."""

    def __init__(self, directory: str = "", policy_file: str = "") -> None:
        self._directory = directory
        self._policy_file = policy_file
        self.seen: dict[Path, Version] = {}  #: all that `read` looked at last, also where there was no file
        self.texts: dict[str, str] = {}  #: what `read` found last, by absolute paths

    def __bool__(self) -> bool:
        return bool(self._directory or self._policy_file)

    def options(self) -> list[str]:
        """That tell another command of ours to read the same."""
        named = (("--conf", self._directory), ("--policy-file", self._policy_file))
        return [word for option, path in named if path for word in (option, str(Path(path).absolute()))]

    def versions(self) -> Versions:
        """What is now where `read` looked."""
        return {path: _version(path) for path in self.seen}

    def changed_between(self, first: datetime, last: datetime) -> datetime | None:
        """When the one was written that was written last, of those that `read` looked at, if that was between them."""
        written = max((version[3] for version in self.seen.values() if version), default=0)
        moment = datetime.fromtimestamp(written / 1e9, UTC)
        return moment if first < moment <= last else None

    def read(self) -> Configuration:
        """Raises ConfigurationError."""
        self.seen, self.texts = {}, {}
        return self._configuration(self._text)

    def read_from(self, texts: Mapping[str, str]) -> Configuration:
        """As if the files had these texts, by absolute paths.  Raises ConfigurationError."""
        return self._configuration(lambda path: texts.get(str(path.absolute())))

    def _configuration(self, text_of: Texts) -> Configuration:
        found, policy_file, spot_fake = Configuration(), self._policy_file, False
        if self._directory:
            directory = Path(self._directory)
            base = _base(directory, text_of)
            said = base.settings
            policy_file = policy_file or str(directory / said.policy_file)
            kubeconfig = str(directory / _at_home(said.kubeconfig, directory / CONF)) if said.kubeconfig else ""
            if said.master:
                _check_server(said.master, directory / CONF)
            found = Configuration(flavors=base.flavors, sites=base.sites, kubeconfig=kubeconfig, master=said.master)
            spot_fake = said.spot_fake
        policy = _policy(Path(policy_file), text_of) if policy_file else found.policy
        return replace(found, policy=replace(policy, spot_fake=spot_fake))

    def _text(self, path: Path) -> str | None:
        self.seen[path] = _version(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "is not text"
            raise ConfigurationError(f"cannot read {path}: {why}") from None
        self.texts[str(path.absolute())] = text
        return text


def _base(directory: Path, text_of: Texts) -> Base:
    texts = {name: text for name in FILES if (text := text_of(directory / name)) is not None}
    if CONF not in texts:
        raise ConfigurationError(f"there is no {directory / CONF}")
    try:
        return read_base(texts)
    except CatalogueError as error:
        raise ConfigurationError(f"{directory}: {str(error).rstrip('.')}") from None


def _policy(path: Path, text_of: Texts) -> Policy:
    text = text_of(path)
    if text is None:
        raise ConfigurationError(f"there is no {path}")
    try:
        return read_policy(text)
    except PolicyError as error:
        raise ConfigurationError(f"{path}: {str(error).rstrip('.')}") from None


def ours(directory: str) -> str:
    """The directory that the environment names, or nothing if another program is meant: one that is there, and has no
    conf.yaml."""
    try:
        (Path(directory) / CONF).stat()
    except FileNotFoundError:
        return "" if Path(directory).is_dir() else directory
    except OSError:
        pass  # who reads it will say so
    return directory


def _check_server(master: str, path: Path) -> None:
    try:
        server_url(master, secured=True)
    except KubeconfigError as error:
        raise ConfigurationError(f"{path}: master: {error}") from None


def _at_home(told: str, where: Path) -> Path:
    try:
        return Path(told).expanduser()
    except RuntimeError:
        raise ConfigurationError(f"{where}: kubeconfig: nobody knows whose home {told!r} is in") from None


def _version(path: Path) -> Version:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
