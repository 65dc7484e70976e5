"""The configuration of the global scheduler, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from farflung.cli.scheduler_files import ConfigurationError, Files, Texts
from farflung.client.errors import KubeconfigError
from farflung.client.kubeconfig import server_url
from farflung.lib.files import write_private
from farflung.scheduling.catalogue import CatalogueError
from farflung.scheduling.policy import PolicyError, SchedulerPolicy, default_policy, read_policy
from farflung.scheduling.site_files import CONF, FILES, SiteFiles, read_site_files
from farflung.scheduling.values import Flavor, Site


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every field has a default: no file is required."""

    policy: SchedulerPolicy = field(default_factory=default_policy)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: beside the Clusters of the API
    kubeconfig: str = ""
    master: str = ""  #: the address of the server, if not that of the kubeconfig


def read_configuration(named_directory: str, policy_file: str, text_of: Texts) -> Configuration:
    """Of a directory and of a policy that replaces the directory's; both may be empty.  Raises ConfigurationError."""
    found, spot_fake = Configuration(), False
    if named_directory:
        directory = Path(named_directory)
        base = _base(directory, text_of)
        settings = base.settings
        policy_file = policy_file or str(directory / settings.policy_file)
        kubeconfig = str(directory / _at_home(settings.kubeconfig, directory / CONF)) if settings.kubeconfig else ""
        if settings.master:
            _check_server(settings.master, directory / CONF)
        found = Configuration(flavors=base.flavors, sites=base.sites, kubeconfig=kubeconfig, master=settings.master)
        spot_fake = settings.spot_fake
    policy = _policy(Path(policy_file), text_of) if policy_file else found.policy
    return replace(found, policy=replace(policy, spot_fake=spot_fake))


def _base(directory: Path, text_of: Texts) -> SiteFiles:
    texts = {name: text for name in FILES if (text := text_of(directory / name)) is not None}
    if CONF not in texts:
        raise ConfigurationError(f"there is no {directory / CONF}")
    try:
        return read_site_files(texts)
    except CatalogueError as error:
        raise ConfigurationError(f"{directory}: {str(error).rstrip('.')}") from None


def _policy(path: Path, text_of: Texts) -> SchedulerPolicy:
    text = text_of(path)
    if text is None:
        raise ConfigurationError(f"there is no {path}")
    try:
        return read_policy(text)
    except PolicyError as error:
        raise ConfigurationError(f"{path}: {str(error).rstrip('.')}") from None


def _check_server(master: str, path: Path) -> None:
    try:
        server_url(master, secured=True)
    except KubeconfigError as error:
        raise ConfigurationError(f"{path}: master: {error}") from None


def _at_home(path: str, where: Path) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigurationError(f"{where}: kubeconfig: the home directory in {path!r} does not exist") from None


class Reading(NamedTuple):
    """What files say."""

    configured: Configuration
    when: datetime  #: they said so
    problem: str = ""  #: what is wrong with them now, if that was before


class _Copy(msgspec.Struct):
    when: datetime
    texts: dict[str, str]  #: by absolute paths


@dataclass(frozen=True, slots=True)
class KeptFiles:
    path: str = ""  #: of the copy; empty: nothing is kept

    def keep(self, files: Files, now: datetime) -> None:
        """As they were read last.  Raises OSError, and UnicodeEncodeError if a path is no text."""
        if self.path and not ((kept := self._copy()) and kept.texts == files.texts):
            write_private(Path(self.path), msgspec.json.encode(_Copy(now, files.texts)))

    def read(self, files: Files, now: datetime) -> Reading:
        """What they say, or else what they said when they were kept.  Raises ConfigurationError."""
        try:
            return Reading(files.read(), now)
        except ConfigurationError as error:
            if not (kept := self._copy()):
                raise
            try:
                return Reading(files.read_from(kept.texts), kept.when, str(error))
            except ConfigurationError:  # the copy is of other files
                raise error from None

    def _copy(self) -> _Copy | None:
        try:
            return msgspec.json.decode(Path(self.path).read_bytes(), type=_Copy) if self.path else None
        except (OSError, msgspec.MsgspecError):
            return None
