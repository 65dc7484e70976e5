"""The plugins, and a server for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_workspaces import Certificate, FakeHub, Server, self_signed
from plugin_runner import Plugin, plugin_runner

from farflung.cli.plugins import kcp, workspace, yaml_text


@pytest.fixture(scope="session")
def server_certificate() -> Certificate:
    return self_signed("127.0.0.1", "localhost")


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub()


@pytest.fixture
def server(hub: FakeHub, server_certificate: Certificate, tmp_path: Path) -> Iterator[Server]:
    running = Server(hub, server_certificate, tmp_path)
    yield running
    running.close()


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    path.write_text(yaml_text.dump(server.kubeconfig()))
    path.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return path


@pytest.fixture
def ws(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plugin:
    return plugin_runner(workspace.main, capsys, monkeypatch)


@pytest.fixture
def kubectl_kcp(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Plugin:
    return plugin_runner(kcp.main, capsys, monkeypatch)
