"""Tokens that somebody handed out, and the file they are in."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hub_harness import authority
from memory_store import MemoryStore

from farflung.http.certificates import CertificateHolder
from farflung.http.messages import Request
from farflung.hub.auth.authenticator import CACHED, Authenticator
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.service_account_tokens import ServiceAccountTokens
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.auth.static_tokens import StaticTokens, TokenRecord, read_tokens, token_hash, write_tokens
from farflung.hub.request.user import AUTHENTICATED, User
from farflung.machinery.errors import ApiError
from farflung.store.base import Unusable

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Door:
    """An authenticator, and a clock that goes when it is told to."""

    def __init__(self, path: Path) -> None:
        self.now = NOW
        accounts = ServiceAccountTokens(MemoryStore(), SigningKeys.new(), lambda: self.now, lambda: "uid")
        tokens = StaticTokens({token_hash("fixed"): User("hub")}, path)
        self.authenticator = Authenticator(
            tokens, accounts, CertificateHolder(authority()), CredentialUses(), lambda: self.now
        )

    def user(self, header: str) -> User | None:
        try:
            return self.authenticator.user_of(Request("GET", "/", headers={"authorization": header}))
        except ApiError as error:
            assert (error.code, error.message) == (401, "Unauthorized")
            return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def hand_out(path: Path, **tokens: TokenRecord) -> None:
    write_tokens(path, {token_hash(token): handed_out for token, handed_out in tokens.items()})


def test_the_file_has_hashes_and_is_for_its_owner_alone(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann", ("dev",), NOW, NOW + timedelta(days=1)))
    assert "secret" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_tokens(path) == {token_hash("secret"): TokenRecord("ann", ("dev",), NOW, NOW + timedelta(days=1))}


def test_a_user_with_a_token_is_authenticated(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann", ("dev",)), other=TokenRecord("bob", (AUTHENTICATED, "ops")))
    door = Door(path)
    assert door.user("Bearer secret") == User("ann", ("dev", AUTHENTICATED))
    assert door.user("Bearer other") == User("bob", (AUTHENTICATED, "ops"))
    assert door.user("Bearer fixed") == User("hub")


@pytest.mark.parametrize("spelling", ["bearer secret", "BEARER secret", "Bearer   secret  ", "Bearer secret"])
def test_a_header_may_be_spelled_in_several_ways(path: Path, spelling: str) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    assert Door(path).user(spelling) is not None


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "secret", "Basic secret", "Bearer Secret", "Bearer secret x", "Bearer \udcff"]
)
def test_what_is_not_a_known_token_is_refused(path: Path, header: str) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    assert Door(path).user(header) is None


def test_a_hash_is_no_token(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    assert Door(path).user(f"Bearer {token_hash('secret')}") is None


def test_a_token_ends_when_it_was_said_to(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann", (), NOW, NOW + timedelta(hours=1)))
    door = Door(path)
    door.now += timedelta(minutes=59)
    assert door.user("Bearer secret") is not None
    door.now += timedelta(minutes=1)
    assert door.user("Bearer secret") is None


def test_a_new_token_counts_at_once(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    door = Door(path)
    assert door.user("Bearer new") is None
    hand_out(path, secret=TokenRecord("ann"), new=TokenRecord("bob"))
    assert door.user("Bearer new") == User("bob", (AUTHENTICATED,))


def test_a_revoked_token_is_refused_when_the_file_was_looked_at_again(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann"), other=TokenRecord("bob"))
    door = Door(path)
    assert door.user("Bearer secret") is not None
    hand_out(path, other=TokenRecord("bob", ("ops",)))
    door.authenticator.refresh()
    assert door.user("Bearer secret") is None
    assert door.user("Bearer other") == User("bob", ("ops", AUTHENTICATED))
    assert door.user("Bearer fixed") is not None


def test_a_damaged_file_changes_nothing_until_it_is_mended(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    door = Door(path)
    path.write_text('{"half":')
    door.authenticator.refresh()
    door.authenticator.refresh()
    assert door.user("Bearer secret") is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"], "it is said once"
    assert "half" not in caplog.text
    hand_out(path, other=TokenRecord("bob"))
    door.authenticator.refresh()
    assert door.user("Bearer secret") is None


def test_a_damaged_file_keeps_a_hub_from_starting(path: Path) -> None:
    path.write_text("[]")
    with pytest.raises(Unusable, match=r"tokens\.json is damaged .*: restore it, or move it away"):
        StaticTokens({}, path)


def test_a_file_is_read_again_only_if_it_changed(path: Path) -> None:
    hand_out(path, secret=TokenRecord("ann"))
    tokens = StaticTokens({}, path)
    assert tokens.refresh() is None
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert tokens.refresh() is not None
    assert tokens.refresh() is None


def test_no_more_headers_are_remembered_than_there_is_room_for(path: Path) -> None:
    many = range(CACHED + 10)
    hand_out(path, **{f"secret{number}": TokenRecord(f"user{number}") for number in many})
    door = Door(path)
    for number in (*many, *many):
        assert door.user(f"Bearer secret{number}") == User(f"user{number}", (AUTHENTICATED,))
    assert len(door.authenticator._verified) == CACHED
