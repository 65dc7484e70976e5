"""Replays transcripts of kubectl against an API server, and collects where it prints something else.

`recordings/README.md` describes the format.  Every scenario runs in a scratch directory and a namespace of its own.
Volatile text (times, uids, ages, addresses) is replaced on both sides before the two are compared; tables are compared
cell by cell.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import recorded

UNTIL_SECONDS: Final = 15.0  #: how long a step with `%until` is repeated
STEP_SECONDS: Final = 90.0
PAUSE: Final = 0.3
ADMINISTRATOR: Final = "golden"  #: the name of cluster, user and context in the kubeconfig of the recordings
GENERATED: Final = "bcdfghjklmnpqrstvwxz2456789"  #: the alphabet of generated names and template hashes
DURATION: Final = r"(?:\d+[smhdy]){1,2}"
AGE_COLUMNS: Final = {"AGE", "LAST SEEN", "FIRST SEEN", "DURATION", "LAST SCHEDULE", "CREATED AT"}
TABLE_HEADER: Final = re.compile(
    r"^[A-Z][A-Z0-9_()%./<>-]*(?: [A-Z0-9_()%./-]+)*(?: {2,}[A-Z0-9_()%./$:*-]+(?: [A-Z0-9_()%./-]+)*)+ *$"
)
PASSED_ON: Final = ("LANG", "NO_PROXY", "no_proxy", "TMPDIR", "LD_LIBRARY_PATH")  #: of the environment


# --- the format -----------------------------------------------------------------------------------


@dataclass
class Printed:
    """What a command printed, or has to print."""

    code: int = 0
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    versions: str = ""  #: "" for every version without a block of its own

    @property
    def key(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        return self.code, tuple(self.out), tuple(self.err)

    @property
    def lines(self) -> list[str]:
        return [f"exit {self.code}", *(f"out| {line}" for line in self.out), *(f"err| {line}" for line in self.err)]


@dataclass
class Step:
    line: int
    command: str
    head: list[str]  #: comments, directives and files before the command, as they are in the file
    directives: dict[str, str]
    stdin: list[str] = field(default_factory=list)
    expected: list[Printed] = field(default_factory=list)

    def applies(self, minor: int, without: Collection[str]) -> bool:
        needs = set(re.split(r"[,\s]+", self.directives.get("needs", ""))) - {""}
        return not needs & set(without) and is_version(self.directives.get("kubectl", ""), minor)

    def expected_of(self, minor: int) -> Printed:
        """What this version of kubectl prints."""
        oldest: tuple[int, Printed] | None = None
        for block in self.expected[1:]:
            if is_version(block.versions, minor):
                return block
            lowest = min(int(number) for number in re.findall(r"1\.(\d+)", block.versions))
            if oldest is None or lowest < oldest[0]:
                oldest = (lowest, block)
        return oldest[1] if oldest and minor < oldest[0] else self.expected[0]


@dataclass
class Transcript:
    name: str  #: `08-describe.txt`
    steps: list[Step] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    files: list[tuple[int, str, str]] = field(default_factory=list)  #: the index of the next step, name, text
    cleanup: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Transcript:
        return _Parser(recorded.name_of(path), recorded.read(path).splitlines()).transcript

    def __str__(self) -> str:
        lines: list[str] = []
        for step in self.steps:
            lines += [*step.head, f"$ {step.command}", *(f"< {line}".rstrip() for line in step.stdin)]
            for block in step.expected:
                lines += [f"~ kubectl {block.versions}"] if block.versions else []
                lines += [f"> {line}".rstrip() for line in block.out]
                lines += [f"! {line}".rstrip() for line in block.err]
                lines += [f"? {block.code}"] if block.code else []
        return "\n".join([*lines, *self.tail]).rstrip("\n") + "\n"


class _Parser:
    def __init__(self, name: str, lines: list[str]) -> None:
        self.transcript = Transcript(name)
        self._lines = lines
        self._next = 0
        self._head: list[str] = []
        self._directives: dict[str, str] = {}
        self._step: Step | None = None
        while self._next < len(lines):
            self._parse(self._take())
        for step in self.transcript.steps:
            if not step.expected or step.expected[0].versions:
                step.expected.insert(0, Printed())
        self.transcript.tail = self._head

    def _take(self) -> str:
        self._next += 1
        return self._lines[self._next - 1]

    def _parse(self, line: str) -> None:
        if line.startswith("%file "):
            self._file(line)
        elif line.startswith("%"):
            self._directive(line)
        elif line.startswith("$ "):
            self._command(line[2:])
        elif self._step is not None and re.match(r"[<>!?~]( |$)", line):
            self._printed(self._step, line[0], line[2:])
        elif not line.strip() or line.startswith("#"):
            self._head.append(line)
        else:
            raise ValueError(f"{self.transcript.name}:{self._next}: cannot parse {line!r}")

    def _file(self, line: str) -> None:
        body: list[str] = []
        while (inner := self._take()) != "%end":
            body.append(inner)
        self._head += [line, *body, "%end"]
        text = "\n".join(body) + "\n"
        self.transcript.files.append((len(self.transcript.steps), line.removeprefix("%file ").strip(), text))
        self._step = None

    def _directive(self, line: str) -> None:
        word, _, rest = line[1:].partition(" ")
        if word == "cleanup":
            self.transcript.cleanup.append(rest)
        else:
            self._directives[word] = rest.strip()
        self._head.append(line)
        self._step = None

    def _command(self, command: str) -> None:
        while command.endswith("\\"):
            command += "\n" + self._take()
        self._step = Step(self._next, command, self._head, self._directives)
        self.transcript.steps.append(self._step)
        self._head, self._directives = [], {}

    def _printed(self, step: Step, mark: str, rest: str) -> None:
        if mark == "<":
            step.stdin.append(rest)
            return
        if mark == "~":
            step.expected.append(Printed(versions=rest.replace("kubectl", "").strip()))
        elif not step.expected:
            step.expected.append(Printed())
        block = step.expected[-1]
        if mark == ">":
            block.out.append(rest)
        elif mark == "!":
            block.err.append(rest)
        elif mark == "?":
            block.code = int(rest)


def is_version(condition: str, minor: int) -> bool:
    """`>=1.30`, `<1.30`, `1.27-1.29`, `1.27,1.30`: commas mean `and` between comparisons, `or` between versions."""
    alternatives = []
    for part in filter(None, re.split(r"[,\s]+", condition.replace('"', ""))):
        if comparison := re.fullmatch(r"(>=|<=|<|>|==?)1\.(\d+)", part):
            number = int(comparison[2])
            holds = {">=": minor >= number, "<=": minor <= number, "<": minor < number, ">": minor > number}
            if not holds.get(comparison[1], minor == number):
                return False
        elif versions := re.fullmatch(r"1\.(\d+)(?:-1\.(\d+))?", part):
            alternatives.append(int(versions[1]) <= minor <= int(versions[2] or versions[1]))
        else:
            raise ValueError(f"{condition!r} is not a condition of versions")
    return any(alternatives) if alternatives else True


# --- volatile text --------------------------------------------------------------------------------

REPLACEMENTS: Final = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<UID>"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "<TIME>"),
        (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [+-]\d{4}(?: [A-Z]{3,4})?", "<TIME>"),
        (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<TIME>"),
        (r'((?:"resourceVersion"|resourceVersion): ?)"\d+"', r'\1"<RV>"'),
        (r"(Resource Version: +)\d+", r"\1<RV>"),
        (r"(resource version to be \d+, was )\d+", r"\1<RV>"),
        (r'(\\"resourceVersion\\": ?)\\"\d+', r'\1\\"<RV>'),
        (r'("storageVersionHash": ?)"[^"]+"', r'\1"<HASH>"'),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "<TOKEN>"),
        (r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "<IP>"),
        (r"(:)3[0-2]\d{3}(/(?:TCP|UDP|SCTP))", r"\1<NODEPORT>\2"),
        (r"(nodePort\"?: )3[0-2]\d{3}\b", r"\1<NODEPORT>"),
        (r"(NodePort: +\S+ +)3[0-2]\d{3}(/)", r"\1<NODEPORT>\2"),
        (rf"\b(pod-template-hash\"?[=:] ?\"?)[{GENERATED}]{{7,10}}\b", r"\1<HASH>"),
        (rf"-[{GENERATED}]{{8,10}}-[{GENERATED}]{{5}}\b", "-<HASH>-<GEN>"),
        (rf"(?<=[a-z0-9])-(?=[a-z]*\d[a-z0-9]*\b)[{GENERATED}]{{8,10}}\b(?![.-]?[a-z0-9])", "-<HASH>"),
        (rf"(?<=[a-z0-9])-[{GENERATED}]{{5}}\b(?![.-]?[a-z0-9])", "-<GEN>"),
        (r"(?:/[\w.-]+)*/(LIVE|MERGED)-\d+/", r"<TMP>/\1/"),
        (r"(?:/[\w.-]+)*/kubectl-edit-\d+\.yaml", "<TMP>/kubectl-edit.yaml"),
        (r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (\w+\.go):\d+\]", r"<LOG> \1]"),
    ]
]
AGE_CELL: Final = re.compile(rf"{DURATION}(?: \(x\d+ over {DURATION}\))?|<invalid>|<unknown>")
AGE_IN_LINE: Final = re.compile(rf"(?<=\S  ){DURATION}(?: \(x\d+ over {DURATION}\))?(?=  |$)")
NOISE: Final = re.compile(r"client-side throttling|^[IWE]\d{4} .* reflector\.go:\d+\]")


class Normaliser:
    """Replaces what differs from run to run."""

    def __init__(self, literal: Iterable[tuple[str, str]] = ()) -> None:
        """`literal`: texts of this run, and what the recordings have in their place."""
        self._literal = list(literal)

    def lines(self, source: Iterable[str]) -> list[str]:
        lines = [line for line in source if not NOISE.search(line)]
        found: list[str] = []
        index = 0
        while index < len(lines):
            end = index + 1
            if TABLE_HEADER.match(lines[index].rstrip()):
                while end < len(lines) and lines[end].strip() and not TABLE_HEADER.match(lines[end].rstrip()):
                    end += 1
                found += self._table(lines[index:end])
            else:
                found.append(self._line(lines[index]))
            index = end
        while found and not found[-1]:
            found.pop()
        return _causes_sorted(found)

    def _text(self, text: str) -> str:
        for mine, theirs in self._literal:
            text = text.replace(mine, theirs)
        for pattern, replacement in REPLACEMENTS:
            text = pattern.sub(replacement, text)
        return text

    def _line(self, line: str) -> str:
        """A line outside of tables: its indent stays, and runs of blanks become two."""
        line = line.replace("\t", "  ").rstrip()
        body = line.lstrip(" ")
        indent = line[: len(line) - len(body)]
        body = re.sub(r" {2,}", "  ", self._text(body))
        if not body.startswith("Requested Duration"):
            body = AGE_IN_LINE.sub("<AGE>", body)
        return indent + body

    def _table(self, rows: list[str]) -> list[str]:
        header = rows[0]
        starts = [0, *(found.end() for found in re.finditer(r" {2,}(?=\S)", header.rstrip()))]
        spans = list(zip(starts, [*starts[1:], None], strict=True))
        names = [header[start:end].strip() for start, end in spans]
        grid = [[self._text(name) for name in names]]
        for row in rows[1:]:
            if all(len(row) < start or row[start - 1] == " " for start in starts[1:]):
                cells = [row[start:end].strip() for start, end in spans]
            else:  # wider than its header, as rows of a watch may be
                cells = re.split(r" {2,}", row.strip())
            columns = [*names, *[""] * len(cells)]
            grid.append([self._cell(cell, columns[index]) for index, cell in enumerate(cells)])
        widths = [
            max(len(row[index]) if index < len(row) else 0 for row in grid) for index in range(max(map(len, grid)))
        ]
        return [
            "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in grid
        ]

    def _cell(self, cell: str, column: str) -> str:
        is_age = column in AGE_COLUMNS and AGE_CELL.fullmatch(cell)
        return "<AGE>" if is_age or re.fullmatch(r"\d+y(\d+d)?", cell) else self._text(cell)


def _causes_sorted(lines: list[str]) -> list[str]:
    """The causes of an Invalid error come in the order of a Go map, which is none: each run of them sorted."""
    found: list[str] = []
    causes: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("* "):
            causes.append(line)
        else:
            found += [*sorted(causes), line]
            causes = []
    return found[:-1]


# --- running --------------------------------------------------------------------------------------


class Kubectl:
    """A kubectl binary, and the server that a kubeconfig leads to."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self.binary = binary
        version = json.loads(self._plain(kubeconfig, "version", "--client", "-o", "json"))["clientVersion"]
        self.minor = int(re.sub(r"\D.*", "", version["minor"]))
        config = json.loads(self._plain(kubeconfig, "config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
        for section in ("clusters", "users", "contexts"):
            if config.get(section):
                config[section][0]["name"] = ADMINISTRATOR
        config["contexts"][0]["context"] |= {"cluster": ADMINISTRATOR, "user": ADMINISTRATOR}
        config["current-context"] = ADMINISTRATOR
        self._config: dict[str, Any] = config
        self.server: str = config["clusters"][0]["cluster"]["server"]

    def _plain(self, kubeconfig: Path, *arguments: str) -> str:
        command = [str(self.binary), "--kubeconfig", str(kubeconfig), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def write_kubeconfig(self, path: Path, namespace: str) -> None:
        context = self._config["contexts"][0]
        context = context | {"context": context["context"] | {"namespace": namespace}}
        path.touch(mode=0o600)
        path.write_text(json.dumps(self._config | {"contexts": [context]}))


class Session:
    """One run of one transcript: its scratch directory, kubeconfig and namespace."""

    def __init__(self, kubectl: Kubectl, transcript: Transcript) -> None:
        self._kubectl, self._transcript = kubectl, transcript
        self._namespace = new_namespace()

    def __enter__(self) -> Session:
        self._directory = Path(tempfile.mkdtemp(prefix="kr"))
        self._work = self._directory / "work"
        server = self._kubectl.server
        host = re.sub(r"^https?://", "", server).split("/")[0]
        places = [(str(self._work), "<DIR>"), (str(self._directory), "<SCRATCH>")]
        self.normaliser = Normaliser([(server, "<SERVER>"), (host, "<HOST>"), (self._namespace, "$NS"), *places])
        for name in ("bin", "home", "work"):
            (self._directory / name).mkdir()
        (self._directory / "bin" / "kubectl").symlink_to(self._kubectl.binary)
        kubeconfig = self._directory / "kubeconfig"
        self._kubectl.write_kubeconfig(kubeconfig, self._namespace)
        self._environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
            "PATH": f"{self._directory / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self._directory / "home"),
            "KUBECONFIG": str(kubeconfig),
            "NS": self._namespace,
            "LC_ALL": "C",
            "TZ": "UTC",
            "TERM": "dumb",
            "KREPLAY_SERVER": server,
            "GOGC": "off",  # kubectl ends before its garbage is worth collecting
        }
        created = self._shell(f"kubectl create namespace {self._namespace}")
        if created.returncode:
            raise RuntimeError(f"the namespace cannot be created: {created.stderr.strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for command in self._transcript.cleanup:
            self._shell(self._filled(command))
        self._shell(f"kubectl delete namespace {self._namespace} --wait=false")
        shutil.rmtree(self._directory, ignore_errors=True)

    def write_files(self, index: int) -> None:
        """The files that come before the step with this index."""
        for before, name, text in self._transcript.files:
            if before != index:
                continue
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._filled(text))
            if text.startswith("#!"):
                path.chmod(0o755)

    def run(self, step: Step) -> Printed:
        stdin = self._filled("\n".join(step.stdin)) + "\n" if step.stdin else ""
        ended = self._shell(self._filled(step.command), stdin)
        out, err = (self.normaliser.lines(text.splitlines()) for text in (ended.stdout, ended.stderr))
        return Printed(ended.returncode, out, err)

    def _filled(self, text: str) -> str:
        return text.replace("$NS", self._namespace)

    def _shell(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._work,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        code = 0
        try:
            out, err = process.communicate(stdin, timeout=STEP_SECONDS)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code, err = 124, f"{err}\n(killed after {STEP_SECONDS:g} s)"
        return subprocess.CompletedProcess(command, code, out, err)


def new_namespace() -> str:
    return "gt" + "".join(random.choice("aeioumnprst") for _ in range(6)) + random.choice("0123")


# --- replaying ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    passed: int = 0
    differences: dict[str, list[str]] = field(default_factory=dict)  #: by step: `08-describe.txt:288`
    left_out: int = 0

    @property
    def differing(self) -> frozenset[str]:
        return frozenset(self.differences)

    def text(self, steps: Collection[str]) -> str:
        """The differences of these steps, to read."""
        return "\n".join(
            "\n  ".join([where, *self.differences[where]]) for where in sorted(self.differing & set(steps))
        )


def replay(kubectl: Kubectl, transcripts: Iterable[Path], *, without: Collection[str] = (), jobs: int = 2) -> Outcome:
    """Replay transcripts, `jobs` at once.  Steps that need one of the tags in `without` are left out."""
    whole = Outcome()
    with ThreadPoolExecutor(jobs) as pool:
        for one in pool.map(lambda path: _replay(kubectl, Transcript.read(path), without), transcripts):
            whole.passed, whole.left_out = whole.passed + one.passed, whole.left_out + one.left_out
            whole.differences |= one.differences
    return whole


def _replay(kubectl: Kubectl, transcript: Transcript, without: Collection[str]) -> Outcome:
    outcome, plain = Outcome(), Normaliser()
    with Session(kubectl, transcript) as session:
        for index, step in enumerate(transcript.steps):
            session.write_files(index)
            if not step.applies(kubectl.minor, without):
                outcome.left_out += 1
                continue
            block = step.expected_of(kubectl.minor)
            expected = Printed(block.code, plain.lines(block.out), plain.lines(block.err))
            got = _run(session, step, expected)
            if matches(step, expected, got):
                outcome.passed += 1
            else:
                lines = difflib.unified_diff(expected.lines, got.lines, "expected", "got", lineterm="", n=2)
                outcome.differences[f"{transcript.name}:{step.line}"] = [f"$ {step.command}", *lines]
    return outcome


def matches(step: Step, expected: Printed, got: Printed) -> bool:
    return got.code == expected.code if "any" in step.directives else got.key == expected.key


def _run(session: Session, step: Step, expected: Printed) -> Printed:
    deadline = time.monotonic() + (UNTIL_SECONDS if "until" in step.directives else 0)
    while not matches(step, expected, got := session.run(step)) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    return got


# --- recording ------------------------------------------------------------------------------------


def record(kubectls: list[Kubectl], path: Path, without: Collection[str] = ()) -> None:
    """Rewrite a transcript with what each kubectl prints; the first one's output is the main text."""
    transcript = Transcript.read(path)
    results: list[list[tuple[int, Printed]]] = [[] for _ in transcript.steps]
    for kubectl in kubectls:
        with Session(kubectl, transcript) as session:
            for index, step in enumerate(transcript.steps):
                session.write_files(index)
                if step.applies(kubectl.minor, without):
                    results[index].append((kubectl.minor, _recorded(session, step)))
    for step, printed in zip(transcript.steps, results, strict=True):
        if printed:
            step.expected = _blocks(printed)
    recorded.write(path, str(transcript))


def _recorded(session: Session, step: Step) -> Printed:
    pattern = step.directives.get("until")
    deadline = time.monotonic() + UNTIL_SECONDS
    while True:
        got = session.run(step)
        if pattern is None or re.search(pattern or ".", "\n".join(got.out + got.err)):
            return Printed(got.code) if "any" in step.directives else got
        if time.monotonic() > deadline:
            raise TimeoutError(f"line {step.line}: {pattern!r} was not printed by {step.command}")
        time.sleep(PAUSE)


def _blocks(printed: list[tuple[int, Printed]]) -> list[Printed]:
    groups: dict[Any, tuple[Printed, list[int]]] = {}
    for minor, one in printed:
        groups.setdefault(one.key, (one, []))[1].append(minor)
    (main, _), *others = groups.values()
    known = [minor for minor, _ in printed]
    return [main, *(Printed(one.code, one.out, one.err, ranges(minors, known)) for one, minors in others)]


def ranges(minors: Iterable[int], known: Iterable[int]) -> str:
    """Neighbours among the known versions make one range: those between them are taken to agree."""
    left, places, found = sorted(minors), {minor: place for place, minor in enumerate(sorted(known))}, []
    while left:
        first = last = left.pop(0)
        while left and places[left[0]] == places[last] + 1:
            last = left.pop(0)
        found.append(f"1.{first}" if first == last else f"1.{first}-1.{last}")
    return ",".join(found)
