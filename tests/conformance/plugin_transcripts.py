"""Replay transcripts of kcp's plugins with ours on a fresh hub, and say where the two differ.

    python tests/conformance/plugin_transcripts.py [--verbose] [ws.txt ...]

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

import recorded
from kubectl_transcripts import Outcome
from replay import fresh_hub, of_recordings, read_differences, report

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest does so by itself; a script has to
from hub_process import HubProcess

ROOT = Path(__file__).parents[2]
DIFFERENCES = Path(__file__).parent / "plugin-differences.txt"
TRANSCRIPTS = {recorded.name_of(path): path for path in recorded.recordings("kcp/transcripts")}
RECORDED_ADDRESS = "127.0.0.1:17743"
SECRETS = "sed -E 's/((certificate-authority-data|token): ).*/\\1.../' $KUBECONFIG"
STEP_SECONDS = 30
#: A `kubectl` that starts plugins at once: the real one takes longer to find a plugin than the plugin to do its work.
#: e2e/test_kubectl_ws.py shows that the real one finds them.
KUBECTL = """#!/bin/sh
case $1 in
  ws | workspace | workspaces | kcp) plugin=kubectl-$1; shift; exec "$plugin" "$@" ;;
esac
exec {kubectl} "$@"
"""
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


def steps(path: Path) -> list[Step]:
    found = []
    command, start, output = "", 0, list[str]()
    for number, line in enumerate(recorded.read(path).splitlines(), 1):
        if line.startswith("$ "):
            command, start, output = line[2:], number, []
        elif command and (ended := re.fullmatch(r"\[exit (\d+)\]", line)):
            if END.fullmatch(command):
                break
            found.append(Step(f"{recorded.name_of(path)}:{start}", command, tuple(output), int(ended[1])))
            command = ""
        elif command and line != "(no newline at end)":
            output.append(line)
    return found


def replay(hub: HubProcess, path: Path) -> Outcome:
    """All steps in one directory with one kubeconfig, which has this repository's config/."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        kubeconfig = directory / "admin.kubeconfig"
        shutil.copy(hub.kubeconfig, kubeconfig)
        (directory / "config").symlink_to(ROOT / "config")
        kubectl = directory / "bin" / "kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(KUBECTL.format(kubectl=shutil.which("kubectl")))
        kubectl.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(directory),
            "GOGC": "off",  # kubectl ends soon anyway
        }
        for step in steps(path):
            if step.where in LEFT_OUT:
                continue
            difference = _difference(step, _run(step.command, hub, directory, environment))
            if difference:
                outcome.differences[step.where] = [f"$ {step.command}", *difference]
            else:
                outcome.passed += 1
    return outcome


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
    return of_recordings(read_differences(DIFFERENCES), [TRANSCRIPTS[name]])


def replay_fresh(name: str) -> Outcome:
    """Replay a transcript on a hub with nothing in it."""
    with fresh_hub("start", "--bare") as hub:
        return replay(hub, TRANSCRIPTS[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="show known differences, too")
    parser.add_argument("names", nargs="*", default=sorted(TRANSCRIPTS))
    arguments = parser.parse_args()
    good = True
    for name in arguments.names:
        good &= report(name, replay_fresh(name), known_differences(name), verbose=arguments.verbose)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
