"""Replay the recordings of a real kube-apiserver in a workspace, as far as it serves what they are about.

    python tests/conformance/prefixed.py [--verbose] [basics ...]

A workspace has no workloads: steps about kinds that it does not serve are left out.  The annotation `kcp.io/cluster`,
which every object in a workspace has and no recorded one, is left out of what is compared, if it names the workspace.
What else is known to differ is in differences.txt, if it differs without a workspace too, or else in
prefixed-differences.txt; the steps that differ must be exactly those.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import recorded
import replay
from exchanges import Outcome, Replay, Scenario, Step
from servers import Request, Server, server_of

from farflung.apis.builtin.kinds import BUILTIN, HUB
from farflung.hub.request.target import DEFAULT_CLUSTER, target_of

DIFFERENCES: Final = Path(__file__).parent / "prefixed-differences.txt"
RECORDINGS: Final = {recorded.name_of(path).removesuffix(".jsonl"): path for path in recorded.recordings("kubernetes")}
WORKSPACES: Final = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"
NAME: Final = "conformance"
ADMINISTRATOR: Final = "shard-admin"  #: in system:masters, like the administrator of the recordings

CLUSTER: Final = "kcp.io/cluster"
GROUPS: Final = {one.group for one in HUB}
ELSEWHERE: Final = {(one.group, one.plural) for one in BUILTIN} - {(one.group, one.plural) for one in HUB}
GROUPS_ELSEWHERE: Final = {one.group for one in BUILTIN} - GROUPS


def known_differences(names: Collection[str], left_out: Collection[str]) -> frozenset[str]:
    known = replay.Known.read().of_http() | set(replay.read_differences(DIFFERENCES))
    return replay.of_recordings(known, [RECORDINGS[name] for name in names]) - frozenset(left_out)


def replay_in_workspace(server: Server, names: Collection[str]) -> Outcome:
    """Replay recordings in a new workspace.  A server can be used once, as the workspace stays."""
    cluster = create_workspace(server)
    run = Replay(
        server,
        prefix=f"/clusters/root:{NAME}",
        view=lambda answer: without_cluster(answer, cluster),
        serves=is_served,
        keeps=True,
    )
    known = known_differences(names, ())
    for name in names:
        run.play(Scenario.read(RECORDINGS[name]).hurry(known))
    return run.outcome


def replay_fresh(names: Collection[str]) -> Outcome:
    """Replay recordings in a workspace of a fresh hub."""
    with (
        replay.fresh_hub("start", "--bare") as hub,
        closing(server_of(hub.kubeconfig, user=ADMINISTRATOR, prefixed=False)) as server,
    ):
        return replay_in_workspace(server, names)


def create_workspace(server: Server) -> str:
    """The cluster of a new universal workspace."""
    kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
    spec = {"type": {"name": "universal", "path": "root"}}
    body = json.dumps({**kind, "metadata": {"name": NAME}, "spec": spec}).encode()
    reply = server.call(Request("POST", WORKSPACES, {"Content-Type": "application/json"}, body))
    assert reply.status == 201, reply.body
    cluster: str = json.loads(reply.body)["spec"]["cluster"]
    return cluster


def is_served(step: Step) -> bool:
    return not is_elsewhere(step["path"])


def is_elsewhere(path: str) -> bool:
    """Whether a path is about something that Kubernetes has and a workspace has not."""
    target = target_of(DEFAULT_CLUSTER, re.sub(r"[${}]", "", path))
    if target is None:
        top, _, rest = path[1:].partition("/")
        return top == "apis" and rest.partition("/")[0] in GROUPS_ELSEWHERE
    return target.group in GROUPS_ELSEWHERE or (target.group, target.plural) in ELSEWHERE


def without_cluster(answer: Any, cluster: str) -> Any:
    """An answer without the annotation that names its cluster, also where a message quotes an object."""
    if isinstance(answer, list):
        return [without_cluster(one, cluster) for one in answer]
    if isinstance(answer, str):
        return answer.replace(rf"\"annotations\":{{\"{CLUSTER}\":\"{cluster}\"}},", "")
    if not isinstance(answer, dict):
        return answer
    kept = {name: without_cluster(value, cluster) for name, value in answer.items() if name != "annotations"}
    if "annotations" in answer:
        annotations = answer["annotations"]
        is_named = isinstance(annotations, dict) and annotations.get(CLUSTER) == cluster
        if is_named:
            annotations = {name: value for name, value in annotations.items() if name != CLUSTER}
        if annotations or not is_named:
            kept["annotations"] = annotations
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="show known differences, too")
    parser.add_argument("names", nargs="*", default=sorted(RECORDINGS))
    arguments = parser.parse_args()
    outcome = replay_fresh(arguments.names)
    print(f"{len(outcome.left_out)} steps are about what a workspace does not serve")
    known = known_differences(arguments.names, outcome.left_out)
    return 0 if replay.report("in a workspace", outcome, known, verbose=arguments.verbose) else 1


if __name__ == "__main__":
    sys.exit(main())
