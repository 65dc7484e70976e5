"""The files of the global scheduler: its policy, and the flavors and sites there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from farflung.cli.scheduler_configuration import Configuration

#: what differs as soon as a file is another one, whether it was written anew, replaced, or is behind another link
Version: TypeAlias = tuple[int, int, int, int, int] | None
Versions: TypeAlias = Mapping[Path, Version]
Texts: TypeAlias = Callable[[Path], str | None]  #: what is in a file; None: there is no such file


class ConfigurationError(ValueError):
    """A sentence that says what to mend, and where."""


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
        from farflung.cli.scheduler_configuration import read_configuration  # a hub without files need not load it

        return read_configuration(self._directory, self._policy_file, text_of)

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


def ours(directory: str) -> str:
    """The directory that the environment names, or nothing if another program is meant: one that is there, and has no
    conf.yaml."""
    from farflung.scheduling.site_files import CONF

    try:
        (Path(directory) / CONF).stat()
    except FileNotFoundError:
        return "" if Path(directory).is_dir() else directory
    except OSError:
        pass  # who reads it will say so
    return directory


def _version(path: Path) -> Version:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
