"""The package that Kubernetes' definitions come from."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from farflung.apis.definitions import FILE, PACKAGE

PROJECT = Path(__file__).parents[2]


def test_the_versions_that_are_installed_are_those_that_are_asked_for() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert "".join(PACKAGE) in project["dependencies"]


def test_a_package_without_the_definitions_ends_a_hub_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "kubernetes_validate").mkdir()
    (tmp_path / "kubernetes_validate" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "farflung", "hub", "--root-directory", tmp_path / "hub", "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    name, wanted = PACKAGE
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: {name} {version(name)} is installed, which has no file kubernetes_validate/{FILE};"
        f" {name}{wanted} is needed; run: pip install '{name}{wanted}'\n"
    )
