"""Commands that explain, preview and follow what controllers do.  They change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from farflung.cli.settings import (
    NUMBER_OR_NONE,
    Command,
    Decorator,
    FileOptions,
    ServerOptions,
    connection,
    option,
    output,
    pass_settings,
    scheduler_files,
)

if TYPE_CHECKING:
    from farflung.inspect.hub import HubClient
    from farflung.machines.files.configuration import SchedulerConfiguration

FORMATS: Final = ("table", "json", "yaml")


def namespace_option(content: str) -> Any:
    return option(f"Namespace of {content}.", "default", "NAME", names="--namespace -n")


def limit_option(content: str) -> Any:
    return option(f"Number of {content}", 20, NUMBER_OR_NONE, names="--limit")


def objects_option() -> Any:
    text = "File or directory with objects, or - for standard input; repeatable."
    return option(text, (), "FILE", names="--filename -f", required=True)


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
    metavar="[WORKSPACE:]NAME",
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


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Of `farflung explain pod` and `farflung explain allocation`."""

    namespace: str = namespace_option("the object")
    limit: int = limit_option("Clusters to list, the best first; 0 lists all.")


def explain_machine(kind: str) -> Decorator:
    """A command whose body is its help."""

    def decorate(described: Command) -> Command:
        def command(
            name: str, options: MachineOptions, files: FileOptions, connection: ServerOptions, output: str
        ) -> None:
            from farflung.cli.connection import query
            from farflung.cli.machine_output import printed
            from farflung.inspect.explain_machines import explain

            configured = read_configuration(files)
            answer = query(connection, lambda hub: explain(hub, kind, name, options.namespace, configured))
            click.echo(printed(answer, output, limit=options.limit))

        command.__doc__ = described.__doc__
        for one in (
            output(*FORMATS),
            connection("object", provider=None),
            scheduler_files,
            pass_settings(MachineOptions, "options"),
            click.argument("name"),
        ):
            command = one(command)
        return command

    return decorate


@explain.command("pod", short_help="Explain to which Cluster a virtual machine is bound.")
@explain_machine("Pod")
def explain_pod() -> None:
    """Explain to which Cluster the global scheduler binds the Pod NAME, a virtual machine: for each Cluster whether it
    fits, or why not, and its score.

    The command also compares the result with the Pod; the scheduler may be behind.
    """


@explain.command("allocation", short_help="Explain to which Clusters an Allocation's replicas are bound.")
@explain_machine("Allocation")
def explain_allocation() -> None:
    """Explain to which Clusters the global scheduler binds the replicas of the Allocation NAME: for each Cluster
    whether it fits, or why not, how many replicas it has room for, and its score.

    The command also compares the result with the Allocation; the scheduler may be behind.
    """


# --- objects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpsyncOptions:
    """Of `farflung list-upsynced`."""

    namespace: str = option("Only this namespace; by default all.", value="NAME", names="--namespace -n")
    labels: str = option("Only objects with these labels.", value="SELECTOR", names="--selector -l")


@click.command(short_help="List objects that placements upsync from edges.")
@click.argument("kind")
@pass_settings(UpsyncOptions, "options")
@click.option("--json", "as_json", is_flag=True, help="Same as -o json.")
@connection("placements")
@output(*FORMATS)
def list_upsynced(kind: str, options: UpsyncOptions, as_json: bool, output: str, connection: ServerOptions) -> None:
    """List objects of KIND that were created at edges and that EdgePlacements of the workspace select in `spec.upsync`,
    from all their destinations.

    KIND is a resource, as for kubectl: nines, nine, nines.group9.test.
    """
    from datetime import UTC

    from farflung.cli.connection import query
    from farflung.cli.trace_output import print_upsynced
    from farflung.inspect.upsynced import UpsyncQuery, upsynced

    answer = query(connection, lambda hub: upsynced(hub, UpsyncQuery(kind, options.namespace, options.labels)))
    click.echo(print_upsynced(answer, "json" if as_json else output, datetime.now(UTC)))


def split_reference(words: Sequence[str]) -> tuple[str, str]:
    """Kind and name of `TYPE/NAME` or `TYPE NAME`.  Raises click.UsageError."""
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts) or "/" in "".join(parts):
        raise click.UsageError("give the object as TYPE/NAME or TYPE NAME")
    return parts[0], parts[1]


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Of `farflung trace`."""

    namespace: str = namespace_option("the object")
    destination: str = option("Only Locations and SyncTargets of this name.", value="NAME", names="--destination -d")
    limit: int = limit_option("destinations to print, those with problems first; 0 prints all.")


@click.command(short_help="Trace an object to all its destinations, and show what is stuck.")
@click.argument("words", nargs=-1, required=True, metavar="TYPE/NAME")
@pass_settings(TraceOptions, "options")
@connection("placements")
@output(*FORMATS)
def trace(words: tuple[str, ...], options: TraceOptions, output: str, connection: ServerOptions) -> None:
    """Trace one object through placement, slice, mailbox and edge to its status, for each destination.

    The command shows the time of each step, the age of that information, and the first step that is stuck.  It only
    reads.
    """
    from farflung.cli.connection import query
    from farflung.cli.trace_output import printed, show_reading
    from farflung.inspect.hub import server_time
    from farflung.inspect.trace import Trace, TraceRequest, trace

    question = TraceRequest(*split_reference(words), **asdict(options))

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


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Of `farflung plan`."""

    names: tuple[str, ...] = objects_option()
    delete: bool = option("Preview `kubectl delete` instead.", False)
    namespace: str = namespace_option("objects without one in their file")
    detailed: bool = option("Exit with 2 if something would change.", False, names="--detailed-exitcode")
    verbose: bool = option("Print unchanged destinations too.", False, names="--verbose -v")


@click.command(cls=DetailedExitCodeCommand, short_help="Preview what `kubectl apply` changes at every destination.")
@pass_settings(PlanOptions, "options")
@scheduler_files
@connection("placements")
@output(*FORMATS)
def plan(options: PlanOptions, files: FileOptions, connection: ServerOptions, output: str) -> None:
    """Preview `kubectl apply`: the destinations that EdgePlacements gain and lose, the copies that are created, changed
    or deleted at each destination, and the Clusters to which virtual machines are bound.

    The server validates the objects in a dry run.  The command changes nothing.
    """
    from farflung.cli.connection import query
    from farflung.cli.plan_output import printed
    from farflung.inspect.manifests import manifests
    from farflung.inspect.plan import check, plan

    wanted = check(manifests(options.names), options.namespace)
    configured = read_configuration(files)
    answer = query(connection, lambda hub: plan(hub, wanted, delete=options.delete, configured=configured))
    click.echo(printed(answer, output, verbose=options.verbose))
    if answer.summary.errors:
        raise click.ClickException("some objects cannot be planned; see the errors above")
    if options.detailed and answer.is_change:
        raise click.exceptions.Exit(2)


@dataclass(frozen=True, slots=True)
class CustomizeOptions:
    """Of `farflung customize`."""

    names: tuple[str, ...] = objects_option()
    location: str = option("Location, in any workspace.", value="[WORKSPACE:]NAME")
    location_file: str = option("File with the Location, instead of --location.", value="FILE")
    customizer_files: tuple[str, ...] = option(
        "File with Customizers; by default those of the workspace; repeatable.", (), "FILE", names="--customizer-file"
    )
    target: str = option(
        "SyncTarget; by default the only one that the Location selects.", value="NAME", names="--sync-target"
    )
    namespace: str = namespace_option("objects and Customizers without one in their file")


@click.command(short_help="Print objects as customized for a Location.")
@pass_settings(CustomizeOptions, "options")
@output("yaml", "json")
@connection("Customizers")
def customize(options: CustomizeOptions, output: str, connection: ServerOptions) -> None:
    """Print objects as customized for a Location: with its parameters and the replacements of their Customizer.

    The command only reads.  With --location-file and --customizer-file it needs no server.
    """
    from farflung.cli.connection import query
    from farflung.cli.output import manifests_text
    from farflung.inspect import customize
    from farflung.inspect.manifests import manifests

    if bool(options.location) == bool(options.location_file):
        raise click.UsageError("give either --location or --location-file")
    given = asdict(options)
    wanted = customize.CustomizeRequest(customize.objects(manifests(given.pop("names"))), **given)
    place = customize.location_in_file(wanted) if wanted.location_file else None
    known: customize.Customizers | None = customize.customizers_in_files(wanted) if wanted.customizer_files else None
    if place is None or (known is None and customize.named(wanted)):
        place, known = query(connection, lambda hub: customize.read_missing(hub, wanted, place, known))
    answer = customize.customize_objects(wanted, place, known or {})
    for warning in answer.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if answer.objects:
        click.echo(manifests_text(answer.objects, output), nl=False)
    for problem in answer.problems:
        click.echo(f"Error: {problem}", err=True)
    if answer.problems:
        raise click.exceptions.Exit(1)
