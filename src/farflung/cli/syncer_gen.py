"""`farflung syncer-gen` and `farflung syncer-revoke`."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from farflung.cli import tokens
from farflung.cli.connection import CLUSTERS, describe_error, modify
from farflung.cli.settings import ManifestOptions, ServerOptions
from farflung.client.errors import KubeconfigError
from farflung.client.kubeconfig import load
from farflung.lib.files import write_private
from farflung.lib.version import __version__
from farflung.machinery.names import dns_label, label_value, qualified_name
from farflung.placement.names import GroupResource
from farflung.syncer.manifest import MailboxServer, SyncerInstallation, as_yaml, edge_objects, find_token, kubeconfig
from farflung.syncer.rbac import edge_rules, parse_resource
from farflung.syncer.registration import Registered, RegistrationRequest, register, revoke
from farflung.syncer.tokens import LONGEST_LIFETIME, SHORTEST_LIFETIME

IMAGE: Final = f"farflung-syncer:{__version__}"
STANDARD_OUTPUT: Final = "-"


def generate(name: str, options: ManifestOptions, connection: ServerOptions) -> None:
    """Print or write the manifest.  Raises click.ClickException."""
    place = options.syncer_kubeconfig or options.output
    labels, server = labels_of(options.labels), server_of(connection, options.server)
    if options.namespace and dns_label(options.namespace):
        raise click.UsageError(f"{options.namespace!r} is not the name of a namespace")
    wanted = RegistrationRequest(
        name,
        connection.provider,
        lifetime_of(options.lifetime),
        options.seconds,
        resources_of(options.allowed),
        resources_of(options.allowed_up),
        options.everything,
        find_token(_content(place)),
    )
    registered = modify(connection, lambda client: register(client, wanted, report, time.time))
    server = replace(server, url=f"{server.url}{CLUSTERS}{registered.cluster}")
    if options.syncer_kubeconfig:
        _write(place, kubeconfig(server, {"token": registered.token}))
        report(f"Wrote {place}; run `{_command(name, options, registered)}`")
        return
    if is_loopback(server.url):
        report(f"Warning: {server.url} is only reachable from this machine; select another URL with --server")
    syncer = SyncerInstallation(
        name,
        registered.uid,
        server,
        registered.token,
        edge_rules(registered.kinds),
        options.image or IMAGE,
        options.namespace,
        options.replicas,
        labels,
        options.claim,
    )
    _write(place, as_yaml(edge_objects(syncer)))
    if place != STANDARD_OUTPUT:
        report(f"Wrote {place}, for the namespace {syncer.home}; in the cluster, run `kubectl apply -f {place}`")


def revoke_access(name: str, connection: ServerOptions) -> None:
    deleted = modify(connection, lambda client: revoke(client, RegistrationRequest(name, connection.provider, 0, 0.0)))
    for one in deleted:
        click.echo(f"{one} deleted")
    if not deleted:
        report(f"the syncer of {name} is not registered")


def report(sentence: str) -> None:
    click.echo(sentence, err=True)


def _command(name: str, options: ManifestOptions, registered: Registered) -> str:
    return (
        f"farflung syncer --from-kubeconfig {options.syncer_kubeconfig} --to-kubeconfig … "
        f"--sync-target-name {name} --sync-target-uid {registered.uid}"
    )


# --- options --------------------------------------------------------------------------------------


def lifetime_of(text: str) -> int:
    """Seconds."""
    seconds = int(tokens.duration(text, "--lifetime").total_seconds())
    if not SHORTEST_LIFETIME <= seconds < LONGEST_LIFETIME:
        raise click.BadParameter(f"{text!r} is not between 10m and 49710d", param_hint="'--lifetime'")
    return seconds


def resources_of(texts: Iterable[str]) -> frozenset[GroupResource]:
    try:
        return frozenset(parse_resource(one) for text in texts for one in text.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--allow'") from None


def labels_of(texts: Iterable[str]) -> Mapping[str, str]:
    """`a=b,c=d`, sorted."""
    found: dict[str, str] = {}
    for text in (one for several in texts for one in several.split(",")):
        key, equals, value = text.partition("=")
        if not equals or qualified_name(key) or label_value(value):
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint="'--labels'")
        found[key] = value
    return dict(sorted(found.items()))


# --- the hub's address ----------------------------------------------------------------------------


def server_of(connection: ServerOptions, url: str) -> MailboxServer:
    """The server of the kubeconfig, without a workspace.  `url`: another URL of it."""
    try:
        known = load(connection.kubeconfig or None, context=connection.context)
    except KubeconfigError as error:
        raise click.ClickException(describe_error(error)) from None
    address = known.server
    if url:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.netloc or "@" in parts.netloc or parts.path.strip("/") or parts.query:
            raise click.BadParameter(f"{url!r} is not of the form https://HOST:PORT", param_hint="'--server'")
        address = f"https://{parts.netloc}"
    return MailboxServer(address, known.authority, known.server_name or "", known.insecure)


def is_loopback(url: str) -> bool:
    """Whether the host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- files ----------------------------------------------------------------------------------------


def _content(place: str) -> str:
    """The current content of the file; empty if there is none."""
    if place == STANDARD_OUTPUT:
        return ""
    try:
        return Path(place).read_text(errors="replace")
    except OSError:
        return ""


def _write(place: str, text: str) -> None:
    if place == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        write_private(Path(place), text.encode())
    except OSError as error:
        raise click.ClickException(f"cannot write {place}: {(error.strerror or str(error)).lower()}") from None
