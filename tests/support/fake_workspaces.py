"""A small server that answers kubectl's plugins as kcp was recorded to answer them."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

TOKEN = "a-token"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"


class Certificate(NamedTuple):
    certificate: bytes
    key: bytes


def self_signed(*names: str) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake")])
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
    ]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


class FakeHub:
    """Workspaces are kept by path: `children["root"]["compute"]` is root:compute."""

    def __init__(self) -> None:
        self.children: dict[str, dict[str, dict[str, Any]]] = {}
        self.bindings: dict[str, dict[str, dict[str, Any]]] = {}
        self.exports: set[tuple[str, str]] = set()
        self.obstacles: list[dict[str, str]] = []  #: conditions of bindings that do not succeed
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.polls_until_ready = 0
        self.home_polls = 0
        self.advertised = "https://internal.example:6443"
        self.add("root", "compute", "root:universal")
        self.children["root"] = self.children.get("root", {})
        self.children["kvdk2spgmbix"] = {}

    def add(self, parent: str, name: str, kind: str, phase: str = "Ready") -> dict[str, Any]:
        path, _, kind = kind.rpartition(":")
        made = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name},
            "spec": {"type": {"name": kind, "path": path}, "URL": f"{self.advertised}/clusters/hash-of-{name}"},
            "status": {"phase": phase},
        }
        self.children.setdefault(parent, {})[name] = made
        self.children.setdefault(f"{parent}:{name}", {})
        return made

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        _, _, cluster, rest = unquote(path).split("/", 3)
        rest = f"/{rest}"
        if cluster not in self.children:
            return failure(403, "unknown")
        if rest == "/apis":
            return 200, {"kind": "APIGroupList", "groups": [{"name": "tenancy.kcp.io"}]}
        if rest.startswith(BINDINGS):
            return self.answer_bindings(method, cluster, rest.removeprefix(BINDINGS).removeprefix("/"), body)
        return self.answer_workspaces(method, cluster, rest.removeprefix(WORKSPACES).removeprefix("/"), body)

    def answer_workspaces(self, method: str, cluster: str, name: str, body: Any) -> tuple[int, Any]:
        here = self.children[cluster]
        if name == "~":
            if self.home_polls > 0:
                self.home_polls -= 1
                return 429, "Creating the home workspace\n"
            spec = {"type": {"name": ""}, "cluster": "kvdk2spgmbix", "URL": f"{self.advertised}/clusters/kvdk2spgmbix"}
            return 200, {"metadata": {"name": "cluster"}, "spec": spec, "status": {"phase": "Ready"}}
        if method == "POST":
            return self.create_workspace(cluster, body)
        if not name:
            return 200, {"kind": "WorkspaceList", "items": list(here.values())}
        if name not in here:
            return failure(404, f'workspaces.tenancy.kcp.io "{name}" not found')
        if here[name]["status"]["phase"] == "Initializing":
            self.polls_until_ready -= 1
            if self.polls_until_ready <= 0:
                here[name]["status"]["phase"] = "Ready"
        return 200, here[name]

    def create_workspace(self, cluster: str, body: Any) -> tuple[int, Any]:
        name = body["metadata"]["name"]
        if name in self.children[cluster]:
            return failure(409, f'workspaces.tenancy.kcp.io "{name}" already exists')
        asked = body["spec"].get("type")
        if asked and asked["name"] == "nosuch":
            return failure(
                403, f'workspaces.tenancy.kcp.io "{name}" is forbidden: workspace type "nosuch" cannot be resolved'
            )
        kind = "root:organization" if cluster == "root" else "root:universal"
        if asked:
            kind = f"{asked.get('path', 'root')}:{asked['name']}"
        made = self.add(cluster, name, kind, "Initializing" if self.polls_until_ready else "Ready")
        if "location" in body["spec"]:
            made["spec"]["location"] = body["spec"]["location"]
        return 201, made

    def answer_bindings(self, method: str, cluster: str, name: str, body: Any) -> tuple[int, Any]:
        here = self.bindings.setdefault(cluster, {})
        if method == "POST":
            return self.create_binding(here, body)
        if not name:
            return 200, {"kind": "APIBindingList", "items": list(here.values())}
        if name not in here:
            return failure(404, f'apibindings.apis.kcp.io "{name}" not found')
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != here[name]["metadata"]["resourceVersion"]:
                return failure(409, "the object has been modified")
            here[name]["spec"].update(body["spec"])
        return 200, here[name]

    def create_binding(self, here: dict[str, dict[str, Any]], body: Any) -> tuple[int, Any]:
        name, export = body["metadata"]["name"], body["spec"]["reference"]["export"]
        if name in here:
            return failure(409, f'apibindings.apis.kcp.io "{name}" already exists')
        if (export["path"], export["name"]) not in self.exports:
            return failure(
                403,
                f'apibindings.apis.kcp.io "{name}" is forbidden: unable to create APIBinding: '
                f"no permission to bind to export {export['path']}:{export['name']}",
            )
        conflict = any(other["spec"]["reference"]["export"] == export for other in here.values())
        stuck = {"phase": "Binding", "conditions": self.obstacles}
        here[name] = body | {"status": stuck if conflict else {"phase": "Bound"}}
        here[name]["metadata"]["resourceVersion"] = "1"
        return 201, here[name]


def failure(code: int, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


class Server:
    """A FakeHub behind TLS on a port of its own."""

    def __init__(self, hub: FakeHub, certificate: Certificate, directory: Path, trusted: bytes = b"") -> None:
        self.hub = hub
        self.certificate = certificate
        pem = directory / "server.pem"
        pem.write_bytes(certificate.certificate + certificate.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        if trusted:
            context.load_verify_locations(cadata=trusted.decode())
            context.verify_mode = ssl.CERT_OPTIONAL
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(hub))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self) -> dict[str, Any]:
        authority = base64.b64encode(self.certificate.certificate).decode()
        cluster = {"certificate-authority-data": authority, "server": self.url}
        root = cluster | {"server": f"{self.url}/clusters/root"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "base", "cluster": cluster}, {"name": "root", "cluster": root}],
            "contexts": [
                {"name": "base", "context": {"cluster": "base", "user": "kcp-admin"}},
                {"name": "root", "context": {"cluster": "root", "user": "kcp-admin"}},
            ],
            "current-context": "root",
            "preferences": {},
            "users": [{"name": "kcp-admin", "user": {"token": TOKEN}}],
        }


def handler_for(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ssl.SSLError, ConnectionError):
                self.close_connection = True

        def do_GET(self) -> None:
            self.respond()

        def do_POST(self) -> None:
            self.respond()

        def do_PATCH(self) -> None:
            self.respond()

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            hub.requests.append((self.command, self.path, dict(self.headers.items())))
            certified = isinstance(self.connection, ssl.SSLSocket) and self.connection.getpeercert()
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" and not certified:
                code, answer = failure(401, "Unauthorized")
            else:
                code, answer = hub.answer(self.command, self.path, json.loads(body) if body else None)
            text = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(text)))
            if code == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            """The tests look at `hub.requests`."""

    return Handler
