"""Replay transcripts of kcp's plugins with ours on a fresh hub, and say where the two differ.

    python tests/conformance/transcripts.py [--verbose] [ws.txt ...]

A step is `$ command`, what it printed, what it complained about (`E| `), and `[exit N]`.  It is called by its line.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from hub_process import HubProcess

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = ROOT.parent / "shared" / "golden" / "kcp" / "transcripts"
RECORDED_ADDRESS = "127.0.0.1:17743"
SECRETS = "sed -E 's/((certificate-authority-data|token): ).*/\\1.../' $KUBECONFIG"
STEP_SECONDS = 30
#: --ignore-existing without --type succeeds here, as its help says, and would change all that follows.
LEFT_OUT = {"ws.txt:381", "ws.txt:385"}
END = re.compile(r"kubectl kcp workload$")  #: syncers of kcp's are not asked for, nor what depends on them

#: What is different at every run.
VOLATILE = [
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<identity>"),
    (re.compile(r"(resourceVersion: )\"\d+\""), r"\1<version>"),
    (re.compile(r"^E\| [EIW]\d{4} .*?\] "), "E| <log> "),
    (re.compile(r"(kcp\.io/[\w.-]+: )[0-9A-Za-z]{30,}$"), r"\1<hash>"),
    (re.compile(r"(kcp\.io/)[0-9A-Za-z]{30,}"), r"\1<hash>"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{16}\b"), "<cluster>"),
    (re.compile(r"(kcp\.io)-[0-9a-z]{5}\b"), r"\1-<random>"),
    (re.compile(r"(?<=  )\d+[smhd](?:\d+[smhd])?$"), "<age>"),
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),
]


@dataclass(frozen=True)
class Step:
    where: str  #: `ws.txt:17`
    command: str
    output: tuple[str, ...]  #: with complaints last, marked `E| `
    code: int


@dataclass(frozen=True)
class Outcome:
    passed: int
    differing: frozenset[str]


def steps(path: Path) -> list[Step]:
    found = []
    command, start, output = "", 0, list[str]()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("$ "):
            command, start, output = line[2:], number, []
        elif command and (ended := re.fullmatch(r"\[exit (\d+)\]", line)):
            if END.fullmatch(command):
                break
            found.append(Step(f"{path.name}:{start}", command, tuple(output), int(ended[1])))
            command = ""
        elif command and line != "(no newline at end)":
            output.append(line)
    return found


def replay(hub: HubProcess, path: Path, *, verbose: bool = False) -> Outcome:
    """All steps in one directory with one kubeconfig, which has this repository's config/."""
    passed, differing = 0, set()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        kubeconfig = directory / "admin.kubeconfig"
        shutil.copy(hub.kubeconfig, kubeconfig)
        (directory / "config").symlink_to(ROOT / "config")
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(directory),
            "GOGC": "off",  # kubectl ends soon anyway
        }
        for step in steps(path):
            if step.where in LEFT_OUT:
                continue
            difference = _difference(step, _run(step.command, hub, directory, environment))
            if difference:
                differing.add(step.where)
            else:
                passed += 1
            if difference and verbose:
                print(f"FAIL {step.where} $ {step.command}", *difference, sep="\n    ")
    return Outcome(passed, frozenset(differing))


def _run(command: str, hub: HubProcess, directory: Path, environment: dict[str, str]) -> tuple[list[str], int]:
    command = command.replace(RECORDED_ADDRESS, hub.address.netloc)
    if command.startswith("cat $KUBECONFIG "):
        command = SECRETS
    limited = ["timeout", str(STEP_SECONDS), "bash", "-c", command]
    ran = subprocess.run(limited, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    complaints = [f"E| {line}" for line in ran.stderr.splitlines()]
    return ran.stdout.splitlines() + complaints, ran.returncode


def _difference(step: Step, ran: tuple[list[str], int]) -> list[str]:
    wanted = [_settled(line) for line in step.output] + [f"[exit {step.code}]"]
    got = [_settled(line) for line in ran[0]] + [f"[exit {ran[1]}]"]
    return [line for line in difflib.ndiff(wanted, got) if line[0] in "+-"]


def _settled(line: str) -> str:
    for pattern, replacement in VOLATILE:
        line = pattern.sub(replacement, line.rstrip())
    return line


def known_differences(name: str) -> frozenset[str]:
    """plugin-differences.txt: a transcript, `:`, a step, and why."""
    lines = (Path(__file__).parent / "plugin-differences.txt").read_text().splitlines()
    known = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert all(reason.strip() for reason in known.values())
    return frozenset(where for where in known if where.startswith(f"{name}:"))


def replay_fresh(name: str, *, verbose: bool = False) -> Outcome:
    """Replay a transcript on a hub with nothing in it."""
    with tempfile.TemporaryDirectory() as directory:
        hub = HubProcess(Path(directory) / "hub", command="start", arguments=["--bare"])
        try:
            return replay(hub, TRANSCRIPTS / name, verbose=verbose)
        finally:
            hub.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="show what differs")
    parser.add_argument("names", nargs="*", default=["ws.txt", "kcp.txt"])
    arguments = parser.parse_args()
    good = True
    for name in arguments.names:
        outcome, known = replay_fresh(name, verbose=arguments.verbose), known_differences(name)
        print(f"{name}: {outcome.passed} steps as recorded, {len(outcome.differing)} differ, {len(known)} known to")
        for where in sorted(outcome.differing - known):
            print(f"  differs, and should not: {where}")
        for where in sorted(known - outcome.differing):
            print(f"  known to differ, and does not: {where}")
        good &= outcome.differing == known
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
