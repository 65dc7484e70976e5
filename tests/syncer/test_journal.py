"""What was written is there again after a restart, and what a disk changed is never taken for what was written."""

from __future__ import annotations

import base64
import lzma
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from killed_calls import killed_at

from farflung.lib.key_file import KeyFile
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.conversion import encoded
from farflung.syncer.journal import (
    KEY,
    MAX_ASIDE,
    Journal,
    JournalEntry,
    JournalError,
    WatchPosition,
    format_of,
    sealed,
)

CONFIGMAPS = GroupResource("", "configmaps")
DEPLOYMENTS = GroupResource("apps", "deployments")
SECRETS = GroupResource("", "secrets")


def entry(name: str = "a", resource: GroupResource = CONFIGMAPS, **more: Any) -> JournalEntry:
    defaults: dict[str, Any] = {
        "ref": ObjectRef(resource, "shop", name),
        "version": "v1",
        "kind": "ConfigMap",
        "namespaced": True,
        "uid": "u",
        "revision": 7,
        "incarnation": "m",
        "desired": b"{}",
    }
    return JournalEntry(**{**defaults, **more})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with closing(Journal.open(path)) as journal:
        yield journal


def reopened(path: Path) -> Journal:
    journal = Journal.open(path)
    journal.close()
    return journal


# --- what it remembers ----------------------------------------------------------------------------


def test_a_new_journal_knows_nothing(journal: Journal) -> None:
    assert len(journal) == 0 and list(journal.refs()) == [] and journal.kinds() == ()
    assert journal.get(entry().ref) is None
    assert list(journal.entries_of(CONFIGMAPS)) == []
    assert journal.revision_of(CONFIGMAPS) == "" and journal.get_fact("incarnation") == ""
    assert journal.damage == ""


def test_everything_survives_a_restart(path: Path) -> None:
    whole = entry(
        "b",
        DEPLOYMENTS,
        namespaced=False,
        revision=2**70,
        desired=bytes(range(256)),
        create_only=True,
        withdrawn=True,
        orphaned=True,
        has_finalizer=True,
        applied="d",
        owned="o",
        edge_uid="e",
        returned="r",
    )
    with closing(Journal.open(path)) as journal:
        journal.put(entry())
        journal.put(whole)
        journal.set_revision(CONFIGMAPS, "v1", "12")
        journal.set_fact("incarnation", "m")
    again = reopened(path)
    assert [again.get(entry().ref), again.get(whole.ref)] == [entry(), whole]
    assert list(again.entries_of(DEPLOYMENTS)) == [whole]
    assert set(again.kinds()) == {CONFIGMAPS, DEPLOYMENTS}
    assert again.positions() == {CONFIGMAPS: WatchPosition("v1", "12")} and again.revision_of(CONFIGMAPS) == "12"
    assert again.get_fact("incarnation") == "m"
    assert again.damage == ""


def test_how_far_a_kind_was_heard_is_written_with_something_else_and_at_the_end(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.set_revision(CONFIGMAPS, "v1", "12")
        assert not journal.is_dirty
        journal.set_fact("heartbeat", "now")
        assert journal.is_dirty
        journal.flush()
        assert not journal.is_dirty
        journal.set_revision(CONFIGMAPS, "v1", "13")
    with closing(Journal.open(path)) as journal:
        assert journal.revision_of(CONFIGMAPS) == "13"


def test_what_is_dropped_stays_away(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.put(entry())
        journal.flush()
        journal.drop(entry().ref)
        journal.drop(entry("never there").ref)
        assert len(journal) == 0 and journal.kinds() == ()
    assert len(reopened(path)) == 0


def test_what_is_flushed_is_on_the_disk_with_all_that_came_before(journal: Journal, path: Path) -> None:
    journal.put(entry("a"))
    journal.set_fact("incarnation", "m")
    journal.put(entry("b"))
    journal.flush()
    journal.put(entry("c"))
    with closing(apsw.Connection(str(path))) as looking:
        assert looking.execute("select name from entry order by name").fetchall() == [("a",), ("b",)]
        assert looking.execute("select name, value from fact").fetchall() == [("incarnation", "m")]


def record(statements: list[str]) -> Callable[[apsw.Cursor, str, object], bool]:
    """A trace that appends every statement."""

    def trace(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        statements.append(statement)
        return True

    return trace


def test_nothing_is_written_if_nothing_changed(journal: Journal) -> None:
    statements: list[str] = []
    journal.set_fact("a", "b")
    journal.set_revision(CONFIGMAPS, "v1", "12")
    journal.flush()
    journal._connection.exec_trace = record(statements)
    journal.set_fact("a", "b")
    journal.set_revision(CONFIGMAPS, "v1", "12")
    journal.flush()
    assert statements == []


def test_many_changes_are_one_transaction(journal: Journal) -> None:
    statements: list[str] = []
    journal._connection.exec_trace = record(statements)
    for number in range(100):
        journal.put(entry(str(number)))
    journal.flush()
    assert [one for one in statements if one.lower() == "commit"] == ["commit"]


def test_what_could_not_be_written_is_written_later(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.put(entry("a", revision=1))
        with closing(apsw.Connection(str(path))) as other:
            journal._connection.execute("pragma busy_timeout = 1")
            other.execute("begin immediate")
            journal.put(entry("b"))
            with pytest.raises(JournalError, match="cannot be written"):
                journal.flush()
            other.execute("rollback")
        journal.put(entry("a", revision=2))
        journal.flush()
        assert journal.get(entry().ref) == entry("a", revision=2)
    again = reopened(path)
    assert {one.ref.name: one.revision for one in again.entries_of(CONFIGMAPS)} == {"a": 2, "b": 7}


def test_another_thread_may_write_while_this_one_continues(path: Path) -> None:
    ended = threading.Event()

    def write(journal: Journal) -> None:
        while not ended.is_set():
            journal.flush()

    with closing(Journal.open(path)) as journal:
        thread = threading.Thread(target=write, args=(journal,))
        thread.start()
        try:
            for number in range(2000):
                journal.put(entry(str(number % 50), revision=number))
                if number % 3 == 0:
                    journal.drop(entry(str(number % 50)).ref)
        finally:
            ended.set()
            thread.join()
        expected = {ref: journal.get(ref) for ref in journal.refs()}
    again = reopened(path)
    assert {ref: again.get(ref) for ref in again.refs()} == expected


# --- who may use it -------------------------------------------------------------------------------


def test_only_the_owner_can_read_the_journal(journal: Journal, path: Path) -> None:
    journal.put(entry())
    journal.flush()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    reopened(path)
    path.chmod(0o644)
    reopened(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_syncer_is_refused(journal: Journal, path: Path) -> None:
    journal.put(entry())
    journal.flush()
    with pytest.raises(JournalError, match="is in use by another syncer: stop that one"):
        Journal.open(path)
    assert journal.get(entry().ref) == entry()


def test_the_next_syncer_takes_over_from_one_that_ended_silently(path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from farflung.syncer.journal import Journal\n"
        "journal = Journal.open(Path(sys.argv[1]))\n"
        "journal.set_fact('a', 'written')\n"
        "journal.flush()\n"
        "journal.set_fact('a', 'not written')\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 9
    assert reopened(path).get_fact("a") == "written"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=str(tmp_path)):
        Journal.open(tmp_path / "file" / "journal.db")


def test_a_directory_in_place_of_the_journal_is_reported_and_not_changed(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(JournalError, match=str(path)):
        Journal.open(path)
    assert path.is_dir()


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"nonsense", b"SQLite format 3\0" + b"\0" * 4096])
def test_what_is_no_journal_is_put_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    journal = reopened(path)
    assert "renamed to journal.db.damaged-1, and a new one was created" in journal.damage
    assert path.with_name("journal.db.damaged-1").read_bytes() == content
    assert reopened(path).damage == ""


def test_a_database_of_something_else_is_put_aside(path: Path) -> None:
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("create table entry (a)")
    assert "not the journal of a syncer" in reopened(path).damage


def test_a_journal_of_another_format_is_put_aside(path: Path) -> None:
    reopened(path)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("pragma user_version = 99")
    assert "has format 99" in reopened(path).damage


def test_not_every_damaged_file_is_kept(path: Path) -> None:
    path.parent.mkdir()
    for number in range(MAX_ASIDE + 2):
        path.write_bytes(b"%d" % number)
        reopened(path)
    kept = sorted(path.parent.glob("*.damaged-*"))
    assert len(kept) == MAX_ASIDE
    assert path.with_name(f"journal.db.damaged-{MAX_ASIDE}").read_bytes() == b"%d" % (MAX_ASIDE + 1)


def test_a_log_without_its_file_is_not_taken_for_the_log_of_a_new_one(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.put(entry())
        journal.flush()
        log = path.with_name("journal.db-wal").read_bytes()
    path.unlink()
    path.with_name("journal.db-wal").write_bytes(log)
    assert len(reopened(path)) == 0


ENTRIES = [entry(str(number), desired=b'{"spec": "%d"}' % number * 40, revision=number) for number in range(30)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "journal.db"
    with closing(Journal.open(path)) as journal:
        for one in ENTRIES:
            journal.put(one)
        journal.set_revision(CONFIGMAPS, "v1", "12")
        journal.set_fact("incarnation", "m")
    return path


@given(
    flips=st.lists(st.tuples(st.integers(0, 2**20) | st.integers(0, 99), st.integers(1, 255)), max_size=3),
    end=st.none() | st.integers(0, 2**20),
)
@example(flips=[(18, 97)], end=None)  # may only be read, the header says
@settings(max_examples=examples(40))
def test_a_file_that_a_disk_changed_is_whole_or_put_aside(
    written: Path, flips: list[tuple[int, int]], end: int | None
) -> None:
    content = bytearray(written.read_bytes())
    for place, flip in flips:
        content[place % len(content)] ^= flip
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.db"
        path.write_bytes(content if end is None else content[: end % len(content)])
        shutil.copy(written.with_name(KEY), directory)
        with closing(Journal.open(path)) as journal:
            if journal.damage:
                assert len(journal) == 0 and journal.get_fact("incarnation") == "" and not journal.positions()
            else:
                assert [journal.get(one.ref) for one in ENTRIES] == ENTRIES
                assert journal.revision_of(CONFIGMAPS) == "12" and journal.get_fact("incarnation") == "m"
            journal.put(entry("new"))
            journal.flush()


# --- encryption -----------------------------------------------------------------------------------

PLANTED = b"correct horse battery staple"
PASSWORD = base64.b64encode(PLANTED)
UPGRADE = Path(__file__).parent.parent / "upgrade" / "journal-1.sqlite.xz"


def files_with(path: Path, value: bytes) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if value in one.read_bytes())


def test_no_file_has_the_content_of_an_object_nor_its_digest(path: Path) -> None:
    digest = "0123456789abcdef"
    with closing(Journal.open(path)) as journal:
        journal.put(entry(desired=PLANTED * 300, applied=digest, owned=digest, returned=digest))
        journal.flush()
        journal.put(entry(desired=PLANTED, applied=digest, owned=digest, returned=digest))
        journal.put(entry("b", desired=PLANTED))
        journal.flush()
        journal.drop(entry("b").ref)
        journal.flush()
        assert "journal.db-wal" in files_with(path, b"configmaps")
        assert files_with(path, PLANTED) == files_with(path, digest.encode()) == []
    assert files_with(path, PLANTED) == files_with(path, digest.encode()) == []


def test_a_journal_without_its_key_is_refused_and_not_changed(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.put(entry())
    before = path.read_bytes()
    key = path.with_name(KEY)
    [old] = KeyFile(key).read()
    key.rename(path.with_name("elsewhere"))
    with pytest.raises(JournalError) as refused:
        Journal.open(path)
    assert str(refused.value) == (
        f"{path} is encrypted, and its key {key} is missing: restore the key, or move the journal away"
    )
    assert not key.exists()
    KeyFile(key).create()
    with pytest.raises(JournalError, match=f"is encrypted with the key {old.id}, which {key} lacks"):
        Journal.open(path)
    key.write_text("nonsense")
    with pytest.raises(JournalError, match=f"line 1 of {key} is not a key"):
        Journal.open(path)
    assert path.read_bytes() == before
    with closing(Journal.open(path, KeyFile(path.with_name("elsewhere")))) as journal:
        assert journal.get(entry().ref) == entry()


def test_contents_that_were_exchanged_are_damage(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        journal.put(entry("a", desired=b"1"))
        journal.put(entry("b", desired=b"2"))
    with closing(apsw.Connection(str(path))) as other:
        a, b = other.execute("select * from entry order by name").fetchall()
        other.execute("update entry set content = ?, checksum = ? where name = 'a'", sealed((*a[:-2], b[-2]))[-2:])
    assert "a row cannot be decrypted" in reopened(path).damage


def test_a_new_first_key_encrypts_everything_again(path: Path) -> None:
    with closing(Journal.open(path)) as journal:
        for one in ENTRIES:
            journal.put(one)
    keys = KeyFile(path.with_name(KEY))
    new, old = keys.new_key(), *keys.read()
    keys.write([new, old])
    reopened(path)
    keys.write([new])
    again = reopened(path)
    assert [again.get(one.ref) for one in ENTRIES] == ENTRIES


def of_format_1(number: int) -> JournalEntry:
    """An entry that an earlier version wrote."""
    kind, text = ("Secret", PASSWORD.decode()) if number % 2 else ("ConfigMap", "żółć")
    metadata = {"name": f"o-{number}", "namespace": "shop"}
    data = {"n": str(number), "password": text}
    return entry(
        f"o-{number}",
        SECRETS if number % 2 else CONFIGMAPS,
        kind=kind,
        uid=f"uid-{number}",
        revision=2**70 + number,
        incarnation="1x2y3z",
        desired=encoded({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}),
        create_only=number % 3 == 0,
        withdrawn=number % 5 == 0,
        orphaned=number % 7 == 0,
        has_finalizer=True,
        applied=f"{number:016x}",
        owned=f"owned-{number}",
        edge_uid=f"edge-{number}",
        returned=f"returned-{number}",
    )


OF_FORMAT_1 = [of_format_1(number) for number in range(40) if number not in (3, 4)]


def check_format_1(path: Path) -> None:
    journal = reopened(path)
    assert {one.ref: one for one in journal.entries()} == {one.ref: one for one in OF_FORMAT_1}
    positions = {SECRETS: WatchPosition("v1", "1763550000000123"), CONFIGMAPS: WatchPosition("v1", "12")}
    assert journal.positions() == positions
    assert (journal.get_fact("incarnation"), journal.get_fact("running"), journal.damage) == ("1x2y3z", "yes", "")


def unpack(directory: Path) -> Path:
    path = directory / "journal.db"
    path.write_bytes(lzma.decompress(UPGRADE.read_bytes()))
    return path


def test_the_journal_of_an_earlier_version_is_encrypted(tmp_path: Path) -> None:
    path = unpack(tmp_path)
    assert files_with(path, PASSWORD) == ["journal.db"]
    for _ in range(2):
        check_format_1(path)
        assert files_with(path, PASSWORD) == []


@pytest.mark.parametrize("step", [113, pytest.param(7, marks=pytest.mark.long)])
def test_an_upgrade_that_is_killed_at_any_call_is_repeated(tmp_path: Path, step: int) -> None:
    alive, call = True, 1 - step
    formats = set()
    while alive:
        call += step
        directory = tmp_path / str(call)
        directory.mkdir()
        path = unpack(directory)
        alive = killed_at(call, partial(reopened, path), ("journal.py", "lib/files.py", "lib/key_file.py"))
        formats.add(format_of(path))
        check_format_1(path)
        assert files_with(path, PASSWORD) == []
        shutil.rmtree(directory)
    assert call > 200
    assert formats == {1, 2}


# --- any history ----------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
RESOURCES = st.sampled_from([CONFIGMAPS, DEPLOYMENTS])
CHANGED = st.fixed_dictionaries(
    {},
    optional={
        "revision": st.integers(0, 2**80),
        "desired": st.binary(max_size=20),
        "withdrawn": st.booleans(),
        "orphaned": st.booleans(),
        "has_finalizer": st.booleans(),
        "create_only": st.booleans(),
        "applied": st.text(max_size=5),
        "returned": st.text(max_size=5),
        "owned": st.text(max_size=5),
        "incarnation": st.text(max_size=5),
    },
)


class History(RuleBasedStateMachine):
    """Like a dict that forgets, on a crash, what was not flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        self.journal = Journal.open(self.path)
        self.now: dict[Any, Any] = {}
        self.flushed: dict[Any, Any] = {}

    @rule(name=NAMES, resource=RESOURCES, changed=CHANGED)
    def put(self, name: str, resource: GroupResource, changed: dict[str, Any]) -> None:
        one = replace(entry(name, resource), **changed)
        self.now[one.ref] = one
        self.journal.put(one)

    @rule(name=NAMES, resource=RESOURCES)
    def drop(self, name: str, resource: GroupResource) -> None:
        ref = entry(name, resource).ref
        self.journal.drop(ref)
        self.now.pop(ref, None)

    @rule(resource=RESOURCES, version=st.sampled_from(["v1", "v2"]), revision=st.text(max_size=5))
    def hear(self, resource: GroupResource, version: str, revision: str) -> None:
        self.journal.set_revision(resource, version, revision)
        self.now[resource] = WatchPosition(version, revision)

    @rule(name=NAMES, value=st.text(max_size=5))
    def state(self, name: str, value: str) -> None:
        self.journal.set_fact(name, value)
        self.now[name] = value

    @rule()
    def flush(self) -> None:
        self.journal.flush()
        self.flushed = dict(self.now)

    @rule()
    def restart(self) -> None:
        self.journal.close()
        self.flushed = dict(self.now)
        self.journal = Journal.open(self.path)

    @precondition(lambda self: self.now != self.flushed)
    @rule()
    def crash(self) -> None:
        self.journal._connection.close()
        self.journal._lock.release()
        self.journal = Journal.open(self.path)
        self.now = dict(self.flushed)

    @invariant()
    def is_as_it_should_be(self) -> None:
        journal = self.journal
        found: dict[Any, Any] = {ref: journal.get(ref) for ref in journal.refs()}
        assert sum(len(list(journal.entries_of(one))) for one in journal.kinds()) == len(found) == len(journal)
        found |= journal.positions()
        found |= {name: journal.get_fact(name) for name in "abc" if name in self.now}
        assert found == self.now

    def teardown(self) -> None:
        self.journal.close()
        self.directory.cleanup()


History.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=20)
test_any_history = History.TestCase
