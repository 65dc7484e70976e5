"""Replay the recordings of a real kube-apiserver, and say where a server answers differently.

    python tests/conformance/replay.py                    on fresh hubs, with three versions of kubectl
    python tests/conformance/replay.py --kubectl PATH     another kubectl; may be given several times
    python tests/conformance/replay.py --kubeconfig FILE  against the server of FILE's current context
    python tests/conformance/replay.py --only watch -v    the recordings with `watch` in their names; show differences

What is known to differ at a hub is in differences.txt, each with its reason; the steps that differ must be exactly
those.  At another server, none may differ.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import kubectl_transcripts
import recorder
import yaml
from exchanges import Outcome, Replay, Scenario
from recorded import name_of, recordings
from servers import Server, server_of

from farflung.http.certificates import ensure_authority

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from client_certificates import issue_client_certificate
from hub_process import HubProcess
from kubectl_runner import kubectls, minor_of

HERE: Final = Path(__file__).parent
#: what the recorded cluster had and a hub of our own has not
WITHOUT: Final = frozenset({"workload-controllers"})


@dataclass(frozen=True)
class Known:
    """differences.txt: a recording, `:`, a step, perhaps `>=1.31` for the kubectls it is about, and why."""

    since: dict[str, int]  #: `08-describe.txt:288` → the minor version of the oldest kubectl that shows it

    @classmethod
    def read(cls) -> Known:
        since: dict[str, int] = {}
        for where in read_differences(HERE / "differences.txt"):
            step, _, version = where.partition(">=1.")
            since[step] = int(version or 0)
        return cls(since)

    def of_http(self) -> frozenset[str]:
        return frozenset(step for step in self.since if ".jsonl:" in step)

    def of_kubectl(self, kubectl: Path) -> frozenset[str]:
        minor = minor_of(kubectl)
        return frozenset(step for step, since in self.since.items() if ".txt:" in step and since <= minor)


def read_differences(path: Path) -> list[str]:
    """The steps that a list of differences names.  Each must have a reason."""
    steps = []
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        where, _, reason = line.partition(" ")
        if not reason.strip():
            raise ValueError(f"{path.name} gives no reason for {where}")
        steps.append(where)
    return steps


def of_recordings(steps: Collection[str], paths: Collection[Path]) -> frozenset[str]:
    """Those of these recordings."""
    names = {name_of(path) for path in paths}
    return frozenset(step for step in steps if step.partition(":")[0] in names)


# --- hubs -----------------------------------------------------------------------------------------


@contextmanager
def fresh_hub(command: str = "hub", *arguments: str) -> Iterator[HubProcess]:
    """A hub with nothing in it.  `command`: `hub` or `start`."""
    with tempfile.TemporaryDirectory() as name:
        hub = HubProcess(Path(name) / "hub", command=command, arguments=arguments)
        try:
            yield hub
            hub.stop()
        finally:
            hub.kill()


def recorded_administrator(hub: HubProcess) -> Path:
    """A kubeconfig with the administrator's name that the transcripts show."""
    now = datetime.now(UTC)
    certificate, key = issue_client_certificate(
        ensure_authority(hub.directory, now), "system:golden", ["system:masters"], now
    )
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    path = hub.directory / "recorded.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(hub.config | {"users": [hub.config["users"][0] | {"user": user}]}))
    return path


# --- replaying ------------------------------------------------------------------------------------


def replay_http(server: Server, paths: Collection[Path], *, keeps: bool = False) -> Outcome:
    """`keeps`: do not delete the objects of the recordings, because the server ends anyway."""
    replay = Replay(server, keeps=keeps)
    for path in paths:
        replay.play(Scenario.read(path))
    if left := replay.wait_until_clean():
        raise RuntimeError(f"these were not deleted: {left}")
    return replay.outcome


def replay_kubectl(
    kubeconfig: Path,
    paths: Collection[Path],
    binary: Path,
    *,
    without: Collection[str] = WITHOUT,
    jobs: int = 2,
) -> kubectl_transcripts.Outcome:
    kubectl = kubectl_transcripts.Kubectl(binary, kubeconfig)
    return kubectl_transcripts.replay(kubectl, paths, without=without, jobs=jobs)


def representative_kubectls() -> list[Path]:
    """The oldest, one from the middle and the newest of those that are there."""
    found = kubectls()
    if not found:
        raise RuntimeError("there is no kubectl; `make setup` installs one where it may")
    return list(dict.fromkeys((found[0], found[len(found) // 2], found[-1])))


class AnyOutcome(Protocol):
    passed: int

    @property
    def differing(self) -> frozenset[str]: ...

    def text(self, steps: Collection[str]) -> str: ...


def report(what: str, outcome: AnyOutcome, expected: Collection[str], *, verbose: bool = False) -> bool:
    """Print what differs, and return whether exactly the expected steps do."""
    print(f"{what}: {outcome.passed} steps as recorded, {len(outcome.differing)} differ, {len(expected)} known to")
    unexpected = outcome.differing - set(expected)
    if unexpected or verbose:
        print(outcome.text(outcome.differing if verbose else unexpected))
    for where in sorted(unexpected):
        print(f"  differs, and should not: {where}")
    for where in sorted(set(expected) - outcome.differing):
        print(f"  known to differ, and does not: {where}")
    return outcome.differing == frozenset(expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubectl", type=Path, action="append", help="which kubectl replays the transcripts")
    parser.add_argument("--kubeconfig", type=Path, help="replay against the server of its current context")
    parser.add_argument("--without", default="", help="with --kubeconfig: leave out steps that need these tags (a,b)")
    parser.add_argument("--only", default="", help="only recordings with this in their names")
    parser.add_argument("--verbose", "-v", action="store_true", help="show known differences, too")
    parser.add_argument(
        "--record", action="store_true", help="with --kubeconfig: rewrite the recordings with what the server answers"
    )
    arguments = parser.parse_args()
    exchanges, transcripts = (
        [path for path in recordings(folder) if arguments.only in path.name] for folder in ("kubernetes", "kubectl")
    )
    binaries = [path.resolve() for path in arguments.kubectl or representative_kubectls()]
    if arguments.kubeconfig is None:
        return 0 if _on_hubs(exchanges, transcripts, binaries, verbose=arguments.verbose) else 1
    without = frozenset(filter(None, arguments.without.split(",")))
    if arguments.record:
        record(arguments.kubeconfig, exchanges, transcripts, binaries, without)
        return 0
    good = _elsewhere(arguments.kubeconfig, exchanges, transcripts, binaries, without)
    return 0 if good else 1


def _on_hubs(exchanges: list[Path], transcripts: list[Path], binaries: list[Path], *, verbose: bool) -> bool:
    known, good = Known.read(), True
    if exchanges:
        with fresh_hub() as hub, closing(server_of(hub.kubeconfig)) as server:
            outcome = replay_http(server, exchanges)
        good &= report("HTTP exchanges", outcome, of_recordings(known.of_http(), exchanges), verbose=verbose)
    for binary in binaries if transcripts else ():
        with fresh_hub() as hub:
            printed = replay_kubectl(recorded_administrator(hub), transcripts, binary)
        expected = of_recordings(known.of_kubectl(binary), transcripts)
        good &= report(f"transcripts of {binary.name}", printed, expected, verbose=verbose)
    return good


def _elsewhere(
    kubeconfig: Path, exchanges: list[Path], transcripts: list[Path], binaries: list[Path], without: Collection[str]
) -> bool:
    with closing(server_of(kubeconfig)) as server:
        good = report("HTTP exchanges", replay_http(server, exchanges), ())
    for binary in binaries if transcripts else ():
        printed = replay_kubectl(kubeconfig, transcripts, binary, without=without)
        good &= report(f"transcripts of {binary.name}", printed, ())
    return good


def record(
    kubeconfig: Path, exchanges: list[Path], transcripts: list[Path], binaries: list[Path], without: Collection[str]
) -> None:
    """Write the answers of a server into recordings.  The newest kubectl's output is the main text of a transcript."""
    with closing(server_of(kubeconfig)) as server:
        recording = recorder.Recorder(server)
        for path in exchanges:
            scenario = Scenario.read(path)
            recording.play(scenario)
            recorder.write(scenario, path)
            print(f"{name_of(path)}: {len(scenario.steps)} steps", flush=True)
        print(recording.outcome.text(recording.outcome.differing))
        recording.wait_until_clean()
    newest_first = [kubectl_transcripts.Kubectl(binary, kubeconfig) for binary in reversed(binaries)]
    for path in transcripts:
        kubectl_transcripts.record(newest_first, path, without)
        print(name_of(path), flush=True)


if __name__ == "__main__":
    sys.exit(main())
