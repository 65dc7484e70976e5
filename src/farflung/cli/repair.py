"""`farflung repair`: the damage of a store as a table, and its repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final

import click

from farflung.cli.output import named, table
from farflung.cli.settings import DATABASE, KEY_FILE, WORKSPACES, KeyOptions
from farflung.lib.envelopes import KeyRing
from farflung.lib.errors import UserError
from farflung.lib.words import count
from farflung.store.base import ABSENT, Unusable
from farflung.store.encryption import Encryption
from farflung.store.sqlite.files import FileLock
from farflung.store.sqlite.repair import Inspection, RepairPlan, inspect, repair

MAX_NAMED: Final = 5  #: objects in an error message


def run(directory: Path, options: KeyOptions, dropped: Sequence[str], *, write: bool) -> str:
    """Returns what to print.  Raises UserError, after printing the damage."""
    path = find_store(directory)
    keys = options.file(directory / KEY_FILE)
    encryption = Encryption(KeyRing([one.key for one in keys.read()])) if keys.identity() else Encryption()
    try:
        lock = FileLock(path)
        try:
            return _run(path, encryption, dropped, write=write)
        finally:
            lock.release()
    except Unusable as error:
        raise UserError(str(error)) from None


def find_store(directory: Path) -> Path:
    """The store in a hub's directory."""
    for name in (WORKSPACES, DATABASE):
        if (directory / name).exists():
            return directory / name
    raise UserError(f"{directory} has no store of a hub; select another --root-directory")


def _run(path: Path, encryption: Encryption, dropped: Sequence[str], *, write: bool) -> str:
    inspection = inspect(path, encryption)
    if inspection.is_intact:
        return f"{path} is intact: {count(len(inspection.plan.objects), 'object')}"
    click.echo("\n".join(report(path, inspection)))
    doomed = dropped_objects(inspection.plan, dropped)
    forgotten = sorted(inspection.plan.lost - doomed)
    if not write:
        also = ", and --drop KEY or --drop PREFIX/ for each lost object" if forgotten else ""
        raise UserError(f"nothing was changed: run the command with --write to repair the store{also}")
    if forgotten:
        raise UserError(
            f"nothing was changed: {named(forgotten, MAX_NAMED)} {'is' if len(forgotten) == 1 else 'are'} lost; add "
            "--drop KEY for each, or --drop PREFIX/ for all below a prefix, or restore a backup"
        )
    copy, revision = repair(path, inspection, doomed, encryption)
    restored = sum(one.key not in doomed for one in inspection.plan.damaged)
    objects = len(inspection.plan.objects.keys() - doomed)
    return (
        f"copy of the damaged file: {copy}\n"
        f"restored {count(restored, 'object')} from history, dropped {count(len(doomed), 'object')}\n"
        f"{path} opens with {count(objects, 'object')} at revision {revision}"
    )


def report(path: Path, inspection: Inspection) -> Iterator[str]:
    plan = inspection.plan
    yield f"{path} is damaged"
    yield from (f"  {finding}" for finding in inspection.findings)
    if plan.history:
        yield f"  {count(plan.history, 'damaged revision')} of history; a repair drops the history"
    if plan.unnamed:
        revisions = named([str(one) for one in plan.unnamed], MAX_NAMED)
        what = count(len(plan.unnamed), "damaged revision")
        yield f"  {what} of unknown objects, which a repair leaves at an older value: {revisions}"
    if plan.damaged:
        header = ("OBJECT", "DAMAGED REVISION", "INTACT REVISION")
        rows = [
            (one.key, str(one.damaged), str(one.intact) if one.intact != ABSENT else "lost") for one in plan.damaged
        ]
        yield table([header, *rows])


def dropped_objects(plan: RepairPlan, dropped: Sequence[str]) -> Set[str]:
    """The damaged objects that --drop names, and the lost ones below its prefixes.  Raises UserError."""
    damaged = {one.key for one in plan.damaged}
    doomed: set[str] = set()
    for one in dropped:
        found = {key for key in plan.lost if key.startswith(one)} if one.endswith("/") else damaged & {one}
        if not found:
            raise UserError(f"--drop {one}: no damaged object has this key")
        doomed |= found
    return doomed
