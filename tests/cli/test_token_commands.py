"""`farflung token`: hand out, list, revoke."""

from __future__ import annotations

import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from farflung.cli.credentials import ADMIN, PLAIN, ensure_tokens, url_of, write_kubeconfig
from farflung.cli.main import main
from farflung.edge import contexts as edge_contexts
from farflung.hub.auth.static_tokens import TokenRecord, read_tokens, token_hash

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def ensure_admin_token(directory: Path) -> str:
    return ensure_tokens(directory, [PLAIN], NOW)[ADMIN]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """As a hub leaves it."""
    ensure_admin_token(tmp_path)
    return tmp_path


def token(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["token", *arguments, "--root-directory", str(directory)])


def created(directory: Path, *arguments: str) -> str:
    result = token(directory, "create", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.removesuffix("\n")


def handed_out(directory: Path, secret: str) -> TokenRecord:
    return read_tokens(directory / "tokens.json")[token_hash(secret)]


def test_a_new_token_is_printed_once_and_kept_as_a_hash(directory: Path) -> None:
    secret = created(directory, "ann", "--group", "dev", "--group", "ops")
    assert re.fullmatch(r"[\w-]{43}", secret)
    kept = handed_out(directory, secret)
    assert (kept.name, kept.groups) == ("ann", ("dev", "ops"))
    assert kept.created is not None
    assert kept.expires == kept.created + timedelta(days=365)
    path = directory / "tokens.json"
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in token(directory, "list").output


@pytest.mark.parametrize(
    ("text", "lasting"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_token_may_expire(directory: Path, text: str, lasting: timedelta) -> None:
    kept = handed_out(directory, created(directory, "ann", "--expires", text))
    assert kept.created is not None
    assert kept.expires == kept.created + lasting


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1.5h", "٣d", "1h30m"])
def test_what_is_no_duration_is_refused(directory: Path, text: str) -> None:
    result = token(directory, "create", "ann", "--expires", text)
    assert result.exit_code == 2
    assert "use a number with s, m, h, d or w, like 30d" in result.output


@pytest.mark.parametrize(
    ("text", "why"), [("0d", "too short"), ("99999999d", "too long"), ("999999999999999999w", "too long")]
)
def test_a_duration_that_makes_no_sense_is_refused(directory: Path, text: str, why: str) -> None:
    result = token(directory, "create", "ann", "--expires", text)
    assert result.exit_code == 2
    assert f"Invalid value for '--expires': '{text}' is {why}" in result.output


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J"])
def test_what_is_no_name_is_refused(directory: Path, name: str) -> None:
    for arguments in ([name], ["ann", "--group", name]):
        result = token(directory, "create", *arguments)
        assert result.exit_code == 1
        assert "is not a valid name of a user or a group" in result.output


def test_a_kubeconfig_has_the_token_and_what_the_administrators_says_about_the_hub(directory: Path) -> None:
    write_kubeconfig(directory, url_of("0.0.0.0", 7443), b"the authority", "the administrator's token")
    config = yaml.safe_load(created(directory, "ann", "-o", "kubeconfig"))
    admins = yaml.safe_load((directory / "admin.kubeconfig").read_text())
    assert config["clusters"] == admins["clusters"]
    assert config["contexts"] == [{"name": "root", "context": {"cluster": "root", "user": "ann"}}]
    (user,) = config["users"]
    assert handed_out(directory, user["user"]["token"]).name == "ann"


def test_contexts_of_edges_stay_in_the_kubeconfig_of_a_hub_with_one_api(directory: Path) -> None:
    edge_contexts.add(directory / "admin.kubeconfig", "kind-florin", {"server": "https://127.0.0.1:1"}, {"token": "x"})
    write_kubeconfig(directory, url_of("127.0.0.1", 7443), b"the authority", "the administrator's token")
    config = yaml.safe_load((directory / "admin.kubeconfig").read_text())
    assert [one["name"] for one in config["contexts"]] == ["root", "kind-florin"]
    assert [one["name"] for one in config["users"]] == ["farflung-admin", "kind-florin"]
    assert config["current-context"] == "root"


def test_without_a_kubeconfig_there_is_none_to_go_by_and_no_token_is_made(directory: Path) -> None:
    before = read_tokens(directory / "tokens.json")
    result = token(directory, "create", "ann", "-o", "kubeconfig")
    assert result.exit_code == 1
    assert "has no URL of the hub" in result.output
    assert read_tokens(directory / "tokens.json") == before


def test_tokens_are_listed_by_an_id_and_revoked_by_it_or_by_name(directory: Path) -> None:
    first, second = (
        created(directory, "ann", "--expires", "never"),
        created(directory, "ann", "--group", "dev", "--expires", "1d"),
    )
    other = created(directory, "bob")
    rows = [re.split(r"\s{2,}", line) for line in token(directory, "list").output.splitlines()]
    assert rows[0] == ["ID", "NAME", "GROUPS", "AGE", "EXPIRES"]
    identifiers = {token_hash(secret)[:12]: secret for secret in (first, second, other)}
    assert {row[0] for row in rows[1:]} >= identifiers.keys()
    assert [row[1] for row in rows[1:]] == ["ann", "ann", "bob", "farflung-admin"]
    by_id = {row[0]: row for row in rows}
    assert by_id[token_hash(second)[:12]][2] == "dev"
    assert by_id[token_hash(second)[:12]][4].startswith("in ")
    assert by_id[token_hash(first)[:12]][4] == "never"

    assert token(directory, "revoke", token_hash(first)[:12]).output == "1 token revoked\n"
    kept = read_tokens(directory / "tokens.json")
    assert token_hash(first) not in kept
    assert token_hash(second) in kept
    assert token(directory, "revoke", "ann", "bob").output == "2 tokens revoked\n"
    assert [kept.name for kept in read_tokens(directory / "tokens.json").values()] == ["farflung-admin"]


def test_revoking_what_is_not_there_revokes_nothing(directory: Path) -> None:
    created(directory, "ann")
    result = token(directory, "revoke", "ann", "nobody")
    assert result.exit_code == 1
    assert result.output == "Error: no token has the id nobody, and no user nobody has a token\n"
    assert len(read_tokens(directory / "tokens.json")) == 2


@pytest.mark.parametrize("arguments", [["create", "ann"], ["list"], ["revoke", "ann"]])
def test_a_directory_without_a_hub_is_left_alone(tmp_path: Path, arguments: list[str]) -> None:
    result = token(tmp_path / "nowhere", *arguments)
    assert result.exit_code == 1
    assert "is not the directory of a hub; start a hub in it, or select another --root-directory" in result.output
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_file_is_told_and_kept(directory: Path) -> None:
    (directory / "tokens.json").write_text("half a fi")
    result = token(directory, "create", "ann")
    assert result.exit_code == 1
    assert "is damaged" in result.output
    assert (directory / "tokens.json").read_text() == "half a fi"


def test_the_administrators_token_is_replaced_after_it_was_revoked(directory: Path) -> None:
    first = ensure_admin_token(directory)
    write_kubeconfig(directory, url_of("127.0.0.1", 1), b"", first)
    assert ensure_admin_token(directory) == first
    assert token(directory, "revoke", "farflung-admin").exit_code == 0
    second = ensure_admin_token(directory)
    assert second != first
    assert [kept.name for kept in read_tokens(directory / "tokens.json").values()] == ["farflung-admin"]
