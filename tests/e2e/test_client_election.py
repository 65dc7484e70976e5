"""Leader election by real clients: never two leaders, and a new one when the old one is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hub_process import HubProcess, Json, eventually
from lazy_module import LazyModule

client = LazyModule("kubernetes.client")
config = LazyModule("kubernetes.config")
electing = LazyModule("kubernetes.leaderelection.leaderelection")
configuring = LazyModule("kubernetes.leaderelection.electionconfig")
LOCKS = {
    "LeaseLock": LazyModule("kubernetes.leaderelection.resourcelock.leaselock"),
    "ConfigMapLock": LazyModule("kubernetes.leaderelection.resourcelock.configmaplock"),
}

CANDIDATE = str(Path(__file__).with_name("operator") / "candidate.py")


@contextmanager
def candidate(kind: str, hub: HubProcess, namespace: str, locked: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, CANDIDATE, kind, str(hub.kubeconfig), namespace, kind, str(locked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def lease(hub: HubProcess, namespace: str) -> Json:
    with hub.client() as asking:
        spec: Json = asking.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/election")["spec"]
    return spec


def led_longer_than_a_lease(hub: HubProcess, namespace: str) -> bool:
    spec = lease(hub, namespace)
    renewed, acquired = (datetime.fromisoformat(spec[name]) for name in ("renewTime", "acquireTime"))
    return renewed - acquired > timedelta(seconds=spec["leaseDurationSeconds"])


@pytest.mark.long
def test_another_client_leads_when_the_leader_is_killed_and_not_before(
    hub: HubProcess, namespace: str, tmp_path: Path
) -> None:
    locked = tmp_path / "locked"
    with candidate("sync", hub, namespace, locked) as leader:
        assert heard(leader) == "leading"
        with candidate("asyncio", hub, namespace, locked) as follower:
            eventually(lambda: led_longer_than_a_lease(hub, namespace), "a reign longer than a lease")
            assert lease(hub, namespace)["holderIdentity"] == "sync"
            leader.kill()
            assert heard(follower) == "leading"
            assert lease(hub, namespace)["holderIdentity"] == "asyncio"
            with candidate("sync", hub, namespace, locked) as third:
                follower.kill()
                assert heard(third) == "leading"
                assert lease(hub, namespace)["holderIdentity"] == "sync"


@pytest.fixture
def connected(hub: HubProcess) -> Iterator[None]:
    """The locks take no client: they use the one that is the default."""
    before = client.Configuration._default
    config.load_kube_config(str(hub.kubeconfig))
    yield
    client.Configuration._default = before


def electors(lock: type[Any], namespace: str) -> list[Any]:
    return [
        electing.LeaderElection(configuring.Config(lock("race", namespace, str(number)), 60, 30, 1, lambda: None, None))
        for number in range(8)
    ]


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("lock", LOCKS)
def test_of_many_candidates_one_leads_in_every_round(lock: str, namespace: str) -> None:
    candidates = electors(getattr(LOCKS[lock], lock), namespace)
    with ThreadPoolExecutor(len(candidates)) as threads:
        for _ in range(5):
            won = list(threads.map(lambda one: one.try_acquire_or_renew(), candidates))
            assert won.count(True) == 1
            leader = candidates.pop(won.index(True)).election_config.lock
            for one in candidates:
                assert one.election_config.lock.get("race", namespace)[1].holder_identity == leader.identity
                assert not one.try_acquire_or_renew()
                one.observed_time_milliseconds = 0  # as if the leader had not been heard of since then
