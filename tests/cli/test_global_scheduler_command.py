"""`farflung global-scheduler`: what its files say, what is wrong with them, and that only one works at a time."""

from __future__ import annotations

import asyncio
import io
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from failing_engines import trusting
from fleet import PROVIDER, Fleet
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from farflung.cli.controllers import GLOBAL, read_settings
from farflung.cli.main import main
from farflung.cli.settings import AccessOptions, ControllerOptions, FileOptions
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machines import elected
from farflung.machines.elected import SchedulerClients
from farflung.machines.engine.policy import default_policy
from farflung.machines.files.configuration import LoadedConfiguration, SchedulerConfiguration
from farflung.machines.files.reloader import Reloader
from farflung.machines.files.scheduler_files import SchedulerFiles, SchedulerFilesError, own_directory
from farflung.runtime.exports import find_view
from farflung.runtime.informer import SharedInformers
from farflung.runtime.manager import Manager
from machines import machines

SAMPLES = Path(__file__).parents[2] / "conf"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "conf"))


def test_without_files_the_usual_policy_decides() -> None:
    assert SchedulerFiles().read() == SchedulerConfiguration(default_policy())


def test_a_directory_tells_of_flavors_sites_and_the_policy(conf: Path) -> None:
    found = SchedulerFiles(str(conf)).read()
    assert "c6.large.2" in found.flavors
    assert "az1" in [site.key.name for site in found.sites]
    assert [name for name, _ in found.policy.scorers] == ["StackAffinity", "Flavor", "SiteResourcesLeastAllocated"]
    other = conf.parent / "other.yaml"
    other.write_text("predicates: [{name: Flavor}]\npriorities: []\n")
    assert SchedulerFiles(str(conf), str(other)).read().policy.filters == ("Flavor",)


def test_the_server_and_the_kubeconfig_of_a_directory_count_if_nothing_else_is_said(conf: Path) -> None:
    text = (conf / "conf.yaml").read_text().replace('master: ""', "master: https://127.0.0.1:1")
    (conf / "conf.yaml").write_text(text.replace('kubeconfig: ""', "kubeconfig: kube"))
    there = str(conf / "kube")
    told = read_settings("x", (GLOBAL,), ControllerOptions(), FileOptions(str(conf)))
    assert told.provider_access == AccessOptions(kubeconfig=there, server="https://127.0.0.1:1")
    assert told.all_access == AccessOptions(kubeconfig=there, context="system:admin", server="https://127.0.0.1:1")
    named = read_settings("x", (GLOBAL,), ControllerOptions(kubeconfig="k"), FileOptions(str(conf)))
    assert named.provider_access.kubeconfig == "k"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("edgecloud_policy.yaml", "predicates: [{name: Luck}]", "Luck"),
        ("edgecloud_policy.yaml", "priorities: [{name: Flavor, weight: 1}, {name: Flavor, weight: 2}]", "Flavor"),
        ("conf.yaml", "scheduler_policy_file: nowhere.yaml", "nowhere.yaml"),
        ("conf.yaml", "master: 127.0.0.1:8080/api\nscheduler_policy_file: edgecloud_policy.yaml", "nor host:port"),
        ("conf.yaml", "master: ftp://127.0.0.1\nscheduler_policy_file: edgecloud_policy.yaml", "conf.yaml: master: "),
        ("conf.yaml", "{", "conf.yaml"),
        ("flavors.json", "[]", "flavors.json"),
        ("conf.yaml", "kubeconfig: ~nobody-here/x\nscheduler_policy_file: edgecloud_policy.yaml", "home directory"),
    ],
)
def test_what_is_wrong_with_files_is_said_in_one_sentence(conf: Path, file: str, text: str, said: str) -> None:
    (conf / file).write_text(text)
    ended = CliRunner().invoke(main, ["global-scheduler", "--conf", str(conf)])
    assert ended.exit_code == 1
    assert ended.stderr.startswith("farflung global-scheduler: ")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_directory_without_settings_is_an_error_for_who_names_it_and_none_for_all_controllers(tmp_path: Path) -> None:
    with pytest.raises(SchedulerFilesError, match=r".*/conf\.yaml not found"):
        SchedulerFiles(str(tmp_path)).read()
    environment = {"CONFIG_BASE": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    ended = CliRunner().invoke(main, ["controllers"], env=environment)
    assert "conf.yaml" not in ended.stderr
    named = CliRunner().invoke(main, ["controllers", "--conf", str(tmp_path)], env=environment)
    assert named.stderr == f"farflung controllers: {tmp_path}/conf.yaml not found\n"


def test_a_directory_of_the_environment_is_ours_unless_it_is_there_without_our_file(conf: Path) -> None:
    assert own_directory(str(conf)) == str(conf)
    assert own_directory(str(conf / "nowhere")) == str(conf / "nowhere")
    assert own_directory(str(conf / "conf.yaml")) == str(conf / "conf.yaml")
    (conf / "conf.yaml").unlink()
    assert own_directory(str(conf)) == ""


@pytest.mark.parametrize("command", [["start"], ["controllers"], ["explain", "pod", "x"]], ids=" ".join)
def test_a_directory_of_the_environment_that_is_not_there_is_an_error(tmp_path: Path, command: list[str]) -> None:
    nowhere = str(tmp_path / "nowhere")
    ended = CliRunner().invoke(main, command, env={"CONFIG_BASE": nowhere})
    assert ended.exit_code == 1
    assert ended.stderr.endswith(f": {nowhere}/conf.yaml not found\n")


def test_a_hub_does_not_start_with_invalid_files_unless_no_controller_reads_them(conf: Path) -> None:
    (conf / "edgecloud_policy.yaml").write_text("predicats: []")
    directory = conf.parent / "hub"
    command = ["start", "--root-directory", str(directory), "--conf", str(conf)]
    ended = CliRunner().invoke(main, command)
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"farflung start: {conf}/edgecloud_policy.yaml: the file has the unknown key")
    assert not directory.exists()
    alone = CliRunner().invoke(main, [*command, "--no-controllers", "--bind-address", "192.0.2.1"])
    assert "choose another --bind-address" in alone.stderr


async def joined(fleet: Fleet, name: str, manager: Manager, log: Logger) -> asyncio.Task[None]:
    espw, root = fleet.client(f"/clusters/{PROVIDER}"), fleet.client("/clusters/root")
    edge, targets, locations = [
        (await find_view(client, name, fleet.env, log)).url
        for client, name in ((espw, "edge.kcp.io"), (root, "workload.kcp.io"), (root, "scheduling.kcp.io"))
    ]
    everywhere = Client(fleet.masters, "/clusters/*", "test")
    clients = SchedulerClients(espw, root, everywhere, edge, targets, locations, trusting(log))
    files = Reloader(SchedulerFiles(), LoadedConfiguration(SchedulerConfiguration(), datetime.now(UTC)), log)
    elected.join(clients, files, name, manager, SharedInformers(fleet.env), log, workers=4)
    return asyncio.create_task(manager.run())


@pytest.mark.simulated_time
async def test_of_two_schedulers_one_works_and_the_other_follows_when_it_ends() -> None:
    async with machines(start=False) as one:
        log = io.StringIO()
        managers = [Manager(Logger(log)) for _ in range(2)]
        tasks = [await joined(one.fleet, str(at), manager, Logger(log)) for at, manager in enumerate(managers)]
        try:
            await one.cluster("az1", {"small": 1})
            for name in ("a", "b"):
                await one.machine(name)

            async def decided() -> bool:
                pods = await one.pods()
                return all(pod.get("status", {}).get("conditions") for pod in pods)

            await one.fleet.eventually(decided, "a decision about both")
            assert sorted(pod["spec"].get("nodeName", "") for pod in await one.pods()) == ["", "az1"]
            works = [bool(manager.informers) for manager in managers]
            assert sorted(works) == [False, True]
            assert all(manager.synced for manager in managers)  # who waits is ready to
            registry = CollectorRegistry()
            registry.register(managers[works.index(True)].figures())
            figures = generate_latest(registry)
            assert b'farflung_placements_total{result="bound"} 1.0' in figures
            assert b'farflung_placement_refusals_total{reason="out of"}' in figures
            assert b'farflung_placement_seconds_count{stage="total"} 1.0' in figures
            tasks[works.index(True)].cancel()
            await one.cluster("az2", {"small": 1}, zone="az2")
            await one.fleet.eventually(lambda: managers[works.index(False)].informers, "the other")
            assert {await one.bound("a"), await one.bound("b")} == {"az1", "az2"}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
