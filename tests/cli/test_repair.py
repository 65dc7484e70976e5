"""`farflung repair`: what it shows, what it wants to be told, and what it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from damaged_files import flip_bit

from farflung.cli.main import main
from farflung.store.base import ABSENT
from farflung.store.sqlite.store import SqliteStore

MAPS = "/core/configmaps/root/default"


async def write(path: Path) -> None:
    store = await SqliteStore.open(path, clock=lambda: 0.0)
    entry = await store.put(f"{MAPS}/restorable", b"first value", expect=ABSENT)
    await store.put(f"{MAPS}/restorable", b"second value", expect=entry.revision)
    await store.put(f"{MAPS}/lost", b"only value", expect=ABSENT)
    await store.put(f"{MAPS}/intact", b"other", expect=ABSENT)
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hub.sqlite"
    asyncio.run(write(path))
    return path


@pytest.fixture
def damaged(path: Path) -> Path:
    flip_bit(path, b"second value")
    flip_bit(path, b"only value")
    return path


def repair(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["repair", *arguments, "--root-directory", str(path.parent)])


DAMAGE = f"""\
OBJECT                                     DAMAGED REVISION   INTACT REVISION
{MAPS}/lost         4                  lost
{MAPS}/restorable   3                  2
"""


def test_an_intact_store_is_said_to_be_intact(path: Path) -> None:
    result = repair(path)
    assert (result.exit_code, result.output) == (0, f"{path} is intact: 3 objects\n")


def test_without_write_the_damage_is_shown_and_nothing_changes(damaged: Path) -> None:
    before = damaged.read_bytes()
    result = repair(damaged)
    assert result.exit_code == 1
    assert result.stdout == f"{damaged} is damaged\n{DAMAGE}"
    assert result.stderr == (
        "Error: nothing was changed: run the command with --write to repair the store, and --drop KEY or --drop "
        "PREFIX/ for each lost object\n"
    )
    assert damaged.read_bytes() == before


def test_a_lost_object_has_to_be_named(damaged: Path) -> None:
    before = damaged.read_bytes()
    result = repair(damaged, "--write")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: nothing was changed: {MAPS}/lost is lost; add --drop KEY for each, or --drop PREFIX/ for all below a "
        "prefix, or restore a backup\n"
    )
    assert damaged.read_bytes() == before


@pytest.mark.parametrize("dropped", [f"{MAPS}/lost", f"{MAPS}/", "/core/"])
def test_a_repaired_store_has_the_intact_revisions(damaged: Path, dropped: str) -> None:
    result = repair(damaged, "--write", "--drop", dropped)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-3:] == [
        f"copy of the damaged file: {damaged}.damaged-1",
        "restored 1 object from history, dropped 1 object",
        f"{damaged} opens with 2 objects at revision 6",
    ]
    assert repair(damaged).stdout == f"{damaged} is intact: 2 objects\n"


@pytest.mark.parametrize("dropped", [f"{MAPS}/intact", f"{MAPS}/none", "/apps/"])
def test_an_object_that_is_not_damaged_is_not_dropped(damaged: Path, dropped: str) -> None:
    result = repair(damaged, "--write", "--drop", dropped)
    assert result.exit_code == 1
    assert result.stderr == f"Error: --drop {dropped}: no damaged object has this key\n"


async def test_the_store_of_a_running_hub_is_left_alone(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "workspaces.sqlite")
    result = await asyncio.to_thread(repair, tmp_path / "workspaces.sqlite", "--write")
    assert result.exit_code == 1
    assert "is in use by another process (pid " in result.output
    await store.close()


def test_a_directory_without_a_store_is_named(tmp_path: Path) -> None:
    result = repair(tmp_path / "hub.sqlite")
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path} has no store of a hub; select another --root-directory\n"
    assert list(tmp_path.iterdir()) == []
