"""Objects from files, as `kubectl -f` reads them: files, directories, standard input; several documents and lists."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from farflung.inspect.results import InspectError
from farflung.machinery.codec import yaml
from farflung.machinery.errors import Malformed, Obj

STDIN: Final = "-"
SUFFIXES: Final = (".json", ".yaml", ".yml")
SEPARATOR: Final = re.compile(rb"^---(?=\s|$)[^\n]*(?:\n|\Z)", re.MULTILINE)


class Manifest(NamedTuple):
    source: str  #: file and document, for messages
    obj: Obj


def manifests(names: Iterable[str]) -> list[Manifest]:
    """Raises InspectError."""
    return [manifest for name in names for source, data in _contents(name) for manifest in _documents(source, data)]


def _contents(name: str) -> Iterator[tuple[str, bytes]]:
    if name == STDIN:
        yield "standard input", sys.stdin.buffer.read()
        return
    path = Path(name)
    paths = [path]
    try:
        if path.is_dir():
            paths = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
            if not paths:
                raise InspectError(f"no {', '.join(SUFFIXES)} file in {name}")
        for one in paths:
            yield str(one), one.read_bytes()
    except OSError as error:
        raise InspectError(f"cannot read {name}: {(error.strerror or str(error)).lower()}") from None


def _documents(source: str, data: bytes) -> Iterator[Manifest]:
    found = [part for part in SEPARATOR.split(data.removeprefix(b"\xef\xbb\xbf")) if part.strip()]
    for number, part in enumerate(found, 1):
        where = source if len(found) == 1 else f"{source}, document {number}"
        try:
            parsed = yaml.parse(part)
        except Malformed as error:
            raise InspectError(f"{where}: {error.why}") from None
        if parsed.problems:
            raise InspectError(f"{where}: {parsed.problems[0]}")
        if parsed.value is not None:
            yield from _objects(where, parsed.value)


def _objects(where: str, value: object) -> Iterator[Manifest]:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str) or "apiVersion" not in value:
        raise InspectError(f"{where}: not a Kubernetes object: apiVersion or kind is missing")
    if not value["kind"].endswith("List") or not isinstance(value.get("items"), list):
        yield Manifest(where, value)
        return
    for at, item in enumerate(value["items"]):
        yield from _objects(f"{where}, items[{at}]", item)
