"""`farflung syncer`: what it refuses, in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from farflung.cli.main import main
from farflung.cli.settings import SyncerSettings
from farflung.cli.syncer import WrongMailbox, check_target
from farflung.syncer.manifest import identity
from farflung.syncer.tokens import ServiceAccountToken, TokenSubject


def token(account: str) -> ServiceAccountToken:
    return ServiceAccountToken("…", TokenSubject("mailbox", "default", account), 0.0, 1.0)


def test_the_name_of_another_synctarget_is_refused() -> None:
    settings = SyncerSettings(from_kubeconfig="mailbox", name="florin", uid="u")
    for right in (token(identity("florin", "u")), token("of-a-user"), None):
        check_target(settings, right)
    for wrong in (identity("guilder", "u"), identity("florin", "v")):
        with pytest.raises(WrongMailbox) as told:
            check_target(settings, token(wrong))
        assert str(told.value) == (
            f"mailbox is for the syncer {wrong}, which is not that of the SyncTarget florin with UID u; correct "
            "--sync-target-name and --sync-target-uid, or run `farflung syncer-gen florin --syncer-kubeconfig FILE`, "
            "which prints both"
        )


def test_outside_of_a_pod_the_cluster_has_to_be_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    named = ["--from-kubeconfig", "none", "--sync-target-name", "a", "--sync-target-uid", "b"]
    ended = CliRunner().invoke(main, ["syncer", *named, "--state-directory", str(tmp_path / "state")])
    assert ended.exit_code == 1
    said = ended.output + capfd.readouterr().err
    assert "farflung syncer: --to-kubeconfig is required outside of a Pod" in said
    assert not (tmp_path / "state").exists()


def test_who_has_no_way_to_the_mailbox_yet_is_told_how_to_get_one(tmp_path: Path) -> None:
    edge = tmp_path / "edge"
    ways = {"clusters": [{"name": "e", "cluster": {"server": "http://127.0.0.1:1"}}]}
    contexts = [{"name": "e", "context": {"cluster": "e"}}]
    edge.write_text(yaml.safe_dump({**ways, "contexts": contexts}))
    named = ["--from-kubeconfig", "mailbox", "--sync-target-name", "florin", "--sync-target-uid", "u"]
    ended = CliRunner().invoke(main, ["syncer", *named, "--to-kubeconfig", str(edge), "--to-context", "e"])
    assert ended.exit_code == 1
    assert ended.output == (
        "farflung syncer: mailbox not found; `farflung syncer-gen florin --syncer-kubeconfig mailbox` creates it\n"
    )
