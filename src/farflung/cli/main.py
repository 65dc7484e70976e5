"""The command line: options, help texts and composition.  Each command imports its modules when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from farflung.cli.edge import edge
from farflung.inspect.errors import InspectError
from farflung.lib import memory
from farflung.lib.packages import WrongPackage

if TYPE_CHECKING:
    from farflung.cli.connection import ServerOptions
from farflung.lib.version import __version__


class CommandGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (WrongPackage, InspectError) as error:
            raise click.ClickException(str(error)) from None


Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def options(*several: Decorator) -> Decorator:
    """One decorator for several options, in the order of `--help`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(several):
            command = option(command)
        return command

    return decorate


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


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farflung")
def main() -> None:
    """Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""
    memory.collect_seldom()


main.add_command(edge)


SERVING = (
    click.option(
        "--root-directory",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(".farflung"),
        show_default=True,
        help="Directory for the hub's data, certificates and admin.kubeconfig.",
    ),
    click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=6443,
        show_default=True,
        help="Port to listen on; 0 picks a free one.",
    ),
    click.option(
        "--external-hostname",
        "hostnames",
        multiple=True,
        help="Additional host name or IP address for the serving certificate; repeatable.",
    ),
    click.option(
        "--history",
        type=click.IntRange(1),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="Seconds of history that the store keeps, so that clients can resume watches.",
    ),
    click.option(
        "--event-ttl",
        type=click.IntRange(1),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="Seconds until the hub deletes an Event after its last write.",
    ),
    click.option("--verbose", "-v", is_flag=True, help="Log in more detail."),
)
serving_options = options(*SERVING)  #: options of `farflung hub` and `farflung start`


class PercentType(click.ParamType[int]):
    """A percentage, like `50%`."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from farflung.placement.guard import parse_share

        try:
            return parse_share(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


WITHDRAWAL = (
    click.option(
        "--max-withdraw",
        type=PercentType(),
        default="50%",
        show_default=True,
        metavar="PERCENT",
        help="Hold withdrawals that affect more than PERCENT of a placement's destinations and more than "
        "--max-withdraw-number, until confirmed.",
    ),
    click.option(
        "--max-withdraw-number",
        type=click.IntRange(0),
        default=10,
        show_default=True,
        metavar="NUMBER",
        help="Hold withdrawals only if they affect more than NUMBER destinations; see --max-withdraw.",
    ),
)
withdrawal_options = options(*WITHDRAWAL)  #: limits of withdrawals that need no confirmation


STALE_AFTER = click.option(
    "--stale-after",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Mark a cluster's status stale after SECONDS without a syncer heartbeat.",
)


SCHEDULER_FILES = (
    click.option(
        "--conf",
        metavar="DIR",
        envvar="CONFIG_BASE",
        default="",
        help="Directory with conf.yaml, flavors, sites and policy of the global scheduler; default $CONFIG_BASE.",
    ),
    click.option(
        "--policy-file",
        metavar="FILE",
        default="",
        help="File with the scheduling policy (predicates and priorities); by default the one that conf.yaml names, "
        "or the default policy.",
    ),
)


def configuration_directory(context: click.Context) -> str:
    """The directory of `--conf`.  A CONFIG_BASE of another program is ignored."""
    from farflung.machines.files.scheduler_files import own_directory

    named = str(context.params["conf"])
    from_environment = context.get_parameter_source("conf") is click.core.ParameterSource.ENVIRONMENT
    return own_directory(named) if from_environment else named


@main.command(short_help="Run a hub with one plain Kubernetes API.")
@serving_options
def hub(
    root_directory: Path,
    bind_address: str,
    port: int,
    hostnames: tuple[str, ...],
    history: int,
    event_ttl: int,
    verbose: bool,
) -> None:
    """Run a hub with one plain Kubernetes API in the foreground until SIGTERM or ^C.

    \b
    The hub writes DIR/admin.kubeconfig.  In another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl get namespaces
    """
    from farflung.cli.hub import HubSettings, run

    run(HubSettings(root_directory, bind_address, port, hostnames, history, verbose, event_ttl))


@main.command(short_help="Run a hub with workspaces.")
@serving_options
@click.option("--bare", is_flag=True, help="Create only the workspaces that the hub itself needs: no root:espw.")
@click.option(
    "--controllers/--no-controllers",
    default=None,
    help="Run the controllers in a second process; the default, unless --bare is given.",
)
@withdrawal_options
@STALE_AFTER
@options(*SCHEDULER_FILES)
@click.pass_context
def start(
    context: click.Context,
    root_directory: Path,
    bind_address: str,
    port: int,
    hostnames: tuple[str, ...],
    history: int,
    event_ttl: int,
    verbose: bool,
    bare: bool,
    controllers: bool | None,
    max_withdraw: int,
    max_withdraw_number: int,
    stale_after: float,
    conf: str,
    policy_file: str,
) -> None:
    """Run a hub with workspaces in the foreground until SIGTERM or ^C.

    \b
    The hub writes DIR/admin.kubeconfig.  In another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl ws create shop --enter
    """
    from farflung.cli.hub import HubSettings, run
    from farflung.machines.files.scheduler_files import SchedulerFiles
    from farflung.placement.guard import WithdrawalLimits

    settings = HubSettings(root_directory, bind_address, port, hostnames, history, verbose, event_ttl, workspaces=True)
    controllers = not bare if controllers is None else controllers
    limits, files = (
        WithdrawalLimits(max_withdraw, max_withdraw_number),
        SchedulerFiles(configuration_directory(context), policy_file),
    )
    run(replace(settings, bare=bare, controllers=controllers, limits=limits, stale_after=stale_after, files=files))


def connection_options(*names: str) -> Decorator:
    """`--NAME-kubeconfig`, `--NAME-context`, `--NAME-user` and `--NAME-cluster` for each name, as in kcp-edge."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            for part in ("kubeconfig", "context", "user", "cluster"):
                text = f"Like --{part}, for one of several connections to the server."
                command = click.option(f"--{name}-{part}", default="", hidden=True, help=text)(command)
        return command

    return decorate


class Level(click.types.IntParamType):
    """A number; also `-v=2`, as Go programs accept it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(number, param, ctx)


def controller_options(
    verbosity: int, workers: int | None = 4, provider: str = "the one of the kubeconfig's context"
) -> Decorator:
    """Options of every controller process."""
    defaults = "4; placement translator 16, status summarizer 8, global scheduler 32"
    each = "" if workers else f" of each controller; default {defaults}"
    return options(
        click.option(
            "--kubeconfig",
            "--kcp-kubeconfig",
            "kubeconfig",
            metavar="FILE",
            default="",
            help="Kubeconfig of the hub; by default the one that kubectl would use.",
        ),
        click.option("--context", default="", help="Context of the kubeconfig; by default the current one."),
        click.option(
            "--provider-path",
            "--espw-path",
            "provider",
            metavar="PATH",
            default="",
            help=f"Workspace that exports the edge API; by default {provider}.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1),
            default=workers,
            show_default=workers is not None,
            help=f"Number of concurrent workers{each}.",
        ),
        click.option(
            "--server-bind-address",
            "bind_address",
            metavar="HOST:PORT",
            default="",
            help="Serve /healthz, /readyz and /metrics at this address; by default not at all.",
        ),
        click.option("--leader-elect", is_flag=True, help="Work only while this process holds the Lease of its kind."),
        click.option(
            "--identity-file",
            metavar="FILE",
            default="",
            help="File with this process's Lease identity; a restarted process takes over without waiting.",
        ),
        click.option(
            "-v",
            "--v",
            "--verbosity",
            "verbosity",
            type=Level(),
            default=verbosity,
            show_default=True,
            metavar="LEVEL",
            help="Log level.",
        ),
    )


@main.command()
@controller_options(verbosity=2)
@click.option(
    "--controller-name",
    "name",
    default="edge-scheduler",
    show_default=True,
    help="Name of the controller in log lines.",
)
@click.option("--log-only", is_flag=True, help="Only log changes of EdgePlacements; write nothing.")
@click.option("--feature-gates", default="", hidden=True, help="Ignored; accepted for scripts of other schedulers.")
@connection_options("espw", "root", "sysadm", "base")
def scheduler(**options: Any) -> None:
    """Run the edge scheduler until SIGTERM or ^C.

    It resolves each EdgePlacement and writes its destinations to SinglePlacementSlices.  `farflung start` also runs it.
    """
    from farflung.cli.controllers import SCHEDULER, read_settings, run

    run(read_settings("farflung scheduler", (SCHEDULER,), options))


@main.command("mailbox-controller")
@controller_options(verbosity=0)
@connection_options("inventory", "workload", "mbws", "espw", "root")
def mailbox_controller(**options: Any) -> None:
    """Run the mailbox controller until SIGTERM or ^C.

    It creates and deletes the mailbox workspace of each SyncTarget.  `farflung start` also runs it.
    """
    from farflung.cli.controllers import MAILBOXES, read_settings, run

    run(read_settings("farflung mailbox-controller", (MAILBOXES,), options))


translator_options = options(
    *WITHDRAWAL, connection_options("allclusters")
)  #: further options of the placement translator


@main.command("placement-translator")
@controller_options(verbosity=0, workers=16)
@translator_options
@connection_options("espw", "root")
def placement_translator(**options: Any) -> None:
    """Run the placement translator until SIGTERM or ^C.

    It writes copies of placed objects to mailboxes, and the SyncerConfig of each mailbox.  `farflung start` also runs
    it.
    """
    from farflung.cli.controllers import TRANSLATOR, read_settings, run

    run(read_settings("farflung placement-translator", (TRANSLATOR,), options))


@main.command("status-summarizer")
@controller_options(verbosity=0, workers=8)
@STALE_AFTER
@connection_options("espw", "root", "allclusters")
def status_summarizer(**options: Any) -> None:
    """Run the status summarizer until SIGTERM or ^C.

    It writes a StatusSummary for each placed object into the object's workspace.  `farflung start` also runs it.
    """
    from farflung.cli.controllers import SUMMARIZER, read_settings, run

    run(read_settings("farflung status-summarizer", (SUMMARIZER,), options))


@main.command("global-scheduler")
@controller_options(verbosity=1, workers=32, provider="root:espw")
@options(*SCHEDULER_FILES)
@connection_options("espw", "root", "allclusters")
def run_global_scheduler(**options: Any) -> None:
    """Run the global scheduler until SIGTERM or ^C.

    It binds Allocations, and Pods that are virtual machines, to Clusters.  Only the holder of its Lease works.
    `farflung start` also runs it.
    """
    from farflung.cli.controllers import GLOBAL, read_settings, report_errors, run
    from farflung.cli.start import PROVIDER

    command = "farflung global-scheduler"
    with report_errors(command):
        # the global scheduler always elects a leader, by its own Lease
        options = {**options, "provider": options["provider"] or PROVIDER, "leader_elect": False}
        settings = read_settings(command, (GLOBAL,), options)
    run(settings)


@main.command(short_help="Run all controllers in one process.")
@controller_options(verbosity=1, workers=None)
@translator_options
@STALE_AFTER
@options(*SCHEDULER_FILES)
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input is closed.")
@click.option("--kept-files", hidden=True, default="", help="File with the last valid copy of the files of --conf.")
@click.pass_context
def controllers(click_context: click.Context, /, **options: Any) -> None:
    """Run all controllers in one process until SIGTERM or ^C.  `farflung start` also runs them."""
    from farflung.cli.controllers import ALL, read_settings, report_errors, run

    with report_errors("farflung controllers"):
        settings = read_settings(
            "farflung controllers", ALL, {**options, "conf": configuration_directory(click_context)}
        )
    run(settings)


def server_options(content: str) -> tuple[Decorator, ...]:
    """The server, the credentials and the workspace.  `content`: what the command reads in that workspace."""
    return (
        click.option(
            "--workspace",
            metavar="PATH",
            default="",
            help=f"Workspace with the {content}; by default the one of the kubeconfig's context.",
        ),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            default="",
            help="Kubeconfig of the hub; by default the one that kubectl would use.",
        ),
        click.option("--context", default="", help="Context of the kubeconfig; by default the current one."),
        click.option(
            "--provider-path",
            "provider",
            metavar="PATH",
            default="root:espw",
            show_default=True,
            help="Workspace that exports the edge API.",
        ),
    )


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Passes `server_options` as one argument `connection`."""

    @wraps(command)
    def call(
        *arguments: Any, kubeconfig: str, context: str, workspace: str, provider: str = "root:espw", **named: Any
    ) -> None:
        from farflung.cli.connection import ServerOptions

        command(*arguments, connection=ServerOptions(kubeconfig, context, workspace, provider), **named)

    return call


QUERY: tuple[Decorator, ...] = (
    *server_options("placements"),
    click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="Output format.",
    ),
)
query_options = options(*QUERY, connected)
registration_options = options(*server_options("SyncTarget"), connected)
fleet_query_options = options(*QUERY[1:], connected)  #: the query options without --workspace


@main.command(short_help="Show the fleet: edges, placements, summaries and problems.")
@click.option("--all", "everything", is_flag=True, help="List everything, also objects without problems.")
@click.option("--check", is_flag=True, help="Exit with 1 if there is a problem.")
@click.option(
    "--workspace",
    metavar="PATH",
    default="",
    help="Only this workspace; by default every workspace that you may read.",
)
@fleet_query_options
def status(everything: bool, check: bool, output: str, connection: ServerOptions) -> None:
    """Show the fleet: edges by state, placements with problems, held withdrawals, objects with broken copies, Clusters
    and virtual machines.

    It lists only objects with problems, unless --all is given.
    """
    from datetime import datetime

    from farflung.cli import status_output
    from farflung.cli.connection import query
    from farflung.inspect import fleet_status
    from farflung.inspect.hub import HubClient, server_time

    async def read_status(hub: HubClient) -> tuple[fleet_status.FleetStatus, datetime]:
        now = await server_time(hub)
        return await fleet_status.status(hub, now, only=bool(connection.workspace), everything=everything), now

    answer, now = query(replace(connection, anywhere=True), read_status)
    click.echo(status_output.printed(answer, output, now, everything=everything))
    if check and not answer.well:
        raise click.exceptions.Exit(1)


@main.group(cls=KindGroup)
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
@query_options
def explain_placement(name: str, location: str, output: str, connection: ServerOptions) -> None:
    """Explain the destinations of the EdgePlacement NAME: whether it selects each Location and SyncTarget, or why not.

    The command also compares the result with the placement's status and slices; the scheduler may be behind.
    """
    from farflung.cli import explain_output
    from farflung.cli.connection import query
    from farflung.inspect import explain

    answer = query(connection, lambda hub: explain.explain(hub, name, location))
    click.echo(explain_output.printed(answer, output, detailed=bool(location)))


MACHINE: tuple[Decorator, ...] = (
    click.option(
        "--namespace", "-n", default="default", show_default=True, metavar="NAME", help="Namespace of the object."
    ),
    click.option(
        "--limit",
        type=click.IntRange(0),
        default=20,
        show_default=True,
        metavar="NUMBER",
        help="Number of Clusters to list, the best first; 0 lists all.",
    ),
    *SCHEDULER_FILES,
    *server_options("object")[:-1],  # without --provider-path
    QUERY[-1],
)
machine_options = options(*MACHINE, connected)  #: the object, and the files of the global scheduler


def scheduler_configuration(context: click.Context) -> Any:
    """The configuration files of the global scheduler, parsed."""
    from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError

    try:
        return SchedulerFiles(configuration_directory(context), context.params["policy_file"]).read()
    except SchedulerFilesError as error:
        raise click.ClickException(str(error)) from None


def explain_machine(context: click.Context, kind: str, name: str, options: dict[str, Any]) -> None:
    from farflung.cli import machine_output as machine_text
    from farflung.cli.connection import query
    from farflung.inspect import explain_machines

    configured, namespace = scheduler_configuration(context), options["namespace"]
    answer = query(options["connection"], lambda hub: explain_machines.explain(hub, kind, name, namespace, configured))
    click.echo(machine_text.printed(answer, options["output"], limit=options["limit"]))


@explain.command("pod", short_help="Explain to which Cluster a virtual machine is bound.")
@click.argument("name")
@machine_options
@click.pass_context
def explain_pod(click_context: click.Context, /, name: str, **options: Any) -> None:
    """Explain to which Cluster the global scheduler binds the Pod NAME, a virtual machine: for each Cluster whether it
    fits, or why not, and its score.

    The command also compares the result with the Pod; the scheduler may be behind.
    """
    explain_machine(click_context, "Pod", name, options)


@explain.command("allocation", short_help="Explain to which Clusters an Allocation's replicas are bound.")
@click.argument("name")
@machine_options
@click.pass_context
def explain_allocation(click_context: click.Context, /, name: str, **options: Any) -> None:
    """Explain to which Clusters the global scheduler binds the replicas of the Allocation NAME: for each Cluster
    whether it fits, or why not, how many replicas it has room for, and its score.

    The command also compares the result with the Allocation; the scheduler may be behind.
    """
    explain_machine(click_context, "Allocation", name, options)


@main.command("list-upsynced", short_help="List objects that placements upsync from edges.")
@click.argument("kind")
@click.option("--namespace", "-n", default="", metavar="NAME", help="Only this namespace; by default all.")
@click.option("--selector", "-l", "labels", default="", metavar="SELECTOR", help="Only objects with these labels.")
@click.option("--json", "as_json", is_flag=True, help="Same as -o json.")
@query_options
def list_upsynced(
    kind: str,
    namespace: str,
    labels: str,
    as_json: bool,
    output: str,
    connection: ServerOptions,
) -> None:
    """List objects of KIND that were created at edges and that EdgePlacements of the workspace select in `spec.upsync`,
    from all their destinations.

    KIND is a resource, as for kubectl: nines, nine, nines.group9.test.
    """
    from datetime import UTC, datetime

    from farflung.cli import upsynced_output
    from farflung.cli.connection import query
    from farflung.inspect import upsynced

    question = upsynced.UpsyncQuery(kind, namespace, labels)
    answer = query(connection, lambda hub: upsynced.upsynced(hub, question))
    click.echo(upsynced_output.printed(answer, "json" if as_json else output, datetime.now(UTC)))


@main.command(short_help="Trace an object to all its destinations, and show what is stuck.")
@click.argument("words", nargs=-1, required=True, metavar="TYPE/NAME")
@click.option(
    "--namespace", "-n", default="default", show_default=True, metavar="NAME", help="Namespace of the object."
)
@click.option("--destination", "-d", default="", metavar="NAME", help="Only Locations and SyncTargets of this name.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="NUMBER",
    help="Number of destinations to print, those with problems first; 0 prints all.",
)
@query_options
def trace(
    words: tuple[str, ...],
    namespace: str,
    destination: str,
    limit: int,
    output: str,
    connection: ServerOptions,
) -> None:
    """Trace one object through placement, slice, mailbox and edge to its status, for each destination.

    The command shows the time of each step, the age of that information, and the first step that is stuck.  It only
    reads.
    """
    from datetime import datetime

    from farflung.cli import trace_output
    from farflung.cli.connection import query
    from farflung.inspect import trace
    from farflung.inspect.hub import HubClient, server_time

    question = trace.TraceRequest(*trace_output.named(words), namespace, destination, limit)

    async def traced(hub: HubClient) -> tuple[trace.Trace, datetime]:
        now = await server_time(hub)
        return await trace.trace(hub, question, now, trace_output.show_reading), now

    answer, now = query(connection, traced)
    click.echo(trace_output.printed(answer, output, now))
    if answer.is_stuck:
        raise click.exceptions.Exit(1)


class UsageErrorExitingWith1(click.UsageError):
    exit_code = 1


class DetailedExitCodeCommand(click.Command):
    """A command for which exit code 2 is a result, so that usage errors exit with 1."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **named)
        except click.UsageError as error:
            raise UsageErrorExitingWith1(error.format_message(), error.ctx) from None


@main.command(cls=DetailedExitCodeCommand, short_help="Preview what `kubectl apply` changes at every destination.")
@click.option(
    "--filename",
    "-f",
    "names",
    multiple=True,
    required=True,
    metavar="FILE",
    help="File or directory with objects, or - for standard input; repeatable.",
)
@click.option("--delete", is_flag=True, help="Preview `kubectl delete` instead.")
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Namespace of objects without one in their file.",
)
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit with 2 if something would change.")
@click.option("--verbose", "-v", is_flag=True, help="Print unchanged destinations too.")
@options(*SCHEDULER_FILES)
@query_options
@click.pass_context
def plan(
    click_context: click.Context,
    /,
    names: tuple[str, ...],
    delete: bool,
    namespace: str,
    detailed: bool,
    verbose: bool,
    output: str,
    connection: ServerOptions,
    conf: str,
    policy_file: str,
) -> None:
    """Preview `kubectl apply`: the destinations that EdgePlacements gain and lose, the copies that are created, changed
    or deleted at each destination, and the Clusters to which virtual machines are bound.

    The server validates the objects in a dry run.  The command changes nothing.
    """
    from farflung.cli import plan_output
    from farflung.cli.connection import query
    from farflung.inspect import plan
    from farflung.inspect.manifests import manifests

    wanted = plan.check(manifests(names), namespace)
    configured = scheduler_configuration(click_context)
    answer = query(connection, lambda hub: plan.plan(hub, wanted, delete=delete, configured=configured))
    click.echo(plan_output.printed(answer, output, verbose=verbose))
    if answer.summary.errors:
        raise click.ClickException("some objects cannot be planned; see the errors above")
    if detailed and answer.is_change:
        raise click.exceptions.Exit(2)


CUSTOMIZE: tuple[Decorator, ...] = (
    click.option(
        "--filename",
        "-f",
        "names",
        multiple=True,
        required=True,
        metavar="FILE",
        help="File or directory with objects, or - for standard input; repeatable.",
    ),
    click.option("--location", default="", metavar="[WORKSPACE:]NAME", help="Location, in any workspace."),
    click.option("--location-file", default="", metavar="FILE", help="File with the Location, instead of --location."),
    click.option(
        "--customizer-file",
        "customizer_files",
        multiple=True,
        metavar="FILE",
        help="File with Customizers; by default those of the workspace; repeatable.",
    ),
    click.option(
        "--sync-target",
        "target",
        default="",
        metavar="NAME",
        help="SyncTarget; by default the only one that the Location selects.",
    ),
    click.option(
        "--namespace",
        "-n",
        default="default",
        show_default=True,
        metavar="NAME",
        help="Namespace of objects and Customizers without one in their file.",
    ),
    click.option(
        "--output",
        "-o",
        type=click.Choice(["yaml", "json"]),
        default="yaml",
        show_default=True,
        help="Output format.",
    ),
    *server_options("Customizers"),
)
customize_options = options(*CUSTOMIZE, connected)  #: the objects, the Location and the Customizers


@main.command(short_help="Print objects as customized for a Location.")
@customize_options
def customize(
    names: tuple[str, ...],
    output: str,
    connection: ServerOptions,
    **question: Any,
) -> None:
    """Print objects as customized for a Location: with its parameters and the replacements of their Customizer.

    The command only reads.  With --location-file and --customizer-file it needs no server.
    """
    from farflung.cli import customize_output
    from farflung.cli.connection import query
    from farflung.inspect import customize
    from farflung.inspect.manifests import manifests

    if bool(question["location"]) == bool(question["location_file"]):
        raise click.UsageError("give either --location or --location-file")
    wanted = customize.CustomizeRequest(customize.objects(manifests(names)), **question)
    place = customize.location_in_file(wanted) if wanted.location_file else None
    known: customize.Customizers | None = customize.customizers_in_files(wanted) if wanted.customizer_files else None
    if place is None or (known is None and customize.named(wanted)):
        place, known = query(connection, lambda hub: customize.read_missing(hub, wanted, place, known))
    answer = customize.customize_objects(wanted, place, known or {})
    for warning in answer.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if answer.objects:
        click.echo(customize_output.printed(answer.objects, output), nl=False)
    for problem in answer.problems:
        click.echo(f"Error: {problem}", err=True)
    if answer.problems:
        raise click.exceptions.Exit(1)


@main.command(short_help="Apply a mailbox's objects to a cluster and report their status.")
@click.option("--from-kubeconfig", required=True, metavar="FILE", help="Kubeconfig of the mailbox.")
@click.option(
    "--from-context", default="", metavar="NAME", help="Context of that kubeconfig; by default the current one."
)
@click.option(
    "--from-cluster", default="", metavar="PATH", help="Path of the mailbox, if the context is of another workspace."
)
@click.option(
    "--to-kubeconfig",
    default="",
    metavar="FILE",
    help="Kubeconfig of the cluster; in a Pod, by default the Pod's cluster.",
)
@click.option(
    "--to-context", default="", metavar="NAME", help="Context of that kubeconfig; by default the current one."
)
@click.option("--sync-target-name", "name", required=True, metavar="NAME", help="SyncTarget of the cluster.")
@click.option("--sync-target-uid", "uid", required=True, metavar="UID", help="UID of the SyncTarget.")
@click.option(
    "--state-directory",
    "state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".farflung-syncer"),
    show_default=True,
    help="Directory of the journal, from which the syncer works without the hub; it holds Secrets.",
)
@click.option(
    "--adopt",
    type=click.Choice(["never", "if-identical", "always"]),
    default="if-identical",
    show_default=True,
    help="Take over objects that exist in the cluster without this syncer: never, if identical, always.",
)
@click.option(
    "--token-secret", default="", metavar="NAMESPACE/NAME", help="Secret in the cluster that stores a renewed token."
)
@click.option(
    "--server-bind-address",
    "bind_address",
    default="",
    metavar="HOST:PORT",
    help="Serve /healthz, /readyz and /metrics at this address.",
)
@click.option("-v", "--v", "--verbosity", "verbosity", default=0, show_default=True, help="Log level, 0 to 5.")
@click.option("--qps", type=float, hidden=True, help="Ignored; accepted for old manifests.")
@click.option("--burst", type=int, hidden=True, help="Ignored; accepted for old manifests.")
def syncer(adopt: str, qps: float | None, burst: int | None, **options: Any) -> None:
    """Run the agent of one cluster: apply the mailbox's objects to the cluster and report their status.

    The syncer connects to the hub, so the cluster needs no open port.  Without the hub it continues from its journal.
    It deletes only objects that the hub withdrew.  `farflung syncer-gen` prints its manifest.
    """
    from farflung.cli.syncer import SyncerSettings, run
    from farflung.syncer.decide import Adopt

    if options["token_secret"] and not all(options["token_secret"].partition("/")):
        raise click.BadParameter(
            f"{options['token_secret']!r} is not of the form NAMESPACE/NAME", param_hint="--token-secret"
        )
    run(SyncerSettings(adopt=Adopt(adopt), **options))


@main.command("syncer-gen", short_help="Print the manifest of a SyncTarget's syncer.")
@click.argument("name")
@click.option(
    "--output",
    "-o",
    default="-",
    show_default=True,
    metavar="FILE",
    help="File to write, - for standard output; a token in FILE is kept while it is valid for long enough.",
)
@click.option(
    "--syncer-kubeconfig",
    default="",
    metavar="FILE",
    help="Write only a kubeconfig, to run `farflung syncer` outside of the cluster.",
)
@click.option(
    "--server",
    default="",
    metavar="URL",
    help="URL of the hub as seen from the cluster; by default the one of the kubeconfig.",
)
@click.option(
    "--syncer-image",
    "image",
    default="",
    metavar="IMAGE",
    help="Image of the syncer; by default farflung-syncer with this version as tag.",
)
@click.option(
    "--replicas", type=click.IntRange(0, 1), default=1, show_default=True, help="Replicas of the Deployment, 0 or 1."
)
@click.option(
    "--namespace", "-n", default="", metavar="NAME", help="Namespace of the syncer in the cluster; by default its own."
)
@click.option(
    "--labels", multiple=True, metavar="KEY=VALUE,…", help="Labels of every object in the manifest; repeatable."
)
@click.option(
    "--lifetime", default="30d", show_default=True, metavar="DURATION", help="Lifetime of the token, like 12h or 30d."
)
@click.option("--all-resources", "everything", is_flag=True, help="Allow every resource, also future ones.")
@click.option(
    "--allow", "allowed", multiple=True, metavar="GROUP/RESOURCE,…", help="Allow downsync of this resource too."
)
@click.option(
    "--allow-upsync", "allowed_up", multiple=True, metavar="GROUP/RESOURCE,…", help="Allow upsync of this resource."
)
@click.option("--state-claim", "claim", default="", metavar="NAME", help="PersistentVolumeClaim for the journal.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the mailbox.",
)
@registration_options
def syncer_gen(connection: ServerOptions, **options: Any) -> None:
    """Create the ServiceAccount and roles of the SyncTarget NAME's syncer in its mailbox, and print its manifest.

    The ServiceAccount has no rights outside of that mailbox.  The command is idempotent, apart from the token.
    """
    from farflung.cli import syncer_gen

    options["image"] = options["image"] or syncer_gen.IMAGE
    syncer_gen.generate(syncer_gen.ManifestOptions(**options), connection)


@main.command("syncer-revoke", short_help="Revoke the access of a SyncTarget's syncer.")
@click.argument("name")
@registration_options
def syncer_revoke(name: str, connection: ServerOptions) -> None:
    """Revoke the access of the SyncTarget NAME's syncer to its mailbox: the hub refuses its tokens at once.

    The objects in its cluster stay.
    """
    from farflung.cli import syncer_gen

    syncer_gen.revoke_access(name, connection)


@main.group()
def token() -> None:
    """Create, list and revoke tokens of users.

    A running hub accepts a new token at once and refuses a revoked one within seconds.
    """


root_directory = click.option(
    "--root-directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".farflung"),
    show_default=True,
    help="The hub's directory.",
)


@token.command("create")
@click.argument("name")
@click.option("--group", "groups", multiple=True, help="Group of the user; repeatable.")
@click.option(
    "--expires", "lifetime", metavar="DURATION", help="Lifetime of the token, like 12h or 30d; by default unlimited."
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
def create_token(name: str, groups: tuple[str, ...], lifetime: str | None, output: str, root_directory: Path) -> None:
    """Print a new token for the user NAME.  The hub stores only its hash, so it cannot be shown again."""
    from farflung.cli import tokens

    click.echo(tokens.create(root_directory, name, groups, tokens.duration(lifetime), output), nl=False)


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


@main.command(short_help="Place two workloads on two small clusters, and fetch their pages.")
@click.argument("story", type=click.Choice(["edges", "global"]), default="edges")
@click.option("--keep", is_flag=True, help="Leave the demo running, and print commands to try.")
@click.option("--stop", is_flag=True, help="Stop and remove a demo that --keep left running.")
@click.option("--replace", is_flag=True, help="First stop and remove an earlier demo.")
@click.option(
    "--runtime",
    type=click.Choice(["auto", "podman", "process"]),
    default="process",
    show_default=True,
    help="Runtime of pods: podman runs their images, process runs local processes instead of them.",
)
@click.option(
    "--first-port",
    type=click.IntRange(1, 65533),
    default=8081,
    show_default=True,
    help="Local port of the first page; the others are at the next two ports.",
)
def demo(story: str, keep: bool, stop: bool, replace: bool, runtime: str, first_port: int) -> None:
    """Start a hub, two small clusters and their syncers, place two web sites on them, and fetch their pages.

    The pages use three local ports, which must be free.  The demo needs no other software and removes everything that
    it creates.

    `farflung demo global` shows how the global scheduler binds virtual machines to a dozen Clusters.
    """
    from farflung.cli import demo, demo_global, demo_stage

    if stop:
        demo_stage.stop()
    elif story == "global":
        demo_global.run(keep=keep, replace=replace)
    else:
        demo.run(keep=keep, replace=replace, runtime=runtime, first_port=first_port)
