"""Flavors from `flavor_config.yaml` (all regions) and `flavors.json` (per region), and a reader of such files.

Files are given as texts.  Every error is a CatalogueError that names the file and the entry.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from farflung.machinery.codec import json, yaml
from farflung.machinery.errors import Malformed
from farflung.machines.engine.values import Flavor

FLAVOR_CONFIG: Final = "flavor_config.yaml"
FLAVORS: Final = "flavors.json"

MAX_NUMBER: Final = 10**12  #: largest number in a file
MAX_TEXT: Final = 4096
MAX_REASON: Final = 300

DEFAULT_KIND: Final = "vm"  #: default resource type
WITHDRAWN: Final = frozenset({"sellout", "abandon"})  #: states of an unavailable flavor

WHOLE: Final = re.compile(r"[0-9]{1,15}")
DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class CatalogueError(Exception):
    """A file is invalid; the text is a sentence for its author."""


class RegionFlavor(NamedTuple):
    """A flavor that a region offers."""

    region: str
    flavor: Flavor
    status: str  #: of zones that `zones` does not list
    zones: Mapping[str, str]  #: availability zone → state

    def is_sold_in(self, zone: str) -> bool:
        return self.zones.get(zone, self.status) not in WITHDRAWN


def read_flavor_config(text: str) -> dict[str, Flavor]:
    """Flavors by id.  `flavor_number` limits the entries, counted from `flavor_0`."""
    document = read_document(FLAVOR_CONFIG, text)
    table = document.entry("flavors")
    number = document.count("flavor_number", default=len(table.fields))
    flavors: dict[str, Flavor] = {}
    for index in range(number):
        name = f"flavor_{index}"
        if name not in table.fields:
            raise CatalogueError(f"{FLAVOR_CONFIG}: flavor_number is {number}, but there is no flavors.{name}.")
        entry = table.entry(name)
        flavor = _flavor(entry, entry.text("id", required=True))
        if flavor.id in flavors:
            raise entry.twice(f"the flavor {quote_value(flavor.id)}")
        flavors[flavor.id] = flavor
    return flavors


def read_flavors(text: str) -> list[RegionFlavor]:
    """In the order of the file."""
    found: dict[tuple[str, str], RegionFlavor] = {}
    for entry in read_document(FLAVORS, text).entries("flavors"):
        one = _region_flavor(entry)
        key = one.region, one.flavor.id
        if key in found:
            raise entry.twice(f"the flavor {quote_value(one.flavor.id)} of the region {quote_value(one.region)}")
        found[key] = one
    return list(found.values())


def merge_flavors(everywhere: Mapping[str, Flavor], regional: Iterable[RegionFlavor]) -> dict[str, Flavor]:
    """All flavors by id, and by name where that is unique.

    If regions differ, the largest size counts, so that a reservation suffices everywhere.
    """
    sold = [one.flavor for one in regional]
    largest: dict[str, Flavor] = {}
    for flavor in sold:
        known = largest.get(flavor.id, flavor)
        largest[flavor.id] = known._replace(
            vcpus=max(known.vcpus, flavor.vcpus),
            memory=max(known.memory, flavor.memory),
            disk=max(known.disk, flavor.disk),
        )
    catalogue = {**everywhere, **largest}
    called: dict[str, set[str]] = {}
    for flavor in (*everywhere.values(), *sold):
        called.setdefault(flavor.name, set()).add(flavor.id)
    names = {name: catalogue[id_] for name, (id_, *others) in called.items() if name and not others}
    return {**names, **catalogue}


def _region_flavor(entry: FileEntry) -> RegionFlavor:
    region, _, id_ = entry.text("region_flavor_id").partition("|")
    region = entry.text("region") or region
    if not region:
        raise entry.wrong("region", "the name of a region", entry.fields.get("region"))
    specs = entry.entry("os_extra_specs")
    return RegionFlavor(
        region,
        _flavor(entry, entry.text("id") or id_ or entry.text("id", required=True), specs.text("resource_type")),
        specs.text("cond:operation:status").lower(),
        _zones(specs.text("cond:operation:az")),
    )


def _flavor(entry: FileEntry, id_: str, kind: str = "") -> Flavor:
    return Flavor(
        id_,
        vcpus=entry.count("vcpus", least=1),
        memory=entry.count("ram", least=1),
        disk=entry.count("disk", default=0),
        name=entry.text("name") or id_,
        kind=kind or DEFAULT_KIND,
    )


def _zones(listed: str) -> dict[str, str]:
    """`az1(normal),az2(sellout)`."""
    states = {}
    for part in listed.split(","):
        zone, _, state = part.partition("(")
        if zone.strip():
            states[zone.strip()] = state.partition(")")[0].strip().lower()
    return states


# --- entries of files -------------------------------------------------------------------------------


def read_document(file: str, text: str) -> FileEntry:
    """JSON for `.json`, otherwise YAML; an empty file is an empty object."""
    body = text.encode(errors="replace")
    try:
        parsed = json.parse(body, typed=False) if file.endswith(".json") else yaml.parse(body)
    except Malformed as error:
        raise CatalogueError(f"{file} cannot be read: {error.why[:MAX_REASON]}.") from None
    if parsed.problems:
        raise CatalogueError(f"{file}: {parsed.problems[0][:MAX_REASON]}.")
    if parsed.value is not None and type(parsed.value) is not dict:
        raise CatalogueError(f"{file} must have an object, not {quote_value(parsed.value)}.")
    return FileEntry(file, "", parsed.value or {})


def quote_value(value: Any) -> str:
    return "nothing" if value is None else reprlib.repr(value)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An object in a file.  All methods raise CatalogueError."""

    file: str
    path: str  #: `flavors[3]`; empty: the whole file
    fields: Mapping[str, Any]

    def text(self, key: str, *, required: bool = False) -> str:
        """Empty if missing.  Integers are accepted, because YAML needs no quotes."""
        value = self.fields.get(key)
        if type(value) is int:
            value = str(value)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or not value.isprintable() or not required <= len(value) <= MAX_TEXT:
            raise self.wrong(key, f"a printable text of at most {MAX_TEXT} characters", value)
        return value

    def count(self, key: str, *, least: int = 0, default: int | None = None) -> int:
        """An integer, or a text with one.  Required without a default."""
        value = self.fields.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, str) and WHOLE.fullmatch(value):
            value = int(value)
        if type(value) is not int or not least <= value <= MAX_NUMBER:
            raise self.wrong(key, f"a whole number from {least} to {MAX_NUMBER}", value)
        return value

    def number(self, key: str, *, default: float, most: float = MAX_NUMBER) -> float:
        """A number, or a text with one; an empty text is missing."""
        value = self.fields.get(key)
        if value is None or value == "":
            return default
        if isinstance(value, str) and DECIMAL.fullmatch(value):
            value = float(value)
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
            raise self.wrong(key, f"a number from 0 to {most:g}", value)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.fields.get(key, False)
        if type(value) is not bool:
            raise self.wrong(key, "true or false", value)
        return value

    def entry(self, key: str) -> FileEntry:
        """An empty entry if missing."""
        value = self.fields.get(key)
        return self._inner(key, {} if value is None else value)

    def entries(self, key: str) -> list[FileEntry]:
        values = self.fields.get(key)
        if values is None:
            return []
        if type(values) is not list:
            raise self.wrong(key, "a list", values)
        return [self._inner(f"{key}[{index}]", value) for index, value in enumerate(values)]

    def wrong(self, key: str, expected: str, value: Any) -> CatalogueError:
        return CatalogueError(f"{self.file}: {self._path(key)} must be {expected}, not {quote_value(value)}.")

    def twice(self, what: str) -> CatalogueError:
        return CatalogueError(f"{self.file}: {what} is a duplicate, at {self.path}.")

    def _inner(self, key: str, value: Any) -> FileEntry:
        if type(value) is not dict:
            raise self.wrong(key, "an object", value)
        return FileEntry(self.file, self._path(key), value)

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
