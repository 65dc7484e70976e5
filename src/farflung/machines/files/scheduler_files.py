"""The files of the global scheduler: policy, flavors and sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from farflung.machines.files.configuration import SchedulerConfiguration

#: changes whenever a file is written or replaced, also behind a symbolic link
Version: TypeAlias = tuple[int, int, int, int, int] | None
Versions: TypeAlias = Mapping[Path, Version]
Texts: TypeAlias = Callable[[Path], str | None]  #: content of a file; None: not found


class SchedulerFilesError(ValueError):
    """The text says what to correct, and where."""


class SchedulerFiles:
    """A directory, a policy file that replaces the directory's, both, or none."""

    def __init__(self, directory: str = "", policy_file: str = "") -> None:
        self._directory = directory
        self._policy_file = policy_file
        self.read_versions: dict[Path, Version] = {}  #: all paths that `read` tried
        self.texts: dict[str, str] = {}  #: content by absolute path

    def __bool__(self) -> bool:
        return bool(self._directory or self._policy_file)

    def options(self) -> list[str]:
        """The options that select the same files."""
        named = (("--conf", self._directory), ("--policy-file", self._policy_file))
        return [word for option, path in named if path for word in (option, str(Path(path).absolute()))]

    def versions(self) -> Versions:
        """Current versions of the files that `read` tried."""
        return {path: _version(path) for path in self.read_versions}

    def changed_between(self, first: datetime, last: datetime) -> datetime | None:
        """The time of the last change, if it is in this interval."""
        written = max((version[3] for version in self.read_versions.values() if version), default=0)
        moment = datetime.fromtimestamp(written / 1e9, UTC)
        return moment if first < moment <= last else None

    def read(self) -> SchedulerConfiguration:
        """Raises SchedulerFilesError."""
        self.read_versions, self.texts = {}, {}
        return self._configuration(self._text)

    def read_from(self, texts: Mapping[str, str]) -> SchedulerConfiguration:
        """With these texts by absolute path.  Raises SchedulerFilesError."""
        return self._configuration(lambda path: texts.get(str(path.absolute())))

    def _configuration(self, text_of: Texts) -> SchedulerConfiguration:
        from farflung.machines.files.configuration import (
            read_configuration,  # a hub without files does not load it
        )

        return read_configuration(self._directory, self._policy_file, text_of)

    def _text(self, path: Path) -> str | None:
        self.read_versions[path] = _version(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "is not text"
            raise SchedulerFilesError(f"cannot read {path}: {why}") from None
        self.texts[str(path.absolute())] = text
        return text


def own_directory(directory: str) -> str:
    """The directory that the environment names; empty if it exists without conf.yaml, because another program may use
    the variable."""
    from farflung.machines.files.site_files import CONF

    try:
        (Path(directory) / CONF).stat()
    except FileNotFoundError:
        return "" if Path(directory).is_dir() else directory
    except OSError:
        pass  # the reader reports it
    return directory


def _version(path: Path) -> Version:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
