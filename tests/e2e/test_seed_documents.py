"""The documents that users of kcp, KubeStellar and the global scheduler walk by, typed as they stand there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from executable import ROOT, Directory
from hub_process import HubProcess
from own_ports import own_ports
from seed_documents import transcript, type_document
from seed_session import Session

IN_A_WORKSPACE = r"""
$ kubectl ws root
Current workspace is "root".
$ kubectl ws create machines --enter
Workspace "machines" (type root:organization) created. Waiting for it to be ready...
Workspace "machines" (type root:organization) is ready to use.
Current workspace is "root:machines" (type root:organization).
$ kubectl kcp bind apiexport root:compute:kubernetes
apibinding kubernetes created. Waiting to successfully bind ...
kubernetes created and bound.
"""
#: that only objects in workspaces have
ANNOTATIONS = re.compile(r"(?<=^Annotations:  )edge.kcp.io/author: .*\n +|^ +kcp.io/cluster: .*\n", re.MULTILINE)


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


def test_the_global_scheduler_and_an_api_server(hub: HubProcess, seed_kubectl: Path, tmp_path: Path) -> None:
    session = Session(Directory(tmp_path), seed_kubectl, hub)
    link_scripts(session)
    try:
        type_document(session, "003-global-scheduler.txt")
        assert session.run("kubectl apply -f vm.yaml") == "pod/demovm unchanged\n"
        session.interrupt()
    finally:
        session.kill()
        session.run("kubectl delete pod demovm --ignore-not-found")
        session.run("kubectl delete lease global-scheduler --ignore-not-found")


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--bare"], ["--controllers"], ["--bare", "--controllers"]], ids=" ".join)
def test_the_global_scheduler_works_in_workspaces_too_and_takes_over_from_the_hubs_own(
    start: Callable[..., Session], options: list[str]
) -> None:
    session = start(*options)
    link_scripts(session)
    session.type(IN_A_WORKSPACE)
    type_document(session, "003-global-scheduler.txt", lambda printed: ANNOTATIONS.sub("", printed))


def link_scripts(session: Session) -> None:
    for name in ("conf", "hack"):
        (session.path / name).symlink_to(ROOT / name)


@pytest.mark.parametrize("line", ["-| there", "+| here", "=| b"])
def test_what_differs_from_a_document_has_a_reason(line: str) -> None:
    document = "$ a\n{}" + f"{line}\nprinted\n"
    with pytest.raises(ValueError, match="no reason"):
        transcript(document.format(""))
    assert "printed\n" in transcript(document.format("# It is different.\n"))


def test_a_document_is_typed_with_what_differs() -> None:
    document = (
        "# Title.\n% cat <<EOF\n# kept\n-| kept\nEOF\n$ a\n# Why.\n=| b\n# Why.\n-| there\n+| here\nboth\n$ c\n+| all\n"
    )
    assert transcript(document) == "$ cat <<EOF\n# kept\n-| kept\nEOF\n$ b\nhere\nboth\n$ c\nall\n"
