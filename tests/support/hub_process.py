"""A real hub in a process of its own, and a plain HTTP client for it."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

FARFLUNG = str(Path(sys.executable).with_name("farflung"))
PATIENCE = 60.0  #: seconds after which a condition will not come true any more
TROUBLE = re.compile(r"^[WE]\d{4} [\d:.]+ +\d+ \S+\] (?!\")|Traceback|Exception")  #: the controllers' lines have quotes

Json = dict[str, Any]


def eventually(condition: Callable[[], object], what: str = "the condition") -> None:
    began = time.monotonic()
    deadline = began + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(max(0.01, time.monotonic() - began))  # whoever is waited for needs the processor, too
        began = time.monotonic()


def refused(*arguments: str, wrapper: Sequence[str] = ()) -> tuple[int, str]:
    """(exit code, standard error) of a hub that cannot start."""
    command = [*wrapper, FARFLUNG, "hub", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


class HubProcess:
    """Runs from construction, which waits for the ready line, until `stop` or `kill`."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        wrapper: Sequence[str] = (),
        arguments: Sequence[str] = (),
        command: str = "hub",
    ) -> None:
        """`command`: of `farflung`."""
        self.directory = directory
        self._log = directory.with_name(f"{directory.name}.log")
        options = ["--root-directory", str(directory), "--port", str(port), *arguments]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*wrapper, FARFLUNG, command, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline().rstrip("\n")
        if not self.ready_line:
            raise AssertionError(f"the hub did not start: exit code {self.process.wait()}, {self.log()}")
        self.hint = self.process.stdout.readline().rstrip("\n")
        self.starting_log = self.log()  #: that it wrote before these two lines
        self.kubeconfig = directory / "admin.kubeconfig"
        self.config: Json = yaml.safe_load(self.kubeconfig.read_text())
        server: str = self.config["clusters"][0]["cluster"]["server"]
        self.address = urlsplit(server)
        self.token: str = self.config["users"][0]["user"]["token"]
        self.tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))

    @property
    def port(self) -> int:
        assert self.address.port is not None
        return self.address.port

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def trouble(self) -> list[str]:
        """Lines of the log that speak of something wrong."""
        return [line for line in self.log().splitlines() if TROUBLE.search(line)]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> str:
        """What it said on the way out.  The exit code is 0."""
        assert self.process.stdout is not None
        self.process.send_signal(how)
        said = self.process.stdout.read()
        code = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        assert code == 0, f"exit code {code}: {self.log()}"
        return said

    def kill(self) -> None:
        """At once, whatever it is doing; may be called again and after `stop`."""
        self.process.kill()
        self.process.wait(timeout=PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(self)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def raw(self) -> Iterator[ssl.SSLSocket]:
        """A TLS connection to write any bytes to."""
        with (
            socket.create_connection((self.address.hostname, self.port), timeout=PATIENCE) as plain,
            self.tls.wrap_socket(plain, server_hostname=self.address.hostname) as secured,
        ):
            yield secured

    def watches(self) -> int:
        """How many watches are open now."""
        with self.client() as client:
            return int(float(client.text("/metrics").partition("\nfarflung_watches ")[2].split()[0]))


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        parsed: Json = orjson.loads(self.body)
        return parsed


class Client:
    """One connection, kept alive, with the administrator's token."""

    def __init__(self, hub: HubProcess) -> None:
        assert hub.address.hostname is not None
        self._connection = http.client.HTTPSConnection(
            hub.address.hostname, hub.port, timeout=PATIENCE, context=hub.tls
        )
        self._headers = {"Authorization": f"Bearer {hub.token}"}

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """`body` is bytes as they are, or an object to send as JSON."""
        sent = dict(self._headers)
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else orjson.dumps(body)
            sent["Content-Type"] = "application/json"
        self._connection.request(method, path, data, {**sent, **(headers or {})})
        answer = self._connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())

    def text(self, path: str) -> str:
        answer = self.request("GET", path)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    def get(self, path: str) -> Json:
        answer = self.request("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def create(self, path: str, obj: Json) -> Json:
        answer = self.request("POST", path, obj)
        assert answer.status == 201, answer.body
        return answer.json
