#!/usr/bin/env python3
"""Fuzz parsers with inputs that are chosen by the code that they reach.

    tests/fuzz/fuzz.py --seconds 600                       every parser
    tests/fuzz/fuzz.py --seconds 60 json-paths tokens      these parsers

An input that shows a bug is printed as a line of tests/fuzz/corpus/NAME.txt.  Add it there: `make test` then fails
until the bug is fixed.  Inputs and logs are in .fuzz/; the next run continues with them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / ".fuzz"
HANG = 25  #: seconds for one input of at most LONGEST bytes
LONGEST = 4096
MEMORY = 2048  #: MiB
STATISTICS = re.compile(r"^#(\d+)\s+\S+\s+cov: (\d+)", re.MULTILINE)


class Outcome(NamedTuple):
    name: str
    inputs: int
    points: int  #: of the code that were reached
    found: list[Path]  #: inputs that show bugs
    why: str  #: the first error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of each parser")
    parser.add_argument("--jobs", type=int, default=2, help="parsers at the same time")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    wanted = parser.parse_args()
    sys.path[:0] = [str(HERE), str(ROOT / "tests/support")]
    if wanted.here:
        return fuzz_here(wanted.names[0], wanted.names[1:])
    from parsers import FUZZERS

    names = wanted.names or list(FUZZERS)
    if unknown := set(names) - set(FUZZERS):
        parser.error(f"no such parser: {', '.join(sorted(unknown))}; choose from {', '.join(FUZZERS)}")
    failed = False
    with ThreadPoolExecutor(wanted.jobs) as pool:
        for outcome in pool.map(lambda name: fuzz(name, wanted.seconds), names):
            print(f"{outcome.name:30}{outcome.inputs:>10} inputs{outcome.points:>6} points of the code", flush=True)
            for file in outcome.found:
                print(f"    {file.relative_to(ROOT)}\n    {file.read_bytes()!r}")
            if outcome.why:
                print(outcome.why)
            failed = failed or bool(outcome.why)
    return failed


def fuzz(name: str, seconds: int) -> Outcome:
    """In a process of its own, because a bug ends it."""
    from parsers import FUZZERS

    folder = WORK / name
    corpus, found, words = folder / "corpus", folder / "found", folder / "words"
    for each in (corpus, found):
        each.mkdir(parents=True, exist_ok=True)
    for seed in FUZZERS[name].corpus:
        save(corpus, "seed", seed)
    literals = ["".join(map(r"\x{:02x}".format, word)) for word in FUZZERS[name].words]
    words.write_text("".join(f'"{literal}"\n' for literal in literals))
    options = [
        *(f"-max_total_time={seconds}", f"-timeout={HANG}", f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY}"),
        *(f"-artifact_prefix={found}/", "-len_control=20", *[f"-dict={words}"] * bool(literals), str(corpus)),
    ]
    before = set(found.iterdir())
    command = [sys.executable, __file__, "--here", name, "--", *options]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, cwd=ROOT)
    log = ended.stdout.decode(errors="replace")
    (folder / "log").write_text(log)
    inputs, points = (STATISTICS.findall(log) or [("0", "0")])[-1]
    why = log[max(log.find(" === Uncaught"), len(log) - 3000) :] if ended.returncode else ""
    return Outcome(name, int(inputs), int(points), sorted(set(found.iterdir()) - before), why)


def fuzz_here(name: str, options: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["farflung"], enable_loader_override=False):
        from parsers import FUZZERS
    atheris.Setup([sys.argv[0], *options], saving(FUZZERS[name].check, WORK / name / "found"))
    atheris.Fuzz()
    return 0


def saving(check: Callable[[bytes], None], folder: Path) -> Callable[[bytes], None]:
    def checked(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            save(folder, "bug", data)
            raise

    return checked


def save(folder: Path, prefix: str, data: bytes) -> None:
    (folder / f"{prefix}-{sha256(data).hexdigest()[:16]}").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
