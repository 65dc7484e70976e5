#!/usr/bin/env python3
"""Run `make test` several times on a busy machine, and list the tests that did not pass each time.

    tools/flaky.py 3
    tools/flaky.py 5 --idle -- tests/syncer -k restart

A process per core does nothing but count, so that the suite gets half of the machine: a test that depends on the
machine's speed fails here. Arguments after `--` go to pytest. The exit code is 1 if a test failed in any run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# it ends with the process that started it, also when that was killed
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"


@contextlib.contextmanager
def busy_cores(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def run_suite(arguments: list[str]) -> tuple[int, set[str]]:
    """How many tests ran, and the names of those that did not pass.  Exits if the suite could not run."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        options = shlex.join([f"--junitxml={report}", *arguments])
        before = os.environ.get("PYTEST_ADDOPTS", "")
        environment = {**os.environ, "PYTEST_ADDOPTS": f"{before} {options}".strip()}
        ended = subprocess.run(["make", "--no-print-directory", "test"], cwd=PROJECT, env=environment, check=False)
        if not report.exists():
            sys.exit(f"flaky.py: `make test` ended with {ended.returncode} and ran no test")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {name_of(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
    if ended.returncode and not failed:
        sys.exit(f"flaky.py: `make test` ended with {ended.returncode}, though no test failed")
    return len(cases), failed


def name_of(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def parse(words: list[str]) -> argparse.Namespace:
    """`words`: of the command line.  What follows `--` is kept from argparse, which refuses it after an option."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [-h] [--idle] N [-- ARGUMENTS]",
    )
    parser.add_argument("runs", type=int, metavar="N", help="how often the suite runs")
    parser.add_argument("--idle", action="store_true", help="leave the cores to the tests")
    end = words.index("--") if "--" in words else len(words)
    chosen = parser.parse_args(words[:end])
    if chosen.runs < 1:
        parser.error("N must be at least 1")
    chosen.arguments = words[end + 1 :]
    return chosen


def main() -> int:
    chosen = parse(sys.argv[1:])
    failures: dict[str, list[int]] = {}
    with busy_cores(0 if chosen.idle else os.cpu_count() or 1):
        for run in range(1, chosen.runs + 1):
            begun = time.monotonic()
            count, failed = run_suite(chosen.arguments)
            for name in failed:
                failures.setdefault(name, []).append(run)
            print(f"run {run} of {chosen.runs}: {count} tests, {len(failed)} failed, {time.monotonic() - begun:.0f} s")
    for name, runs in sorted(failures.items()):
        print(f"{len(runs)} of {chosen.runs}  {name}  (run {', '.join(map(str, runs))})")
    if not failures:
        print(f"every test passed in each of {chosen.runs} runs")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
