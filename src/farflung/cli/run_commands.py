"""Commands that run a hub, controllers or a syncer in the foreground."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from farflung.cli.settings import (
    PROVIDER,
    ControllerOptions,
    DemoOptions,
    FileOptions,
    KeyOptions,
    ServingOptions,
    SyncerSettings,
    WithdrawalOptions,
    controller_options,
    pass_settings,
    scheduler_files,
    stale_after,
    trust_workspaces,
)


@click.command(short_help="Run a hub with one plain Kubernetes API.")
@pass_settings(ServingOptions, "serving")
@pass_settings(KeyOptions, "keys")
def hub(serving: ServingOptions, keys: KeyOptions) -> None:
    """Run a hub with one plain Kubernetes API in the foreground until SIGTERM or ^C.

    \b
    The hub writes DIR/admin.kubeconfig.  In another terminal:
        export KUBECONFIG=DIR/admin.kubeconfig
        kubectl get namespaces
    """
    from farflung.cli.hub import HubSettings, run

    run(HubSettings(**asdict(serving), keys=keys))


@click.command(short_help="Run a hub with workspaces.")
@pass_settings(ServingOptions, "serving")
@pass_settings(KeyOptions, "keys")
@click.option("--bare", is_flag=True, help="Create only the workspaces that the hub itself needs: no root:espw.")
@click.option(
    "--controllers/--no-controllers",
    default=None,
    help="Run the controllers in a second process; the default, unless --bare is given.",
)
@pass_settings(WithdrawalOptions, "withdrawal")
@stale_after
@scheduler_files
def start(
    serving: ServingOptions,
    keys: KeyOptions,
    bare: bool,
    controllers: bool | None,
    withdrawal: WithdrawalOptions,
    stale_after: float,
    files: FileOptions,
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

    settings = replace(
        HubSettings(**asdict(serving), keys=keys),
        workspaces=True,
        bare=bare,
        controllers=not bare if controllers is None else controllers,
        limits=WithdrawalLimits(withdrawal.max_withdraw, withdrawal.max_withdraw_number),
        stale_after=stale_after,
        files=SchedulerFiles(files.conf, files.policy_file),
    )
    run(settings)


@click.command()
@controller_options("espw", "root", "sysadm", "base", verbosity=2)
@click.option(
    "--controller-name",
    "name",
    default="edge-scheduler",
    show_default=True,
    help="Name of the controller in log lines.",
)
@click.option("--log-only", is_flag=True, help="Only log changes of EdgePlacements; write nothing.")
@trust_workspaces
@click.option("--feature-gates", default="", hidden=True, help="Ignored; accepted for scripts of other schedulers.")
def scheduler(
    options: ControllerOptions, name: str, log_only: bool, trusted: tuple[str, ...], feature_gates: str
) -> None:
    """Run the edge scheduler until SIGTERM or ^C.

    It resolves each EdgePlacement, by the rights of its author, and writes its destinations to SinglePlacementSlices.
    `farflung start` also runs it.
    """
    from farflung.cli.controllers import SCHEDULER, read_settings, run

    settings = read_settings("farflung scheduler", (SCHEDULER,), options)
    run(replace(settings, name=name, log_only=log_only, trusted=trusted or ("root",)))


@click.command()
@controller_options("inventory", "workload", "mbws", "espw", "root", verbosity=0)
def mailbox_controller(options: ControllerOptions) -> None:
    """Run the mailbox controller until SIGTERM or ^C.

    It creates and deletes the mailbox workspace of each SyncTarget.  `farflung start` also runs it.
    """
    from farflung.cli.controllers import MAILBOXES, read_settings, run

    run(read_settings("farflung mailbox-controller", (MAILBOXES,), options))


@click.command()
@controller_options("allclusters", "espw", "root", verbosity=0, workers=16)
@pass_settings(WithdrawalOptions, "withdrawal")
def placement_translator(options: ControllerOptions, withdrawal: WithdrawalOptions) -> None:
    """Run the placement translator until SIGTERM or ^C.

    It writes copies of placed objects to mailboxes, and the SyncerConfig of each mailbox.  `farflung start` also runs
    it.
    """
    from farflung.cli.controllers import TRANSLATOR, read_settings, run

    run(read_settings("farflung placement-translator", (TRANSLATOR,), options, withdrawal=withdrawal))


@click.command()
@controller_options("espw", "root", "allclusters", verbosity=0, workers=8)
@stale_after
def status_summarizer(options: ControllerOptions, stale_after: float) -> None:
    """Run the status summarizer until SIGTERM or ^C.

    It writes a StatusSummary for each placed object into the object's workspace.  `farflung start` also runs it.
    """
    from farflung.cli.controllers import SUMMARIZER, read_settings, run

    settings = read_settings("farflung status-summarizer", (SUMMARIZER,), options)
    run(replace(settings, stale_after=stale_after))


@click.command()
@controller_options("espw", "root", "allclusters", verbosity=1, workers=32, provider="root:espw")
@scheduler_files
@trust_workspaces
def global_scheduler(options: ControllerOptions, files: FileOptions, trusted: tuple[str, ...]) -> None:
    """Run the global scheduler until SIGTERM or ^C.

    It binds Allocations, and Pods that are virtual machines, to Clusters.  Only the holder of its Lease works.
    `farflung start` also runs it.
    """
    from farflung.cli.controllers import GLOBAL, read_settings, report_errors, run

    command = "farflung global-scheduler"
    with report_errors(command):
        # the global scheduler always elects a leader, by its own Lease
        options = replace(options, provider=options.provider or PROVIDER, leader_elect=False)
        settings = read_settings(command, (GLOBAL,), options, files)
    run(replace(settings, trusted=trusted or ("root",)))


@click.command(short_help="Run all controllers in one process.")
@controller_options("allclusters", verbosity=1, workers=None)
@pass_settings(WithdrawalOptions, "withdrawal")
@stale_after
@scheduler_files
@trust_workspaces
@click.option("--with-parent", is_flag=True, hidden=True, help="Stop when standard input is closed.")
@click.option("--kept-files", hidden=True, default="", help="File with the last valid copy of the files of --conf.")
def controllers(
    options: ControllerOptions,
    withdrawal: WithdrawalOptions,
    stale_after: float,
    files: FileOptions,
    trusted: tuple[str, ...],
    with_parent: bool,
    kept_files: str,
) -> None:
    """Run all controllers in one process until SIGTERM or ^C.  `farflung start` also runs them."""
    from farflung.cli.controllers import ALL, read_settings, report_errors, run

    command, files = "farflung controllers", replace(files, kept=kept_files)
    with report_errors(command):
        settings = read_settings(command, ALL, options, files, withdrawal=withdrawal, with_parent=with_parent)
    run(replace(settings, stale_after=stale_after, trusted=trusted or ("root",)))


@click.command(short_help="Apply a mailbox's objects to a cluster and report their status.")
@pass_settings(SyncerSettings, "options")
@pass_settings(
    KeyOptions,
    "keys",
    path={"help": "File with the keys that encrypt the journal; by default journal.key in the state directory."},
)
@click.option("--qps", type=float, hidden=True, help="Ignored; accepted for old manifests.")
@click.option("--burst", type=int, hidden=True, help="Ignored; accepted for old manifests.")
def syncer(options: SyncerSettings, keys: KeyOptions, qps: float | None, burst: int | None) -> None:
    """Run the agent of one cluster: apply the mailbox's objects to the cluster and report their status.

    The syncer connects to the hub, so the cluster needs no open port.  Without the hub it continues from its journal.
    It deletes only objects that the hub withdrew.  `farflung syncer-gen` prints its manifest.
    """
    from farflung.cli.syncer import run

    if options.token_secret and not all(options.token_secret.partition("/")):
        raise click.BadParameter(
            f"{options.token_secret!r} is not of the form NAMESPACE/NAME", param_hint="--token-secret"
        )
    run(options, keys)


@click.command(short_help="Place two workloads on two small clusters, and fetch their pages.")
@click.argument("story", type=click.Choice(["edges", "global"]), default="edges")
@pass_settings(DemoOptions, "options")
def demo(story: str, options: DemoOptions) -> None:
    """Start a hub, two small clusters and their syncers, place two web sites on them, and fetch their pages.

    The pages use three local ports, which must be free.  The demo needs no other software and removes everything that
    it creates.

    `farflung demo global` shows how the global scheduler binds virtual machines to a dozen Clusters.
    """
    from farflung.cli import demo_stage
    from farflung.cli.demo import EdgeDemo
    from farflung.cli.demo_global import GlobalDemo

    if options.stop:
        demo_stage.stop()
    else:
        demo_stage.run(GlobalDemo if story == "global" else EdgeDemo, options)
