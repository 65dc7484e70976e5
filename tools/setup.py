#!/usr/bin/env python3
"""Create .venv and install what the lock files name.  Needs nothing but Python and its venv module.

    tools/setup.py              what running needs (requirements.lock)
    tools/setup.py --dev        and what tests and checks need (requirements-dev.lock)
    tools/setup.py --docs       and what the site of the documents needs (requirements-docs.lock)
    tools/setup.py --bench      and what the benchmarks need (requirements-bench.lock)
    tools/setup.py --fuzz       and what the fuzzers need (requirements-fuzz.lock)
    tools/setup.py --lock       write the lock files anew, after --dev; --upgrade takes the newest versions

Nothing is installed again until a lock file or the project's part of pyproject.toml changes.  Packages that no
installed lock file names are removed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin/python"
STAMP = ENVIRONMENT / ".installed"
OLDEST = (3, 11)
RUNNING, DEVELOPMENT = "requirements.lock", "requirements-dev.lock"
DOCUMENTS, BENCHMARKS, FUZZERS = "requirements-docs.lock", "requirements-bench.lock", "requirements-fuzz.lock"
#: what each lock file covers, as arguments of `uv pip compile`
LOCKS = {
    RUNNING: ["pyproject.toml", "--group", "build"],
    DEVELOPMENT: ["pyproject.toml", "--group", "build", "--group", "dev", "--constraint", RUNNING],
    DOCUMENTS: ["--group", "docs", "--constraint", DEVELOPMENT],
    BENCHMARKS: ["--group", "bench", "--constraint", RUNNING],
    FUZZERS: ["--group", "fuzz", "--constraint", DEVELOPMENT],
}
COMPILE = ["pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes", "--quiet", "--no-annotate"]
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
NOISE = re.compile(r"WARNING: Location '.*' is ignored|.*\[notice\]")
REQUIREMENT = re.compile(r"^([A-Za-z0-9][^\s=]*)==", re.MULTILINE)
CONSIDERED = re.compile(r"(Collecting|Processing|Requirement already satisfied:|Ignoring) ")
CHOSEN = "Installing collected packages: "
PAUSE = 5.0  #: seconds between two lines about progress, where lines cannot be rewritten


class Failed(Exception):
    """A step failed; the message has the command and its output."""


def main() -> int:
    if sys.version_info < OLDEST:
        return refuse(f"Python {'.'.join(map(str, OLDEST))} or later is needed, and this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, meaning in (
        ("--dev", "add what tests and checks need"),
        ("--docs", "add what the site of the documents needs"),
        ("--bench", "add what the benchmarks need"),
        ("--fuzz", "add what the fuzzers need"),
        ("--lock", "write the lock files anew"),
        ("--upgrade", "with --lock: take the newest versions"),
    ):
        parser.add_argument(name, action="store_true", help=meaning)
    wanted = parser.parse_args()
    os.chdir(ROOT)
    try:
        if wanted.lock:
            lock(upgrade=wanted.upgrade)
        else:
            chosen = {DOCUMENTS: wanted.docs, BENCHMARKS: wanted.bench, FUZZERS: wanted.fuzz}
            locks = [DEVELOPMENT if wanted.dev else RUNNING, *(name for name, is_wanted in chosen.items() if is_wanted)]
            with_turn(lambda: install(locks))
    except Failed as failure:
        return refuse(str(failure))
    except KeyboardInterrupt:
        return refuse("interrupted")
    return 0


def refuse(sentence: str) -> int:
    print(f"setup: {sentence}", file=sys.stderr, flush=True)
    return 1


def with_turn(action: Callable[[], None]) -> None:
    """One set-up of a folder at a time.  The lock ends with the process."""
    folder = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("setup: waiting for another set-up of this folder", flush=True)
        fcntl.flock(folder, fcntl.LOCK_EX)
    action()


# --- installing -----------------------------------------------------------------------------------


def install(locks: list[str]) -> None:
    """Everything in these lock files, and this project."""
    began = time.monotonic()
    done, project = remembered(), project_digest()
    if not missing(locks, done) and done.get("project") == project and done.get("folder") == str(ROOT):
        return
    if not works() or done.get("folder", str(ROOT)) != str(ROOT):  # its scripts name the folder they were made in
        done = {}
        with Step(f"create .venv with Python {sys.version.split()[0]}"):
            shutil.rmtree(ENVIRONMENT, ignore_errors=True)
            run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    done = current(done, project) | {"folder": str(ROOT)}
    remember(done)
    for name in missing(locks, done):
        install_lock(name)
        done[name] = digest(name)
        remember(done)
    if done.get("project") != project:
        with Step("install farflung from this folder"):
            run([*python(*PIP), "install", "--no-deps", "--no-build-isolation", "--editable", "."])
        done["project"] = project
        remember(done)
    remove_others([name for name in LOCKS if name in done])
    print(f"setup: done in {time.monotonic() - began:.0f} s; .venv has {megabytes(ENVIRONMENT)} MB", flush=True)


def current(done: dict[str, str], project: str) -> dict[str, str]:
    """What is installed as it is wanted now.  The rest is forgotten before anything is installed: what one lock file
    names replaces other versions of the same packages, which an earlier state of another lock file named."""
    wanted = {**{name: digest(name) for name in LOCKS}, "project": project}
    return {name: value for name, value in done.items() if wanted.get(name) == value}


def missing(locks: list[str], done: dict[str, str]) -> list[str]:
    """Those lock files that are not installed as they are now.  The one for development has all that running needs."""
    installed = {name for name in LOCKS if done.get(name) == digest(name)}
    if DEVELOPMENT in installed:
        installed.add(RUNNING)
    return [name for name in locks if name not in installed]


def install_lock(name: str) -> None:
    """The lock file names every package, so pip need not look for more; bytecode is written when it is needed."""
    count = len(REQUIREMENT.findall(Path(name).read_text()))
    how = ["--require-hashes", "--no-deps", "--no-compile", "--progress-bar", "off", "--requirement", name]
    with Step(f"install {name}") as step:
        considered = 0
        before = packages()
        chosen = 0

        def on_line(line: str) -> None:
            nonlocal considered, chosen
            considered += bool(CONSIDERED.match(line))
            if line.startswith(CHOSEN):
                chosen = len(line.removeprefix(CHOSEN).split(","))

        def progress() -> str:
            if chosen:
                return f"{min(len(packages() - before), chosen)} of {chosen} packages installed"
            return f"{considered} of {count} packages fetched"

        run([*python(*PIP), "install", *how], on_line, lambda: step.show(progress()))


def remove_others(locks: list[str]) -> None:
    """Packages that these lock files do not name: the pip and setuptools that `venv` brings, and those of earlier lock
    files."""
    locked = {canonical(name) for lock in locks for name in REQUIREMENT.findall(Path(lock).read_text())}
    installed = {canonical(name.rpartition("-")[0]) for name in packages()}
    if others := sorted(installed - locked - {"farflung"}):
        with Step(f"remove {', '.join(others)}"):
            run([*python(*PIP), "uninstall", "--yes", *others])


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def remembered() -> dict[str, str]:
    """What was installed, by digest; nothing if .venv is not there or was made otherwise."""
    try:
        found = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and PYTHON.exists() else {}


def remember(done: dict[str, str]) -> None:
    STAMP.write_text(json.dumps(done, indent=2) + "\n")


def works() -> bool:
    """Whether .venv has a Python and a pip: an interrupted set-up has not."""
    return PYTHON.exists() and subprocess.run(python("-c", "import pip"), capture_output=True).returncode == 0


def python(*arguments: str) -> list[str]:
    return [str(PYTHON), *arguments]


def packages() -> set[str]:
    """What is installed: `PyYAML-6.0.3`."""
    return {path.stem for path in ENVIRONMENT.glob("lib/python*/site-packages/*.dist-info")}


def digest(name: str) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()


def project_digest() -> str:
    """Of what installing the project depends on: not of the settings of linters."""
    import tomllib

    with Path("pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)
    parts = [settings.get("project"), settings.get("build-system"), settings.get("tool", {}).get("hatch")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def megabytes(folder: Path) -> int:
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # processes that use it write and remove bytecode meanwhile
            blocks += path.lstat().st_blocks
    return round(blocks * 512 / 1e6)


# --- locking --------------------------------------------------------------------------------------


def lock(*, upgrade: bool) -> None:
    """The environment for development has uv."""
    for name, sources in LOCKS.items():
        with Step(f"write {name}"):
            how = [*COMPILE, "--custom-compile-command", "make lock", *(["--upgrade"] if upgrade else [])]
            run([str(ENVIRONMENT / "bin/uv"), *how, *sources, "--output-file", name])


# --- steps ----------------------------------------------------------------------------------------


class Step:
    """Says what happens, how far it is, and how long it took.  On a terminal in one line that is rewritten."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.rewrites = sys.stdout.isatty()
        self.began = self.shown_at = time.monotonic()

    def __enter__(self) -> Step:
        print(f"setup: {self.what} ...", end="" if self.rewrites else "\n", flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._say(f"setup: {self.what}: {time.monotonic() - self.began:.0f} s", "\n")
        elif self.rewrites:
            print(flush=True)

    def show(self, progress: str) -> None:
        now = time.monotonic()
        if self.rewrites:
            self._say(f"setup: {self.what}: {progress}, {now - self.began:.0f} s", "")
        elif now - self.shown_at >= PAUSE:
            self.shown_at = now
            self._say(f"setup: {self.what}: {progress}", "\n")

    def _say(self, text: str, end: str) -> None:
        print(f"\r{text}\x1b[K" if self.rewrites else text, end=end, flush=True)


def run(
    command: list[str], on_line: Callable[[str], None] = lambda line: None, tick: Callable[[], None] = lambda: None
) -> None:
    """`on_line` gets each line of output; `tick` is called a few times a second.  Raises Failed."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    output: list[str] = []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:

        def read() -> None:
            for line in process.stdout or ():
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=0.2)
            except queue.Empty:
                tick()
                continue
            if line is None:
                break
            output.append(line)
            on_line(line)
            tick()
    if process.returncode:
        text = "".join(line for line in output if not NOISE.match(line))
        raise Failed(f"this failed with code {process.returncode}: {' '.join(command)}\n{text.rstrip()}")


if __name__ == "__main__":
    sys.exit(main())
