"""A small web server of static files, for machines without nginx or Apache.

    python -m farflung.edge.runtimes.file_server DIRECTORY --socket 3 [--socket 4] [--allow DIRECTORY …]

The sockets are inherited descriptors that already listen.  Links are followed into the directory itself and into
allowed directories.
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

IDLE_TIMEOUT: Final = 60.0  #: seconds
NOT_FOUND_PATH: Final = "/nonexistent/nothing"


class FileHandler(SimpleHTTPRequestHandler):
    server_version = f"farflung/{__version__}"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT
    allowed: tuple[Path, ...] = ()

    def translate_path(self, path: str) -> str:
        """The file of a URL path; NOT_FOUND_PATH if it must not be served."""
        found = super().translate_path(path)
        within = os.path.relpath(found, self.directory)
        if any(part.startswith("..") for part in Path(within).parts):
            return NOT_FOUND_PATH
        try:
            real = Path(found).resolve()
        except (OSError, RuntimeError, ValueError):
            return NOT_FOUND_PATH
        roots = (Path(self.directory).resolve(), *(root.resolve() for root in self.allowed))
        return found if any(real.is_relative_to(root) for root in roots) else NOT_FOUND_PATH

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """Directories are not listed."""
        self.send_error(403)

    def log_message(self, format: str, *args: Any) -> None:
        message = "".join(one if one.isprintable() else "?" for one in format % args)
        print(f"{self.address_string()} - - [{self.log_date_time_string()}] {message}", flush=True)


class FileServer(ThreadingHTTPServer):
    """Serves on an inherited socket."""

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
    parser = argparse.ArgumentParser(prog="file_server", description="Serves the files of a directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--socket", type=int, action="append", required=True)
    parser.add_argument("--allow", type=Path, action="append", default=[])
    options = parser.parse_args(arguments)
    handler = type("Allowed", (FileHandler,), {"allowed": tuple(options.allow)})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    servers = [FileServer(socket.socket(fileno=number), handler, options.directory) for number in options.socket]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"serving {options.directory}", file=sys.stderr, flush=True)
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
