"""The command line: words and composition, no logic.  What a command needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path

import click

from farflung import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farflung")
def main() -> None:
    """Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""


@main.command()
@click.option(
    "--root-directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".farflung"),
    show_default=True,
    help="Where the hub keeps its data, certificates and admin.kubeconfig.",
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=6443, show_default=True, help="0 takes any free port.")
@click.option(
    "--external-hostname", "hostnames", multiple=True, help="A further name or address for the server's certificate."
)
@click.option(
    "--history",
    type=click.IntRange(1),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="How long a client may be away and still resume its watches.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def hub(
    root_directory: Path, bind_address: str, port: int, hostnames: tuple[str, ...], history: int, verbose: bool
) -> None:
    """Run the hub in the foreground until SIGTERM or ^C.

    \b
    It writes DIR/admin.kubeconfig; in another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl get namespaces
    """
    from farflung.cli.hub import Settings, run

    run(Settings(root_directory, bind_address, port, hostnames, history, verbose))
