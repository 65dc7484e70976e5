"""The command line: words and composition, no logic.  What a command needs is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from farflung import __version__
from farflung.cli.edge import edge
from farflung.cli.explained_kinds import Kinds
from farflung.lib import garbage
from farflung.lib.packages import WrongPackage


class Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WrongPackage as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farflung")
def main() -> None:
    """Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""
    garbage.collect_seldom()


main.add_command(edge)


def serving_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every hub has to be told, with or without workspaces."""
    for option in reversed(SERVING):
        command = option(command)
    return command


SERVING = (
    click.option(
        "--root-directory",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(".farflung"),
        show_default=True,
        help="Where the hub keeps its data, certificates and admin.kubeconfig.",
    ),
    click.option("--bind-address", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option(
        "--port", type=click.IntRange(0, 65535), default=6443, show_default=True, help="0 takes any free port."
    ),
    click.option(
        "--external-hostname",
        "hostnames",
        multiple=True,
        help="A further name or address for the server's certificate.",
    ),
    click.option(
        "--history",
        type=click.IntRange(1),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="How long a client may be away and still resume its watches.",
    ),
    click.option(
        "--event-ttl",
        type=click.IntRange(1),
        default=3600,
        show_default=True,
        metavar="SECONDS",
        help="How long an Event stays after it was last written.",
    ),
    click.option("--verbose", "-v", is_flag=True, help="Log more."),
)


class Share(click.ParamType[int]):
    """A percentage, as `50%`."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from farflung.controllers.placement_translator.guard import parse_share

        try:
            return parse_share(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def guarding_options(command: Callable[..., None]) -> Callable[..., None]:
    """How much may be withdrawn at once."""
    for option in reversed(GUARDING):
        command = option(command)
    return command


GUARDING = (
    click.option(
        "--max-withdraw",
        type=Share(),
        default="50%",
        show_default=True,
        metavar="PERCENT",
        help="Hold a change that takes objects from more than this share of the destinations of a placement,",
    ),
    click.option(
        "--max-withdraw-number",
        type=click.IntRange(0),
        default=10,
        show_default=True,
        metavar="NUMBER",
        help="and from more than this number of them, until it is confirmed.",
    ),
)


STALE_AFTER = click.option(
    "--stale-after",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Call what is known of a cluster stale when nothing was heard of its syncer for so long.",
)


CONFIGURING = (
    click.option(
        "--conf",
        metavar="DIR",
        envvar="CONFIG_BASE",
        default="",
        help="A directory with conf.yaml, and with flavors, sites and a policy beside it; CONFIG_BASE names it, too.",
    ),
    click.option(
        "--policy-file",
        metavar="FILE",
        default="",
        help="Which predicates and priorities decide; by default what conf.yaml names, or all of them.",
    ),
)


def named_directory(context: click.Context) -> str:
    """That of `--conf`.  Other programs have a CONFIG_BASE, too."""
    from farflung.cli.scheduler_files import ours

    named = str(context.params["conf"])
    from_environment = context.get_parameter_source("conf") is click.core.ParameterSource.ENVIRONMENT
    return ours(named) if from_environment else named


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
    It writes DIR/admin.kubeconfig; in another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl get namespaces
    """
    from farflung.cli.hub import Settings, run

    run(Settings(root_directory, bind_address, port, hostnames, history, verbose, event_ttl))


@main.command(short_help="Run a hub with workspaces.")
@serving_options
@click.option("--bare", is_flag=True, help="Leave out of the first workspaces what can be made by hand.")
@click.option(
    "--controllers/--no-controllers",
    default=None,
    help="Whether to run the controllers beside the hub; by default so, unless --bare is given.",
)
@guarding_options
@STALE_AFTER
@CONFIGURING[0]
@CONFIGURING[1]
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
    It writes DIR/admin.kubeconfig; in another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl ws create shop --enter
    """
    from farflung.cli.hub import Settings, run
    from farflung.cli.scheduler_files import Files
    from farflung.controllers.placement_translator.guard import Limits

    settings = Settings(root_directory, bind_address, port, hostnames, history, verbose, event_ttl, workspaces=True)
    beside = not bare if controllers is None else controllers
    limits, files = Limits(max_withdraw, max_withdraw_number), Files(named_directory(context), policy_file)
    run(replace(settings, bare=bare, controllers=beside, limits=limits, stale_after=stale_after, files=files))


def ways(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`--NAME-kubeconfig`, `--NAME-context`, `--NAME-user` and `--NAME-cluster` of each: how such commands are told the
    way to a server elsewhere."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            for part in ("kubeconfig", "context", "user", "cluster"):
                told = f"As --{part}, for one of several ways to the server."
                command = click.option(f"--{name}-{part}", default="", hidden=True, help=told)(command)
        return command

    return decorate


class Level(click.types.IntParamType):
    """A number; also `-v=2`, as Go's programs are told it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        told: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(told, param, ctx)


def controlling_options(
    verbosity: int, workers: int | None = 4, provider: str = "the one that the kubeconfig leads to"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What every controller has to be told."""
    usual = "4, 16 of the placement translator, 8 of the summarizer, 32 of the global scheduler"
    each = "" if workers else f" of each controller; by default {usual}"
    options = (
        click.option(
            "--kubeconfig",
            "--kcp-kubeconfig",
            "kubeconfig",
            metavar="FILE",
            default="",
            help="Where the server is and who we are; by default as kubectl finds it.",
        ),
        click.option("--context", default="", help="Which context of the kubeconfig; by default the current one."),
        click.option(
            "--provider-path",
            "--espw-path",
            "provider",
            metavar="PATH",
            default="",
            help=f"The workspace that has the edge API; by default {provider}.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1),
            default=workers,
            show_default=workers is not None,
            help=f"Workers at a time{each}.",
        ),
        click.option(
            "--server-bind-address",
            "bind_address",
            metavar="HOST:PORT",
            default="",
            help="Where to serve /healthz, /readyz and /metrics; by default nowhere.",
        ),
        click.option("--leader-elect", is_flag=True, help="Work only while no other process of this kind does."),
        click.option(
            "--identity-file",
            metavar="FILE",
            default="",
            help="A file that remembers who this process is, so that the next one need not wait if it is killed.",
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
            help="How much to log.",
        ),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@main.command()
@controlling_options(verbosity=2)
@click.option("--controller-name", "name", default="edge-scheduler", show_default=True, help="What log lines call it.")
@click.option("--log-only", is_flag=True, help="Only log the EdgePlacements that are seen.")
@click.option("--feature-gates", default="", hidden=True, help="Means nothing; scripts give it.")
@ways("espw", "root", "sysadm", "base")
def scheduler(**options: Any) -> None:
    """Run the edge scheduler, until SIGTERM or ^C.

    It keeps for every EdgePlacement the SinglePlacementSlices that say where it leads.  `farflung start` runs it, too.
    """
    from farflung.cli.controllers import SCHEDULER, run, settings_of

    run(settings_of("farflung scheduler", (SCHEDULER,), options))


@main.command("mailbox-controller")
@controlling_options(verbosity=0)
@ways("inventory", "workload", "mbws", "espw", "root")
def mailbox_controller(**options: Any) -> None:
    """Run the mailbox controller, until SIGTERM or ^C.

    It keeps a mailbox workspace for every SyncTarget.  `farflung start` runs it, too.
    """
    from farflung.cli.controllers import MAILBOXES, run, settings_of

    run(settings_of("farflung mailbox-controller", (MAILBOXES,), options))


def translating_options(command: Callable[..., None]) -> Callable[..., None]:
    """What the placement translator has to be told beside that."""
    for option in reversed(TRANSLATING):
        command = option(command)
    return command


TRANSLATING = (
    *GUARDING,
    ways("allclusters"),
)


@main.command("placement-translator")
@controlling_options(verbosity=0, workers=16)
@translating_options
@ways("espw", "root")
def placement_translator(**options: Any) -> None:
    """Run the placement translator, until SIGTERM or ^C.

    It keeps in every mailbox the objects that EdgePlacements bring there, and what the mailbox's syncer is told.
    `farflung start` runs it, too.
    """
    from farflung.cli.controllers import TRANSLATOR, run, settings_of

    run(settings_of("farflung placement-translator", (TRANSLATOR,), options))


@main.command("status-summarizer")
@controlling_options(verbosity=0, workers=8)
@STALE_AFTER
@ways("espw", "root", "allclusters")
def status_summarizer(**options: Any) -> None:
    """Run the status summarizer, until SIGTERM or ^C.

    It keeps, where workloads are described, StatusSummaries of what the copies of their objects report.  `farflung
    start` runs it, too.
    """
    from farflung.cli.controllers import SUMMARIZER, run, settings_of

    run(settings_of("farflung status-summarizer", (SUMMARIZER,), options))


@main.command("global-scheduler")
@controlling_options(verbosity=1, workers=32, provider="root:espw")
@CONFIGURING[0]
@CONFIGURING[1]
@ways("espw", "root", "allclusters")
def run_global_scheduler(**options: Any) -> None:
    """Run the global scheduler, until SIGTERM or ^C.

    It binds Pods that are virtual machines, and Allocations, to Clusters.  Of several only one works at a time, and
    another follows when it ends.  `farflung start` runs it, too.
    """
    from farflung.cli.controllers import GLOBAL, mendable, run, settings_of
    from farflung.cli.start import PROVIDER

    command = "farflung global-scheduler"
    with mendable(command):
        told = {**options, "provider": options["provider"] or PROVIDER, "leader_elect": False}  # it does so anyway
        settings = settings_of(command, (GLOBAL,), told)
    run(settings)


@main.command(short_help="Run all controllers in one process.")
@controlling_options(verbosity=1, workers=None)
@translating_options
@STALE_AFTER
@CONFIGURING[0]
@CONFIGURING[1]
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input does.")
@click.option("--kept-files", hidden=True, default="", help="A copy of the files of --conf, for when they are wrong.")
@click.pass_context
def controllers(click_context: click.Context, /, **options: Any) -> None:
    """Run all controllers in one process, until SIGTERM or ^C.  `farflung start` does so by itself."""
    from farflung.cli.controllers import ALL, mendable, run, settings_of

    with mendable("farflung controllers"):
        settings = settings_of("farflung controllers", ALL, {**options, "conf": named_directory(click_context)})
    run(settings)


def asking_options(command: Callable[..., None]) -> Callable[..., None]:
    """Whom commands ask that change nothing, and how they answer."""
    for option in reversed(ASKING):
        command = option(command)
    return command


def finding_options(inside: str) -> tuple[Callable[..., Any], ...]:
    """Where a server is, and which of its workspaces.  `inside`: what is in that workspace."""
    return (
        click.option(
            "--workspace",
            metavar="PATH",
            default="",
            help=f"The workspace with the {inside}; by default the one that the kubeconfig leads to.",
        ),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            default="",
            help="Where the server is and who we are; by default as kubectl finds it.",
        ),
        click.option("--context", default="", help="Which context of the kubeconfig; by default the current one."),
        click.option(
            "--provider-path",
            "provider",
            metavar="PATH",
            default="root:espw",
            show_default=True,
            help="The workspace that provides the API of placements.",
        ),
    )


ASKING = (
    *finding_options("placements"),
    click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="What to print.",
    ),
)


def asking_everywhere_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same, without the workspace."""
    for option in reversed(ASKING[1:]):
        command = option(command)
    return command


@main.command(short_help="Show the whole fleet at a glance, and what is wrong with it.")
@click.option("--all", "everything", is_flag=True, help="List what is well, too, and everything of what is many.")
@click.option("--check", is_flag=True, help="Exit with 1 if something is not well.")
@click.option(
    "--workspace",
    metavar="PATH",
    default="",
    help="Only what is in this workspace; by default everything that you may see.",
)
@asking_everywhere_options
def status(
    everything: bool, check: bool, workspace: str, output: str, kubeconfig: str, context: str, provider: str
) -> None:
    """Show the whole fleet: which edges are ready and which are not, placements with problems, withdrawals that are
    held, objects whose copies are broken, and Clusters and virtual machines.

    Only what is not well is listed.
    """
    from datetime import datetime

    from farflung.cli import fleet_status
    from farflung.cli.connection import Asking, Hub, ask, time_at

    async def seen(hub: Hub) -> tuple[Any, datetime]:
        now = await time_at(hub)
        return await fleet_status.status(hub, now, only=bool(workspace), everything=everything), now

    answer, now = ask(Asking(kubeconfig, context, workspace, provider, anywhere=True), seen)
    click.echo(fleet_status.printed(answer, output, now, everything=everything))
    if check and not answer["well"]:
        raise click.exceptions.Exit(1)


@main.group(cls=Kinds)
def explain() -> None:
    """Say why things are as they are, changing nothing."""


@explain.command("placement", short_help="Say where an EdgePlacement leads, and why not elsewhere.")
@click.argument("name")
@click.option(
    "--location",
    default="",
    metavar="[CLUSTER:]NAME",
    help="Only this Location, or those of this name, in more detail.",
)
@asking_options
def explain_placement(
    name: str, location: str, workspace: str, output: str, kubeconfig: str, context: str, provider: str
) -> None:
    """Say where the EdgePlacement NAME leads: for each Location and SyncTarget whether it is chosen, or why not.

    It also says whether the status and the slices of the placement agree with that; the scheduler may be behind.
    """
    from farflung.cli import explain
    from farflung.cli.connection import Asking, ask

    asking = Asking(kubeconfig, context, workspace, provider)
    answer = ask(asking, lambda hub: explain.explain(hub, name, location))
    click.echo(explain.printed(answer, output, detailed=bool(location)))


def machine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which object of the global scheduler, and what that one was told."""
    for option in reversed(ABOUT_MACHINES):
        command = option(command)
    return command


ABOUT_MACHINES = (
    click.option("--namespace", "-n", default="default", show_default=True, metavar="NAME", help="The object's."),
    click.option(
        "--limit",
        type=click.IntRange(0),
        default=20,
        show_default=True,
        metavar="NUMBER",
        help="How many Clusters to list, the best first; 0 lists all.",
    ),
    *CONFIGURING,
    *finding_options("object")[:-1],  # the provider of placements does not matter
    ASKING[-1],
)


def scheduler_configuration(context: click.Context) -> Any:
    """What the global scheduler was told by files."""
    from farflung.cli.scheduler_files import ConfigurationError, Files

    try:
        return Files(named_directory(context), context.params["policy_file"]).read()
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None


def explain_machine(context: click.Context, kind: str, name: str, options: dict[str, Any]) -> None:
    from farflung.cli import explain_machines, machine_text
    from farflung.cli.connection import Asking, ask

    configured, namespace = scheduler_configuration(context), options["namespace"]
    asking = Asking(options["kubeconfig"], options["context"], options["workspace"])
    answer = ask(asking, lambda hub: explain_machines.explain(hub, kind, name, namespace, configured))
    click.echo(machine_text.printed(answer, options["output"], limit=options["limit"]))


@explain.command("pod", short_help="Say to which Cluster a virtual machine goes, and why to no other.")
@click.argument("name")
@machine_options
@click.pass_context
def explain_pod(click_context: click.Context, /, name: str, **options: Any) -> None:
    """Say to which Cluster the global scheduler binds the Pod NAME, which is a virtual machine: of each Cluster whether
    it fits, or why not, and how good it is.

    It also says whether that agrees with what the Pod says; the scheduler may be behind.
    """
    explain_machine(click_context, "Pod", name, options)


@explain.command("allocation", short_help="Say to which Clusters the replicas of a stack go, and why to no others.")
@click.argument("name")
@machine_options
@click.pass_context
def explain_allocation(click_context: click.Context, /, name: str, **options: Any) -> None:
    """Say to which Clusters the global scheduler binds the replicas of the Allocation NAME: of each Cluster whether it
    fits, or why not, how many replicas it has room for, and how good it is.

    It also says whether that agrees with what the Allocation says; the scheduler may be behind.
    """
    explain_machine(click_context, "Allocation", name, options)


@main.command("list-upsynced", short_help="List what edges made and placements bring back.")
@click.argument("kind")
@click.option(
    "--namespace", "-n", default="", metavar="NAME", help="Only in this namespace; by default in all of them."
)
@click.option("--selector", "-l", "labels", default="", metavar="SELECTOR", help="Only objects with these labels.")
@click.option("--json", "as_json", is_flag=True, help="As -o json.")
@asking_options
def list_upsynced(
    kind: str,
    namespace: str,
    labels: str,
    as_json: bool,
    workspace: str,
    output: str,
    kubeconfig: str,
    context: str,
    provider: str,
) -> None:
    """List objects of a KIND that were made at edges, from all places to which the placements of the workspace lead, as
    far as their `spec.upsync` brings them back.

    KIND is what kubectl takes: nines, nine, nines.group9.test.
    """
    from datetime import UTC, datetime

    from farflung.cli import upsynced
    from farflung.cli.connection import Asking, ask

    question = upsynced.Question(kind, namespace, labels)
    answer = ask(Asking(kubeconfig, context, workspace, provider), lambda hub: upsynced.upsynced(hub, question))
    click.echo(upsynced.printed(answer, "json" if as_json else output, datetime.now(UTC)))


@main.command(short_help="Follow one object to all its destinations, and say what is stuck.")
@click.argument("words", nargs=-1, required=True, metavar="TYPE/NAME")
@click.option("--namespace", "-n", default="default", show_default=True, metavar="NAME", help="The object's.")
@click.option("--destination", "-d", default="", metavar="NAME", help="Only Locations and SyncTargets of this name.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="NUMBER",
    help="How many destinations to print, those with problems first; 0 prints all.",
)
@asking_options
def trace(
    words: tuple[str, ...],
    namespace: str,
    destination: str,
    limit: int,
    workspace: str,
    output: str,
    kubeconfig: str,
    context: str,
    provider: str,
) -> None:
    """Follow one object through placement, slice, mailbox and edge to its status, for each destination.

    It says when each step was taken, how old that knowledge is, and what is stuck first.  Nothing is changed.
    """
    from datetime import datetime

    from farflung.cli import trace, trace_text
    from farflung.cli.connection import Asking, Hub, ask, time_at

    question = trace.Question(*trace.named(words), namespace, destination, limit)

    async def followed(hub: Hub) -> tuple[Any, datetime]:
        now = await time_at(hub)
        return await trace.trace(hub, question, now), now

    answer, now = ask(Asking(kubeconfig, context, workspace, provider), followed)
    click.echo(trace_text.printed(answer, output, now))
    if trace.is_stuck(answer):
        raise click.exceptions.Exit(1)


class WrongWords(click.UsageError):
    exit_code = 1


class OneForErrors(click.Command):
    """A command for which exit code 2 means something else than a wrong option."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **named)
        except click.UsageError as error:
            raise WrongWords(error.format_message(), error.ctx) from None


@main.command(cls=OneForErrors, short_help="Say what `kubectl apply` would change, at every destination.")
@click.option(
    "--filename",
    "-f",
    "names",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A file or a directory with objects, or - for standard input; may be given several times.",
)
@click.option("--delete", is_flag=True, help="Say what `kubectl delete` would change, instead.")
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Of objects in files that have none.",
)
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit with 2 if something would change.")
@click.option("--verbose", "-v", is_flag=True, help="Print destinations that stay, too.")
@CONFIGURING[0]
@CONFIGURING[1]
@asking_options
@click.pass_context
def plan(
    click_context: click.Context,
    /,
    names: tuple[str, ...],
    delete: bool,
    namespace: str,
    detailed: bool,
    verbose: bool,
    workspace: str,
    output: str,
    kubeconfig: str,
    context: str,
    provider: str,
    conf: str,
    policy_file: str,
) -> None:
    """Say what `kubectl apply` would change: the destinations that EdgePlacements gain and lose, which copies of
    objects would be created, changed or deleted at each of them, and to which Clusters virtual machines would be bound.

    The server checks the objects; nothing is changed.
    """
    from farflung.cli import plan
    from farflung.cli.connection import Asking, ask
    from farflung.cli.manifests import manifests

    wanted = plan.check(manifests(names), namespace)
    configured = scheduler_configuration(click_context)
    asking = Asking(kubeconfig, context, workspace, provider)
    answer = ask(asking, lambda hub: plan.plan(hub, wanted, delete=delete, configured=configured))
    click.echo(plan.printed(answer, output, verbose=verbose))
    if answer["summary"]["errors"]:
        raise click.ClickException("not everything can be planned")
    if detailed and plan.is_change(answer):
        raise click.exceptions.Exit(2)


def customizing_options(command: Callable[..., None]) -> Callable[..., None]:
    """What is customized, for which place, and from where that is known."""
    for option in reversed(CUSTOMIZING):
        command = option(command)
    return command


CUSTOMIZING = (
    click.option(
        "--filename",
        "-f",
        "names",
        multiple=True,
        required=True,
        metavar="FILE",
        help="A file or a directory with objects, or - for standard input; may be given several times.",
    ),
    click.option("--location", default="", metavar="[WORKSPACE:]NAME", help="The Location, in any workspace."),
    click.option("--location-file", default="", metavar="FILE", help="The same, from a file."),
    click.option(
        "--customizer-file",
        "customizer_files",
        multiple=True,
        metavar="FILE",
        help="Where the Customizers are; by default in the workspace. May be given several times.",
    ),
    click.option(
        "--sync-target",
        "target",
        default="",
        metavar="NAME",
        help="The SyncTarget; by default the only one that the Location selects.",
    ),
    click.option(
        "--namespace",
        "-n",
        default="default",
        show_default=True,
        metavar="NAME",
        help="Of objects and Customizers in files that have none.",
    ),
    click.option(
        "--output",
        "-o",
        type=click.Choice(["yaml", "json"]),
        default="yaml",
        show_default=True,
        help="What to print.",
    ),
    *finding_options("Customizers"),
)


@main.command(short_help="Print objects as they would go to a Location.")
@customizing_options
def customize(
    names: tuple[str, ...],
    output: str,
    kubeconfig: str,
    context: str,
    workspace: str,
    provider: str,
    **question: Any,
) -> None:
    """Print objects as they would go to a Location: with its parameters, and what their Customizer replaces.

    Nothing is changed.  No server is asked for what is in files: --location-file and --customizer-file.
    """
    from farflung.cli import customize
    from farflung.cli.connection import Asking
    from farflung.cli.manifests import manifests

    if bool(question["location"]) == bool(question["location_file"]):
        raise click.UsageError("one of --location and --location-file is needed, and not both")
    wanted = customize.Question(customize.objects(manifests(names)), **question)
    answer = customize.answer(wanted, Asking(kubeconfig, context, workspace, provider))
    for warning in answer.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if answer.objects:
        click.echo(customize.printed(answer.objects, output), nl=False)
    for problem in answer.problems:
        click.echo(f"Error: {problem}", err=True)
    if answer.problems:
        raise click.exceptions.Exit(1)


def registering_options(command: Callable[..., None]) -> Callable[..., None]:
    """Where the SyncTarget is."""
    for option in reversed(finding_options("SyncTarget")):
        command = option(command)
    return command


@main.command(short_help="Bring what a mailbox holds to a cluster, and back.")
@click.option("--from-kubeconfig", required=True, metavar="FILE", help="The way to the mailbox.")
@click.option("--from-context", default="", metavar="NAME", help="The context of it; by default the current one.")
@click.option("--from-cluster", default="", metavar="PATH", help="The mailbox, if the context leads elsewhere.")
@click.option(
    "--to-kubeconfig",
    default="",
    metavar="FILE",
    help="The way to the cluster; in a Pod, by default the cluster of the Pod.",
)
@click.option("--to-context", default="", metavar="NAME", help="The context of it; by default the current one.")
@click.option("--sync-target-name", "name", required=True, metavar="NAME", help="The SyncTarget of the cluster.")
@click.option("--sync-target-uid", "uid", required=True, metavar="UID", help="Its uid.")
@click.option(
    "--state-directory",
    "state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".farflung-syncer"),
    show_default=True,
    help="What it remembers, for when the hub is away: with Secrets, so nobody else may read it.",
)
@click.option(
    "--adopt",
    type=click.Choice(["never", "if-identical", "always"]),
    default="if-identical",
    show_default=True,
    help="What to do about an object that is in the cluster already and is not ours.",
)
@click.option(
    "--token-secret", default="", metavar="NAMESPACE/NAME", help="The Secret in the cluster to keep a new token in."
)
@click.option(
    "--server-bind-address", "bind_address", default="", metavar="HOST:PORT", help="Serve /readyz and /metrics there."
)
@click.option("-v", "--v", "--verbosity", "verbosity", default=0, show_default=True, help="How much is logged, 0 to 5.")
@click.option("--qps", type=float, hidden=True, help="Accepted for old manifests; nothing is held back.")
@click.option("--burst", type=int, hidden=True, help="Accepted for old manifests; nothing is held back.")
def syncer(adopt: str, qps: float | None, burst: int | None, **options: Any) -> None:
    """Run the agent of one cluster: what its mailbox holds comes to the cluster, and what the cluster says comes back.

    It dials out to the hub, so the cluster needs no open port.  It goes on without the hub, from what it remembers,
    and deletes nothing that the hub did not withdraw.  `farflung syncer-gen` prints what it needs.
    """
    from farflung.cli.syncer import Settings, run
    from farflung.syncer.types import Adopt

    if options["token_secret"] and not all(options["token_secret"].partition("/")):
        raise click.BadParameter(
            f"{options['token_secret']!r} is not of the form NAMESPACE/NAME", param_hint="--token-secret"
        )
    run(Settings(adopt=Adopt(adopt), **options))


@main.command("syncer-gen", short_help="Let the syncer of a SyncTarget into its mailbox.")
@click.argument("name")
@click.option(
    "--output",
    "-o",
    default="-",
    show_default=True,
    metavar="FILE",
    help="Where to write it; a token that FILE has already is kept if it is good for long enough.",
)
@click.option(
    "--syncer-kubeconfig",
    default="",
    metavar="FILE",
    help="Write only a kubeconfig, with which `farflung syncer` runs outside of a cluster.",
)
@click.option(
    "--server",
    default="",
    metavar="URL",
    help="Where the cluster reaches the hub; by default as the kubeconfig says.",
)
@click.option(
    "--syncer-image", "image", default="", metavar="IMAGE", help="By default farflung-syncer of this version."
)
@click.option("--replicas", type=click.IntRange(0, 1), default=1, show_default=True, help="0 or 1.")
@click.option("--namespace", "-n", default="", metavar="NAME", help="In the cluster; by default one of its own.")
@click.option("--labels", multiple=True, metavar="KEY=VALUE,…", help="On all that is in the manifest.")
@click.option("--lifetime", default="30d", show_default=True, metavar="DURATION", help="Of the token, like 12h or 30d.")
@click.option("--all-resources", "everything", is_flag=True, help="Allow every kind, also those that come later.")
@click.option(
    "--allow", "allowed", multiple=True, metavar="GROUP/RESOURCE,…", help="Allow this kind to go to the cluster, too."
)
@click.option(
    "--allow-upsync", "allowed_up", multiple=True, metavar="GROUP/RESOURCE,…", help="Allow it to come from the cluster."
)
@click.option(
    "--state-claim", "claim", default="", metavar="NAME", help="A PersistentVolumeClaim for what it remembers."
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the mailbox.",
)
@registering_options
def syncer_gen(workspace: str, kubeconfig: str, context: str, provider: str, **options: Any) -> None:
    """Let the syncer of the SyncTarget NAME into its mailbox, and print what makes it run in its cluster.

    It may do nothing outside of that mailbox.  Doing it again gives the same, but for the token.
    """
    from farflung.cli import syncer_gen
    from farflung.cli.connection import Asking

    options["image"] = options["image"] or syncer_gen.IMAGE
    syncer_gen.generate(syncer_gen.Options(**options), Asking(kubeconfig, context, workspace, provider))


@main.command("syncer-revoke", short_help="Shut the syncer of a SyncTarget out of its mailbox.")
@click.argument("name")
@registering_options
def syncer_revoke(name: str, workspace: str, kubeconfig: str, context: str, provider: str) -> None:
    """Shut the syncer of the SyncTarget NAME out of its mailbox: its tokens are refused at once.

    What it brought to its cluster stays there.
    """
    from farflung.cli import syncer_gen
    from farflung.cli.connection import Asking

    syncer_gen.take_back(name, Asking(kubeconfig, context, workspace, provider))


@main.group()
def token() -> None:
    """Hand out tokens to users, and take them back.

    The hub may run or not: it follows at once, and refuses a revoked token within seconds.
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
@click.option("--group", "groups", multiple=True, help="A group of the user; may be given several times.")
@click.option("--expires", "lasting", metavar="DURATION", help="When it ends, like 12h or 30d; by default never.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["token", "kubeconfig"]),
    default="token",
    show_default=True,
    help="What to print.",
)
@root_directory
def create_token(name: str, groups: tuple[str, ...], lasting: str | None, output: str, root_directory: Path) -> None:
    """Print a new token for the user NAME.  It is kept nowhere, so it cannot be shown again."""
    from farflung.cli import tokens

    click.echo(tokens.create(root_directory, name, groups, tokens.duration(lasting), output), nl=False)


@token.command("list", short_help="List whose tokens there are.")
@root_directory
def list_tokens(root_directory: Path) -> None:
    """List whose tokens there are, by an id that says nothing about the token."""
    from farflung.cli import printing, tokens

    click.echo(printing.table(tokens.listed(root_directory)))


@token.command("revoke")
@click.argument("which", nargs=-1, required=True, metavar="ID|NAME…")
@root_directory
def revoke_tokens(which: tuple[str, ...], root_directory: Path) -> None:
    """Revoke a token by its ID, or all tokens of a user by their NAME."""
    from farflung.cli import tokens

    count = tokens.revoke(root_directory, which)
    click.echo(f"{count} token{'' if count == 1 else 's'} revoked")


@main.command(short_help="Show the whole story: two clusters, two workloads, three web pages.")
@click.argument("story", type=click.Choice(["edges", "global"]), default="edges")
@click.option("--keep", is_flag=True, help="Leave it running, and say how to look around.")
@click.option("--stop", is_flag=True, help="End what an earlier one left running, and remove it.")
@click.option("--replace", is_flag=True, help="First end and remove what an earlier one left running.")
@click.option(
    "--runtime",
    type=click.Choice(["auto", "podman", "process"]),
    default="process",
    show_default=True,
    help="What runs the pods: real images by podman, or stand-ins for them that are local processes.",
)
@click.option(
    "--first-port",
    type=click.IntRange(1, 65533),
    default=8081,
    show_default=True,
    help="Where this machine shows the first page; the others are at the next two ports.",
)
def demo(story: str, keep: bool, stop: bool, replace: bool, runtime: str, first_port: int) -> None:
    """Start a hub, two small clusters and their syncers, place two web sites on them, and fetch their pages.

    The pages are at three ports of this machine, which have to be free.  Nothing else has to be installed, and nothing
    is left behind.

    `farflung demo global` shows instead how virtual machines find their way to a dozen Clusters.
    """
    from farflung.cli import demo, demo_global, demo_stage

    if stop:
        demo_stage.stop()
    elif story == "global":
        demo_global.run(keep=keep, replace=replace)
    else:
        demo.run(keep=keep, replace=replace, runtime=runtime, first_port=first_port)
