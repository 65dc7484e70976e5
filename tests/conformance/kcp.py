"""Replay the recordings of a real kcp, each on a fresh hub with workspaces, and say where the two differ.

    python tests/conformance/kcp.py [--verbose] [rbac ...]
    python tests/conformance/kcp.py --kubeconfig FILE     against a fresh kcp; FILE has kcp-admin and shard-admin

What is known to differ at a hub is in kcp-differences.txt, each with its reason; the steps that differ must be exactly
those.  At another server, none may differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Final

import recorded
import replay
from exchanges import Outcome, Replay, Scenario, Step
from servers import Request, Server, server_of, token_of

DIFFERENCES: Final = Path(__file__).parent / "kcp-differences.txt"
RECORDINGS: Final = {recorded.name_of(path).removesuffix(".jsonl"): path for path in recorded.recordings("kcp/http")}
ADMINISTRATOR: Final = "kcp-admin"
FURTHER: Final = "shard-admin"  #: in system:masters; the recordings call it shard_admin
#: the recording that creates the administrator's home workspace, which exists in all others
FIRST: Final = "home"
HOME: Final = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~"
#: lists of all workspaces are sorted by the names of clusters, which are random
UNORDERED: Final = {"apis.jsonl:111": ["/items"]}


def known_differences(name: str) -> frozenset[str]:
    """kcp-differences.txt: a recording, `:`, a step, and why."""
    return replay.of_recordings(replay.read_differences(DIFFERENCES), [RECORDINGS[name]])


def scenario(name: str, known: Collection[str]) -> Scenario:
    found = Scenario.read(RECORDINGS[name]).hurry(known)
    for step in found.steps:
        where = f"{found.name}:{step['step']}"
        if where in UNORDERED:
            step["unordered"] = UNORDERED[where]
    return found


def did_not_panic(step: Step) -> bool:
    """A request that made kcp panic has the status 0."""
    return step.get("status") != 0


def replay_on(server: Server, name: str, further_token: str, known: Collection[str]) -> Outcome:
    """Replay a recording on a server on which it was not replayed before."""
    if name != FIRST:
        server.call(Request("GET", HOME, {"Accept": "application/json"}))  # creates it
    tokens = {"shard_admin": further_token, "bad_token": "nonsense"}
    run = Replay(server, tokens=tokens, serves=did_not_panic, keeps=True)
    run.play(scenario(name, known))
    return run.outcome


def replay_fresh(name: str) -> Outcome:
    """Replay a recording on a hub with nothing in it."""
    with (
        replay.fresh_hub("start", "--bare") as hub,
        closing(server_of(hub.kubeconfig, user=ADMINISTRATOR, prefixed=False)) as server,
    ):
        return replay_on(server, name, token_of(hub.kubeconfig, FURTHER), known_differences(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, help="replay against the server of its current context")
    parser.add_argument("--verbose", "-v", action="store_true", help="show known differences, too")
    parser.add_argument("names", nargs="*", default=sorted(RECORDINGS, key=lambda name: (name != FIRST, name)))
    arguments = parser.parse_args()
    good = True
    for name in arguments.names:
        if arguments.kubeconfig is None:
            outcome, known = replay_fresh(name), known_differences(name)
        else:
            token, known = token_of(arguments.kubeconfig, FURTHER), frozenset[str]()
            with closing(server_of(arguments.kubeconfig, user=ADMINISTRATOR, prefixed=False)) as server:
                outcome = replay_on(server, name, token, known)
        good &= replay.report(name, outcome, known, verbose=arguments.verbose)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
