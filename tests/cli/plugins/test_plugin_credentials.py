"""The ways in which a kubeconfig lets somebody log in."""

from __future__ import annotations

import base64
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_workspaces import TOKEN, Certificate, FakeHub, Server, self_signed
from plugin_runner import Plugin

from farflung.cli.plugins import yaml_text

Rewrite = Callable[..., None]


@pytest.fixture
def rewrite(server: Server, kubeconfig: Path) -> Rewrite:
    """Change the user and the cluster of the kubeconfig."""

    def write(user: dict[str, Any], cluster: dict[str, Any] | None = None, *, of: Server = server) -> None:
        document = of.kubeconfig()
        document["users"][0]["user"] = user
        document["clusters"][1]["cluster"].update(cluster or {})
        kubeconfig.write_text(yaml_text.dump(document))

    return write


@pytest.fixture
def certified(hub: FakeHub, server_certificate: Certificate, tmp_path: Path) -> Iterator[tuple[Server, Certificate]]:
    """A server that takes a client's certificate for its name."""
    client = self_signed("localhost")
    running = Server(hub, server_certificate, tmp_path, trusted=client.certificate)
    yield running, client
    running.close()


def enters(ws: Plugin, *flags: str) -> bool:
    outcome = ws("compute", *flags)
    assert outcome.code == 0 or outcome.err, outcome
    return outcome.code == 0


def test_a_token_may_be_in_a_file_beside_the_kubeconfig(ws: Plugin, rewrite: Rewrite, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    rewrite({"tokenFile": "token"})
    assert enters(ws)
    rewrite({"tokenFile": "nosuch"})
    assert ws("root:compute").err.endswith("nosuch: no such file or directory\n")


def test_a_client_certificate_may_be_in_the_kubeconfig_or_in_files(
    ws: Plugin, rewrite: Rewrite, certified: tuple[Server, Certificate], tmp_path: Path
) -> None:
    server, client = certified
    inline = {
        "client-certificate-data": base64.b64encode(client.certificate).decode(),
        "client-key-data": base64.b64encode(client.key).decode(),
    }
    rewrite(inline, of=server)
    assert enters(ws)
    (tmp_path / "client.crt").write_bytes(client.certificate)
    (tmp_path / "client.key").write_bytes(client.key)
    rewrite({"client-certificate": "client.crt", "client-key": "client.key"}, of=server)
    assert enters(ws)
    rewrite(inline | {"client-key-data": "bm8="}, of=server)
    assert "unable to use the certificates" in ws("compute").err


@pytest.mark.parametrize("command", ["./login.py", "login.py"])
def test_a_program_may_hand_out_the_token(
    command: str, ws: Plugin, rewrite: Rewrite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    program = tmp_path / "login.py"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec']['cluster']['server'].startswith('https://127.0.0.1')\n"
        "print(json.dumps({'status': {'token': os.environ['SECRET'] + sys.argv[1]}}))\n"
    )
    program.chmod(0o700)
    execution = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": [TOKEN[2:]],
        "env": [{"name": "SECRET", "value": TOKEN[:2]}],
        "provideClusterInfo": True,
    }
    rewrite({"exec": execution})
    assert enters(ws)
    rewrite({"exec": execution | {"args": []}})
    assert "failed with exit code 1" in ws("root:compute").err
    rewrite({"exec": execution | {"command": "/bin/true"}})
    assert "printed no ExecCredential" in ws("root:compute").err
    rewrite({"exec": execution | {"command": "/nosuch", "installHint": "get it from the shop"}})
    assert ws("root:compute").err.endswith("\n\nget it from the shop\n")


def test_a_server_is_trusted_only_if_the_kubeconfig_says_so(
    ws: Plugin, rewrite: Rewrite, server: Server, tmp_path: Path
) -> None:
    stranger = self_signed("127.0.0.1")
    user = {"token": TOKEN}
    rewrite(user, {"certificate-authority-data": base64.b64encode(stranger.certificate).decode()})
    assert "certificate is not trusted" in ws("root:compute").err
    assert enters(ws, "--insecure-skip-tls-verify")
    (tmp_path / "ca.crt").write_bytes(server.certificate.certificate)
    rewrite(user, {"certificate-authority-data": base64.b64encode(stranger.certificate).decode()})
    assert enters(ws, "--certificate-authority", str(tmp_path / "ca.crt"))
    rewrite(user, {"tls-server-name": "elsewhere"})
    assert "certificate is not trusted" in ws("root:compute").err
    assert enters(ws, "--tls-server-name", "localhost")


def test_no_token_is_sent_to_a_server_that_is_not_trusted(ws: Plugin, rewrite: Rewrite, hub: FakeHub) -> None:
    rewrite({"token": TOKEN}, {"tls-server-name": "elsewhere"})
    ws("root:compute")
    assert hub.requests == []


def test_a_user_may_impersonate_another(ws: Plugin, rewrite: Rewrite, hub: FakeHub) -> None:
    rewrite({"token": TOKEN, "as": "jane", "as-groups": ["dev", "ops"]})
    assert enters(ws, "--as-uid", "42")
    headers = hub.requests[0][2]
    assert (headers["Impersonate-User"], headers["Impersonate-Uid"]) == ("jane", "42")
    assert headers["Impersonate-Group"] in ("dev", "ops")


def test_name_and_password_are_sent_if_there_is_no_token(ws: Plugin, rewrite: Rewrite, hub: FakeHub) -> None:
    rewrite({"username": "me", "password": "secret"})
    assert ws("root:compute").err == "Error: Unauthorized\n"
    assert hub.requests[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


def test_a_proxy_is_asked_for_a_tunnel(ws: Plugin, rewrite: Rewrite, server: Server) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=tunnel, args=(listener, server.port, asked))
        thread.start()
        rewrite({"token": TOKEN}, {"proxy-url": f"http://me:pw@127.0.0.1:{listener.getsockname()[1]}"})
        assert ws("root") == (0, 'Current workspace is "root".\n', "")
        thread.join()
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{server.port} ".encode())
    assert b"Proxy-Authorization: Basic bWU6cHc=" in asked[0]
    rewrite({"token": TOKEN}, {"proxy-url": "socks5://127.0.0.1:1"})
    assert "a proxy must have an http:// URL" in ws("root:compute").err


def tunnel(listener: socket.socket, port: int, asked: list[bytes]) -> None:
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as upstream:
        asked.append(client.recv(65536))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        back = threading.Thread(target=pump, args=(upstream, client))
        back.start()
        pump(client, upstream)
        back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.mark.parametrize("url", ["ftp://x/clusters/root", "https:///clusters/root", "no url"])
def test_a_url_that_leads_nowhere_is_refused(url: str, ws: Plugin, kubeconfig: Path) -> None:
    assert ws("~", "--server", url).err == f'Error: "{url}" is no URL of a server\n'
