"""What a process of controllers shows while it waits, begins and works, and how it ends."""

from __future__ import annotations

import io
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from free_ports import free_ports
from hub_harness import ADMIN_TOKEN, LocalHub
from hub_process import FARFLUNG, PATIENCE, HubProcess, eventually
from local_transport import LocalTransport
from memory_store import MemoryStore
from platform_harness import MASTER, OPERATOR, platform_hub
from prometheus_client.exposition import generate_latest
from simulated_time import simulated_environment

from farflung.cli.controllers import (
    ALL,
    MAILBOXES,
    SCHEDULER,
    TRANSLATOR,
    ControllerSettings,
    ProcessStatus,
    Servers,
    placing_rights_of,
    read_settings,
)
from farflung.cli.main import main
from farflung.cli.settings import AccessOptions, ControllerOptions, WithdrawalOptions
from farflung.client.errors import KubeconfigError
from farflung.client.rest import Client
from farflung.hub.catalog import objects
from farflung.lib.klog import Logger
from farflung.runtime.informer import SharedInformers


def test_a_waiting_process_is_ready_and_a_starting_one_is_not() -> None:
    shown = ProcessStatus()
    assert shown.ready()
    for _ in range(2):  # it may lead again
        with shown.manager(Logger(io.StringIO())):
            assert not shown.ready()
            assert b"farflung_queue_depth" in generate_latest(shown.registry)
    assert shown.ready()
    assert b"farflung_queue_depth" not in generate_latest(shown.registry)


async def test_who_works_is_ready_when_everything_was_listed() -> None:
    shown = ProcessStatus()
    with shown.manager(Logger(io.StringIO())) as manager:
        await manager.run()  # nothing is to be listed or done
        assert shown.ready()


def ready(port: int) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


@contextmanager
def scheduler(hub: HubProcess, port: int) -> Iterator[subprocess.Popen[bytes]]:
    options = ["--kubeconfig", str(hub.kubeconfig), "--server-bind-address", f"127.0.0.1:{port}", "--leader-elect"]
    process = subprocess.Popen([FARFLUNG, "scheduler", *options], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_of_two_processes_one_works_and_the_other_follows_at_once_when_it_ends(tmp_path: Path) -> None:
    """This hub has no exports, so whoever works waits for them, and says that it is not ready."""
    hub, ports = HubProcess(tmp_path / "hub"), free_ports(2)
    try:
        with scheduler(hub, ports[0]) as first:
            eventually(lambda: ready(ports[0]) == 503, "the first at work")
            with scheduler(hub, ports[1]) as second:
                eventually(lambda: ready(ports[1]) == 200, "the second to wait")
                first.send_signal(signal.SIGTERM)
                assert first.wait(PATIENCE) == 0
                eventually(lambda: ready(ports[1]) == 503, "the second at work")
                second.send_signal(signal.SIGINT)
                assert second.wait(PATIENCE) == 0
    finally:
        hub.kill()


def test_an_address_that_is_none_is_said_in_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    command = [FARFLUNG, "scheduler", "--kubeconfig", str(config), "--server-bind-address", "here"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert ended.stderr == "farflung scheduler: 'here' is not an address of the form host:port\n"


ALONE = (
    "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
    "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n"
)


@pytest.mark.parametrize("command", ["placement-translator", "controllers"])
def test_a_kubeconfig_without_a_way_to_all_workspaces_is_said_in_one_sentence(tmp_path: Path, command: str) -> None:
    config = tmp_path / "config"
    config.write_text(ALONE)
    ended = subprocess.run(
        [FARFLUNG, command, "--kubeconfig", str(config)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        f"farflung {command}: there is no context 'system:admin' in {config}: this controller needs access to all "
        "workspaces; select a context with it by --allclusters-context, like the one in the hub's admin.kubeconfig\n"
    )


def test_the_way_to_all_workspaces_is_that_of_the_kubeconfig_unless_something_else_is_said() -> None:
    options = ControllerOptions(kubeconfig="a", context="here")
    usual = read_settings("farflung controllers", ALL, options, withdrawal=WithdrawalOptions(20, 3))
    assert usual.all_access == AccessOptions(kubeconfig="a", context="system:admin")
    assert [usual.workers_of(one) for one in ALL] == [4, 4, 16, 8, 32]
    assert usual.limits == (20, 3)
    other = read_settings(
        "farflung controllers",
        ALL,
        replace(options, accesses={"allclusters": AccessOptions(context="x")}, concurrency=2),
    )
    assert other.all_access == AccessOptions(kubeconfig="a", context="x")
    assert other.workers_of(TRANSLATOR) == 2
    alone = replace(options, accesses={"sysadm": AccessOptions(context="y")})
    assert read_settings("farflung scheduler", (SCHEDULER,), alone).all_access == AccessOptions("a", "y")
    assert read_settings("farflung mailbox-controller", (MAILBOXES,), options).all_access is None


def settings_of(config: Path) -> ControllerSettings:
    config.write_text(ALONE)
    return read_settings("farflung scheduler", (SCHEDULER,), ControllerOptions(kubeconfig=str(config)))


@pytest.mark.simulated_time
async def test_a_server_that_records_no_authors_is_told_of_at_every_start(tmp_path: Path) -> None:
    hub, printed = LocalHub(MemoryStore(stamp=objects.stamp)), io.StringIO()
    client, informers = Client(LocalTransport(hub.function, ADMIN_TOKEN)), SharedInformers(simulated_environment())
    settings = replace(settings_of(tmp_path / "config"), trusted=("root:a", "root:b"))
    rights = await placing_rights_of(settings, Servers(client, client), informers, Logger(printed))
    assert rights.by_workspace
    assert (
        '"the server records no authors of placements, so trusted workspaces may place on all Locations" '
        'trustWorkspaces="root:a,root:b"' in printed.getvalue()
    )


@pytest.mark.simulated_time
async def test_a_server_that_records_authors_needs_a_way_to_all_workspaces(tmp_path: Path) -> None:
    hub, printed = await platform_hub(), io.StringIO()
    client = Client(LocalTransport(hub.function, OPERATOR), "/clusters/root")
    servers, informers = Servers(client, client), SharedInformers(simulated_environment())
    settings = settings_of(tmp_path / "config")
    with pytest.raises(KubeconfigError, match=r"^no context system:admin: this controller needs access .* --sysadm"):
        await placing_rights_of(settings, servers, informers, Logger(printed))
    everywhere = Client(LocalTransport(hub.function, MASTER), "/clusters/*")
    rights = await placing_rights_of(settings, replace(servers, everywhere=everywhere), informers, Logger(printed))
    assert not rights.by_workspace and not printed.getvalue()


def test_no_summary_of_a_command_is_cut_off() -> None:
    assert [name for name, one in main.commands.items() if one.get_short_help_str(60).endswith("...")] == []
