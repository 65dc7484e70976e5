"""Replay the recordings of a real kcp, each on a fresh hub with workspaces, and say where the two differ.

    python tests/conformance/kcp.py [--verbose] [rbac ...]

What is known to differ is in kcp-differences.txt, each with its reason; the steps that differ must be exactly those.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import replay
from replay import Outcome

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from hub_process import HubProcess

KCP = replay.GOLDEN / "kcp"
DIFFERENCES = Path(__file__).parent / "kcp-differences.txt"
RECORDINGS = sorted(path.stem for path in (KCP / "http").glob("*.jsonl"))
#: The recording that makes the administrator's home, which all others were made with.
FIRST = "home"
#: Seconds to wait for what is known never to come.
IMPATIENCE = 1
#: Lists of all workspaces come in the order of their clusters' names, which are random.
UNORDERED = {"apis.jsonl:111": ["/items"]}


def known_differences(name: str) -> frozenset[str]:
    """kcp-differences.txt: a recording, `:`, a step, and why."""
    lines = DIFFERENCES.read_text().splitlines()
    known = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert all(reason.strip() for reason in known.values())
    return frozenset(where for where in known if where.startswith(f"{name}.jsonl:"))


def replay_fresh(name: str, *, verbose: bool = False) -> Outcome:
    """Replay a recording on a hub with nothing in it."""
    known = known_differences(name)
    with tempfile.TemporaryDirectory() as directory:
        recording = Path(directory) / f"{name}.jsonl"
        recording.write_text(_impatient(KCP / "http" / recording.name, known))
        hub = HubProcess(Path(directory) / "hub", command="start", arguments=["--bare"])
        try:
            if name != FIRST:
                make_home(hub)
            command = [sys.executable, KCP / "replay_kcp.py", "--kubeconfig", hub.kubeconfig, "--quiet", recording]
            if verbose:
                subprocess.run([str(part) for part in command], check=False)
                return Outcome(0, known)
            outcome = replay.outcome(command, r"^FAIL (\S+:\d+) ")
            hub.stop()
            return outcome
        finally:
            hub.kill()


def make_home(hub: HubProcess) -> None:
    with hub.client() as client:
        client.get("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~")


def _impatient(recording: Path, known: frozenset[str]) -> str:
    lines = []
    for line in recording.read_text().splitlines():
        step = json.loads(line)
        where = f"{recording.name}:{step.get('step')}"
        if "until" in step and where in known:
            step["timeout"] = IMPATIENCE
        if where in UNORDERED:
            step["unordered"] = UNORDERED[where]
        lines.append(json.dumps(step))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="show what differs, and do not compare")
    parser.add_argument("names", nargs="*", default=RECORDINGS)
    arguments = parser.parse_args()
    good = True
    for name in arguments.names:
        outcome = replay_fresh(name, verbose=arguments.verbose)
        good &= arguments.verbose or replay.report(name, outcome, known_differences(name))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
