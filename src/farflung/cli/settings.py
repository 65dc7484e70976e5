"""Options of commands as typed settings: a field of a class is an option, and a command gets an instance.

Modules of commands import this one at every start, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from farflung.apis.edge.names import STALE_AFTER

Command: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[Command], Command]

PROVIDER: Final = "root:espw"  #: the workspace that exports the edge API, unless another one is named
_OPTION: Final = "option"


def option(*names: str, default: Any = "", **settings: Any) -> Any:
    """A field that is an option with these names.  `--help` shows its default, unless that is empty."""
    return field(default=default, metadata={_OPTION: (names, settings)})


def _decorator(one: Field[Any], changes: Mapping[str, Any]) -> Decorator:
    names, settings = one.metadata[_OPTION]
    settings = {"default": one.default, **settings, **changes}
    settings.setdefault("show_default", settings["default"] not in ("", (), False, None))
    if settings.get("required"):
        settings = {name: value for name, value in settings.items() if name not in ("default", "show_default")}
    return click.option(*names, one.name, **settings)


def pass_settings(kind: type, name: str, **changes: Mapping[str, Any] | None) -> Decorator:
    """Options of a command that it gets as one argument.  `changes`: other settings of click for some of them; None
    leaves an option out."""
    own = [one for one in fields(kind) if _OPTION in one.metadata and changes.get(one.name, {}) is not None]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(*arguments: Any, **named: Any) -> None:
            values = {one.name: named.pop(one.name) for one in own}
            command(*arguments, **{name: kind(**values)}, **named)

        decorated: Command = call
        for one in reversed(own):
            decorated = _decorator(one, changes.get(one.name) or {})(decorated)
        return decorated

    return decorate


class PercentType(click.ParamType[int]):
    """A percentage, like `50%`."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from farflung.placement.guard import parse_share

        try:
            return parse_share(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ResourcesType(click.ParamType[tuple[str, ...]]):
    """Resources as in Kubernetes' EncryptionConfiguration, like `configmaps,*.apps`."""

    name = "resources"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from farflung.store.encryption import ResourcePatterns

        patterns = tuple(value.split(",")) if value else ()
        try:
            ResourcePatterns(patterns)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return patterns


class Level(click.types.IntParamType):
    """A number; also `-v=2`, as Go programs accept it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(number, param, ctx)


# --- servers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Selects hub, workspace and user; empty fields as kubectl does."""

    workspace: str = option("--workspace", metavar="PATH", help="")
    kubeconfig: str = option(
        "--kubeconfig", metavar="FILE", help="Kubeconfig of the hub; by default the one that kubectl would use."
    )
    context: str = option("--context", help="Context of the kubeconfig; by default the current one.")
    provider: str = option(
        "--provider-path", default=PROVIDER, metavar="PATH", help="Workspace that exports the edge API."
    )
    anywhere: bool = False  #: any workspace will do; `root` by default


def connection(content: str, **changes: Mapping[str, Any] | None) -> Decorator:
    """`content`: what the command reads in the workspace."""
    help = f"Workspace with the {content}; by default the one of the kubeconfig's context."
    return pass_settings(ServerOptions, "connection", workspace={"help": help}, **changes)


def output(*formats: str) -> Decorator:
    """`formats`: the default first."""
    return click.option(
        "--output", "-o", type=click.Choice(formats), default=formats[0], show_default=True, help="Output format."
    )


# --- hubs -----------------------------------------------------------------------------------------

ROOT_DIRECTORY: Final = Path(".farflung")
DATABASE: Final = "hub.sqlite"
WORKSPACES: Final = "workspaces.sqlite"  #: of a hub with workspaces; each kind of hub refuses the other's
STATE_DIRECTORY: Final = Path(".farflung-syncer")
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)
FILE: Final = click.Path(path_type=Path, dir_okay=False)

root_directory = click.option(
    "--root-directory", type=DIRECTORY, default=ROOT_DIRECTORY, show_default=True, help="The hub's directory."
)


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The encryption keys of a hub's store."""

    path: Path | None = option(
        "--encryption-key-file",
        default=None,
        type=FILE,
        metavar="FILE",
        help="File with the keys that encrypt Secrets in the store; by default encryption.key in the root directory.",
    )
    command: str = option(
        "--encryption-command",
        metavar="COMMAND",
        help="Command that wraps and unwraps the keys in that file: COMMAND wrap, COMMAND unwrap.",
    )


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Of `farflung hub` and `farflung start`."""

    root_directory: Path = option(
        "--root-directory",
        default=ROOT_DIRECTORY,
        type=DIRECTORY,
        help="Directory for the hub's data, certificates and admin.kubeconfig.",
    )
    bind_address: str = option("--bind-address", default="127.0.0.1", help="Address to listen on.")
    port: int = option(
        "--port", default=6443, type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one."
    )
    hostnames: tuple[str, ...] = option(
        "--external-hostname",
        default=(),
        multiple=True,
        help="Additional host name or IP address for the serving certificate; repeatable.",
    )
    history: int = option(
        "--history",
        default=3600,
        type=click.IntRange(1),
        metavar="SECONDS",
        help="Seconds of history that the store keeps, so that clients can resume watches.",
    )
    event_seconds: int = option(
        "--event-ttl",
        default=3600,
        type=click.IntRange(1),
        metavar="SECONDS",
        help="Seconds until the hub deletes an Event after its last write.",
    )
    token_seconds: int = option(
        "--service-account-max-token-expiration",
        default=90 * 86400,
        type=click.IntRange(600),
        metavar="SECONDS",
        help="Longest lifetime of a ServiceAccount's token; a request for a longer one gets a shorter one.",
    )
    audit_policy_file: Path | None = option(
        "--audit-policy-file",
        default=None,
        type=FILE,
        metavar="FILE",
        help="Policy of the audit log, as of Kubernetes; by default writes and requests for Secrets are logged.",
    )
    audit_log_path: str = option(
        "--audit-log-path",
        metavar="FILE",
        help="Write audit events as lines of JSON to FILE, - for standard error, instead of lines of text to the log.",
    )
    audit_log_megabytes: int = option(
        "--audit-log-maxsize",
        default=100,
        type=click.IntRange(1),
        metavar="MEGABYTES",
        help="Size of the audit log at which it is rotated.",
    )
    audit_log_backups: int = option(
        "--audit-log-maxbackup",
        default=10,
        type=click.IntRange(0),
        metavar="NUMBER",
        help="Number of rotated audit logs to keep; 0 keeps all.",
    )
    audit_log_days: int = option(
        "--audit-log-maxage",
        default=0,
        type=click.IntRange(0),
        metavar="DAYS",
        help="Days to keep rotated audit logs; 0 keeps them forever.",
    )
    max_reading: int = option(
        "--max-requests-inflight",
        default=400,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Reads in progress at once; further ones are queued.",
    )
    max_mutating: int = option(
        "--max-mutating-requests-inflight",
        default=200,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Writes in progress at once; further ones are queued.",
    )
    max_queued: int = option(
        "--max-queued-requests-per-user",
        default=500,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Requests of one user that may wait for their turn; further ones are refused with 429.",
    )
    max_watches: int = option(
        "--max-watches-per-user",
        default=1000,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Open watches of one user; further ones are refused with 429.",
    )
    max_objects: int = option(
        "--max-objects-per-workspace",
        default=200_000,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Objects of one workspace; further ones are refused with 403.",
    )
    max_megabytes: int = option(
        "--max-megabytes-per-workspace",
        default=1024,
        type=click.IntRange(1),
        metavar="MEBIBYTES",
        help="Size of all objects of one workspace; writes beyond it are refused with 403.",
    )
    max_home_workspaces: int = option(
        "--max-workspaces-per-home",
        default=100,
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Workspaces below one home workspace; further ones are refused with 403.",
    )
    encryption_resources: tuple[str, ...] = option(
        "--encryption-resources",
        default=(),
        type=ResourcesType(),
        metavar="RESOURCE,…",
        help="Resources to encrypt beside Secrets: configmaps, widgets.example.org, *.apps, or *.* for all.",
    )
    verbose: bool = option("--verbose", "-v", default=False, is_flag=True, help="Log in more detail.")


# --- controllers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WithdrawalOptions:
    """Limits of withdrawals that need no confirmation."""

    max_withdraw: int = option(
        "--max-withdraw",
        default="50%",
        type=PercentType(),
        metavar="PERCENT",
        help="Hold withdrawals that affect more than PERCENT of a placement's destinations and more than "
        "--max-withdraw-number, until confirmed.",
    )
    max_withdraw_number: int = option(
        "--max-withdraw-number",
        default=10,
        type=click.IntRange(0),
        metavar="NUMBER",
        help="Hold withdrawals only if they affect more than NUMBER destinations; see --max-withdraw.",
    )


stale_after = click.option(
    "--stale-after",
    type=click.FloatRange(1),
    default=STALE_AFTER,
    show_default=True,
    metavar="SECONDS",
    help="Mark a cluster's status stale after SECONDS without a syncer heartbeat.",
)


trust_workspaces = click.option(
    "--trust-workspaces",
    "trusted",
    multiple=True,
    metavar="PATH",
    help="On a server that records no authors: workspaces that may place on all Locations, with those below them; "
    "repeatable; by default root.",
)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The configuration files of the global scheduler."""

    conf: str = option(
        "--conf",
        metavar="DIR",
        envvar="CONFIG_BASE",
        help="Directory with conf.yaml, flavors, sites and policy of the global scheduler; default $CONFIG_BASE.",
    )
    policy_file: str = option(
        "--policy-file",
        metavar="FILE",
        help="File with the scheduling policy (predicates and priorities); by default the one that conf.yaml names, "
        "or the default policy.",
    )
    kept: str = ""  #: file with the last valid copy of the files


def scheduler_files(command: Command) -> Command:
    """Passes the files of the global scheduler.  A CONFIG_BASE of another program is ignored."""

    @wraps(command)
    def call(*arguments: Any, files: FileOptions, **named: Any) -> None:
        context = click.get_current_context()
        if context.get_parameter_source("conf") is click.core.ParameterSource.ENVIRONMENT:
            from farflung.machines.files.scheduler_files import own_directory

            files = FileOptions(own_directory(files.conf), files.policy_file)
        command(*arguments, files=files, **named)

    return pass_settings(FileOptions, "files")(call)


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Selects one server and user; empty fields as kubectl does."""

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    cluster: str = ""
    server: str = ""  #: URL, if not the kubeconfig's


ACCESS: Final = ("kubeconfig", "context", "user", "cluster")


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Of every process of controllers."""

    kubeconfig: str = option(
        "--kubeconfig",
        "--kcp-kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the hub; by default the one that kubectl would use.",
    )
    context: str = option("--context", help="Context of the kubeconfig; by default the current one.")
    provider: str = option("--provider-path", "--espw-path", metavar="PATH", help="")
    concurrency: int | None = option("--concurrency", default=None, type=click.IntRange(1), help="")
    bind_address: str = option(
        "--server-bind-address",
        metavar="HOST:PORT",
        help="Serve /healthz, /readyz and /metrics at this address; by default not at all.",
    )
    leader_elect: bool = option(
        "--leader-elect",
        default=False,
        is_flag=True,
        help="Work only while this process holds the Lease of its kind.",
    )
    identity_file: str = option(
        "--identity-file",
        metavar="FILE",
        help="File with this process's Lease identity; a restarted process takes over without waiting.",
    )
    verbosity: int = option(
        "-v", "--v", "--verbosity", default=2, type=Level(), show_default=True, metavar="LEVEL", help="Log level."
    )
    accesses: Mapping[str, AccessOptions] = field(default_factory=dict)  #: options of kcp's and KubeStellar's names


def controller_options(
    *accesses: str, verbosity: int, workers: int | None = 4, provider: str = "the one of the kubeconfig's context"
) -> Decorator:
    """Passes ControllerOptions.  `accesses`: names of connections, as in kcp-edge, with `--NAME-kubeconfig`,
    `--NAME-context`, `--NAME-user` and `--NAME-cluster` each."""
    each = "" if workers else " of each controller; default 4; placement translator 16, status summarizer 8, "
    each += "" if workers else "global scheduler 32"

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(*arguments: Any, options: ControllerOptions, **named: Any) -> None:
            given = {one: AccessOptions(*(named.pop(f"{one}_{part}") for part in ACCESS)) for one in accesses}
            command(*arguments, options=replace(options, accesses=given), **named)

        for one in accesses:
            for part in ACCESS:
                text = f"Like --{part}, for one of several connections to the server."
                call = click.option(f"--{one}-{part}", default="", hidden=True, help=text)(call)
        return pass_settings(
            ControllerOptions,
            "options",
            provider={"help": f"Workspace that exports the edge API; by default {provider}."},
            concurrency={
                "default": workers,
                "show_default": workers is not None,
                "help": f"Number of concurrent workers{each}.",
            },
            verbosity={"default": verbosity},
        )(call)

    return decorate


# --- syncers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncerSettings:
    """Of `farflung syncer`."""

    from_kubeconfig: str = option("--from-kubeconfig", required=True, metavar="FILE", help="Kubeconfig of the mailbox.")
    from_context: str = option(
        "--from-context", metavar="NAME", help="Context of that kubeconfig; by default the current one."
    )
    from_cluster: str = option(
        "--from-cluster", metavar="PATH", help="Path of the mailbox, if the context is of another workspace."
    )
    to_kubeconfig: str = option(
        "--to-kubeconfig", metavar="FILE", help="Kubeconfig of the cluster; in a Pod, by default the Pod's cluster."
    )
    to_context: str = option(
        "--to-context", metavar="NAME", help="Context of that kubeconfig; by default the current one."
    )
    name: str = option("--sync-target-name", required=True, metavar="NAME", help="SyncTarget of the cluster.")
    uid: str = option("--sync-target-uid", required=True, metavar="UID", help="UID of the SyncTarget.")
    state: Path = option(
        "--state-directory",
        default=STATE_DIRECTORY,
        type=DIRECTORY,
        help="Directory of the journal, from which the syncer works without the hub; only one syncer can use it.",
    )
    adopt: str = option(
        "--adopt",
        default="if-identical",
        type=click.Choice(["never", "if-identical", "always"]),
        help="Take over objects that exist in the cluster without this syncer: never, if identical, always.",
    )
    token_secret: str = option(
        "--token-secret", metavar="NAMESPACE/NAME", help="Secret in the cluster that stores a renewed token."
    )
    bind_address: str = option(
        "--server-bind-address", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics at this address."
    )
    verbosity: int = option("-v", "--v", "--verbosity", default=0, show_default=True, help="Log level, 0 to 5.")


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """Of `farflung syncer-gen`, as typed."""

    output: str = option(
        "--output",
        "-o",
        default="-",
        metavar="FILE",
        help="File to write, - for standard output; a token in FILE is kept while it is valid for long enough.",
    )
    syncer_kubeconfig: str = option(
        "--syncer-kubeconfig",
        metavar="FILE",
        help="Write only a kubeconfig, to run `farflung syncer` outside of the cluster.",
    )
    server: str = option(
        "--server", metavar="URL", help="URL of the hub as seen from the cluster; by default the one of the kubeconfig."
    )
    image: str = option(
        "--syncer-image",
        metavar="IMAGE",
        help="Image of the syncer; by default farflung-syncer with this version as tag.",
    )
    replicas: int = option(
        "--replicas", default=1, type=click.IntRange(0, 1), help="Replicas of the Deployment, 0 or 1."
    )
    namespace: str = option(
        "--namespace", "-n", metavar="NAME", help="Namespace of the syncer in the cluster; by default its own."
    )
    labels: tuple[str, ...] = option(
        "--labels",
        default=(),
        multiple=True,
        metavar="KEY=VALUE,…",
        help="Labels of every object in the manifest; repeatable.",
    )
    lifetime: str = option(
        "--lifetime", default="30d", metavar="DURATION", help="Lifetime of the token, like 12h or 30d."
    )
    everything: bool = option(
        "--all-resources", default=False, is_flag=True, help="Allow every resource, also future ones."
    )
    allowed: tuple[str, ...] = option(
        "--allow",
        default=(),
        multiple=True,
        metavar="GROUP/RESOURCE,…",
        help="Allow downsync of this resource too.",
    )
    allowed_up: tuple[str, ...] = option(
        "--allow-upsync",
        default=(),
        multiple=True,
        metavar="GROUP/RESOURCE,…",
        help="Allow upsync of this resource.",
    )
    claim: str = option("--state-claim", metavar="NAME", help="PersistentVolumeClaim for the journal.")
    seconds: float = option(
        "--timeout",
        default=60,
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Seconds to wait for the mailbox.",
    )
