"""The documents that users of kcp, KubeStellar and the global scheduler walk by, typed as they stand there."""

from __future__ import annotations

from collections.abc import Callable

from own_ports import own_ports
from seed_documents import type_document
from seed_session import Session


def test_the_first_scheduler(start: Callable[..., Session]) -> None:
    type_document(start("--bare"), "002-first-scheduler.txt")


def test_the_edge_scheduler(start: Callable[..., Session]) -> None:
    type_document(start("--bare", root_directory="kcp/.kcp"), "001-edge-scheduler.txt")


def test_the_scheduler_of_kubestellar(start: Callable[..., Session]) -> None:
    type_document(start("--bare"), "000-kubestellar-scheduler.txt")


def test_two_edge_clusters_and_two_workloads(start: Callable[..., Session]) -> None:
    with own_ports() as ports:
        session = start("--bare", ports=ports)
        try:
            type_document(session, "004-two-edge-clusters.txt")
        finally:
            session.run("farflung edge delete --all")
