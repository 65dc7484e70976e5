"""`farflung rekey` without a hub; with one, tests/e2e/test_encryption.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from key_commands import arguments_of, write_command

from farflung.cli.main import main
from farflung.lib.envelopes import KeyRing
from farflung.lib.key_file import EncryptionKey, KeyFile
from farflung.store.base import ABSENT
from farflung.store.encryption import Encryption, ResourcePatterns
from farflung.store.sqlite import rekeying
from farflung.store.sqlite.files import connect_to_write
from farflung.store.sqlite.store import SqliteStore

SECRETS = "/core/secrets/"


def encryption(keys: Sequence[EncryptionKey]) -> Encryption:
    return Encryption(KeyRing([one.key for one in keys]), ResourcePatterns(["configmaps"]))


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """Of a directory as a stopped hub leaves it."""
    keys = KeyFile(tmp_path / "encryption.key")
    keys.create()
    asyncio.run(write(tmp_path / "hub.sqlite", keys))
    return keys


async def write(path: Path, keys: KeyFile) -> None:
    store = await SqliteStore.open(path, encryption(keys.read()))
    for number in range(300):
        await store.put(f"{SECRETS}root/default/{number}", b"%d" % number, expect=ABSENT)
    await store.close()


async def read(path: Path, keys: KeyFile) -> list[bytes]:
    store = await SqliteStore.open(path, encryption(keys.read()))
    found = [entry.value for entry in store.list(SECRETS).entries]
    await store.close()
    return found


def rekey(keys: KeyFile, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["rekey", "--root-directory", str(keys.path.parent), *arguments])


def check(keys: KeyFile) -> None:
    """The only key is the only one that values need, and the resources are the same."""
    [key] = keys.read()
    path = keys.path.with_name("hub.sqlite")
    assert asyncio.run(read(path, keys)) == sorted(b"%d" % number for number in range(300))
    with closing(connect_to_write(path)) as connection:
        state = rekeying.read_state(connection)
    assert (state.keys, state.resources, state.is_complete) == ({key.id}, "configmaps,secrets", True)


def test_the_store_of_a_stopped_hub_gets_a_new_key(keys: KeyFile) -> None:
    [old] = keys.read()
    result = rekey(keys)
    assert result.exit_code == 0, result.output
    [new] = keys.read()
    assert new.id != old.id
    assert result.stdout == (
        f"every value is encrypted with the key {new.id}\n"
        f"removed from {keys.path}: {old.id}, which older backups need\n"
    )
    check(keys)


def test_an_interrupted_command_is_continued_without_another_key(keys: KeyFile) -> None:
    both = [keys.new_key(), *keys.read()]
    keys.write(both)
    path = keys.path.with_name("hub.sqlite")
    for steps in (0, 1, 1):
        with closing(connect_to_write(path)) as connection:
            rekeying.begin(connection, encryption(both))
            for _ in range(steps):
                rekeying.rewrite(connection, encryption(both))
        result = rekey(keys)
        assert result.exit_code == 0, result.output
        assert keys.read() == both[:1]
        check(keys)
        keys.write(both)


def test_a_plain_key_is_replaced_by_a_wrapped_one(keys: KeyFile, tmp_path: Path) -> None:
    command = write_command(tmp_path / "kms")
    result = rekey(keys, "--encryption-command", str(command))
    assert result.exit_code == 0, result.output
    wrapped = KeyFile(keys.path, str(command))
    [key] = wrapped.read()
    assert key.line.startswith("wrapped ")
    assert set(arguments_of(command)) == {"wrap", "unwrap"}
    check(wrapped)
    assert rekey(keys).stderr == f"Error: {keys.path} has a wrapped key: --encryption-command is required\n"


def test_a_wrong_key_file_is_refused_and_not_changed(keys: KeyFile, tmp_path: Path) -> None:
    other = KeyFile(tmp_path / "other.key")
    other.create()
    before = other.path.read_bytes()
    result = rekey(keys, "--encryption-key-file", str(other.path))
    assert result.exit_code == 1
    assert f"values that are encrypted with the key {keys.read()[0].id}, which the key file lacks" in result.output
    assert other.path.read_bytes() == before
    check(keys)


def test_a_missing_key_file_is_named(keys: KeyFile) -> None:
    keys.path.rename(keys.path.with_name("moved.key"))
    result = rekey(keys)
    assert (result.exit_code, result.stderr) == (1, f"Error: cannot read {keys.path}: no such file or directory\n")


def test_a_directory_without_a_store_is_named(tmp_path: Path) -> None:
    result = rekey(KeyFile(tmp_path / "encryption.key"))
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path} has no store of a hub; select another --root-directory\n"
