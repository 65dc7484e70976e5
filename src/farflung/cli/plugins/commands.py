"""Commands of kubectl plugins: errors, flags, the tree of commands, and help."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple


class CommandError(Exception):
    """The text is the whole message for the user."""


class ApiFailure(CommandError):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


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


MIN_NAME_WIDTH = 11


class PluginCommand(NamedTuple):
    """`flags` are of the command alone, `inherited` also of its subcommands; a group may have no `run`."""

    use: str
    short: str
    run: Callable[[CommandCall], None] | None = None
    long: str = ""
    example: str = ""
    aliases: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    inherited: tuple[Flag, ...] = ()
    commands: tuple[PluginCommand, ...] = ()
    version: str = ""

    @property
    def name(self) -> str:
        return self.use.partition(" ")[0]

    def below(self, word: str) -> PluginCommand | None:
        return next((command for command in self.commands if word in (command.name, *command.aliases)), None)


class CommandCall(NamedTuple):
    """A command line: the path in the tree, flag values and arguments."""

    chain: tuple[PluginCommand, ...]
    flags: dict[str, str]
    words: list[str]

    def is_set(self, flag: str) -> bool:
        return self.flags.get(flag) == "true"

    def show_help(self) -> None:
        print(help_text(self.chain), end="")


def main(root: PluginCommand, line: list[str], complaint: str) -> int:
    """Run a command line; returns the exit code."""
    try:
        _run(root, line)
        sys.stdout.flush()
    except CommandError as error:
        sys.stdout.flush()
        print(f"{complaint}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(root: PluginCommand, line: list[str]) -> None:
    chain, rest = _found(root, line)
    if len(chain) == 1 and "help" in rest[:1]:
        chain, rest = _found(root, rest[1:])
        CommandCall(chain, {}, []).show_help()
        return
    parsed = parse(_visible(chain), rest)
    call = CommandCall(chain, parsed.values, parsed.words)
    if call.is_set("help"):
        call.show_help()
    elif call.is_set("version"):
        print(f"{root.name} version {root.version}")
    elif chain[-1].run is not None:
        chain[-1].run(call)
    elif parsed.words:
        path = " ".join(command.name for command in chain)
        raise CommandError(f'unknown command "{parsed.words[0]}" for "{path}"')
    else:
        call.show_help()


def _found(root: PluginCommand, line: list[str]) -> tuple[tuple[PluginCommand, ...], list[str]]:
    """The commands that the line names, and the rest of the line."""
    chain, rest, position = [root], list(line), 0
    while position < len(rest) and rest[position] != "--":
        word = rest[position]
        if word.startswith("-") and word != "-":
            position += 2 if takes_next_word(_visible(tuple(chain)), word) else 1
            continue
        command = chain[-1].below(word)
        if command is None:
            break
        chain.append(command)
        del rest[position]
    return tuple(chain), rest


def _visible(chain: tuple[PluginCommand, ...]) -> list[Flag]:
    above = [flag for command in chain[:-1] for flag in command.inherited]
    return [*above, *_own(chain[-1])]


def _own(command: PluginCommand) -> list[Flag]:
    flags = [*command.inherited, *command.flags, Flag("help", f"help for {command.name}", BOOL, "h")]
    if command.version:
        flags.append(Flag("version", f"version for {command.name}", BOOL))
    return flags


def help_text(chain: tuple[PluginCommand, ...]) -> str:
    command = chain[-1]
    path = " ".join(part.name for part in chain)
    sections = [(command.long or command.short).strip(), _usage(chain, path)]
    if command.aliases:
        sections.append("Aliases:\n  " + ", ".join((command.name, *command.aliases)))
    if command.example:
        sections.append("Examples:\n" + command.example)
    if command.commands:
        sections.append("Available Commands:\n" + _command_lines(chain))
    sections.append("Flags:\n" + _flag_lines(_own(command)))
    above = [flag for part in chain[:-1] for flag in part.inherited]
    if above:
        sections.append("Global Flags:\n" + _flag_lines(above))
    if command.commands:
        sections.append(f'Use "{path} [command] --help" for more information about a command.')
    return "\n\n".join(sections) + "\n"


def _usage(chain: tuple[PluginCommand, ...], path: str) -> str:
    lines = ["Usage:"]
    if chain[-1].run is not None or len(chain) > 1:
        parents = "".join(f"{part.name} " for part in chain[:-1])
        lines.append(f"  {parents}{chain[-1].use} [flags]")
    if chain[-1].commands:
        lines.append(f"  {path} [command]")
    return "\n".join(lines)


def _command_lines(chain: tuple[PluginCommand, ...]) -> str:
    shorts = {command.name: command.short for command in chain[-1].commands}
    if len(chain) == 1:
        shorts["help"] = "Help about any command"
    width = max(MIN_NAME_WIDTH, *map(len, shorts))
    return "\n".join(f"  {name:<{width}} {short}" for name, short in sorted(shorts.items()))


def _flag_lines(flags: list[Flag]) -> str:
    width = max(len(flag.label) for flag in flags)
    return "\n".join(f"{flag.label:<{width}}   {flag.usage}" for flag in sorted(flags, key=lambda flag: flag.name))
