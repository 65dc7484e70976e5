"""tools/setup.py, and the lock files that it installs."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ]+)", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("farflung_setup", ROOT / "tools" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> dict[str, str]:
    return {canonicalize_name(one): version for one, version in PINNED.findall((ROOT / name).read_text())}


GROUPS = PROJECT["dependency-groups"]
LOCKED = {
    "requirements.lock": [*PROJECT["project"]["dependencies"], *GROUPS["build"]],
    "requirements-dev.lock": [*PROJECT["project"]["dependencies"], *GROUPS["build"], *GROUPS["dev"]],
    "requirements-docs.lock": GROUPS["docs"],
    "requirements-bench.lock": GROUPS["bench"],
    "requirements-fuzz.lock": GROUPS["fuzz"],
}


@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_file_has_what_the_project_asks_for(name: str) -> None:
    """`make lock` mends it."""
    found = pins(name)
    for text in LOCKED[name]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(found[canonicalize_name(wanted.name)]), text


def test_development_has_the_versions_that_running_has() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()


def test_documents_have_the_versions_that_development_has() -> None:
    development, documents = pins("requirements-dev.lock"), pins("requirements-docs.lock")
    shared = development.keys() & documents.keys()
    assert shared
    assert {name: documents[name] for name in shared} == {name: development[name] for name in shared}


@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_file_has_hashes_and_names_no_index(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(name))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_running_needs_no_aiohttp() -> None:
    assert "aiohttp" not in pins("requirements.lock")


def test_only_what_changed_is_installed(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    running, development = "requirements.lock", "requirements-dev.lock"
    current = {name: setup.digest(name) for name in (running, development)}
    assert setup.missing([running], {}) == [running]
    assert setup.missing([running], {running: current[running]}) == []
    assert setup.missing([running], {running: "other"}) == [running]
    assert setup.missing([running], {development: current[development]}) == []
    assert setup.missing([development], {running: current[running]}) == [development]


class Folder:
    """A clone with lock files, whose set-up only notes what it would install."""

    def __init__(self, root: Path, setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed: list[str] = []
        self.removed: list[str] = []
        self.fails = ""  #: what cannot be installed
        self.root, self._setup = root, setup
        environment = root / ".venv"
        monkeypatch.chdir(root)
        monkeypatch.setattr(setup, "ROOT", root)
        monkeypatch.setattr(setup, "ENVIRONMENT", environment)
        monkeypatch.setattr(setup, "PYTHON", environment / "bin/python")
        monkeypatch.setattr(setup, "STAMP", environment / ".installed")
        monkeypatch.setattr(setup, "works", setup.PYTHON.exists)
        monkeypatch.setattr(setup, "run", self._run)
        (root / "pyproject.toml").write_text("[project]\nname = 'x'\n")

    def _run(self, command: list[str], *_: object) -> None:
        if "venv" in command:
            self._setup.PYTHON.parent.mkdir(parents=True)
            self._setup.PYTHON.touch()
        elif "uninstall" in command:
            self.removed = command[command.index("--yes") + 1 :]
        elif "install" in command:
            self.installed.append(command[-1])
            if self.fails == command[-1]:
                raise self._setup.Failed("interrupted")

    def check_out(self, version: str) -> None:
        for name in LOCKED:
            (self.root / name).write_text(f"# {name} {version}\n")

    def install(self, *locks: str) -> list[str]:
        self.installed.clear()
        self._setup.install(list(locks))
        return self.installed


@pytest.fixture
def folder(tmp_path: Path, setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, setup, monkeypatch)


def test_a_lock_file_is_installed_again_after_another_one_replaced_its_packages(folder: Folder) -> None:
    running, development = "requirements.lock", "requirements-dev.lock"
    folder.check_out("old")
    assert folder.install(running) == [running, "."]
    assert folder.install(running) == []
    folder.check_out("new")
    assert folder.install(development) == [development]
    assert folder.install(running) == []
    folder.check_out("old")
    assert folder.install(running) == [running]
    assert folder.install(development) == [development]


def test_packages_that_no_installed_lock_file_names_are_removed(folder: Folder) -> None:
    running, documents = "requirements.lock", "requirements-docs.lock"
    folder.check_out("old")
    (folder.root / running).write_text("pip==26.1 \\\nPyYAML==6.0.3 \\\n")
    (folder.root / documents).write_text("mkdocs==1.6.1 \\\n")
    for name in ("PyYAML-6.0.3", "farflung-0.1.0", "mkdocs-1.6.1", "pip-26.1", "ruamel.yaml-0.18", "setuptools-65.5.0"):
        (folder.root / ".venv/lib/python3.11/site-packages" / f"{name}.dist-info").mkdir(parents=True)
    (folder.root / ".venv/bin").mkdir()
    (folder.root / ".venv/bin/python").touch()
    folder.install(running, documents)
    assert folder.removed == ["ruamel-yaml", "setuptools"]
    (folder.root / documents).write_text("mkdocs==1.7.0 \\\n")
    (folder.root / running).write_text("pip==26.2 \\\nPyYAML==6.0.3 \\\n")
    folder.install(running)
    assert folder.removed == ["mkdocs", "ruamel-yaml", "setuptools"]


def test_the_environment_has_only_locked_packages() -> None:
    """`make setup` mends it: it removes the others."""
    locked = {pin for name in LOCKED for pin in pins(name).items()}
    installed = {(canonicalize_name(one.name), one.version) for one in distributions()}
    assert {(name, version) for name, version in installed if name != "farflung"} <= locked


def test_what_an_interrupted_set_up_replaced_is_installed_again(folder: Folder, setup: ModuleType) -> None:
    running = "requirements.lock"
    folder.check_out("old")
    folder.install(running)
    folder.check_out("new")
    folder.fails = running
    with pytest.raises(setup.Failed):
        folder.install(running)
    folder.check_out("old")
    folder.fails = ""
    assert folder.install(running) == [running]


def test_a_stamp_without_a_folder_is_completed_once(
    folder: Folder, setup: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    running = "requirements.lock"
    folder.check_out("old")
    folder.install(running)
    done = setup.remembered()
    del done["folder"]
    setup.remember(done)
    folder.install(running)
    capsys.readouterr()
    folder.install(running)
    assert capsys.readouterr().out == ""


def test_a_command_that_fails_is_shown_with_its_output_except_noise(setup: ModuleType) -> None:
    script = (
        "import sys; print('WARNING: Location \\'x\\' is ignored: it is neither a file nor a directory.');"
        "print('ERROR: no such package', file=sys.stderr); sys.exit(7)"
    )
    with pytest.raises(setup.Failed) as caught:
        setup.run([sys.executable, "-c", script])
    assert "failed with code 7" in str(caught.value)
    assert str(caught.value).endswith("\nERROR: no such package")


def test_each_line_of_output_is_passed_on(setup: ModuleType) -> None:
    lines: list[str] = []
    setup.run([sys.executable, "-c", "print('one'); print('two')"], lines.append)
    assert lines == ["one\n", "two\n"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_lines_and_a_terminal_one_line_that_is_rewritten(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, terminal = io.StringIO(), Terminal()
    for out in (log, terminal):
        monkeypatch.setattr(sys, "stdout", out)
        with setup.Step("install x") as step:
            step.show("1 of 2 packages fetched")
    assert [line.partition(":")[0] for line in log.getvalue().splitlines()] == ["setup", "setup"]
    assert not set(log.getvalue()) & {"\r", "\x1b"}
    assert "1 of 2 packages fetched" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 1
