"""Commands for the files of a hub's store."""

from __future__ import annotations

from pathlib import Path

import click

from farflung.cli.settings import KeyOptions, pass_settings, root_directory


@click.command(short_help="Check the store of a stopped hub, and repair it.")
@root_directory
@click.option("--write", is_flag=True, help="Repair the store; without it, the command only shows the damage.")
@click.option(
    "--drop",
    "dropped",
    multiple=True,
    metavar="KEY",
    help="Drop this damaged object instead of restoring it, or every lost object below KEY/; repeatable.",
)
@pass_settings(KeyOptions, "keys")
def repair(root_directory: Path, write: bool, dropped: tuple[str, ...], keys: KeyOptions) -> None:
    """Check the store of a stopped hub: show which objects are damaged, and the newest intact revision of each.

    With --write, the command keeps a copy of the file and replaces it by one with the intact revisions.  Objects
    without an intact revision are lost, and must be named by --drop.
    """
    from farflung.cli import repair

    click.echo(repair.run(root_directory, keys, dropped, write=write))


@click.command(short_help="Encrypt the store with a new key, also while the hub runs.")
@root_directory
@pass_settings(KeyOptions, "keys")
def rekey(root_directory: Path, keys: KeyOptions) -> None:
    """Add a new key to the key file, wait until every value in the store is encrypted with it, and remove the former
    keys.

    A running hub does the work; without one, the command does it.  It can be interrupted at any moment, and continues
    when it is run again.  Backups from before need the former keys.
    """
    from farflung.cli import rekey

    click.echo(rekey.run(root_directory, keys))
