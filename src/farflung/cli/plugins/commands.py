"""A tree of commands: finds the command of a line, runs it, and prints help."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from farflung.cli.plugins.errors import CommandError
from farflung.cli.plugins.flags import BOOL, Flag, parse, takes_next_word

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
