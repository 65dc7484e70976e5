"""Flags of kubectl plugins: anywhere on the line, with or without `=`, and short."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from farflung.cli.plugins.errors import CommandError

BOOL = ""  #: a flag without a value
TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class Flag(NamedTuple):
    name: str
    usage: str
    type: str = "string"
    short: str = ""

    @property
    def label(self) -> str:
        """The left column of a help text."""
        letter = f"  -{self.short}, " if self.short else "      "
        return f"{letter}--{self.name} {self.type}".rstrip()


class ParsedLine(NamedTuple):
    values: dict[str, str]
    words: list[str]


def parse(flags: Iterable[Flag], line: list[str]) -> ParsedLine:
    """Flag values, and the arguments."""
    known = list(flags)
    names = {flag.name: flag for flag in known}
    letters = {flag.short: flag for flag in known if flag.short}
    values: dict[str, str] = {}
    words: list[str] = []
    rest = iter(line)
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name not in names:
                raise CommandError(f"unknown flag: --{name}")
            values[name] = _value(names[name], value if equals else None, rest, f"--{name}")
        elif word.startswith("-") and word != "-":
            _parse_letters(letters, word, rest, values)
        else:
            words.append(word)
    return ParsedLine(values, words)


def takes_next_word(flags: Iterable[Flag], word: str) -> bool:
    """Whether the next word is the value of this flag."""
    if word.startswith("--"):
        return any(f"--{flag.name}" == word and flag.type != BOOL for flag in flags)
    return any(f"-{flag.short}" == word and flag.type != BOOL for flag in flags if flag.short)


def seconds(text: str) -> float:
    """A Go duration, like 1m30s."""
    if not re.fullmatch(r"(?:[0-9.]+(?:ns|us|µs|ms|s|m|h))+|0", text):
        raise ValueError(f'time: invalid duration "{text}"')
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", text))


def _parse_letters(letters: dict[str, Flag], word: str, rest: Iterable[str], values: dict[str, str]) -> None:
    cluster = word[1:]
    while cluster:
        letter, cluster = cluster[0], cluster[1:]
        if letter not in letters:
            raise CommandError(f"unknown shorthand flag: '{letter}' in {word}")
        flag = letters[letter]
        if flag.type == BOOL and not cluster.startswith("="):
            values[flag.name] = "true"
            continue
        given = cluster.removeprefix("=") if cluster else None
        values[flag.name] = _value(flag, given, rest, f"'{letter}' in {word}")
        return


def _value(flag: Flag, given: str | None, rest: Iterable[str], shown: str) -> str:
    if flag.type == BOOL:
        if given is None or given in TRUE:
            return "true"
        if given in FALSE:
            return "false"
        raise CommandError(
            f'invalid argument "{given}" for "{shown}" flag: strconv.ParseBool: parsing "{given}": invalid syntax'
        )
    value = given if given is not None else next(iter(rest), None)
    if value is None:
        raise CommandError(f"flag needs an argument: {shown}")
    if flag.type == "duration":
        try:
            seconds(value)
        except ValueError as error:
            raise CommandError(f'invalid argument "{value}" for "{shown}" flag: {error}') from None
    return value


KUBECONFIG = Flag("kubeconfig", "path to the kubeconfig file")

CONNECTION = (
    Flag("as-uid", "UID to impersonate for the operation"),
    Flag("certificate-authority", "Path to a cert file for the certificate authority"),
    Flag("context", "The name of the kubeconfig context to use"),
    Flag(
        "insecure-skip-tls-verify",
        "If true, the server's certificate will not be checked for validity. "
        "This will make your HTTPS connections insecure",
        BOOL,
    ),
    Flag("namespace", "If present, the namespace scope for this CLI request", short="n"),
    Flag("password", "Password for basic authentication to the API server"),
    Flag("proxy-url", "If provided, this URL will be used to connect via proxy"),
    Flag("server", "The address and port of the Kubernetes API server"),
    Flag(
        "tls-server-name",
        "If provided, this name will be used to validate server certificate. "
        "If this is not provided, hostname used to contact the server is used.",
    ),
    Flag("token", "Bearer token for authentication to the API server"),
    Flag("user", "The name of the kubeconfig user to use"),
    Flag("username", "Username for basic authentication to the API server"),
)

#: Flags of Go's logging library, which scripts pass; only -v has an effect.
LOGGING = (
    Flag("add_dir_header", "If true, adds the file directory to the header of the log messages", BOOL),
    Flag("alsologtostderr", "log to standard error as well as files", BOOL),
    Flag("log_backtrace_at", "when logging hits line file:N, emit a stack trace (default :0)", "traceLocation"),
    Flag("log_dir", "If non-empty, write log files in this directory"),
    Flag("log_file", "If non-empty, use this log file"),
    Flag(
        "log_file_max_size",
        "Defines the maximum size a log file can grow to. Unit is megabytes. "
        "If the value is 0, the maximum file size is unlimited. (default 1800)",
        "uint",
    ),
    Flag("logtostderr", "log to standard error instead of files (default true)", BOOL),
    Flag(
        "one_output",
        "If true, only write logs to their native severity level (vs also writing to each lower severity level)",
        BOOL,
    ),
    Flag("skip_headers", "If true, avoid header prefixes in the log messages", BOOL),
    Flag("skip_log_headers", "If true, avoid headers when opening log files", BOOL),
    Flag("stderrthreshold", "logs at or above this threshold go to stderr (default 2)", "severity"),
    Flag("v", "number for the log level verbosity", "Level", "v"),
    Flag("vmodule", "comma-separated list of pattern=N settings for file-filtered logging", "moduleSpec"),
)
