"""Replay the recordings of a real kube-apiserver on a fresh hub, and say where the two differ.

    python tests/conformance/replay.py                    all of it, with the oldest, a middle and the newest kubectl
    python tests/conformance/replay.py --kubectl PATH     another kubectl; may be given several times

The recordings and the tools that replay them are in ../shared, which not every clone has.  What is known to differ is
in differences.txt, each with its reason; the steps that differ must be exactly those.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from farflung.http.certificates import ensure_authority, issue_client_certificate

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from hub_process import HubProcess
from kubectl_runner import kubectls, minor_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SHARED = ROOT.parent / "shared"
GOLDEN = SHARED / "golden"
TOOLS = SHARED / "tools"
#: what the recorded cluster had and a hub of our own has not
WITHOUT = "workload-controllers"


@dataclass(frozen=True)
class Outcome:
    passed: int
    differing: frozenset[str]  #: `basics.jsonl:17`


@dataclass(frozen=True)
class Known:
    """differences.txt: a recording, `:`, a step, perhaps `>=1.31` for the kubectls it is about, and why."""

    since: dict[str, int]  #: `08-describe.txt:288` → the minor version of the oldest kubectl that shows it

    @classmethod
    def read(cls) -> Known:
        since: dict[str, int] = {}
        for line in (HERE / "differences.txt").read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            where, _, reason = line.partition(" ")
            if not reason.strip():
                raise ValueError(f"differences.txt gives no reason for {where}")
            step, _, version = where.partition(">=1.")
            since[step] = int(version or 0)
        return cls(since)

    def of_http(self) -> frozenset[str]:
        return frozenset(step for step in self.since if ".jsonl:" in step)

    def of_kubectl(self, kubectl: Path) -> frozenset[str]:
        minor = minor_of(kubectl)
        return frozenset(step for step, since in self.since.items() if ".txt:" in step and since <= minor)


def recordings(folder: str, pattern: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob(pattern))


@contextmanager
def fresh_hub() -> Iterator[HubProcess]:
    """A hub with nothing in it."""
    with tempfile.TemporaryDirectory() as name:
        hub = HubProcess(Path(name) / "hub")
        try:
            yield hub
            hub.stop()
        finally:
            hub.kill()


def golden_kubeconfig(hub: HubProcess) -> Path:
    """The transcripts show the name of the administrator they were recorded as, so that is who we are."""
    now = datetime.now(UTC)
    certificate, key = issue_client_certificate(
        ensure_authority(hub.directory, now), "system:golden", ["system:masters"], now
    )
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    golden = hub.directory / "golden.kubeconfig"
    golden.write_text(yaml.safe_dump(hub.config | {"users": [hub.config["users"][0] | {"user": user}]}))
    golden.chmod(0o600)
    return golden


def replay_http(hub: HubProcess, recordings: list[Path]) -> Outcome:
    token = hub.directory / "token"
    token.write_text(hub.token)
    command = [sys.executable, TOOLS / "replay.py", "--server", hub.address.geturl(), "--insecure", "-q"]
    return outcome([*command, "--token-file", token, *recordings], r"^FAIL (\S+:\d+) ")


def replay_kubectl(hub: HubProcess, recordings: list[Path], kubectl: Path) -> Outcome:
    command = [sys.executable, TOOLS / "kubectl_replay.py", "--kubeconfig", golden_kubeconfig(hub)]
    return outcome([*command, "--kubectl", kubectl, "--without", WITHOUT, *recordings], r"^  FAIL (\S+:\d+):")


def outcome(command: list[object], failure: str) -> Outcome:
    """What a replay says of itself; `failure` finds the names of steps that differ."""
    output = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False).stdout
    counts = re.search(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
    if counts is None:
        raise RuntimeError(f"the replay did not finish: {output[-2000:]}")
    differing = frozenset(re.findall(failure, output, re.MULTILINE))
    if len(differing) != int(counts[2]):
        raise RuntimeError(f"{counts[2]} steps failed, but these are named: {sorted(differing)}")
    return Outcome(int(counts[1]), differing)


def representative_kubectls() -> list[Path]:
    """The oldest, one from the middle and the newest of those that are there."""
    found = kubectls()
    if not found:
        raise RuntimeError("there is no kubectl; `make setup` installs one where it may")
    return list(dict.fromkeys((found[0], found[len(found) // 2], found[-1])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubectl", type=Path, action="append", help="which kubectl replays the transcripts")
    arguments = parser.parse_args()
    if not GOLDEN.is_dir():
        print(f"there are no recordings in {GOLDEN}", file=sys.stderr)
        return 1
    known, good = Known.read(), True
    with fresh_hub() as hub:
        good &= report("HTTP exchanges", replay_http(hub, recordings("kubernetes", "*.jsonl")), known.of_http())
    transcripts = recordings("kubectl", "*.txt")
    for kubectl in arguments.kubectl or representative_kubectls():
        with fresh_hub() as hub:
            outcome = replay_kubectl(hub, transcripts, kubectl)
        good &= report(f"transcripts of {kubectl.name}", outcome, known.of_kubectl(kubectl))
    return 0 if good else 1


def report(what: str, outcome: Outcome, expected: frozenset[str]) -> bool:
    print(f"{what}: {outcome.passed} steps as recorded, {len(outcome.differing)} differ, {len(expected)} known to")
    for where in sorted(outcome.differing - expected):
        print(f"  differs, and should not: {where}")
    for where in sorted(expected - outcome.differing):
        print(f"  known to differ, and does not: {where}")
    return outcome.differing == expected


if __name__ == "__main__":
    sys.exit(main())
