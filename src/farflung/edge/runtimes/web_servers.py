"""Web servers of this machine, and their configuration."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farflung.edge.runtimes.images import StandIn

SBIN: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")  #: not in the PATH of ordinary users
MODULES: Final = (
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/lib/apache2",
    "/usr/local/apache2/modules",
)
NEEDED: Final = ("mpm_event", "unixd", "authz_core", "dir", "mime", "log_config", "autoindex", "alias")
TYPES: Final = "/etc/mime.types"
PREFERENCES: Final = {
    StandIn.HTTPD: ("apache2", "httpd", "nginx"),
    StandIn.NGINX: ("nginx", "apache2", "httpd"),
}


@dataclass(frozen=True, slots=True)
class WebServer:
    """An installed web server."""

    name: str  #: apache2, httpd or nginx
    path: Path
    modules: Path | None = None


@dataclass(frozen=True, slots=True)
class WebSite:
    documents: Path
    directory: Path  #: for configuration and temporary files of the server
    ports: tuple[int, ...]  #: of 127.0.0.1


def find_web_server(kind: StandIn, search: str) -> WebServer | None:
    """The installed server that is most like the image.  `search`: directories, as in PATH."""
    for name in PREFERENCES.get(kind, ()):
        found = shutil.which(name, path=":".join((search, *SBIN)))
        if found is None or Path(found).resolve().name == "busybox":
            continue
        if name == "nginx":
            return WebServer(name, Path(found))
        modules = _modules(Path(found))
        if modules is not None:
            return WebServer(name, Path(found), modules)
    return None


def _modules(program: Path) -> Path | None:
    beside = program.resolve().parent.parent / "lib/apache2/modules"
    for candidate in (beside, *map(Path, MODULES)):
        if (candidate / "mod_mpm_event.so").is_file():
            return candidate
    return None


def command(program: WebServer, site: WebSite) -> list[str]:
    """Write the configuration, and return the command that runs the server in the foreground."""
    site.directory.mkdir(parents=True, exist_ok=True)
    configuration = site.directory / "server.conf"
    if program.name == "nginx":
        configuration.write_text(nginx_configuration(site, types=Path("/etc/nginx/mime.types").is_file()))
        return [str(program.path), "-p", str(site.directory), "-c", str(configuration), "-e", "stderr"]
    assert program.modules is not None
    available = [name for name in NEEDED if (program.modules / f"mod_{name}.so").is_file()]
    configuration.write_text(apache_configuration(site, program.modules, available, types=Path(TYPES).is_file()))
    return [str(program.path), "-D", "FOREGROUND", "-d", str(site.directory), "-f", str(configuration)]


def file_server_command(documents: Path, sockets: Sequence[int], allowed: Sequence[Path]) -> list[str]:
    """The command of `file_server.py`.  `allowed`: targets of links in the documents."""
    return [
        sys.executable, "-I", "-m", "farflung.edge.runtimes.file_server", str(documents),
        *(part for number in sockets for part in ("--socket", str(number))),
        *(part for path in allowed for part in ("--allow", str(path))),
    ]  # fmt: skip


def apache_configuration(site: WebSite, modules: Path, available: Sequence[str], *, types: bool) -> str:
    lines = [
        "ServerName localhost",
        "ServerTokens Prod",
        f'DefaultRuntimeDir "{site.directory}"',
        f'PidFile "{site.directory}/server.pid"',
        f'Mutex "file:{site.directory}" default',
        "ErrorLog /proc/self/fd/2",
        "EnableSendfile Off",
        "TraceEnable Off",
    ]
    for name in available:
        lines += [
            f"<IfModule !{name}_module>",
            f'  LoadModule {name}_module "{modules}/mod_{name}.so"',
            "</IfModule>",
        ]
    lines += [
        "StartServers 1",
        "ServerLimit 2",
        "ThreadsPerChild 16",
        "MaxRequestWorkers 32",
        *(f"Listen 127.0.0.1:{port}" for port in site.ports),
        f'DocumentRoot "{site.documents}"',
        "<Directory />",
        "  Options FollowSymLinks",
        "  AllowOverride None",
        "  Require all denied",
        "</Directory>",
        f'<Directory "{site.documents}">',
        "  Options Indexes FollowSymLinks",
        "  AllowOverride None",
        "  Require all granted",
        "</Directory>",
        "DirectoryIndex index.html",
        "<IfModule log_config_module>",
        r'  LogFormat "%h %l %u %t \"%r\" %>s %b" common',
        "  CustomLog /proc/self/fd/1 common",
        "</IfModule>",
        *([f"TypesConfig {TYPES}"] if types and "mime" in available else ["TypesConfig /dev/null", *_TYPES]),
    ]
    return "\n".join(lines) + "\n"


_TYPES: Final = ("AddType text/html .html", "AddType text/css .css", "AddType text/javascript .js")


def nginx_configuration(site: WebSite, *, types: bool) -> str:
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        "daemon off;",
        "worker_processes 1;",
        f'pid "{site.directory}/server.pid";',
        "error_log stderr;",
        "events { worker_connections 256; }",
        "http {",
        "  include /etc/nginx/mime.types;" if types else "  types { text/html html; text/css css; }",
        *(f'  {name}_temp_path "{site.directory}/{name}";' for name in temporary),
        "  access_log /proc/self/fd/1;",
        "  server_tokens off;",
        "  server {",
        *(f"    listen 127.0.0.1:{port};" for port in site.ports),
        f'    root "{site.documents}";',
        "    index index.html;",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"
