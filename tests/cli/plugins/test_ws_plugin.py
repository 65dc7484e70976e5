"""Every form of `kubectl ws`, against a server that answers as kcp does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fake_workspaces import FakeHub, Server
from plugin_runner import Outcome, Plugin

from farflung.cli.plugins import session, workspace

NOTE = (
    "Note: 'kubectl ws' now matches 'cd' semantics: go to home workspace. 'kubectl ws -' to go back. "
    "'kubectl ws .' to print current workspace.\n"
)


def printed(text: str) -> Outcome:
    return Outcome(0, text, "")


def refused(text: str) -> Outcome:
    return Outcome(1, "", f"Error: {text}\n")


def now_in(path: str, kind: str = "") -> Outcome:
    return printed(f'Current workspace is "{path}"' + (f" (type {kind}).\n" if kind else ".\n"))


def servers(path: Path) -> dict[str, str]:
    document = yaml.safe_load(path.read_text())
    return {item["name"]: item["cluster"]["server"] for item in document["clusters"]}


def use_context(path: Path, name: str) -> None:
    document = yaml.safe_load(path.read_text())
    document["current-context"] = name
    path.write_text(yaml.safe_dump(document))


@pytest.mark.parametrize("word", [".", "current"])
def test_the_current_workspace_is_told_without_asking_anybody(
    word: str, ws: Plugin, kubeconfig: Path, hub: FakeHub
) -> None:
    assert ws(word) == now_in("root")
    assert ws(word, "--short") == printed("root\n")
    assert hub.requests == []


def test_a_server_that_has_no_workspaces_is_told_by_its_url(ws: Plugin, kubeconfig: Path, server: Server) -> None:
    use_context(kubeconfig, "base")
    assert ws(".") == printed(f'Current workspace is the URL "{server.url}".\n')
    assert ws(".", "--short") == printed("")
    for where in ("root", "root:a", "nosuch", ".."):
        assert ws(where) == refused(f'current URL "{server.url}" does not point to a workspace')
    assert ws("~") == now_in("kvdk2spgmbix")


def test_there_and_back_again(ws: Plugin, kubeconfig: Path, server: Server) -> None:
    assert ws("-") == refused("no previous workspace found in kubeconfig")
    assert ws("root:compute") == now_in("root:compute")
    assert ws("-") == now_in("root")
    assert ws("-") == now_in("root:compute")
    assert ws("..") == now_in("root")
    assert ws("compute") == now_in("root:compute", "root:universal")
    assert servers(kubeconfig) == {
        "base": server.url,
        "root": f"{server.url}/clusters/root",
        "workspace.kcp.io/current": f"{server.url}/clusters/root:compute",
        "workspace.kcp.io/previous": f"{server.url}/clusters/root",
    }
    assert ws("use", "root") == now_in("root")
    assert ws("use", "compute", "--short") == printed("root:compute\n")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("..", 'current workspace is "root"'),
        ("nosuch", 'workspaces.tenancy.kcp.io "nosuch" not found'),
        ("root:nosuch", 'workspace "root:nosuch" not found'),
        ("nosuch:x", "access to workspace nosuch:x denied: it does not exist, or you may not enter it"),
        ("root:nosuch:deeper", 'workspace "root:nosuch" not found'),
        ("Bad_Name", "invalid workspace name format: Bad_Name"),
        ("root:", "invalid workspace name format: root:"),
        (":root", "invalid workspace name format: :root"),
        ("root::x", "invalid workspace name format: root::x"),
        ("../x", "invalid workspace name format: ../x"),
    ],
)
def test_what_is_not_there_is_refused_and_nothing_changes(where: str, words: str, ws: Plugin, kubeconfig: Path) -> None:
    before = kubeconfig.read_bytes()
    assert ws(where) == refused(words)
    assert kubeconfig.read_bytes() == before


def test_a_workspace_that_is_not_ready_cannot_be_entered(ws: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    hub.add("root", "slow", "root:organization", "Scheduling")
    assert ws("slow") == refused('workspace "slow" is not ready')


def test_system_workspaces_are_entered_unseen(ws: Plugin, kubeconfig: Path) -> None:
    assert ws("system:admin") == now_in("system:admin")


def test_home_is_found_and_the_host_stays_the_one_that_was_used(
    ws: Plugin, kubeconfig: Path, server: Server, hub: FakeHub, tmp_path: Path
) -> None:
    hub.home_polls = 2
    assert ws("~") == now_in("kvdk2spgmbix")
    assert servers(kubeconfig)["workspace.kcp.io/current"] == f"{server.url}/clusters/kvdk2spgmbix"
    assert ws("..") == refused('current workspace "kvdk2spgmbix" has no parent')
    assert ws() == printed('Current workspace is "kvdk2spgmbix".\n' + NOTE)
    assert ws("--short") == printed("kvdk2spgmbix\n" + NOTE)
    assert ws(str(tmp_path)) == now_in("kvdk2spgmbix")


def test_a_workspace_is_created_and_entered(ws: Plugin, kubeconfig: Path) -> None:
    made = (
        'Workspace "a1" (type root:organization) created. Waiting for it to be ready...\n'
        'Workspace "a1" (type root:organization) is ready to use.\n'
    )
    assert ws("create", "a1", "--enter") == printed(made + 'Current workspace is "root:a1" (type root:organization).\n')
    assert ws("create", "c1", "--type", "root:universal") == printed(
        'Workspace "c1" (type root:universal) created. Waiting for it to be ready...\n'
        'Workspace "c1" (type root:universal) is ready to use.\n'
    )
    assert ws(".") == now_in("root:a1")


def test_creating_waits_until_the_workspace_is_ready(
    ws: Plugin, kubeconfig: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "POLL_INTERVAL", 0.001)
    hub.polls_until_ready = 3
    assert ws("create", "a1").code == 0
    assert hub.polls_until_ready == 0
    hub.polls_until_ready = 10**9
    monkeypatch.setattr(workspace, "READY_TIMEOUT", 0.01)
    assert ws("create", "a2") == Outcome(
        1,
        'Workspace "a2" (type root:organization) created. Waiting for it to be ready...\n',
        "Error: timed out waiting for the condition\n",
    )


def test_an_existing_workspace_is_refused_or_taken_as_it_is(ws: Plugin, kubeconfig: Path) -> None:
    exists = (
        'Workspace "compute" (type root:universal) already exists.\n'
        'Workspace "compute" (type root:universal) is ready to use.\n'
    )
    assert ws("create", "compute") == refused('workspaces.tenancy.kcp.io "compute" already exists')
    assert ws("create", "compute", "--ignore-existing") == printed(exists)
    assert ws("create", "compute", "--ignore-existing", "--type=root:universal") == printed(exists)
    assert ws("create", "compute", "--ignore-existing", "--type=root:team") == refused(
        'workspace "compute" cannot be created with type root:team, '
        "it already exists with different type root:universal"
    )
    assert ws("create", "compute", "--ignore-existing", "--type=universal") == refused(
        "--ignore-existing must not be used with non-absolute type path"
    )
    assert ws("create", "compute", "--ignore-existing", "--enter") == printed(
        exists + 'Current workspace is "root:compute" (type root:universal).\n'
    )


def test_an_existing_workspace_that_is_to_be_entered_is_entered(ws: Plugin, kubeconfig: Path) -> None:
    assert ws("create", "compute", "--enter") == Outcome(
        1,
        'Current workspace is "root:compute" (type root:universal).\n',
        'Error: workspaces.tenancy.kcp.io "compute" already exists; you are in it now, and "kubectl ws root:compute" '
        "enters it\n",
    )
    assert ws(".") == now_in("root:compute")
    ws("root")
    assert ws("create", "compute", "--enter", "--type=root:team") == refused(
        'workspaces.tenancy.kcp.io "compute" already exists'
    )
    assert ws(".") == now_in("root")


def test_what_the_server_refuses_to_create_is_told_in_its_words(ws: Plugin, kubeconfig: Path) -> None:
    assert ws("create", "x1", "--type", "nosuch") == refused(
        'workspaces.tenancy.kcp.io "x1" is forbidden: workspace type "nosuch" cannot be resolved'
    )
    assert ws("create") == refused("accepts 1 arg(s), received 0")
    assert ws("create", "a", "b") == refused("accepts 1 arg(s), received 2")


def test_a_location_selector_goes_along(ws: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    assert ws("create", "a1", "--location-selector", "name=root,cloud in (a, b),!old").code == 0
    assert hub.children["root"]["a1"]["spec"]["location"]["selector"] == {
        "matchLabels": {"name": "root"},
        "matchExpressions": [
            {"key": "cloud", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    assert ws("create", "a2", "--location-selector", "=x").err == 'Error: unable to parse the label selector "=x"\n'


def test_a_tree_shows_the_workspaces_below_the_current_one(ws: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    hub.add("root", "b1", "root:organization")
    for name in ("c3", "c1", "c2"):
        hub.add("root:b1", name, "root:universal")
    hub.add("root", "a1", "root:organization")
    hub.add("root:a1", "a1", "root:universal")
    assert ws("tree").out == (
        ".\n└── root\n    ├── a1\n    │__ └── a1\n    ├── b1\n    │__ ├── c1\n    │__ ├── c2\n    │__ └── c3\n"
        "    └── compute\n\n"
    ).replace("_", "\N{NO-BREAK SPACE}")
    assert " ├── root:b1:c2\n" in ws("tree", "-f").out
    ws("root:a1")
    assert ws("tree") == printed(".\n└── a1\n    └── a1\n\n")


def test_a_tree_leaves_out_what_one_may_not_see(ws: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    del hub.children["root:compute"]
    assert ws("tree") == printed(".\n└── root\n    └── compute\n\n")


def test_a_context_is_made_for_a_workspace(ws: Plugin, kubeconfig: Path, server: Server) -> None:
    ws("root:compute")
    assert ws("create-context") == printed('Created context "root:compute" and switched to it.\n')
    assert ws("create-context") == refused(
        'context "root:compute" already exists in kubeconfig, use --overwrite to update it'
    )
    assert ws("create-context", "--overwrite") == printed('Updated context "root:compute".\n')
    assert ws("create-context", "mine") == printed('Created context "mine" and switched to it.\n')
    assert ws("create-context", "root:compute", "--overwrite") == printed(
        'Updated context "root:compute" and switched to it.\n'
    )
    assert ws(".") == now_in("root:compute")
    assert servers(kubeconfig)["mine"] == f"{server.url}/clusters/root:compute"


def test_claims_without_an_answer_are_pointed_out(ws: Plugin, kubeconfig: Path, hub: FakeHub) -> None:
    configmaps, deployments = {"resource": "configmaps", "all": True}, {"group": "apps", "resource": "deployments"}
    binding = {
        "metadata": {"name": "edge.kcp.io"},
        "spec": {"permissionClaims": [deployments | {"state": "Accepted"}]},
        "status": {"exportPermissionClaims": [configmaps, deployments]},
    }
    hub.bindings["root:compute"] = {"edge.kcp.io": binding}
    assert ws("compute") == printed(
        "Warning: claim for configmaps exported but not specified on APIBinding edge.kcp.io\n"
        "Add this claim to the APIBinding's Spec.\n"
        "Warning: claim for configmaps specified on APIBinding edge.kcp.io but not accepted or rejected.\n"
        'Current workspace is "root:compute" (type root:universal).\n'
    )
    binding["spec"]["permissionClaims"] = [configmaps]  # type: ignore[index]
    assert "claim for configmaps exported" not in ws("root:compute").out
    assert "claim for deployments.apps exported" in ws("root:compute").out


def test_another_file_is_read_and_written_if_the_flag_says_so(ws: Plugin, kubeconfig: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.kubeconfig"
    other.write_text(kubeconfig.read_text())
    before = kubeconfig.read_text()
    assert ws("compute", "--kubeconfig", str(other)) == now_in("root:compute", "root:universal")
    assert kubeconfig.read_text() == before
    assert ws(".", f"--kubeconfig={other}") == now_in("root:compute")
    assert ws(".", "--kubeconfig", "nosuch") == refused(
        "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
    )


def test_flags_override_what_the_kubeconfig_says(ws: Plugin, kubeconfig: Path, server: Server) -> None:
    assert ws(".", "--server", f"{server.url}/clusters/root:zzz") == now_in("root:zzz")
    assert ws(".", "--context", "base") == printed(f'Current workspace is the URL "{server.url}".\n')
    assert ws(".", "--context", "nosuch") == refused('context "nosuch" does not exist')
    assert ws(".", "--user", "nosuch") == refused('auth info "nosuch" does not exist')
    assert ws("root:compute", "--token", "nonsense") == refused("Unauthorized")


def test_the_namespace_of_a_context_stays(ws: Plugin, kubeconfig: Path) -> None:
    ws("root")
    document = yaml.safe_load(kubeconfig.read_text())
    for item in document["contexts"]:
        item["context"]["namespace"] = "foo"
    kubeconfig.write_text(yaml.safe_dump(document))
    ws("compute")
    contexts = {item["name"]: item["context"] for item in yaml.safe_load(kubeconfig.read_text())["contexts"]}
    assert contexts["workspace.kcp.io/current"]["namespace"] == "foo"


def test_too_many_words_bring_the_help(ws: Plugin, kubeconfig: Path) -> None:
    shown = ws("--help")
    assert shown.out.startswith("Manages KCP workspaces\n\nUsage:\n  workspace [create|create-context|use|current|")
    assert "  create-context Create a kubeconfig context for the current workspace\n" in shown.out
    for words in (("foo", "bar"), ("-h",), ("help",)):
        assert ws(*words) == shown
    assert ws("create", "--help") == ws("help", "create")
    assert "      --enter                      Immediately enter the created workspace\n" in ws("create", "-h").out
    assert ws("use").out.startswith("Uses the given workspace")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--nosuch",), "unknown flag: --nosuch"),
        (("-x",), "unknown shorthand flag: 'x' in -x"),
        (("create", "a", "--type"), "flag needs an argument: --type"),
        (("create", "a", "--short"), "unknown flag: --short"),
        (
            (".", "--short=maybe"),
            'invalid argument "maybe" for "--short" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    words: tuple[str, ...], complaint: str, ws: Plugin, kubeconfig: Path
) -> None:
    assert ws(*words) == refused(complaint)


def test_a_server_that_is_away_is_told_with_its_url(ws: Plugin, kubeconfig: Path) -> None:
    outcome = ws("nosuch", "--server", "https://127.0.0.1:1/clusters/root")
    assert outcome.code == 1
    assert outcome.err == (
        'Error: Get "https://127.0.0.1:1/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/nosuch": '
        "connection refused\n"
    )


def test_a_server_that_is_away_leaves_the_user_in_the_former_workspace(ws: Plugin, kubeconfig: Path) -> None:
    ws("root")
    document = yaml.safe_load(kubeconfig.read_text())
    for item in document["clusters"]:
        item["cluster"]["server"] = "https://127.0.0.1:1/clusters/root:former"
    kubeconfig.write_text(yaml.safe_dump(document))
    before = kubeconfig.read_text()
    path = "/apis/apis.kcp.io/v1alpha1/apibindings"
    for where, target in (("root", "root"), ("..", "root"), ("system:admin", "system:admin"), ("-", "root:former")):
        assert ws(where) == refused(f'Get "https://127.0.0.1:1/clusters/{target}{path}": connection refused')
    assert kubeconfig.read_text() == before


def test_the_program_imports_nothing_that_takes_long(kubeconfig: Path) -> None:
    script = (
        "import sys; sys.argv[1:] = ['root']\n"
        "from farflung.cli.plugins.workspace import main\n"
        "code = main()\n"
        "slow = {'asyncio', 'argparse', 'click', 'cryptography', 'dataclasses', 'inspect', 'logging', 'subprocess',\n"
        "        'tempfile', 'urllib.request', 'yaml', 'msgspec', 'orjson', 'farflung.hub', 'farflung.machinery'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == 'Current workspace is "root".\n[]\n'
