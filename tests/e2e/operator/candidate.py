"""A process that stands for election: `candidate.py sync|asyncio KUBECONFIG NAMESPACE NAME LOCKED_FILE`.

It prints `leading` when it leads, and `not alone` if another candidate holds the locked file then.  The kernel gives
the file back when a process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
from pathlib import Path

LEASE, RENEWAL, RETRY = 5, 3, 1  #: seconds; a leader that cannot be heard of for so long is not one any more
OPEN_FILES = []


def lead(locked: str) -> None:
    OPEN_FILES.append(Path(locked).open("a"))  # noqa: SIM115 - held to the end of the process
    try:
        fcntl.flock(OPEN_FILES[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("not alone", flush=True)
    else:
        print("leading", flush=True)


def stand(kubeconfig: str, namespace: str, name: str, locked: str) -> None:
    from kubernetes import config
    from kubernetes.leaderelection.electionconfig import Config
    from kubernetes.leaderelection.leaderelection import LeaderElection
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    config.load_kube_config(kubeconfig)
    lock = LeaseLock("election", namespace, name)
    LeaderElection(Config(lock, LEASE, RENEWAL, RETRY, lambda: lead(locked), None)).run()


async def stand_in_a_loop(kubeconfig: str, namespace: str, name: str, locked: str) -> None:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient
    from kubernetes_asyncio.leaderelection.electionconfig import Config
    from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
    from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

    async def started() -> None:
        lead(locked)

    async def stopped() -> None:
        pass

    await config.load_kube_config(config_file=kubeconfig)
    async with ApiClient() as api:
        lock = LeaseLock("election", namespace, name, api)
        await LeaderElection(Config(lock, LEASE, RENEWAL, RETRY, started, stopped)).run()


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "sync":
        stand(*arguments)
    else:
        asyncio.run(stand_in_a_loop(*arguments))
    print("ended", flush=True)
