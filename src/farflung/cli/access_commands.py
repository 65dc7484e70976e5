"""Commands for access to a hub: tokens of users, and the registration of syncers."""

from __future__ import annotations

from pathlib import Path

import click

from farflung.cli.settings import (
    ImportOptions,
    ManifestOptions,
    ServerOptions,
    connection,
    output,
    pass_settings,
    root_directory,
)


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


@click.command("import-kinds", short_help="Export kinds of a cluster in a workspace.")
@click.argument("kinds", nargs=-1, metavar="[RESOURCE.GROUP]...")
@pass_settings(ImportOptions, "options")
@connection("APIExport", provider=None)
def import_kinds(kinds: tuple[str, ...], options: ImportOptions, connection: ServerOptions) -> None:
    """Offer kinds of a cluster in a workspace, so that other workspaces can bind them and place their objects.

    Without arguments, all kinds of the cluster's CustomResourceDefinitions.  Others are named, like `jobs.batch`;
    their schemas come from the cluster's OpenAPI documents.  A repeated import updates the APIExport.
    """
    from farflung.cli import kind_import

    kind_import.import_kinds(kinds, options, connection)


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
@output("token", "kubeconfig")
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


@click.group(short_help="List, check and rotate keys and certificates.")
def certs() -> None:
    """List, check and rotate the keys and certificates of a hub.

    A running hub uses replaced ones within seconds, without a restart.
    """


@certs.command("list", short_help="List keys and certificates.")
@output("table", "json", "yaml")
@root_directory
def list_certificates(output: str, root_directory: Path) -> None:
    """List keys and certificates: what they are for, when they expire, and which users still use old ones."""
    from datetime import UTC, datetime

    from farflung.cli import certs as certificates
    from farflung.cli.output import TABLE

    found, now = certificates.report(root_directory), datetime.now(UTC)
    click.echo(certificates.printed(found, output, now))
    for line in certificates.remarks(found, now) if output == TABLE else ():
        click.echo(line, err=True)


@certs.command("check", short_help="Fail if a certificate expires soon.")
@click.option(
    "--within",
    metavar="DURATION",
    default="28d",
    show_default=True,
    help="Time before the end of a certificate at which it is reported, like 12h or 30d.",
)
@root_directory
def check_certificates(within: str, root_directory: Path) -> None:
    """Fail with exit code 1 if a certificate expires soon, a certificate authority within 180 days."""
    from datetime import UTC, datetime

    from farflung.cli import certs as certificates
    from farflung.cli.tokens import duration

    lasting = duration(within, "--within")
    if found := list(certificates.problems(certificates.report(root_directory), datetime.now(UTC), lasting)):
        raise click.ClickException("\n".join(found))
    click.echo("no certificate expires soon")


@certs.command("rotate", short_help="Replace keys and certificates.")
@click.option("--server", is_flag=True, help="Replace the server certificate and its key.")
@click.option("--keys", is_flag=True, help="Sign tokens of ServiceAccounts with a new key; old tokens stay valid.")
@click.option(
    "--ca",
    type=click.Choice(["trust", "sign"]),
    help="Replace the certificate authority: `trust` lets clients learn a new one, `sign` uses it.",
)
@click.option("--revoke-old", is_flag=True, help="Refuse what the old key or certificate authority signed, at once.")
@root_directory
def rotate_certificates(server: bool, keys: bool, ca: str | None, revoke_old: bool, root_directory: Path) -> None:
    """Replace keys and certificates.  A command that was interrupted is completed by running it again."""
    from farflung.cli import certs as certificates

    if not server and not keys and ca is None:
        raise click.UsageError("select --server, --keys or --ca")
    if revoke_old and not keys and ca != "sign":
        raise click.UsageError("--revoke-old needs --keys or --ca sign")
    if ca == "trust":
        click.echo(certificates.trust_new_authority(root_directory))
    elif ca == "sign":
        click.echo(certificates.sign_with_new_authority(root_directory, revoke_old=revoke_old))
    if keys:
        click.echo(certificates.rotate_signing_keys(root_directory, revoke_old=revoke_old))
    if server:
        click.echo(certificates.rotate_server(root_directory))


@certs.command("revoke", short_help="Refuse what an old key or authority signed.")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@root_directory
def revoke_certificates(ids: tuple[str, ...], root_directory: Path) -> None:
    """Refuse the tokens of an old key, or the certificates of an old certificate authority, by its ID."""
    from farflung.cli import certs as certificates

    click.echo(certificates.revoke(root_directory, ids))
