"""A small web server of files, for machines that have no other.

    python -m farflung.edge.runtimes.file_server DIRECTORY --socket 3 [--socket 4] [--allow DIRECTORY …]

The sockets are open and listening already: descriptors that are handed down.  Links are followed as long as they end in
the directory itself or in one of the others that are allowed.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from farflung.lib.version import __version__

PATIENCE: Final = 60.0  #: seconds that a client may be silent
NOWHERE: Final = "/nonexistent/nothing"


class FileHandler(SimpleHTTPRequestHandler):
    server_version = f"farflung/{__version__}"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    allowed: tuple[Path, ...] = ()

    def translate_path(self, path: str) -> str:
        """The file of a path of a URL; one that is not there, if it may not be seen."""
        found = super().translate_path(path)
        within = os.path.relpath(found, self.directory)
        if any(part.startswith("..") for part in Path(within).parts):
            return NOWHERE
        try:
            real = Path(found).resolve()
        except (OSError, RuntimeError, ValueError):
            return NOWHERE
        homes = (Path(self.directory).resolve(), *(home.resolve() for home in self.allowed))
        return found if any(real.is_relative_to(home) for home in homes) else NOWHERE

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """What is in a directory is nobody's business."""
        self.send_error(403)

    def log_message(self, format: str, *args: Any) -> None:
        said = "".join(one if one.isprintable() else "?" for one in format % args)
        print(f"{self.address_string()} - - [{self.log_date_time_string()}] {said}", flush=True)


class FileServer(ThreadingHTTPServer):
    """On a socket that is listening already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[FileHandler], directory: Path) -> None:
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = "localhost", listening.getsockname()[1]
        self._directory = directory

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.RequestHandlerClass(request, client_address, self, directory=os.fspath(self._directory))  # type: ignore[call-arg, arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="web", description="Serves the files of a directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--socket", type=int, action="append", required=True)
    parser.add_argument("--allow", type=Path, action="append", default=[])
    said = parser.parse_args(arguments)
    handler = type("Allowed", (FileHandler,), {"allowed": tuple(said.allow)})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    servers = [FileServer(socket.socket(fileno=number), handler, said.directory) for number in said.socket]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"serving {said.directory}", file=sys.stderr, flush=True)
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
