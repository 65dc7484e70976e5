"""`farflung edge`: create and delete embedded edges, as kind does with clusters.  Each command imports its modules when
it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farflung.cli.settings import RUNTIME, option, output, pass_settings

if TYPE_CHECKING:
    from farflung.edge.cluster import EdgeManager
    from farflung.edge.registry import EdgeSpec, EmbeddedEdge


@click.group(short_help="Create small clusters on this machine.")
def edge() -> None:
    """Create small clusters on this machine: an API server, workload controllers, and a node that runs pods.

    Each edge is a background process and a directory below $FARFLUNG_HOME or ~/.farflung.
    """


@contextmanager
def edge_manager() -> Iterator[EdgeManager]:
    """Errors become one-line messages; ^C cleans up."""
    from farflung.edge.cluster import EdgeManager, Interrupted, Interruption
    from farflung.edge.contexts import ContextError
    from farflung.edge.ports import PortUnavailable
    from farflung.edge.registry import EdgeError, EdgeRegistry

    def report(step: str) -> None:
        click.echo(f" • {step}", err=True)

    with Interruption() as interruption:
        try:
            yield EdgeManager(EdgeRegistry.of_user(os.environ), os.environ, interruption, report)
        except (EdgeError, ContextError, PortUnavailable, OSError) as error:
            raise click.ClickException(_message(error)) from None
        except Interrupted:
            raise click.Abort from None


def _message(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def wait_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--wait",
        "seconds",
        type=click.FloatRange(0, min_open=True),
        default=60,
        show_default=True,
        metavar="SECONDS",
        help="Seconds to wait for the node to become ready.",
    )(command)


def name_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--name", "named", default="", metavar="NAME", help="Name of the edge, as with kind: `cluster --name NAME`."
    )(command)


def _names(words: tuple[str, ...], named: str) -> tuple[str, ...]:
    """The names in `NAME…`, or in kind's form `cluster --name NAME`."""
    if not named:
        return words
    if words not in ((), ("cluster",)):
        raise click.UsageError(f"{' '.join(words)!r} and --name {named}: give the name once")
    return (named,)


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """Of `farflung edge create`."""

    config: Path | None = option(
        "Configuration file of kind; its extraPortMappings forward local ports to pods.",
        None,
        click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    )
    runtime: str = option(
        "Runtime of pods: podman runs their images, process runs local processes instead of known images; auto "
        "prefers podman.",
        "auto",
        RUNTIME,
    )
    allow_local_commands: bool = option(
        "With --runtime process: run commands of pods on this machine, without isolation.", False
    )
    kubeconfig: str = option(
        "Kubeconfig that gets the context; by default $KUBECONFIG or ~/.kube/config.", value="FILE"
    )
    context_name: str = option("Name of the context; by default kind-NAME.", value="NAME")
    no_kubeconfig: bool = option("Do not write a context.", False)


@edge.command()
@click.argument("name", default="")
@name_option
@pass_settings(CreateOptions, "options")
@wait_option
def create(name: str, named: str, options: CreateOptions, seconds: float) -> None:
    """Create the edge NAME, and wait until it is ready.

    The command writes the context kind-NAME to the kubeconfig and makes it the current one, unless the kubeconfig is
    a hub's.
    `farflung edge create cluster --name NAME` is the same.
    """
    from farflung.edge import contexts

    given = _names((name,) if name else (), named)
    with edge_manager() as manager:
        cluster_name, wanted = _edge_spec(options)
        name = next(iter(given), cluster_name) or "edge"
        if not options.no_kubeconfig:
            import msgspec

            file = contexts.file_of(os.environ, options.kubeconfig).absolute()
            context = options.context_name or f"kind-{name}"
            wanted = msgspec.structs.replace(wanted, context=context, kubeconfig=str(file))
        click.echo(f"Creating edge {name} …", err=True)
        made = manager.create(name, wanted, seconds)
    click.echo(_hint(made, wanted), err=True)


def _edge_spec(options: CreateOptions) -> tuple[str, EdgeSpec]:
    """The name in the configuration file, if any, and the requested edge."""
    import sys
    from dataclasses import replace
    from datetime import UTC, datetime

    from farflung.edge import kind_config
    from farflung.edge.ports import free_port
    from farflung.edge.registry import EdgeError, EdgeSpec

    config = options.config
    try:
        text = b"" if config is None else sys.stdin.buffer.read() if str(config) == "-" else config.read_bytes()
        cluster = kind_config.KindCluster() if config is None else kind_config.read(text)
        ports = tuple(one if one.port else replace(one, port=free_port(one.address)) for one in cluster.mappings)
    except (kind_config.ConfigError, OSError) as error:
        raise EdgeError(f"{config}: {error}") from None
    now, local_commands = datetime.now(UTC), options.allow_local_commands
    return cluster.name, EdgeSpec(now, options.runtime, local_commands, cluster.api_address, cluster.api_port, ports)


def _hint(made: EmbeddedEdge, spec: EdgeSpec) -> str:
    if spec.context:
        done = _context_written(Path(spec.kubeconfig), spec.context)
        return f"{done}; for a first look:\n  kubectl get nodes --context {spec.context}"
    return f"For a first look:\n  farflung edge kubeconfig {made.name} > {made.name}.kubeconfig"


def _context_written(kubeconfig: Path, context: str) -> str:
    """Raises ContextError."""
    from farflung.edge import contexts

    current = contexts.current(kubeconfig)
    if current == context:
        return f"Set kubectl context to {context}"
    return f"Added kubectl context {context}; {current} of the hub is still the current one"


@edge.command(short_help="Start an edge again.")
@click.argument("name")
@wait_option
def start(name: str, seconds: float) -> None:
    """Start the edge NAME again, after its process stopped or the machine rebooted."""
    with edge_manager() as manager:
        found = manager.registry.existing(name)
        if found.phase.pid:
            click.echo(f"edge {name} is already running", err=True)
            return
        click.echo(f"Starting edge {name} …", err=True)
        manager.start(found, seconds)


@edge.command(short_help="Delete edges, with their pods, data and contexts.")
@click.argument("names", nargs=-1, metavar="NAME…")
@name_option
@click.option("--all", "everything", is_flag=True, help="Delete all edges.")
def delete(names: tuple[str, ...], named: str, everything: bool) -> None:
    """Delete edges: their pods, processes, directories and contexts.

    If one edge cannot be deleted, the others still are.  `farflung edge delete cluster --name NAME` deletes one.
    """
    names = _names(names, named)
    if bool(names) == everything:
        raise click.UsageError("give names of edges, or --all")
    from farflung.edge.registry import EdgeError

    failed = False
    with edge_manager() as manager:
        for one in manager.registry.all() if everything else [manager.registry.existing(name) for name in names]:
            try:
                manager.delete(one)
                click.echo(f"edge {one.name} deleted")
            except (EdgeError, OSError) as error:
                click.echo(f"Error: edge {one.name} cannot be deleted: {_message(error)}", err=True)
                failed = True
    if failed:
        raise SystemExit(1)


@edge.command("list")
@output("table", "json", "yaml")
def list_edges(output: str) -> None:
    """List edges and their state."""
    from farflung.cli import edge_list

    with edge_manager() as manager:
        found = edge_list.edge_states(manager.registry.all())
    click.echo(edge_list.printed(found, output))


@edge.command()
@click.argument("name")
@click.option("--merge", is_flag=True, help="Merge it into $KUBECONFIG or ~/.kube/config instead of printing it.")
@click.option("--context-name", default="", metavar="NAME", help="Name of the context; by default kind-NAME.")
def kubeconfig(name: str, merge: bool, context_name: str) -> None:
    """Print a kubeconfig for the administrator of the edge NAME."""
    from farflung.cli.output import machine_readable
    from farflung.edge import cluster, contexts

    with edge_manager() as manager:
        found = manager.registry.existing(name)
        context = context_name or f"kind-{name}"
        if not merge:
            click.echo(machine_readable(cluster.with_names(cluster.kubeconfig(found), context), "yaml"))
            return
        file = contexts.file_of(os.environ).absolute()
        cluster.move_context(found, file, context)
        click.echo(f"{_context_written(file, context)} in {file}", err=True)


@edge.command()
@click.argument("name")
@click.option(
    "--tail", "lines", type=click.IntRange(0), default=100, show_default=True, help="Number of lines, from the end."
)
def logs(name: str, lines: int) -> None:
    """Print the log of the edge NAME's process.  For logs of containers use `kubectl logs`."""
    from farflung.edge import cluster

    with edge_manager() as manager:
        for line in cluster.tail(manager.registry.existing(name).log, lines):
            click.echo(line)


@edge.command(hidden=True)
@click.argument("name")
@click.option("--verbosity", "-v", type=int, default=0, help="Log in more detail.")
def run(name: str, verbosity: int) -> None:
    """Run the process of the edge NAME in the foreground until SIGTERM or ^C."""
    from farflung.cli import edge_process
    from farflung.edge.registry import EdgeError, EdgeRegistry

    try:
        found = EdgeRegistry.of_user(os.environ).existing(name)
    except EdgeError as error:
        raise click.ClickException(str(error)) from None
    edge_process.run(found, verbosity=verbosity)
