"""`farflung edge` and kubectl as a user types them, with a home of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml
from hub_process import FARFLUNG, PATIENCE, eventually


def kind_config(mappings: dict[int, int]) -> str:
    """Ports of the node → ports of this machine."""
    ports = [{"containerPort": node_port, "hostPort": port} for node_port, port in mappings.items()]
    nodes = [{"role": "control-plane", "extraPortMappings": ports}]
    return yaml.safe_dump({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes})


class EdgeUser:
    """Somebody with edges."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.edges = home / ".farflung" / "edges"
        self.kubeconfig = home / ".kube" / "config"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def command(self, *words: str) -> list[str]:
        return [FARFLUNG, "edge", *words]

    def edge(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )

    def ok(self, *words: str) -> str:
        ended = self.edge(*words)
        assert ended.returncode == 0, f"{words}: {ended.stderr}{self.log()}"
        return ended.stdout

    def refused(self, *words: str) -> str:
        """The sentence."""
        ended = self.edge(*words)
        assert ended.returncode == 1, ended
        return ended.stderr.rpartition("Error: ")[2].strip()

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*words), env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def listed(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = orjson.loads(self.ok("list", "-o", "json"))
        return listed

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.edges.glob("*/log"))) if self.edges.is_dir() else ""

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text()) if self.kubeconfig.exists() else {}
        return config

    def processes(self) -> list[str]:
        """Whatever runs on behalf of this user: all of it has the home in its environment or its command line."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                text = (directory / "environ").read_bytes() + (directory / "cmdline").read_bytes()
                zombie = b"\nState:\tZ" in (directory / "status").read_bytes()
            except OSError:
                continue
            if str(self.home).encode() in text and not zombie and directory.name != str(os.getpid()):
                found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found

    def has_nothing(self) -> None:
        """No process, no directory, no context."""
        eventually(lambda: not self.processes(), f"the end of {self.processes()}")
        assert not self.edges.exists() or list(self.edges.iterdir()) == []
        config = self.config()
        assert not config.get("clusters")
        assert not config.get("contexts")
        assert not config.get("users")
        assert not config.get("current-context")

    # --- kubectl ----------------------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: str = "") -> str:
        ended = subprocess.run(
            [_kubectl(), *words], env=self.environment, input=stdin, capture_output=True, text=True, timeout=PATIENCE
        )
        assert ended.returncode == 0, f"{words}: {ended.stderr}{self.log()}"
        return ended.stdout

    def begin_kubectl(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen([_kubectl(), *words], env=self.environment, stdout=subprocess.PIPE, text=True)


def _kubectl() -> str:
    found = shutil.which("kubectl")
    assert found is not None, "there is no kubectl on the PATH: `make setup` installs it"
    return found


def names(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in entries]
