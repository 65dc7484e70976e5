"""Kubeconfig files survive being changed: nothing of anybody else's is lost, whatever happens meanwhile."""

from __future__ import annotations

import copy
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.cli.plugins import contexts
from farflung.cli.plugins.commands import CommandError
from farflung.cli.plugins.kubeconfig import CLUSTERS, CONTEXTS, Kubeconfig, change_files, load, locations, parse, render

OURS = {contexts.CURRENT, contexts.PREVIOUS}
BASIC = {
    "clusters": [
        {"name": "root", "cluster": {"server": "https://h:1/clusters/root", "certificate-authority": "ca.crt"}}
    ],
    "contexts": [{"name": "root", "context": {"cluster": "root", "user": "me", "namespace": "shop"}}],
    "current-context": "root",
    "users": [{"name": "me", "user": {"token": "t"}}],
}

names = st.sampled_from(["root", "base", "kind-kind", "a:b", contexts.CURRENT, contexts.PREVIOUS])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def entries(body: str, content: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    item = st.builds(lambda name, more, content: more | {"name": name, body: content}, names, extra, content)
    return st.lists(item, max_size=5, unique_by=lambda each: each["name"])


extra = st.dictionaries(st.sampled_from(["x-team", "note"]), anything, max_size=2)
clusters = entries("cluster", st.builds(lambda host, more: more | {"server": f"https://{host}"}, names, extra))
context_entries = entries(
    "context", st.builds(lambda cluster, more: more | {"cluster": cluster, "user": "me"}, names, extra)
)
documents = st.builds(
    lambda top, clusters, contexts, current: top | {"clusters": clusters, "contexts": contexts} | current,
    extra,
    clusters,
    context_entries,
    st.one_of(st.just({}), st.builds(lambda name: {"current-context": name}, names)),
)


def foreign(document: dict[str, Any]) -> dict[str, Any]:
    """All of a file that is not the plugin's to change."""
    kept = {field: value for field, value in document.items() if field != "current-context"}
    for section in (CLUSTERS, CONTEXTS):
        kept[section] = {item["name"]: item for item in document.get(section) or [] if item["name"] not in OURS}
    return kept


@settings(max_examples=examples(40))
@given(st.lists(documents, min_size=1, max_size=3), names)
def test_entering_a_workspace_changes_nothing_of_anybody_else(files: list[dict[str, Any]], context: str) -> None:
    before = copy.deepcopy(files)
    kubeconfig = Kubeconfig({Path(f"/d{number}/config"): file for number, file in enumerate(files)})
    try:
        contexts.enter(kubeconfig, "https://h/clusters/root:new", context)
    except CommandError:
        assert [foreign(file) for file in kubeconfig.documents.values()] == [foreign(file) for file in before]
        return
    after = list(kubeconfig.documents.values())
    assert [foreign(file) for file in after] == [foreign(file) for file in before]
    assert kubeconfig.current_context == contexts.CURRENT
    assert contexts.server_of(kubeconfig, contexts.CURRENT) == "https://h/clusters/root:new"
    for file, path in zip(after, kubeconfig.documents, strict=True):
        written = parse(render(file), path)
        assert written == yaml.safe_load(render(file))
        assert foreign(written) == {"apiVersion": "v1", "kind": "Config", "preferences": {}} | foreign(file)


@settings(max_examples=examples(40))
@given(documents, names)
def test_going_back_twice_leads_to_where_one_was(document: dict[str, Any], context: str) -> None:
    kubeconfig = Kubeconfig({Path("/d/config"): document})
    try:
        contexts.enter(kubeconfig, "https://h/clusters/root:a", context)
        contexts.enter(kubeconfig, "https://h/clusters/root:b", contexts.CURRENT)
    except CommandError:
        return
    contexts.go_back(kubeconfig)
    assert contexts.server_of(kubeconfig, kubeconfig.current_context) == "https://h/clusters/root:a"
    contexts.go_back(kubeconfig)
    assert contexts.server_of(kubeconfig, kubeconfig.current_context) == "https://h/clusters/root:b"


def test_going_back_without_having_been_anywhere_is_refused() -> None:
    with pytest.raises(CommandError, match="no previous workspace found in kubeconfig"):
        contexts.go_back(Kubeconfig({Path("/d/config"): copy.deepcopy(BASIC)}))


def test_user_and_namespace_go_along() -> None:
    kubeconfig = Kubeconfig({Path("/d/config"): copy.deepcopy(BASIC)})
    contexts.enter(kubeconfig, "https://h:1/clusters/root:a", "root")
    entered = kubeconfig.find(CONTEXTS, contexts.CURRENT)
    assert entered is not None
    assert entered.body == {"cluster": contexts.CURRENT, "user": "me", "namespace": "shop"}


def test_another_context_may_be_the_model_and_the_one_left_is_remembered() -> None:
    document = copy.deepcopy(BASIC)
    document["clusters"].append({"name": "far", "cluster": {"server": "https://far/clusters/root"}})
    document["contexts"].append({"name": "far", "context": {"cluster": "far", "user": "you"}})
    kubeconfig = Kubeconfig({Path("/d/config"): document})
    contexts.enter(kubeconfig, "https://far/clusters/root:a", "far")
    entered, left = kubeconfig.find(CONTEXTS, contexts.CURRENT), kubeconfig.find(CONTEXTS, contexts.PREVIOUS)
    assert entered is not None and entered.body == {"cluster": contexts.CURRENT, "user": "you"}
    assert left is not None and left.body["cluster"] == "root"


def test_of_several_files_the_first_decides_and_entries_are_written_where_their_model_is(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "config", tmp_path / "b" / "config"
    for path in (first, second):
        path.parent.mkdir()
    first.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nusers:\n- name: me\n  user:\n    token: mine\n")
    second.write_text(render(copy.deepcopy(BASIC)))
    paths = locations("", {"KUBECONFIG": f"{first}:{tmp_path}/nosuch::{second}:{first}"})
    assert paths == [first, tmp_path / "nosuch", second]
    change_files(paths, lambda config: contexts.enter(config, "https://h:1/clusters/root:a", "root"))
    assert "workspace.kcp.io" not in first.read_text()
    assert load([second]).current_context == contexts.CURRENT


def test_paths_of_a_copied_cluster_still_lead_to_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "config", tmp_path / "b" / "config"
    stale = {"clusters": [{"name": contexts.CURRENT, "cluster": {"server": "https://old"}}]}
    kubeconfig = Kubeconfig({first: stale, second: copy.deepcopy(BASIC)})
    contexts.enter(kubeconfig, "https://h:1/clusters/root:a", "root")
    entered = kubeconfig.find(CLUSTERS, contexts.CURRENT)
    assert entered is not None and entered.origin == first
    assert entered.body["certificate-authority"] == str(second.parent / "ca.crt")


def test_the_default_is_the_file_in_the_home_directory_and_a_flag_beats_the_environment() -> None:
    assert locations("", {"HOME": "/home/me"}) == [Path("/home/me/.kube/config")]
    assert locations("other", {"KUBECONFIG": "/a:/b"}) == [Path("other")]


def test_a_file_keeps_its_mode_and_the_links_to_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text(render(copy.deepcopy(BASIC)))
    real.chmod(0o640)
    link.symlink_to(real)
    change_files([link], lambda config: config.switch("other"))
    assert link.is_symlink()
    assert load([real]).current_context == "other"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@pytest.mark.parametrize("way", ["real/../real/config", "linked/config"])
def test_a_way_over_other_directories_leads_to_one_lock(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farflung.cli.plugins.kubeconfig.LOCK_SECONDS", 0.0)
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    config = tmp_path / "real" / "config"
    config.write_text(render(copy.deepcopy(BASIC)))
    change_files([tmp_path / way], lambda config: config.switch("other"))
    assert load([config]).current_context == "other"
    assert [path.name for path in config.parent.iterdir()] == ["config"]


def test_a_file_is_either_the_old_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(render(copy.deepcopy(BASIC)))
    before = path.read_text()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(CommandError, match="No space left on device"):
        change_files([path], lambda config: config.switch("other"))
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(render(copy.deepcopy(BASIC)))
    (tmp_path / "config.lock").touch()
    monkeypatch.setattr("farflung.cli.plugins.kubeconfig.LOCK_SECONDS", 0.0)
    with pytest.raises(CommandError, match=r"config\.lock: file exists"):
        change_files([path], lambda config: config.switch("other"))
    assert (tmp_path / "config.lock").exists()


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(render(copy.deepcopy(BASIC)))

    def add(number: int) -> None:
        change_files([path], lambda config: contexts.add_context(config, f"context-{number}"))

    writers = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    kubeconfig = load([path])
    assert all(kubeconfig.find(CONTEXTS, f"context-{number}") for number in range(12))
    assert not (tmp_path / "config.lock").exists()


def test_writers_who_know_a_file_by_different_names_lose_nothing(tmp_path: Path) -> None:
    real, links = tmp_path / "config", [tmp_path / f"link-{number}" for number in range(3)]
    real.write_text(render(copy.deepcopy(BASIC)))
    for link in links:
        link.symlink_to(real)

    def add(number: int) -> None:
        path = [real, *links][number % 4]
        change_files([path], lambda config: contexts.add_context(config, f"context-{number}"))

    writers = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    kubeconfig = load([real])
    assert [number for number in range(16) if not kubeconfig.find(CONTEXTS, f"context-{number}")] == []
    assert list(tmp_path.glob("*.lock")) == []


def test_a_file_that_is_named_twice_is_changed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("farflung.cli.plugins.kubeconfig.LOCK_SECONDS", 0.0)
    path = tmp_path / "config"
    path.write_text(render(copy.deepcopy(BASIC)))
    change_files([path, Path("config")], lambda config: config.switch("other"))
    assert load([path]).current_context == "other"
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_a_file_that_may_only_be_read_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(render(copy.deepcopy(BASIC)))
    path.chmod(0o400)
    before = path.read_text()
    # as it is for everybody but root
    monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o200))
    with pytest.raises(CommandError, match=r"cannot write .*config: Permission denied"):
        change_files([path], lambda config: config.switch("other"))
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_what_cannot_be_read_is_told_why_in_words(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        change_files([tmp_path], lambda config: config.switch("other"))
    assert str(caught.value) == f'error loading config file "{tmp_path}": is a directory'


@pytest.mark.parametrize("text", ["- a\n", "clusters: {}\nusers: 1\n", "a: [\n", "just words\n"])
def test_what_is_no_kubeconfig_is_refused_and_not_touched(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CommandError, match="error loading config file"):
        change_files([path], lambda config: config.switch("other"))
    assert path.read_text() == text
