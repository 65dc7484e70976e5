"""Replay the recordings of a real kube-apiserver in a workspace, as far as it serves what they are about.

    python tests/conformance/prefixed.py [--verbose] [basics ...]

A workspace has no workloads: steps about kinds that it does not serve are left out.  The annotation `kcp.io/cluster`,
which every object in a workspace has and no recorded one, is left out of what is compared, if it names the workspace.
What else is known to differ is in differences.txt, because it differs without a workspace too, or else in
prefixed-differences.txt; the steps that differ must be exactly those.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import re
import ssl
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import replay
from replay import Outcome

from farflung.apis.builtin import BUILTIN, HUB
from farflung.hub.request import DEFAULT_CLUSTER, target_of

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from hub_process import HubProcess

DIFFERENCES = Path(__file__).parent / "prefixed-differences.txt"
RECORDINGS = [path.stem for path in replay.recordings("kubernetes", "*.jsonl")]
WORKSPACES = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"
NAME = "conformance"
ADMINISTRATOR = "shard-admin"  #: in system:masters, as who made the recordings

CLUSTER = "kcp.io/cluster"
GROUPS = {one.group for one in HUB}
ELSEWHERE = {(one.group, one.plural) for one in BUILTIN} - {(one.group, one.plural) for one in HUB}
GROUPS_ELSEWHERE = {one.group for one in BUILTIN} - GROUPS


@dataclass(frozen=True)
class Replayed:
    outcome: Outcome
    left_out: frozenset[str]  #: steps about what a workspace does not serve


def known_differences(names: Sequence[str], left_out: frozenset[str]) -> frozenset[str]:
    lines = DIFFERENCES.read_text().splitlines()
    own = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert all(reason.strip() for reason in own.values())
    recordings = {f"{name}.jsonl" for name in names}
    known = replay.Known.read().of_http() | own.keys()
    return frozenset(step for step in known if step.partition(":")[0] in recordings) - left_out


def replay_in_workspace(names: Sequence[str], *, verbose: bool = False) -> Replayed:
    """Replay recordings in a workspace of a fresh hub."""
    with tempfile.TemporaryDirectory() as directory:
        hub = HubProcess(Path(directory) / "hub", command="start", arguments=["--bare"])
        try:
            hub.token = next(user["user"]["token"] for user in hub.config["users"] if user["name"] == ADMINISTRATOR)
            replayed = _replay(hub, _workspace(hub), names, verbose=verbose)
            hub.stop()
            return replayed
        finally:
            hub.kill()


def _workspace(hub: HubProcess) -> str:
    """The cluster of a new universal workspace."""
    with hub.client() as client:
        kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
        spec = {"type": {"name": "universal", "path": "root"}}
        made = client.create(WORKSPACES, {**kind, "metadata": {"name": NAME}, "spec": spec})
        cluster: str = made["spec"]["cluster"]
        return cluster


def _replay(hub: HubProcess, cluster: str, names: Sequence[str], *, verbose: bool) -> Replayed:
    tool = _tool()
    seen = tool.visible
    tool.visible = lambda step, answer: seen(step, without_cluster(answer, cluster))
    context = ssl.create_default_context(cafile=str(hub.directory / "ca.crt"))
    url = f"https://{hub.address.hostname}:{hub.port}"
    options = Namespace(keep=True, update=False, quiet=True, max_diffs=8)
    server = tool.Server(url, hub.token, context, f"/clusters/root:{NAME}")
    run = tool.Run(server, options)
    watched = _Watched(run)
    with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO()):
        for name in names:
            watched.missing.clear()
            run.scenario(str(replay.GOLDEN / "kubernetes" / f"{name}.jsonl"))
    if server.connection is not None:
        server.connection.close()
    return Replayed(Outcome(run.passed, frozenset(watched.differing)), frozenset(watched.left_out))


def _tool() -> Any:
    """The tool that replays recordings: a module of our own, to be changed at will."""
    spec = importlib.util.spec_from_file_location("golden_replay", replay.TOOLS / "replay.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


class _Watched:
    """What a run of the tool did; it leaves out what a workspace does not serve, and what would need its answers."""

    def __init__(self, run: Any) -> None:
        self.differing: set[str] = set()
        self.left_out: set[str] = set()
        self.missing: set[str] = set()  #: variables of the recording that have no value
        self._run = run
        self._step: Callable[[dict[str, Any], str], None] = run.step
        self._report: Callable[[str, dict[str, Any], list[Any]], None] = run.report
        run.step, run.report = self.step, self.report

    def step(self, step: dict[str, Any], label: str) -> None:
        if is_elsewhere(step["path"]) or self.missing & set(re.findall(r"\$\{(\w+)\}", json.dumps(step))):
            self.left_out.add(f"{self._run.file}:{label}")
            self.missing |= step.get("save", {}).keys()
        else:
            self._step(step, label)

    def report(self, label: str, step: dict[str, Any], differences: list[Any]) -> None:
        if differences:
            self.differing.add(f"{self._run.file}:{label}")
        self._report(label, step, differences)


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
        told = isinstance(annotations, dict) and annotations.get(CLUSTER) == cluster
        if told:
            annotations = {name: value for name, value in annotations.items() if name != CLUSTER}
        if annotations or not told:
            kept["annotations"] = annotations
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="show what differs")
    parser.add_argument("names", nargs="*", default=RECORDINGS)
    arguments = parser.parse_args()
    if not replay.GOLDEN.is_dir():
        print(f"there are no recordings in {replay.GOLDEN}", file=sys.stderr)
        return 1
    replayed = replay_in_workspace(arguments.names, verbose=arguments.verbose)
    print(f"{len(replayed.left_out)} steps are about what a workspace does not serve")
    known = known_differences(arguments.names, replayed.left_out)
    return 0 if replay.report("in a workspace", replayed.outcome, known) else 1


if __name__ == "__main__":
    sys.exit(main())
