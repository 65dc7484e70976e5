"""The kubectls of this machine, and how the tests run them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import orjson
import yaml
from hub_process import PATIENCE, HubProcess, eventually

AGE = re.compile(r"(\d+[smhd])+|<unknown>")


def kubectls() -> list[Path]:
    """Oldest first: those with a version in their name beside the one on the PATH, else that one."""
    found = shutil.which("kubectl")
    if found is None:
        return []
    versions = Path(found).resolve().parent.glob("kubectl.1.*")
    return sorted(versions, key=minor_of) or [Path(found)]


@cache
def minor_of(binary: Path) -> int:
    """The 33 of 1.33."""
    named = re.fullmatch(r"kubectl\.1\.(\d+)", binary.name)
    if named:
        return int(named[1])
    output = subprocess.run([binary, "version", "--client", "-o", "json"], capture_output=True, check=True).stdout
    return int(re.sub(r"\D.*", "", orjson.loads(output)["clientVersion"]["minor"]))


class Kubectl:
    """One kubectl with a home, a kubeconfig and a namespace of its own."""

    def __init__(self, binary: Path, hub: HubProcess, home: Path, namespace: str) -> None:
        self.binary = binary
        self.hub = hub
        self.home = home
        self.namespace = namespace
        self.kubeconfig = home / "kubeconfig"
        config = yaml.safe_load(hub.kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(self.kubeconfig),
            "GOGC": "off",  # it ends before its garbage is worth a fifth of its time
        }

    def run(self, command: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *shlex.split(command)],  # the name it goes by is the manager of the fields it sets
            executable=self.binary,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.home,
            env={**self.environment, **environment},
        )

    def __call__(self, command: str, stdin: str = "", **environment: str) -> str:
        """The standard output of a command that succeeds and has nothing to complain about."""
        ended = self.run(command, stdin, **environment)
        assert (ended.returncode, ended.stderr) == (0, ""), f"kubectl {command}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def fails(self, command: str, stdin: str = "", code: int = 1) -> str:
        """The standard error of a command that ends with an exit code and no other output."""
        ended = self.run(command, stdin)
        assert (ended.returncode, ended.stdout) == (code, ""), f"kubectl {command}: {ended.stdout}{ended.stderr}"
        return ended.stderr.rstrip("\n")

    def value(self, what: str, path: str) -> str:
        """A jsonpath of an object."""
        return self(f"get {what} -o jsonpath='{{{path}}}'")

    def table(self, command: str) -> list[list[str]]:
        """The cells of a printed table; ages, which differ from run to run, become AGE."""
        return cells(self(command))

    def exists(self, what: str) -> bool:
        return self(f"get {what} -o name --ignore-not-found") != ""

    @contextmanager
    def running(self, command: str) -> Iterator[Running]:
        """A command in the background, killed at the end of the block if it still runs."""
        process = subprocess.Popen(
            ["kubectl", *shlex.split(command)],
            executable=self.binary,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            env=self.environment,
        )
        with process:
            try:
                yield Running(process)
            finally:
                process.kill()

    @contextmanager
    def watching(self, command: str) -> Iterator[Running]:
        """A command in the background that has a watch open on the hub when the block begins."""
        before = self.hub.watches()
        with self.running(command) as running:
            eventually(lambda: self.hub.watches() > before, f"the watch of kubectl {command}")
            yield running


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self._output: IO[str] = process.stdout

    def line(self) -> list[str]:
        """The cells of the next line; waits for it."""
        return cells(self._output.readline())[0]

    def rest(self) -> str:
        """All output to the end of the command, which must succeed."""
        output = self._output.read()
        assert self._process.wait(timeout=PATIENCE) == 0, output
        return output


def cells(text: str) -> list[list[str]]:
    rows = [re.split(r"\s{2,}", line.rstrip()) for line in text.splitlines() if line.strip()]
    return [["AGE" if AGE.fullmatch(cell) else cell for cell in row] for row in rows]
