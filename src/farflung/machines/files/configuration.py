"""The configuration of the global scheduler, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from farflung.client.errors import KubeconfigError
from farflung.client.kubeconfig import server_url
from farflung.lib.files import write_private
from farflung.machines.engine.policy import PolicyError, SchedulerPolicy, default_policy, read_policy
from farflung.machines.engine.values import Flavor, Site
from farflung.machines.files.catalogue import CatalogueError
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError, Texts
from farflung.machines.files.site_files import CONF, FILES, SiteFiles, read_site_files


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """Every field has a default: no file is required."""

    policy: SchedulerPolicy = field(default_factory=default_policy)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: in addition to Clusters
    kubeconfig: str = ""
    master: str = ""  #: URL of the server, if not the kubeconfig's


def read_configuration(named_directory: str, policy_file: str, text_of: Texts) -> SchedulerConfiguration:
    """`policy_file`: replaces the policy of the directory; both may be empty.  Raises SchedulerFilesError."""
    found, spot_fake = SchedulerConfiguration(), False
    if named_directory:
        directory = Path(named_directory)
        base = _base(directory, text_of)
        settings = base.settings
        policy_file = policy_file or str(directory / settings.policy_file)
        kubeconfig = str(directory / _at_home(settings.kubeconfig, directory / CONF)) if settings.kubeconfig else ""
        if settings.master:
            _check_server(settings.master, directory / CONF)
        found = SchedulerConfiguration(
            flavors=base.flavors, sites=base.sites, kubeconfig=kubeconfig, master=settings.master
        )
        spot_fake = settings.spot_fake
    policy = _policy(Path(policy_file), text_of) if policy_file else found.policy
    return replace(found, policy=replace(policy, spot_fake=spot_fake))


def _base(directory: Path, text_of: Texts) -> SiteFiles:
    texts = {name: text for name in FILES if (text := text_of(directory / name)) is not None}
    if CONF not in texts:
        raise SchedulerFilesError(f"{directory / CONF} not found")
    try:
        return read_site_files(texts)
    except CatalogueError as error:
        raise SchedulerFilesError(f"{directory}: {str(error).rstrip('.')}") from None


def _policy(path: Path, text_of: Texts) -> SchedulerPolicy:
    text = text_of(path)
    if text is None:
        raise SchedulerFilesError(f"{path} not found")
    try:
        return read_policy(text)
    except PolicyError as error:
        raise SchedulerFilesError(f"{path}: {str(error).rstrip('.')}") from None


def _check_server(master: str, path: Path) -> None:
    try:
        server_url(master, secured=True)
    except KubeconfigError as error:
        raise SchedulerFilesError(f"{path}: master: {error}") from None


def _at_home(path: str, where: Path) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SchedulerFilesError(f"{where}: kubeconfig: the home directory in {path!r} does not exist") from None


class LoadedConfiguration(NamedTuple):
    """The content of the files."""

    configured: SchedulerConfiguration
    when: datetime  #: when it was read
    problem: str = ""  #: of the current files, if `configured` is from a copy


class _Copy(msgspec.Struct):
    when: datetime
    texts: dict[str, str]  #: by absolute paths


@dataclass(frozen=True, slots=True)
class FileCopy:
    path: str = ""  #: of the copy; empty: none

    def keep(self, files: SchedulerFiles, now: datetime) -> None:
        """Store the texts of the last read.  Raises OSError, and UnicodeEncodeError for paths that are no text."""
        if self.path and not ((kept := self._copy()) and kept.texts == files.texts):
            write_private(Path(self.path), msgspec.json.encode(_Copy(now, files.texts)))

    def read(self, files: SchedulerFiles, now: datetime) -> LoadedConfiguration:
        """The current files, or the stored copy if they are invalid.  Raises SchedulerFilesError."""
        try:
            return LoadedConfiguration(files.read(), now)
        except SchedulerFilesError as error:
            if not (kept := self._copy()):
                raise
            try:
                return LoadedConfiguration(files.read_from(kept.texts), kept.when, str(error))
            except SchedulerFilesError:  # the copy is of other files
                raise error from None

    def _copy(self) -> _Copy | None:
        try:
            return msgspec.json.decode(Path(self.path).read_bytes(), type=_Copy) if self.path else None
        except (OSError, msgspec.MsgspecError):
            return None
