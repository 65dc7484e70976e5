"""Output of commands: tables, JSON, YAML and progress."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TextIO, TypeVar

import orjson
import yaml

from farflung.inspect import fields
from farflung.inspect.results import as_document
from farflung.machinery.codec.yaml import resolved
from farflung.machinery.errors import Obj

TABLE: Final = "table"
NONE: Final = "<none>"
LONGEST_REMARK: Final = 1000
FOLDED: Final = frozenset("\x85\u2028\u2029")  #: line breaks of YAML 1.1; a reader keeps them only if escaped


def table(rows: Iterable[Sequence[str]]) -> str:
    """`rows`: of equal length, the header first."""
    kept = list(rows)
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in kept)
    return "\n".join(lines)


def named(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """`a, b and 3 more`"""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"


R = TypeVar("R")
P = ParamSpec("P")


def printer(lines: Callable[Concatenate[R, P], Iterable[str]]) -> Callable[Concatenate[R, str, P], str]:
    """A function of a result and an output format.  `lines`: of the result as a table."""

    def printed(result: R, output: str, /, *arguments: P.args, **named: P.kwargs) -> str:
        if output != TABLE:
            return machine_readable(result, output)
        return "\n".join(lines(result, *arguments, **named))

    return printed


def object_name(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def remark_lines(remarks: Iterable[str]) -> Iterator[str]:
    return (f"remark: {fields.line(one, LONGEST_REMARK)}" for one in remarks)


def machine_readable(result: Any, output: str) -> str:
    document = as_document(result)
    if output == "json":
        return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()
    return yaml_text(document).removesuffix("\n")


class _Dumper(yaml.SafeDumper):
    """Quotes strings that Kubernetes would read as other types, and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if not text or type(resolved(text)) is not str or not FOLDED.isdisjoint(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def yaml_text(document: Any) -> str:
    """YAML that Kubernetes reads unchanged."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def manifests_text(found: Sequence[Obj], output: str) -> str:
    """For `kubectl apply -f -`."""
    if output == "json":
        whole = found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(found)}
        return f"{machine_readable(whole, output)}\n"
    return "---\n".join(map(yaml_text, found))


def pairs(values: Iterable[tuple[str, str]]) -> str:
    """Labels: `a=b,c=d`"""
    return ",".join(f"{key}={value}" for key, value in sorted(values)) or NONE


class ProgressReporter(Protocol):
    def step(self, what: str) -> contextlib.AbstractContextManager[None]:
        """The step lasts as long as the block.  ProgressReporter may overlap."""


class ProgressLines:
    """One line per finished step."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        print(f"  ✓ {what} ({time.monotonic() - began:.1f} s)", file=self._stream, flush=True)


@contextlib.contextmanager
def show_progress(stream: TextIO) -> Iterator[ProgressReporter]:
    if not stream.isatty():
        yield ProgressLines(stream)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(file=stream)
    what = TextColumn(
        "{task.description}", table_column=Column()
    )  # wraps, so that narrow terminals show the other columns
    columns = (SpinnerColumn(finished_text="[green]✓"), what, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        class Live:
            @contextlib.contextmanager
            def step(self, what: str) -> Iterator[None]:
                task = progress.add_task(what, total=1)
                yield
                progress.update(task, completed=1)

        yield Live()
