"""A hub in a process of its own: started, looked at from outside, stopped."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

COMMAND = Path(sys.executable).with_name("farflung")
READY = "farflung hub is ready on "
CPUCLOCK_SCHED = 2  #: of Linux: which clock of a process


def cpu_seconds(pid: int) -> float:
    """User and system time so far, of all threads of a process, to the nanosecond (/proc/PID/stat counts in ticks)."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    [kibibytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(kibibytes) / 1024


class HubProcess:
    """`seconds_to_ready` counts from before the process exists to the line that says it serves."""

    def __init__(self, directory: Path, *command: str, port: int = 0, executable: Path = COMMAND) -> None:
        """`command`: of `farflung`, with options."""
        started = time.perf_counter()
        self._log = (directory.parent / f"{directory.name}.log").open("ab")
        self._process = subprocess.Popen(
            [executable, *command, "--root-directory", directory, "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.url = self._read_url()
        self.seconds_to_ready = time.perf_counter() - started
        config = yaml.safe_load((directory / "admin.kubeconfig").read_text())
        self.token: str = config["users"][-1]["user"]["token"]  # of who may do most
        self.certificate_authority = directory.parent / f"{directory.name}.ca.crt"
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        self.certificate_authority.write_bytes(base64.b64decode(authority))

    def _read_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(READY):
                return line.removeprefix(READY).strip()
        raise SystemExit(f"the hub did not start: exit code {self._process.wait()}, see {self._log.name}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_megabytes(self) -> float:
        return resident_megabytes(self.pid)

    def kill(self) -> None:
        """Without a word."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
