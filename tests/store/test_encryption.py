"""Secrets are not in the files, and are there for those who have the key."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from farflung.lib.envelopes import KeyRing, id_of, new_key
from farflung.store.base import ABSENT, Change, Compacted, Entry, Unusable
from farflung.store.encryption import (
    ESCAPED,
    HEAD_BYTES,
    SEALED,
    Encryption,
    ResourcePatterns,
    UnreadableValueError,
    key_of,
)
from farflung.store.sqlite import rekeying
from farflung.store.sqlite.files import connect_to_write
from farflung.store.sqlite.rows import sealed
from farflung.store.sqlite.store import SqliteStore

A, B, C = new_key(), new_key(), new_key()
SECRETS = "/core/secrets/"
MAPS = "/core/configmaps/"
PLANTED = b"correct horse battery staple"
PLAIN = Encryption()


def encryption(*keys: bytes, resources: str = "") -> Encryption:
    return Encryption(KeyRing(keys), ResourcePatterns(resources.split(",") if resources else ()))


def secret(name: object) -> str:
    return f"{SECRETS}root/default/{name}"


def config(name: object) -> str:
    return f"{MAPS}root/default/{name}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def files_with(path: Path, value: bytes) -> list[str]:
    """The files beside a store that have a value in them."""
    return sorted(file.name for file in path.parent.iterdir() if value in file.read_bytes())


async def opened(path: Path, *keys: bytes, resources: str = "", lines: int = 20_000) -> SqliteStore:
    how = encryption(*keys, resources=resources) if keys else PLAIN
    return await SqliteStore.open(path, how, clock=lambda: 0.0, lines=lines)


# --- which values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "encrypted", "plain"),
    [
        ("", ["/core/secrets/", "/core/secrets:8c1a/"], ["/core/configmaps/", "/example.org/secrets/"]),
        ("configmaps", ["/core/secrets/", "/core/configmaps/"], ["/core/events/"]),
        ("widgets.example.org", ["/core/secrets/", "/example.org/widgets/"], ["/core/widgets/", "/apps/widgets/"]),
        ("*.apps", ["/core/secrets/", "/apps/deployments/"], ["/core/configmaps/"]),
        ("*.", ["/core/secrets/", "/core/configmaps/"], ["/apps/deployments/"]),
        ("*.*", ["/core/secrets/", "/core/configmaps/", "/apps/deployments/"], []),
    ],
)
def test_resources_are_selected_as_by_kube_apiserver(patterns: str, encrypted: list[str], plain: list[str]) -> None:
    how = encryption(A, resources=patterns)
    for prefix in encrypted:
        assert how.encode(f"{prefix}root/a", b"value").startswith(SEALED), prefix
    for prefix in plain:
        assert how.encode(f"{prefix}root/a", b"value") == b"value", prefix


@pytest.mark.parametrize("pattern", ["", "Secrets", "*", "a b", "secrets.*", "a/b", "*.*.*"])
def test_what_is_no_resource_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a resource like"):
        ResourcePatterns([pattern])


@given(st.binary(max_size=100), st.sampled_from([secret("a"), config("a")]), st.booleans())
def test_any_value_is_read_as_it_was_written(value: bytes, key: str, encrypts: bool) -> None:
    how = encryption(A) if encrypts else PLAIN
    stored = how.encode(key, value)
    assert how.decode(key, stored) == value
    assert how.is_current(key, stored[:HEAD_BYTES])
    assert stored == value or stored.startswith((SEALED, ESCAPED))


def test_only_the_first_key_and_the_right_form_are_current() -> None:
    old, new = encryption(A), encryption(B, A)
    assert not new.is_current(secret("a"), old.encode(secret("a"), b"value"))
    assert not new.is_current(secret("a"), b"value")
    assert not PLAIN.is_current(secret("a"), old.encode(secret("a"), b"value"))
    assert not new.is_current(config("a"), encryption(B, resources="configmaps").encode(config("a"), b"value"))
    assert key_of(old.encode(secret("a"), b"value")) == id_of(A)


def test_a_value_that_was_moved_to_another_key_cannot_be_read() -> None:
    how = encryption(A)
    with pytest.raises(UnreadableValueError, match="cannot be decrypted"):
        how.decode(secret("b"), how.encode(secret("a"), b"value"))


# --- in the files ---------------------------------------------------------------------------------


async def test_no_file_has_a_secret_while_the_store_is_open_nor_after(path: Path) -> None:
    store = await opened(path, A)
    entry = await store.put(secret("a"), PLANTED, expect=ABSENT)
    large = await store.put(secret("large"), PLANTED * 1000, expect=ABSENT)
    await store.put(secret("a"), PLANTED + b"!", expect=entry.revision)
    await store.delete(secret("large"), expect=large.revision)
    await store.put(config("a"), b"not a secret", expect=ABSENT)
    assert files_with(path, b"not a secret") == ["store.db-wal"]
    assert files_with(path, PLANTED) == []
    await store.close()
    assert files_with(path, b"not a secret") == ["store.db"]
    assert files_with(path, PLANTED) == []


@pytest.mark.parametrize("lines", [0, 20_000])
async def test_values_and_their_history_are_read_with_the_key(path: Path, lines: int) -> None:
    store = await opened(path, A)
    first = await store.put(secret("a"), b"1", expect=ABSENT)
    await store.put(secret("a"), b"2", expect=first.revision)
    await store.close()
    store = await opened(path, A, lines=lines)
    entry = store.get(secret("a"))
    assert entry is not None and entry.value == b"2"
    changes = await store.changes(SECRETS, since=1, until=3)
    assert [change.entry.value for change in changes if change.entry] == [b"1", b"2"]
    page = await store.list_at(SECRETS, first.revision)
    assert [entry.value for entry in page.entries] == [b"1"]
    await store.close()


async def test_a_store_without_its_key_is_refused_and_not_changed(path: Path) -> None:
    store = await opened(path, A)
    await store.put(secret("a"), b"1", expect=ABSENT)
    await store.close()
    before = path.read_bytes()
    for keys in ((), (B,), (B, C)):
        with pytest.raises(Unusable) as refused:
            await opened(path, *keys)
        assert str(refused.value) == (
            f"{path} has values that are encrypted with the key {id_of(A)}, which the key file lacks: "
            "restore that file, or name the right one with --encryption-key-file"
        )
    assert path.read_bytes() == before


async def test_a_key_is_needed_even_before_the_first_secret(path: Path) -> None:
    """A hub that starts with a wrong key would otherwise work until its first Secret."""
    await (await opened(path, A)).close()
    with pytest.raises(Unusable, match=id_of(A)):
        await opened(path, B)


async def test_values_that_were_exchanged_in_the_file_are_refused(path: Path) -> None:
    store = await opened(path, A)
    await store.put(secret("mine"), b"mine", expect=ABSENT)
    await store.put(secret("yours"), b"yours", expect=ABSENT)
    await store.close()
    with closing(apsw.Connection(str(path))) as connection:
        [(stored,)] = connection.execute("select val from kv where rv = 3").fetchall()
        row = sealed(2, secret("mine"), 0, 0, stored)
        connection.execute("update kv set val = ?, sum = ? where rv = 2", row[4:])
    with pytest.raises(Unusable, match=rf"revision 2 of {secret('mine')} cannot be decrypted"):
        await opened(path, A)


async def test_an_exchanged_value_of_the_history_is_compacted(path: Path) -> None:
    store = await opened(path, A)
    entry = await store.put(secret("a"), b"1", expect=ABSENT)
    await store.put(secret("a"), b"2", expect=entry.revision)
    await store.close()
    with closing(apsw.Connection(str(path))) as connection:
        row = sealed(2, secret("a"), 0, 0, encryption(A).encode(secret("b"), b"1"))
        connection.execute("update kv set val = ?, sum = ? where rv = 2", row[4:])
    store = await opened(path, A, lines=0)
    with pytest.raises(Compacted):
        await store.changes(SECRETS, since=1, until=3)
    await store.close()


# --- new keys -------------------------------------------------------------------------------------


def keys_in(path: Path) -> set[str]:
    with closing(apsw.Connection(str(path))) as connection:
        return {key_of(stored) for (stored,) in connection.execute("select val from kv where val is not null")}


def noted(path: Path) -> set[str]:
    with closing(apsw.Connection(str(path))) as connection:
        return set(rekeying.read_state(connection).keys)


async def test_a_new_key_encrypts_every_value_again_without_new_revisions(path: Path) -> None:
    store = await opened(path, A)
    await asyncio.gather(*(store.put(secret(number), PLANTED, expect=ABSENT) for number in range(700)))
    newest = store.revision
    heard: list[Change] = []
    subscription = store.subscribe(SECRETS, heard.extend)
    await store.change_encryption(encryption(B, A))
    assert await store.rewrite_values()
    assert not await store.rewrite_values()
    assert (store.revision, heard) == (newest, [])
    subscription.cancel()
    assert noted(path) == {id_of(B)}
    await store.change_encryption(encryption(B))
    changes = await store.changes(SECRETS, since=1, until=newest)
    assert len(changes) == 700
    await store.close()
    assert keys_in(path) == {id_of(B)}
    store = await opened(path, B)
    assert [entry.value for entry in store.list(SECRETS).entries] == [PLANTED] * 700
    await store.close()


async def test_a_key_that_values_still_need_cannot_be_taken_away(path: Path) -> None:
    store = await opened(path, A)
    await store.put(secret("a"), b"1", expect=ABSENT)
    with pytest.raises(Unusable, match=id_of(A)):
        await store.change_encryption(encryption(B))
    await store.change_encryption(encryption(B, A))
    with pytest.raises(Unusable, match=id_of(A)):
        await store.change_encryption(encryption(B))
    await store.put(secret("b"), b"2", expect=ABSENT)
    await store.close()
    with pytest.raises(Unusable, match=id_of(A)):
        await opened(path, B)
    await (await opened(path, A, B)).close()


async def test_a_store_that_was_never_encrypted_becomes_so_without_a_trace(path: Path) -> None:
    store = await opened(path)
    entry = await store.put(secret("a"), PLANTED, expect=ABSENT)
    large = await store.put(secret("large"), PLANTED * 1000, expect=ABSENT)
    await store.put(secret("a"), PLANTED + b"!", expect=entry.revision)
    await store.delete(secret("large"), expect=large.revision)
    assert "store.db-wal" in files_with(path, PLANTED)
    await store.close()
    store = await opened(path, A)
    assert not await store.rewrite_values()
    assert files_with(path, PLANTED) == []
    await store.close()
    assert files_with(path, PLANTED) == []


async def test_more_resources_are_encrypted_from_the_next_start_on(path: Path) -> None:
    store = await opened(path, A)
    entries = await asyncio.gather(*(store.put(config(number), PLANTED, expect=ABSENT) for number in range(300)))
    await asyncio.gather(*(store.delete(entry.key, expect=entry.revision) for entry in entries[::3]))
    await store.compact(store.revision - 50)
    await store.close()
    assert files_with(path, PLANTED) == ["store.db"]
    for resources, expected in (("configmaps", []), ("", ["store.db"])):
        store = await opened(path, A, resources=resources)
        assert files_with(path, PLANTED) == expected
        assert {entry.value for entry in store.list(MAPS).entries} == {PLANTED}
        await store.close()


async def test_a_damaged_revision_of_the_history_does_not_stop_the_rewriting(path: Path) -> None:
    store = await opened(path, A)
    entry = await store.put(secret("a"), b"1", expect=ABSENT)
    await store.put(secret("a"), b"2", expect=entry.revision)
    await store.close()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("update kv set sum = 0 where rv = 2")
    store = await opened(path, B, A)
    await store.rewrite_values()
    await store.close()
    store = await opened(path, B)
    entry_now = store.get(secret("a"))
    assert entry_now is not None and entry_now.value == b"2"
    await store.close()


async def test_a_killed_process_is_continued(
    path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each transaction of the rewriting, with the log that the process leaves."""
    monkeypatch.setattr(rekeying, "STEP", 30)
    store = await opened(path, A)
    await asyncio.gather(*(store.put(secret(number), b"%d" % number, expect=ABSENT) for number in range(60)))
    await store.close()
    killed = tmp_path_factory.mktemp("killed")
    with closing(connect_to_write(path)) as connection:
        rekeying.begin(connection, encryption(B, A))
        stages = 0
        done = False
        while not done:
            for file in path.parent.iterdir():
                shutil.copy(file, killed)
            copy = killed / path.name
            with pytest.raises(Unusable, match=id_of(A)):
                await opened(copy, B)
            again = await opened(copy, B, A)
            assert len(again.list(SECRETS).entries) == 60
            await again.put(secret("new"), b"1", expect=ABSENT)
            await again.rewrite_values()
            await again.close()
            assert keys_in(copy) == {id_of(B)}
            await (await opened(copy, B)).close()
            done = rekeying.rewrite(connection, encryption(B, A))
            stages += 1
    assert stages == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("keys"), st.sampled_from(["A", "AB", "BA", "B", "CB", "C", "AC", "BCA"])),
        st.tuples(st.just("resources"), st.sampled_from(["", "configmaps"])),
        st.tuples(st.just("rewrite"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=examples(40), deadline=None)
def test_no_history_of_keys_loses_a_value(steps: list[tuple[str, int | str]]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(walk(Path(directory, "store.db"), steps))


async def walk(path: Path, steps: list[tuple[str, int | str]]) -> None:
    """Values in a dict are the twin.  A change of keys is refused if, and only if, a needed key is missing.  A change
    of resources rewrites the file."""
    keys, resources = "A", ""
    needed = {"A"}
    expected: dict[str, bytes] = {}
    by_name = {"A": A, "B": B, "C": C}

    def how() -> Encryption:
        return encryption(*(by_name[one] for one in keys), resources=resources)

    store = await SqliteStore.open(path, how(), clock=lambda: 0.0)
    for number, (step, value) in enumerate(steps):
        if step == "put" or step == "delete":
            key = (secret if int(value) % 2 else config)(value)
            entry = store.get(key)
            if step == "put":
                await store.put(key, b"%d" % number, expect=entry.revision if entry else ABSENT)
                expected[key] = b"%d" % number
            elif entry:
                await store.delete(key, expect=entry.revision)
                del expected[key]
        elif step == "keys":
            before, keys = keys, str(value)
            if needed <= set(keys):
                await store.change_encryption(how())
                needed.add(keys[0])
            else:
                with pytest.raises(Unusable):
                    await store.change_encryption(how())
                keys = before
        elif step == "rewrite":
            await store.rewrite_values()
            needed = {keys[0]}
        else:
            if step == "resources" and value != resources:
                resources, needed = str(value), {keys[0]}
            await store.close()
            store = await SqliteStore.open(path, how(), clock=lambda: 0.0)
        found: list[Entry] = [*store.list(SECRETS).entries, *store.list(MAPS).entries]
        assert {entry.key: entry.value for entry in found} == expected
    assert noted(path) == {id_of(by_name[one]) for one in needed}
    await store.close()
