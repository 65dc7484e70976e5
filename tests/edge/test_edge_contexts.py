"""Contexts in kubeconfig files."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from farflung.cli.credentials import KubeconfigContext, whole_kubeconfig
from farflung.edge import contexts
from farflung.edge.contexts import ContextError

CLUSTER = {"server": "https://127.0.0.1:7443", "certificate-authority-data": "YQ=="}
USER = {"token": "secret"}
THEIRS = """\
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: theirs
  cluster: {server: "https://example.com", insecure-skip-tls-verify: true}
contexts:
- name: theirs
  context: {cluster: theirs, user: theirs, namespace: "yes"}
users:
- name: theirs
  user: {auth-provider: {name: x, config: {expiry: 2020-01-01T00:00:00Z}}}
current-context: theirs
"""


def config(path: Path) -> dict[str, Any]:
    loaded = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(THEIRS)
    return path


def test_adding_and_removing_a_context_keeps_the_others(path: Path) -> None:
    path.chmod(0o640)
    before = config(path)

    contexts.add(path, "kind-florin", CLUSTER, USER)
    with_ours = config(path)
    contexts.remove(path, "kind-florin")

    assert with_ours["current-context"] == "kind-florin"
    assert with_ours["clusters"] == [*before["clusters"], {"name": "kind-florin", "cluster": CLUSTER}]
    assert with_ours["users"] == [*before["users"], {"name": "kind-florin", "user": USER}]
    after = config(path)
    assert after == before | {"current-context": ""}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["config"]


def test_a_context_of_the_same_name_is_replaced(path: Path) -> None:
    contexts.add(path, "kind-florin", {"server": "https://127.0.0.1:1"}, USER)
    contexts.add(path, "kind-florin", CLUSTER, USER)

    clusters = config(path)["clusters"]
    assert isinstance(clusters, list)
    assert [one["name"] for one in clusters] == ["theirs", "kind-florin"]
    assert clusters[1]["cluster"] == CLUSTER


@pytest.mark.parametrize("current", ["root", "workspace.kcp.io/current", ""])
def test_the_current_context_of_a_hub_stays_current(path: Path, current: str) -> None:
    credentials = {"kcp-admin": "secret"}
    contexts_of_hub = [KubeconfigContext(name, "root", "kcp-admin") for name in ("root", current) if name]
    path.write_text(whole_kubeconfig({"root": CLUSTER}, credentials, contexts_of_hub, current))
    contexts.add(path, "kind-florin", CLUSTER, USER)
    assert contexts.current(path) == (current or "kind-florin")
    assert [one["name"] for one in config(path)["contexts"]][-1] == "kind-florin"


def test_another_current_context_stays_current(path: Path) -> None:
    contexts.add(path, "kind-florin", CLUSTER, USER)
    contexts.add(path, "kind-guilder", CLUSTER, USER)

    contexts.remove(path, "kind-florin")

    assert config(path)["current-context"] == "kind-guilder"


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"

    contexts.add(path, "kind-florin", CLUSTER, USER)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config(path)["current-context"] == "kind-florin"


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)

    contexts.add(link, "kind-florin", CLUSTER, USER)

    assert link.is_symlink()
    assert config(path)["current-context"] == "kind-florin"


def test_removing_a_missing_context_writes_nothing(path: Path, tmp_path: Path) -> None:
    before = path.stat()

    contexts.remove(path, "kind-florin")
    contexts.remove(tmp_path / "absent", "kind-florin")

    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (tmp_path / "absent").exists()


def test_several_at_once_lose_nothing(path: Path) -> None:
    names = [f"kind-{number}" for number in range(8)]
    threads = [threading.Thread(target=contexts.add, args=(path, name, CLUSTER, USER)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    users = config(path)["users"]
    assert isinstance(users, list)
    assert sorted(one["name"] for one in users) == sorted(["theirs", *names])


@pytest.mark.parametrize("content", ["- a", "clusters: 3", "users: [a]", "a: [", "a: &a [*a]"])
def test_a_file_that_is_no_kubeconfig_is_left_alone(path: Path, content: str) -> None:
    path.write_text(content)

    with pytest.raises(ContextError, match="config is not"):
        contexts.add(path, "kind-florin", CLUSTER, USER)

    assert path.read_text() == content
    assert [one.name for one in path.parent.iterdir()] == ["config"]


def test_the_lock_file_of_another_process_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "LOCK_TIMEOUT", 0.0)
    (path.parent / "config.lock").touch()

    with pytest.raises(ContextError, match=r"if that is not so, remove .*config\.lock"):
        contexts.add(path, "kind-florin", CLUSTER, USER)


def test_the_file_to_write_is_the_one_that_kind_would_write(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()

    def chosen(*paths: Path) -> Path:
        return contexts.file_of({"KUBECONFIG": ":".join(map(str, paths))})

    assert chosen(absent, there) == there
    assert chosen(tmp_path / "also-absent", absent) == absent
    assert contexts.file_of({"KUBECONFIG": str(there)}, "explicit") == Path("explicit")
    assert contexts.file_of({}) == Path("~/.kube/config").expanduser()


def test_a_file_stays_that_of_its_owner(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    contexts.add(path, "kind-florin", CLUSTER, USER)
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
