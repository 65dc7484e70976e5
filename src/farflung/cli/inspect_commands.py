"""Commands that explain, preview and follow what controllers do.  They change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from farflung.cli.settings import (
    Command,
    Decorator,
    FileOptions,
    ServerOptions,
    connection,
    output,
    pass_settings,
    scheduler_files,
)

if TYPE_CHECKING:
    from farflung.inspect.hub import HubClient
    from farflung.machines.files.configuration import SchedulerConfiguration

FORMATS: Final = ("table", "json", "yaml")


def namespace_option(content: str) -> Decorator:
    return click.option(
        "--namespace", "-n", default="default", show_default=True, metavar="NAME", help=f"Namespace of {content}."
    )


def limit_option(content: str) -> Decorator:
    return click.option(
        "--limit", type=click.IntRange(0), default=20, show_default=True, metavar="NUMBER", help=f"Number of {content}"
    )


files_option: Decorator = click.option(
    "--filename",
    "-f",
    "names",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File or directory with objects, or - for standard input; repeatable.",
)


def read_configuration(files: FileOptions) -> SchedulerConfiguration:
    """The configuration of the global scheduler."""
    from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError

    try:
        return SchedulerFiles(files.conf, files.policy_file).read()
    except SchedulerFilesError as error:
        raise click.ClickException(str(error)) from None


@click.command(short_help="Show the fleet: edges, placements, summaries and problems.")
@click.option("--all", "everything", is_flag=True, help="List everything, also objects without problems.")
@click.option("--check", is_flag=True, help="Exit with 1 if there is a problem.")
@pass_settings(
    ServerOptions,
    "connection",
    workspace={"help": "Only this workspace; by default every workspace that you may read."},
)
@output(*FORMATS)
def status(everything: bool, check: bool, output: str, connection: ServerOptions) -> None:
    """Show the fleet: edges by state, placements with problems, held withdrawals, objects with broken copies, Clusters
    and virtual machines.

    It lists only objects with problems, unless --all is given.
    """
    from farflung.cli.connection import query
    from farflung.cli.status_output import printed
    from farflung.inspect.fleet_status import FleetStatus, status
    from farflung.inspect.hub import server_time

    async def read_status(hub: HubClient) -> tuple[FleetStatus, datetime]:
        now = await server_time(hub)
        return await status(hub, now, only=bool(connection.workspace), everything=everything), now

    answer, now = query(replace(connection, anywhere=True), read_status)
    click.echo(printed(answer, output, now, everything=everything))
    if check and not answer.well:
        raise click.exceptions.Exit(1)


# --- explain --------------------------------------------------------------------------------------

SPELLINGS: Final = {
    "po": "pod",
    "pods": "pod",
    "alloc": "allocation",
    "allocations": "allocation",
    "allocations.globalscheduler.com": "allocation",
    "epl": "placement",
    "placements": "placement",
    "edgeplacement": "placement",
    "edgeplacements": "placement",
    "edgeplacements.edge.kcp.io": "placement",
}


class KindGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        kind, slash, name = args[0].partition("/")
        found = SPELLINGS.get(kind, kind)
        if found not in self.commands:
            return super().resolve_command(ctx, args)
        return super().resolve_command(ctx, [found, *([name] if slash else []), *args[1:]])


@click.group(cls=KindGroup, subcommand_metavar="{allocation|placement|pod} NAME")
def explain() -> None:
    """Explain decisions of the schedulers.  These commands only read."""


@explain.command("placement", short_help="Explain the destinations of an EdgePlacement.")
@click.argument("name")
@click.option(
    "--location",
    default="",
    metavar="[CLUSTER:]NAME",
    help="Show only this Location (or all Locations of this name), in more detail.",
)
@connection("placements")
@output(*FORMATS)
def explain_placement(name: str, location: str, output: str, connection: ServerOptions) -> None:
    """Explain the destinations of the EdgePlacement NAME: whether it selects each Location and SyncTarget, or why not.

    The command also compares the result with the placement's status and slices; the scheduler may be behind.
    """
    from farflung.cli.connection import query
    from farflung.cli.explain_output import printed
    from farflung.inspect.explain import explain

    answer = query(connection, lambda hub: explain(hub, name, location))
    click.echo(printed(answer, output, detailed=bool(location)))


def machine_options(command: Command) -> Command:
    """The object, and the files of the global scheduler."""
    for one in (
        output(*FORMATS),
        connection("object", provider=None),
        scheduler_files,
        limit_option("Clusters to list, the best first; 0 lists all."),
        namespace_option("the object"),
    ):
        command = one(command)
    return command


def explain_machine(
    kind: str, name: str, namespace: str, limit: int, files: FileOptions, connection: ServerOptions, output: str
) -> None:
    from farflung.cli.connection import query
    from farflung.cli.machine_output import printed
    from farflung.inspect.explain_machines import explain

    configured = read_configuration(files)
    answer = query(connection, lambda hub: explain(hub, kind, name, namespace, configured))
    click.echo(printed(answer, output, limit=limit))


@explain.command("pod", short_help="Explain to which Cluster a virtual machine is bound.")
@click.argument("name")
@machine_options
def explain_pod(
    name: str, namespace: str, limit: int, files: FileOptions, connection: ServerOptions, output: str
) -> None:
    """Explain to which Cluster the global scheduler binds the Pod NAME, a virtual machine: for each Cluster whether it
    fits, or why not, and its score.

    The command also compares the result with the Pod; the scheduler may be behind.
    """
    explain_machine("Pod", name, namespace, limit, files, connection, output)


@explain.command("allocation", short_help="Explain to which Clusters an Allocation's replicas are bound.")
@click.argument("name")
@machine_options
def explain_allocation(
    name: str, namespace: str, limit: int, files: FileOptions, connection: ServerOptions, output: str
) -> None:
    """Explain to which Clusters the global scheduler binds the replicas of the Allocation NAME: for each Cluster
    whether it fits, or why not, how many replicas it has room for, and its score.

    The command also compares the result with the Allocation; the scheduler may be behind.
    """
    explain_machine("Allocation", name, namespace, limit, files, connection, output)


# --- objects --------------------------------------------------------------------------------------


@click.command(short_help="List objects that placements upsync from edges.")
@click.argument("kind")
@click.option("--namespace", "-n", default="", metavar="NAME", help="Only this namespace; by default all.")
@click.option("--selector", "-l", "labels", default="", metavar="SELECTOR", help="Only objects with these labels.")
@click.option("--json", "as_json", is_flag=True, help="Same as -o json.")
@connection("placements")
@output(*FORMATS)
def list_upsynced(
    kind: str, namespace: str, labels: str, as_json: bool, output: str, connection: ServerOptions
) -> None:
    """List objects of KIND that were created at edges and that EdgePlacements of the workspace select in `spec.upsync`,
    from all their destinations.

    KIND is a resource, as for kubectl: nines, nine, nines.group9.test.
    """
    from datetime import UTC

    from farflung.cli.connection import query
    from farflung.cli.upsynced_output import printed
    from farflung.inspect.upsynced import UpsyncQuery, upsynced

    answer = query(connection, lambda hub: upsynced(hub, UpsyncQuery(kind, namespace, labels)))
    click.echo(printed(answer, "json" if as_json else output, datetime.now(UTC)))


def split_reference(words: Sequence[str]) -> tuple[str, str]:
    """Kind and name of `TYPE/NAME` or `TYPE NAME`.  Raises click.UsageError."""
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts) or "/" in "".join(parts):
        raise click.UsageError("give the object as TYPE/NAME or TYPE NAME")
    return parts[0], parts[1]


@click.command(short_help="Trace an object to all its destinations, and show what is stuck.")
@click.argument("words", nargs=-1, required=True, metavar="TYPE/NAME")
@namespace_option("the object")
@click.option("--destination", "-d", default="", metavar="NAME", help="Only Locations and SyncTargets of this name.")
@limit_option("destinations to print, those with problems first; 0 prints all.")
@connection("placements")
@output(*FORMATS)
def trace(
    words: tuple[str, ...], namespace: str, destination: str, limit: int, output: str, connection: ServerOptions
) -> None:
    """Trace one object through placement, slice, mailbox and edge to its status, for each destination.

    The command shows the time of each step, the age of that information, and the first step that is stuck.  It only
    reads.
    """
    from farflung.cli.connection import query
    from farflung.cli.trace_output import printed, show_reading
    from farflung.inspect.hub import server_time
    from farflung.inspect.trace import Trace, TraceRequest, trace

    question = TraceRequest(*split_reference(words), namespace, destination, limit)

    async def traced(hub: HubClient) -> tuple[Trace, datetime]:
        now = await server_time(hub)
        return await trace(hub, question, now, show_reading), now

    answer, now = query(connection, traced)
    click.echo(printed(answer, output, now))
    if answer.is_stuck:
        raise click.exceptions.Exit(1)


# --- previews -------------------------------------------------------------------------------------


class UsageErrorExitingWith1(click.UsageError):
    exit_code = 1


class DetailedExitCodeCommand(click.Command):
    """A command for which exit code 2 is a result, so that usage errors exit with 1."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **named)
        except click.UsageError as error:
            raise UsageErrorExitingWith1(error.format_message(), error.ctx) from None


@click.command(cls=DetailedExitCodeCommand, short_help="Preview what `kubectl apply` changes at every destination.")
@files_option
@click.option("--delete", is_flag=True, help="Preview `kubectl delete` instead.")
@namespace_option("objects without one in their file")
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit with 2 if something would change.")
@click.option("--verbose", "-v", is_flag=True, help="Print unchanged destinations too.")
@scheduler_files
@connection("placements")
@output(*FORMATS)
def plan(
    names: tuple[str, ...],
    delete: bool,
    namespace: str,
    detailed: bool,
    verbose: bool,
    files: FileOptions,
    connection: ServerOptions,
    output: str,
) -> None:
    """Preview `kubectl apply`: the destinations that EdgePlacements gain and lose, the copies that are created, changed
    or deleted at each destination, and the Clusters to which virtual machines are bound.

    The server validates the objects in a dry run.  The command changes nothing.
    """
    from farflung.cli.connection import query
    from farflung.cli.plan_output import printed
    from farflung.inspect.manifests import manifests
    from farflung.inspect.plan import check, plan

    wanted = check(manifests(names), namespace)
    configured = read_configuration(files)
    answer = query(connection, lambda hub: plan(hub, wanted, delete=delete, configured=configured))
    click.echo(printed(answer, output, verbose=verbose))
    if answer.summary.errors:
        raise click.ClickException("some objects cannot be planned; see the errors above")
    if detailed and answer.is_change:
        raise click.exceptions.Exit(2)


@click.command(short_help="Print objects as customized for a Location.")
@files_option
@click.option("--location", default="", metavar="[WORKSPACE:]NAME", help="Location, in any workspace.")
@click.option("--location-file", default="", metavar="FILE", help="File with the Location, instead of --location.")
@click.option(
    "--customizer-file",
    "customizer_files",
    multiple=True,
    metavar="FILE",
    help="File with Customizers; by default those of the workspace; repeatable.",
)
@click.option(
    "--sync-target",
    "target",
    default="",
    metavar="NAME",
    help="SyncTarget; by default the only one that the Location selects.",
)
@namespace_option("objects and Customizers without one in their file")
@output("yaml", "json")
@connection("Customizers")
def customize(
    names: tuple[str, ...],
    location: str,
    location_file: str,
    customizer_files: tuple[str, ...],
    target: str,
    namespace: str,
    output: str,
    connection: ServerOptions,
) -> None:
    """Print objects as customized for a Location: with its parameters and the replacements of their Customizer.

    The command only reads.  With --location-file and --customizer-file it needs no server.
    """
    from farflung.cli.connection import query
    from farflung.cli.customize_output import printed
    from farflung.inspect import customize
    from farflung.inspect.manifests import manifests

    if bool(location) == bool(location_file):
        raise click.UsageError("give either --location or --location-file")
    objects = customize.objects(manifests(names))
    wanted = customize.CustomizeRequest(objects, location, location_file, customizer_files, target, namespace)
    place = customize.location_in_file(wanted) if location_file else None
    known: customize.Customizers | None = customize.customizers_in_files(wanted) if customizer_files else None
    if place is None or (known is None and customize.named(wanted)):
        place, known = query(connection, lambda hub: customize.read_missing(hub, wanted, place, known))
    answer = customize.customize_objects(wanted, place, known or {})
    for warning in answer.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if answer.objects:
        click.echo(printed(answer.objects, output), nl=False)
    for problem in answer.problems:
        click.echo(f"Error: {problem}", err=True)
    if answer.problems:
        raise click.exceptions.Exit(1)
