"""Files of installed packages that are not part of the packages' public interface."""

from __future__ import annotations

import importlib.util
from pathlib import Path


class WrongPackage(Exception):
    """A dependency is missing or has a version without the file that is read.  The message says what to install."""


def file_of(distribution: str, wanted: str, module: str, path: str) -> Path:
    """`path` inside the package `module`, which `distribution` installs.  `wanted`: the versions that have it, as pip
    writes them.  Raises WrongPackage."""
    package = importlib.util.find_spec(module)
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, path)
        if file.is_file():
            return file
    raise WrongPackage(
        f"{_installed(distribution, f'{module}/{path}')} {distribution}{wanted} is needed;"
        f" run: pip install '{distribution}{wanted}'"
    )


def _installed(distribution: str, file: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # it takes 10 ms, and every process would pay

    try:
        return f"{distribution} {version(distribution)} is installed, which has no file {file};"
    except PackageNotFoundError:
        return f"{distribution} is not installed, and"
