"""`farflung start`: whose hub it is, and what its administrators get."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_process import HubProcess

from farflung.cli import start
from farflung.cli.controllers import ALL, SCHEDULER, read_settings
from farflung.cli.credentials import CONTROLLERS_KUBECONFIG, KUBECONFIG, TOKENS, ensure_tokens
from farflung.cli.hub import HubSettings, database
from farflung.cli.main import main
from farflung.cli.plugins import contexts
from farflung.cli.plugins.kubeconfig import change_files, load
from farflung.cli.settings import AccessOptions, ControllerOptions, FileOptions
from farflung.edge import contexts as edge_contexts
from farflung.hub.auth.static_tokens import read_tokens, token_hash
from farflung.hub.tenancy.controller_roles import CONTROLLERS
from farflung.machines.files.scheduler_files import SchedulerFiles
from farflung.placement.guard import DEFAULT_LIMITS, WithdrawalLimits
from farflung.store.base import Unusable

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
URL = "https://hub.example:6443"


def started(directory: Path) -> dict[str, str]:
    """The administrators' tokens, as a start leaves them."""
    tokens = written(directory, URL, b"the authority")
    return {one.name: tokens[one.name] for one in start.ADMINISTRATORS_OF_ALL}


def written(directory: Path, url: str, authority: bytes) -> dict[str, str]:
    """The tokens of all users."""
    tokens = ensure_tokens(directory, start.USERS, NOW)
    start.write_kubeconfig(directory, url, authority, tokens)
    return tokens


def test_the_kubeconfig_has_the_contexts_that_controllers_ask_for(tmp_path: Path) -> None:
    tokens = started(tmp_path)
    config = yaml.safe_load((tmp_path / KUBECONFIG).read_text())
    contexts = {one["name"]: (one["context"]["cluster"], one["context"]["user"]) for one in config["contexts"]}
    assert contexts == {
        "root": ("root", "kcp-admin"),
        "base": ("base", "kcp-admin"),
        "system:admin": ("base", "shard-admin"),
    }
    assert config["current-context"] == "root"
    clusters = {one["name"]: one["cluster"] for one in config["clusters"]}
    assert {name: one["server"] for name, one in clusters.items()} == {"base": URL, "root": f"{URL}/clusters/root"}
    authorities = {base64.b64decode(one["certificate-authority-data"]) for one in clusters.values()}
    assert authorities == {b"the authority"}
    assert {one["name"]: one["user"]["token"] for one in config["users"]} == tokens


def test_each_controller_has_a_user_of_its_own_that_is_no_administrator(tmp_path: Path) -> None:
    administrators = started(tmp_path)
    path = tmp_path / CONTROLLERS_KUBECONFIG
    config = yaml.safe_load(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    contexts = {one["name"]: one["context"] for one in config["contexts"]}
    assert contexts == {name: {"cluster": "base", "user": f"system:farflung:{name}"} for name in CONTROLLERS}
    tokens = {one["name"]: one["user"]["token"] for one in config["users"]}
    known = read_tokens(tmp_path / TOKENS)
    assert {known[token_hash(token)].groups for token in tokens.values()} == {("system:authenticated",)}
    assert not set(tokens.values()) & set(administrators.values())
    assert config["clusters"] == yaml.safe_load((tmp_path / KUBECONFIG).read_text())["clusters"][:1]


def test_a_directory_of_an_earlier_version_gets_the_users_of_the_controllers(tmp_path: Path) -> None:
    before = ensure_tokens(tmp_path, start.ADMINISTRATORS_OF_ALL, NOW)
    (tmp_path / KUBECONFIG).write_text(yaml.safe_dump({"users": users_of(before)}))
    assert started(tmp_path) == before
    assert (tmp_path / CONTROLLERS_KUBECONFIG).exists()


def users_of(tokens: dict[str, str]) -> list[dict[str, object]]:
    return [{"name": name, "user": {"token": token}} for name, token in tokens.items()]


@pytest.mark.parametrize(
    "chosen", [{}, {"context": "edge-scheduler"}, {"accesses": {"root": AccessOptions(context="x")}}]
)
def test_controllers_are_their_own_users_unless_another_one_is_chosen(tmp_path: Path, chosen: dict[str, Any]) -> None:
    started(tmp_path)
    for path, own in ((tmp_path / CONTROLLERS_KUBECONFIG, not chosen), (tmp_path / KUBECONFIG, False)):
        options = ControllerOptions(kubeconfig=str(path), **chosen)
        assert read_settings("farflung controllers", ALL, options).has_own_users == own
        assert read_settings("farflung scheduler", (SCHEDULER,), options).has_own_users == own


def test_the_administrators_are_those_of_kcp(tmp_path: Path) -> None:
    tokens = started(tmp_path)
    known = read_tokens(tmp_path / TOKENS)
    groups = {name: known[token_hash(token)].groups for name, token in tokens.items()}
    assert groups == {
        "kcp-admin": ("system:kcp:admin", "system:authenticated"),
        "shard-admin": ("system:masters", "system:authenticated"),
    }
    assert known[token_hash(tokens["kcp-admin"])].uid


def test_tokens_stay_the_same_over_starts(tmp_path: Path) -> None:
    first = started(tmp_path)
    uids = {one.name: one.uid for one in read_tokens(tmp_path / TOKENS).values()}
    assert started(tmp_path) == first
    assert {one.name: one.uid for one in read_tokens(tmp_path / TOKENS).values()} == uids


def test_a_lost_token_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    first = started(tmp_path)
    path = tmp_path / KUBECONFIG
    path.write_text(path.read_text().replace(first["kcp-admin"], "scribble"))
    second = started(tmp_path)
    assert second["shard-admin"] == first["shard-admin"]
    assert second["kcp-admin"] not in (first["kcp-admin"], "scribble")
    assert token_hash(first["kcp-admin"]) not in read_tokens(tmp_path / TOKENS)


def test_swapping_tokens_in_the_kubeconfig_makes_no_user_an_administrator(tmp_path: Path) -> None:
    first = started(tmp_path)
    path = tmp_path / KUBECONFIG
    path.write_text(path.read_text().replace(first["shard-admin"], first["kcp-admin"]))
    assert started(tmp_path)["shard-admin"] not in first.values()


def test_who_was_in_a_workspace_stays_there_when_the_hub_starts_again_elsewhere(tmp_path: Path) -> None:
    started(tmp_path)
    path = tmp_path / KUBECONFIG
    for workspace in ("root:my-org", "root:my-org:shop"):
        server = f"{URL}/clusters/{workspace}"
        change_files([path], partial(contexts.enter, server=server, context="root"))
    written(tmp_path, "https://127.0.0.1:7443", b"another authority")
    again = load([path])
    assert contexts.server_of(again, again.current_context) == "https://127.0.0.1:7443/clusters/root:my-org:shop"
    contexts.go_back(again)
    assert contexts.server_of(again, again.current_context) == "https://127.0.0.1:7443/clusters/root:my-org"
    assert "authority: dGhlIGF1" not in path.read_text()


@pytest.mark.parametrize(
    ("server", "user"),
    [("https://elsewhere:6443/clusters/root", "kcp-admin"), (f"{URL}/clusters/../x", "kcp-admin"), (URL, "nobody")],
)
def test_a_workspace_of_another_hub_or_user_is_not_kept(tmp_path: Path, server: str, user: str) -> None:
    started(tmp_path)
    path = tmp_path / KUBECONFIG
    before = path.read_text()
    config = yaml.safe_load(before)
    config["clusters"].append({"name": contexts.CURRENT, "cluster": {"server": server}})
    context = {"cluster": contexts.CURRENT, "user": user}
    config["contexts"].append({"name": contexts.CURRENT, "context": context})
    path.write_text(yaml.safe_dump({**config, "current-context": contexts.CURRENT}))
    started(tmp_path)
    assert path.read_text() == before


def test_contexts_of_edges_stay_when_the_hub_starts_again(tmp_path: Path) -> None:
    started(tmp_path)
    path = tmp_path / KUBECONFIG
    first = yaml.safe_load(path.read_text())
    cluster, user = {"server": "https://127.0.0.1:9443"}, {"token": "of the edge"}
    edge_contexts.add(path, "kind-florin", cluster, user)
    for name, stranger in (("theirs", "kcp-admin"), ("nowhere", "kind-florin"), ("broken", 7)):
        config = yaml.safe_load(path.read_text())
        context = {"cluster": "root" if name == "theirs" else "no-such", "user": stranger}
        config["contexts"].append({"name": name, "context": context})
        path.write_text(yaml.safe_dump(config))
    started(tmp_path)
    again = yaml.safe_load(path.read_text())
    assert again["current-context"] == "root"
    assert again["clusters"] == [*first["clusters"], {"name": "kind-florin", "cluster": cluster}]
    assert again["users"] == [*first["users"], {"name": "kind-florin", "user": user}]
    kept = {"name": "kind-florin", "context": {"cluster": "kind-florin", "user": "kind-florin"}}
    assert again["contexts"] == [*first["contexts"], kept]
    started(tmp_path)
    assert yaml.safe_load(path.read_text()) == again


@pytest.mark.parametrize("text", ["", "users: 7", "users: [7]", "users: [{}]", "users: [{user: x}]", "[", "\x00"])
def test_a_kubeconfig_that_cannot_be_read_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / KUBECONFIG).write_text(text)
    tokens = started(tmp_path)
    assert started(tmp_path) == tokens


@pytest.mark.parametrize(("workspaces", "other"), [(True, "hub.sqlite"), (False, "workspaces.sqlite")])
def test_the_directory_of_the_other_kind_of_hub_is_refused_with_a_sentence(
    tmp_path: Path, workspaces: bool, other: str
) -> None:
    settings = HubSettings(tmp_path, workspaces=workspaces)
    mine = database(settings)
    mine.touch()
    assert database(settings) == mine
    mine.unlink()
    (tmp_path / other).touch()
    right = "farflung hub" if workspaces else "farflung start"
    with pytest.raises(Unusable, match=f"run `{right}`, or choose another --root-directory"):
        database(settings)


def test_clients_are_sent_to_the_name_that_was_given(tmp_path: Path) -> None:
    names = ("hub.example", "10.0.0.7")
    assert HubSettings(tmp_path, "0.0.0.0", workspaces=True, hostnames=names).url(7443) == "https://hub.example:7443"
    assert HubSettings(tmp_path, "0.0.0.0", workspaces=True).url(7443) == "https://127.0.0.1:7443"
    assert HubSettings(tmp_path, "::", workspaces=True).url(7443) == "https://[::1]:7443"
    assert HubSettings(tmp_path, "127.0.0.1", hostnames=names).url(7443) == "https://127.0.0.1:7443"


def test_a_hub_with_workspaces_serves_root_to_its_administrators_and_stays_theirs(tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    first = HubProcess(directory, command="start", arguments=["--bare"])
    config, port = first.kubeconfig.read_text(), first.port
    with first.client() as client:
        assert client.get("/clusters/root/api/v1/namespaces/default")["metadata"]["name"] == "default"
    first.stop()
    again = HubProcess(directory, command="start", arguments=["--bare"], port=port)
    assert again.kubeconfig.read_text() == config
    again.stop()


def test_controllers_are_told_how_much_they_may_withdraw_at_once_and_what_is_stale(tmp_path: Path) -> None:
    told = start.options(tmp_path / KUBECONFIG, WithdrawalLimits(20, 3), 30.0, SchedulerFiles(), verbose=True)
    context = main.commands["controllers"].make_context("controllers", told)
    assert [context.params[one] for one in ("max_withdraw", "max_withdraw_number", "stale_after")] == [20, 3, 30.0]
    assert [context.params[one] for one in ("context", "provider", "verbosity")] == ["", "root:espw", 3]
    assert context.params["identity_file"] == str(tmp_path / "controllers.identity")
    asked = main.commands["start"].make_context("start", ["--max-withdraw", "20%", "--max-withdraw-number", "3"])
    assert WithdrawalLimits(asked.params["max_withdraw"], asked.params["max_withdraw_number"]) == WithdrawalLimits(
        20, 3
    )
    usual = main.commands["start"].make_context("start", [])
    assert WithdrawalLimits(usual.params["max_withdraw"], usual.params["max_withdraw_number"]) == DEFAULT_LIMITS


def test_controllers_are_told_the_files_of_the_global_scheduler_but_serve_no_other_hub(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("predicates: [{name: Flavor}]")
    (tmp_path / "conf.yaml").write_text("scheduler_policy_file: nowhere\nmaster: https://elsewhere\nkubeconfig: other")
    files = SchedulerFiles(str(tmp_path), str(policy))
    told = start.options(tmp_path / KUBECONFIG, DEFAULT_LIMITS, 30.0, files, verbose=False)
    context = main.commands["controllers"].make_context("controllers", told)
    given = context.params
    settings = read_settings(
        "farflung controllers",
        ALL,
        ControllerOptions(kubeconfig=given["kubeconfig"], context=given["context"]),
        FileOptions(given["conf"], given["policy_file"], given["kept_files"]),
        with_parent=given["with_parent"],
    )
    assert settings.loaded.configured.policy.filters == ("Flavor",)
    assert settings.kept.path == str(tmp_path / "scheduler-files.json")
    own = str(tmp_path / CONTROLLERS_KUBECONFIG)
    assert (settings.provider_access.kubeconfig, settings.provider_access.server) == (own, "")
    assert settings.all_access is not None
    assert settings.all_access.server == ""
