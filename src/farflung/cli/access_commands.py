"""Commands for access to a hub: tokens of users, and the registration of syncers."""

from __future__ import annotations

from pathlib import Path

import click

from farflung.cli.settings import ManifestOptions, ServerOptions, connection, pass_settings, root_directory


@click.command(short_help="Print the manifest of a SyncTarget's syncer.")
@click.argument("name")
@pass_settings(ManifestOptions, "options")
@connection("SyncTarget")
def syncer_gen(name: str, options: ManifestOptions, connection: ServerOptions) -> None:
    """Create the ServiceAccount and roles of the SyncTarget NAME's syncer in its mailbox, and print its manifest.

    The ServiceAccount has no rights outside of that mailbox.  The command is idempotent, apart from the token.
    """
    from farflung.cli.syncer_gen import generate

    generate(name, options, connection)


@click.command(short_help="Revoke the access of a SyncTarget's syncer.")
@click.argument("name")
@connection("SyncTarget")
def syncer_revoke(name: str, connection: ServerOptions) -> None:
    """Revoke the access of the SyncTarget NAME's syncer to its mailbox: the hub refuses its tokens at once.

    The objects in its cluster stay.
    """
    from farflung.cli.syncer_gen import revoke_access

    revoke_access(name, connection)


@click.group()
def token() -> None:
    """Create, list and revoke tokens of users.

    A running hub accepts a new token at once and refuses a revoked one within seconds.
    """


@token.command("create")
@click.argument("name")
@click.option("--group", "groups", multiple=True, help="Group of the user; repeatable.")
@click.option(
    "--expires",
    "lifetime",
    metavar="DURATION",
    default="365d",
    show_default=True,
    help="Lifetime of the token, like 12h or 30d; `never` is unlimited.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["token", "kubeconfig"]),
    default="token",
    show_default=True,
    help="What to print.",
)
@root_directory
def create_token(name: str, groups: tuple[str, ...], lifetime: str, output: str, root_directory: Path) -> None:
    """Print a new token for the user NAME.  The hub stores only its hash, so it cannot be shown again."""
    from farflung.cli import tokens

    click.echo(tokens.create(root_directory, name, groups, tokens.lifetime_of(lifetime), output), nl=False)


@token.command("list", short_help="List tokens and their users.")
@root_directory
def list_tokens(root_directory: Path) -> None:
    """List tokens: their id, user, age and expiry.  The id is the start of the token's hash."""
    from farflung.cli import tokens
    from farflung.cli.output import table

    click.echo(table(tokens.listed(root_directory)))


@token.command("revoke")
@click.argument("which", nargs=-1, required=True, metavar="ID|NAME…")
@root_directory
def revoke_tokens(which: tuple[str, ...], root_directory: Path) -> None:
    """Revoke a token by its ID, or all tokens of a user by their NAME."""
    from farflung.cli import tokens

    count = tokens.revoke(root_directory, which)
    click.echo(f"{count} token{'' if count == 1 else 's'} revoked")
