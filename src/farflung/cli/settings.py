"""Options of commands as typed settings: a field of a class is an option, and a command gets an instance.

Modules of commands import this one at every start, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from farflung.apis.edge.names import STALE_AFTER

if TYPE_CHECKING:
    from farflung.lib.key_file import KeyFile

Command: TypeAlias = Callable[..., None]
Decorator: TypeAlias = Callable[[Command], Command]

PROVIDER: Final = "root:espw"  #: the workspace that exports the edge API, unless another one is named
_OPTION: Final = "option"


def option(
    help: str, default: Any = "", value: str | click.ParamType[Any] = "", names: str = "", **settings: Any
) -> Any:
    """A field that is an option.  `--help` shows its default, unless that is empty.

    `value`: name or type of its value; `names`: like `--output -o`, by default the name of the field.  A default of
    False makes a flag, and () an option that can be repeated.
    """
    settings |= {"help": help, "is_flag": default is False, "multiple": default == ()}
    settings |= {"metavar": value} if isinstance(value, str) and value else {"type": value} if value else {}
    return field(default=default, metadata={_OPTION: (names.split(), settings)})


def _decorator(one: Field[Any], changes: Mapping[str, Any]) -> Decorator:
    names, settings = one.metadata[_OPTION]
    settings = {"default": one.default, **settings, **changes}
    settings.setdefault("show_default", settings["default"] not in ("", (), False, None))
    if settings.get("required"):
        settings = {name: value for name, value in settings.items() if name not in ("default", "show_default")}
    return click.option(*(names or [f"--{one.name.replace('_', '-')}"]), one.name, **settings)


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

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from farflung.placement.guard import parse_share

        try:
            return parse_share(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ResourcesType(click.ParamType[tuple[str, ...]]):
    """Resources as in Kubernetes' EncryptionConfiguration, like `configmaps,*.apps`."""

    name = "RESOURCE,…"

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

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "LEVEL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(number, param, ctx)


class Number(click.IntRange):
    """A number of some unit."""

    def __init__(self, unit: str, least: int, most: int | None = None) -> None:
        super().__init__(least, most)
        self._unit = unit

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self._unit


NUMBER: Final = Number("NUMBER", 1)
NUMBER_OR_NONE: Final = Number("NUMBER", 0)
SECONDS: Final = Number("SECONDS", 1)
RUNTIME: Final = click.Choice(["auto", "podman", "process"])  #: of pods


# --- servers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Selects hub, workspace and user; empty fields as kubectl does."""

    workspace: str = option("", "", "PATH")
    kubeconfig: str = option("Kubeconfig of the hub; by default the one that kubectl would use.", "", "FILE")
    context: str = option("Context of the kubeconfig; by default the current one.")
    provider: str = option("Workspace that exports the edge API.", PROVIDER, "PATH", names="--provider-path")
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
KEY_FILE: Final = "encryption.key"  #: of its store
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
        "File with the keys that encrypt Secrets in the store; by default encryption.key in the root directory.",
        None,
        FILE,
        names="--encryption-key-file",
    )
    command: str = option(
        "Command that wraps and unwraps the keys in that file: COMMAND wrap, COMMAND unwrap.",
        "",
        "COMMAND",
        names="--encryption-command",
    )

    def file(self, default: Path) -> KeyFile:
        from farflung.lib.key_file import KeyFile

        return KeyFile(self.path or default, self.command)


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Of `farflung hub` and `farflung start`."""

    root_directory: Path = option(
        "Directory for the hub's data, certificates and admin.kubeconfig.", ROOT_DIRECTORY, DIRECTORY
    )
    bind_address: str = option("Address to listen on.", "127.0.0.1")
    port: int = option("Port to listen on; 0 picks a free one.", 6443, click.IntRange(0, 65535))
    hostnames: tuple[str, ...] = option(
        "Additional host name or IP address for the serving certificate; repeatable.", (), names="--external-hostname"
    )
    history: int = option("Seconds of history that the store keeps, so that clients can resume watches.", 3600, SECONDS)
    event_ttl: int = option("Seconds until the hub deletes an Event after its last write.", 3600, SECONDS)
    service_account_max_token_expiration: int = option(
        "Longest lifetime of a ServiceAccount's token; a request for a longer one gets a shorter one.",
        90 * 86400,
        Number("SECONDS", 600),
    )
    audit_policy_file: Path | None = option(
        "Policy of the audit log, as of Kubernetes; by default writes and requests for Secrets are logged.", None, FILE
    )
    audit_log_path: str = option(
        "Write audit events as lines of JSON to FILE, - for standard error, instead of lines of text to the log.",
        "",
        "FILE",
    )
    audit_log_maxsize: int = option("Size of the audit log at which it is rotated.", 100, Number("MEGABYTES", 1))
    audit_log_maxbackup: int = option("Number of rotated audit logs to keep; 0 keeps all.", 10, NUMBER_OR_NONE)
    audit_log_maxage: int = option("Days to keep rotated audit logs; 0 keeps them forever.", 0, Number("DAYS", 0))
    max_requests_inflight: int = option("Reads in progress at once; further ones are queued.", 400, NUMBER)
    max_mutating_requests_inflight: int = option("Writes in progress at once; further ones are queued.", 200, NUMBER)
    max_queued_requests_per_user: int = option(
        "Requests of one user that may wait for their turn; further ones are refused with 429.", 500, NUMBER
    )
    max_watches_per_user: int = option("Open watches of one user; further ones are refused with 429.", 1000, NUMBER)
    max_objects_per_workspace: int = option(
        "Objects of one workspace; further ones are refused with 403.", 200_000, NUMBER
    )
    max_megabytes_per_workspace: int = option(
        "Size of all objects of one workspace; writes beyond it are refused with 403.", 1024, Number("MEBIBYTES", 1)
    )
    max_workspaces_per_home: int = option(
        "Workspaces below one home workspace; further ones are refused with 403.", 100, NUMBER
    )
    encryption_resources: tuple[str, ...] = option(
        "Resources to encrypt beside Secrets: configmaps, widgets.example.org, *.apps, or *.* for all.",
        (),
        ResourcesType(),
    )
    verbose: bool = option("Log in more detail.", False, names="--verbose -v")


# --- controllers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WithdrawalOptions:
    """Limits of withdrawals that need no confirmation."""

    max_withdraw: int = option(
        "Hold withdrawals that affect more than PERCENT of a placement's destinations and more than "
        "--max-withdraw-number, until confirmed.",
        "50%",
        PercentType(),
    )
    max_withdraw_number: int = option(
        "Hold withdrawals only if they affect more than NUMBER destinations; see --max-withdraw.", 10, NUMBER_OR_NONE
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
        "Directory with conf.yaml, flavors, sites and policy of the global scheduler; default $CONFIG_BASE.",
        "",
        "DIR",
        envvar="CONFIG_BASE",
    )
    policy_file: str = option(
        "File with the scheduling policy (predicates and priorities); by default the one that conf.yaml names, "
        "or the default policy.",
        "",
        "FILE",
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
        "Kubeconfig of the hub; by default the one that kubectl would use.",
        "",
        "FILE",
        names="--kubeconfig --kcp-kubeconfig",
    )
    context: str = option("Context of the kubeconfig; by default the current one.")
    provider: str = option("", "", "PATH", names="--provider-path --espw-path")
    concurrency: int | None = option("", None, click.IntRange(1))
    bind_address: str = option(
        "Serve /healthz, /readyz and /metrics at this address; by default not at all.",
        "",
        "HOST:PORT",
        names="--server-bind-address",
    )
    leader_elect: bool = option("Work only while this process holds the Lease of its kind.", False)
    identity_file: str = option(
        "File with this process's Lease identity; a restarted process takes over without waiting.", "", "FILE"
    )
    verbosity: int = option("Log level.", 2, Level(), names="-v --v --verbosity", show_default=True)
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

    from_kubeconfig: str = option("Kubeconfig of the mailbox.", "", "FILE", required=True)
    from_context: str = option("Context of that kubeconfig; by default the current one.", "", "NAME")
    from_cluster: str = option("Path of the mailbox, if the context is of another workspace.", "", "PATH")
    to_kubeconfig: str = option("Kubeconfig of the cluster; in a Pod, by default the Pod's cluster.", "", "FILE")
    to_context: str = option("Context of that kubeconfig; by default the current one.", "", "NAME")
    name: str = option("SyncTarget of the cluster.", "", "NAME", names="--sync-target-name", required=True)
    uid: str = option("UID of the SyncTarget.", "", "UID", names="--sync-target-uid", required=True)
    state: Path = option(
        "Directory of the journal, from which the syncer works without the hub; only one syncer can use it.",
        STATE_DIRECTORY,
        DIRECTORY,
        names="--state-directory",
    )
    adopt: str = option(
        "Take over objects that exist in the cluster without this syncer: never, if identical, always.",
        "if-identical",
        click.Choice(["never", "if-identical", "always"]),
    )
    token_secret: str = option("Secret in the cluster that stores a renewed token.", "", "NAMESPACE/NAME")
    bind_address: str = option(
        "Serve /healthz, /readyz and /metrics at this address.", "", "HOST:PORT", names="--server-bind-address"
    )
    verbosity: int = option("Log level, 0 to 5.", 0, names="-v --v --verbosity", show_default=True)


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """Of `farflung syncer-gen`, as typed."""

    output: str = option(
        "File to write, - for standard output; a token in FILE is kept while it is valid for long enough.",
        "-",
        "FILE",
        names="--output -o",
    )
    syncer_kubeconfig: str = option(
        "Write only a kubeconfig, to run `farflung syncer` outside of the cluster.", "", "FILE"
    )
    server: str = option("URL of the hub as seen from the cluster; by default the one of the kubeconfig.", "", "URL")
    image: str = option(
        "Image of the syncer; by default farflung-syncer with this version as tag.", "", "IMAGE", names="--syncer-image"
    )
    replicas: int = option("Replicas of the Deployment, 0 or 1.", 1, click.IntRange(0, 1))
    namespace: str = option(
        "Namespace of the syncer in the cluster; by default its own.", "", "NAME", names="--namespace -n"
    )
    labels: tuple[str, ...] = option("Labels of every object in the manifest; repeatable.", (), "KEY=VALUE,…")
    lifetime: str = option("Lifetime of the token, like 12h or 30d.", "30d", "DURATION")
    everything: bool = option("Allow every resource, also future ones.", False, names="--all-resources")
    allowed: tuple[str, ...] = option("Allow downsync of this resource too.", (), "GROUP/RESOURCE,…", names="--allow")
    allowed_up: tuple[str, ...] = option(
        "Allow upsync of this resource.", (), "GROUP/RESOURCE,…", names="--allow-upsync"
    )
    claim: str = option("PersistentVolumeClaim for the journal.", "", "NAME", names="--state-claim")
    seconds: float = option(
        "Seconds to wait for the mailbox.", 60, click.FloatRange(0), metavar="SECONDS", names="--timeout"
    )


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Of `farflung import-kinds`."""

    source: str = option("Kubeconfig of the cluster that has the kinds.", "", "FILE", names="--from", required=True)
    from_context: str = option("Context of that kubeconfig; by default the current one.")
    export: str = option("Name of the APIExport.", "imported")
    dry_run: bool = option("Print the objects as YAML, and write nothing.", False)


# --- demos -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Of `farflung demo`."""

    keep: bool = option("Leave the demo running, and print commands to try.", False)
    stop: bool = option("Stop and remove a demo that --keep left running.", False)
    replace: bool = option("First stop and remove an earlier demo.", False)
    runtime: str = option(
        "Runtime of pods: podman runs their images, process runs local processes instead of them.", "process", RUNTIME
    )
    first_port: int = option(
        "Local port of the first page; the others are at the next two ports.", 8081, click.IntRange(1, 65533)
    )
