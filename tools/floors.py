#!/usr/bin/env python3
"""Install the lowest version of each dependency that pyproject.toml allows, and run tests with them.

    tools/floors.py                  the unit tests, and tests of processes
    tools/floors.py -x tests/http    other arguments of pytest

The tools of the tests have the versions of the lock file.  Fails if a floor has no wheel for the lowest Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from setup import DEVELOPMENT, ENVIRONMENT, ROOT, Failed, Step, canonical, run

UV = str(ENVIRONMENT / "bin/uv")
TESTS = [
    *["-q", "-n", "2", "--dist", "worksteal", "-m", "not long"],
    *(f"tests/{name}" for name in ("apis", "client", "http", "hub", "inspect", "lib", "machinery", "placement")),
    *["tests/runtime", "tests/store", "tests/syncer", "tests/cli", "tests/e2e/test_hub_process.py"],
    *["tests/e2e/test_edge_cluster.py", "tests/e2e/test_logging_in.py"],
]
#: a requirement of pyproject.toml and its floor
FLOOR = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)(?:,.*)?")


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="farflung-floors-") as folder:
        try:
            python = install(Path(folder))
        except Failed as failure:
            print(f"floors: {failure}", file=sys.stderr)
            return 1
        return subprocess.run([python, "-m", "pytest", *(arguments or TESTS)], cwd=ROOT, check=False).returncode


def install(folder: Path) -> str:
    """The Python of a new environment with the floors."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = dict(
        floor_of(text) for text in [*project["project"]["dependencies"], *project["dependency-groups"]["build"]]
    )
    lowest = project["project"]["requires-python"].removeprefix(">=")
    resolved, python = folder / "floors.txt", str(folder / "venv/bin/python")
    with Step("resolve the lowest versions"):
        how = ["--resolution", "lowest-direct", "--only-binary", ":all:", "--python-version", lowest, "--no-annotate"]
        sources = [str(ROOT / "pyproject.toml"), "--group", "build"]
        run([UV, "pip", "compile", "--quiet", *how, *sources, "--output-file", str(resolved)])
    text = resolved.read_text()
    check(floors, {canonical(name): version for name, version in re.findall(r"^([^\s=]+)==(\S+)", text, re.MULTILINE)})
    with Step("install them beside the tools of the tests"):
        run([UV, "venv", "--quiet", "--python", lowest, str(folder / "venv")])
        into = [UV, "pip", "install", "--quiet", "--python", python, "--no-deps"]
        run([*into, "--requirement", str(ROOT / DEVELOPMENT)])
        run([*into, "--requirement", str(resolved)])
        run([*into, "--no-build-isolation", "--editable", str(ROOT)])
    return python


def floor_of(requirement: str) -> tuple[str, str]:
    found = FLOOR.fullmatch(requirement)
    if found is None:
        raise Failed(f"{requirement} in pyproject.toml has no floor")
    return canonical(found[1]), found[2]


def check(floors: dict[str, str], resolved: dict[str, str]) -> None:
    """The resolver takes a later version if the floor does not exist, or has no wheel."""
    for name, floor in floors.items():
        if trimmed(resolved[name]) != trimmed(floor):
            raise Failed(f"{name} {floor} does not exist for this Python: raise the floor to {resolved[name]}")


def trimmed(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
