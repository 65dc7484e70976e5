"""Commands for the files of a hub's store."""

from __future__ import annotations

from pathlib import Path

import click

from farflung.cli.settings import root_directory


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
def repair(root_directory: Path, write: bool, dropped: tuple[str, ...]) -> None:
    """Check the store of a stopped hub: show which objects are damaged, and the newest intact revision of each.

    With --write, the command keeps a copy of the file and replaces it by one with the intact revisions.  Objects
    without an intact revision are lost, and must be named by --drop.
    """
    from farflung.cli import repair

    click.echo(repair.run(root_directory, dropped, write=write))
