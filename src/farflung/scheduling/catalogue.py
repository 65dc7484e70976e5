"""Flavors, from the files that the original has: `flavor_config.yaml` for all regions, `flavors.json` for each.

Files are given as texts.  Whatever is wrong with one is a CatalogueError that names the file and the entry.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from farflung.machinery.codec import json, yaml
from farflung.machinery.codec.malformed import Malformed
from farflung.scheduling.values import Flavor

FLAVOR_CONFIG: Final = "flavor_config.yaml"
FLAVORS: Final = "flavors.json"

MOST: Final = 10**12  #: of anything that is counted
LONGEST_TEXT: Final = 4096
LONGEST_REASON: Final = 300

DEFAULT_KIND: Final = "vm"  #: the type of resources, where nobody says another
WITHDRAWN: Final = frozenset({"sellout", "abandon"})  #: states of a flavor that is not to be had

WHOLE: Final = re.compile(r"[0-9]{1,15}")
DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class CatalogueError(Exception):
    """A file cannot be used.  The text is a sentence for who wrote it."""


class RegionFlavor(NamedTuple):
    """What a region sells."""

    region: str
    flavor: Flavor
    status: str  #: where `zones` has none
    zones: Mapping[str, str]  #: availability zone → state; empty: nothing is said against it

    def is_sold_in(self, zone: str) -> bool:
        return self.zones.get(zone, self.status) not in WITHDRAWN


def read_flavor_config(text: str) -> dict[str, Flavor]:
    """By id.  `flavor_number` says how many entries count, from `flavor_0` on; without it all do."""
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
            raise entry.twice(f"the flavor {shown(flavor.id)}")
        flavors[flavor.id] = flavor
    return flavors


def read_flavors(text: str) -> list[RegionFlavor]:
    """In the order of the file."""
    found: dict[tuple[str, str], RegionFlavor] = {}
    for entry in read_document(FLAVORS, text).entries("flavors"):
        one = _region_flavor(entry)
        key = one.region, one.flavor.id
        if key in found:
            raise entry.twice(f"the flavor {shown(one.flavor.id)} of the region {shown(one.region)}")
        found[key] = one
    return list(found.values())


def catalogue_of(everywhere: Mapping[str, Flavor], regional: Iterable[RegionFlavor]) -> dict[str, Flavor]:
    """All flavors by id, and by name as well where that is no id and no other flavor's name.

    Where regions have different ideas of one it is as large as the largest, because what is reserved for it has to
    suffice anywhere.
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


def _region_flavor(entry: Entry) -> RegionFlavor:
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


def _flavor(entry: Entry, id_: str, kind: str = "") -> Flavor:
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


def read_document(file: str, text: str) -> Entry:
    """JSON if that is how the name of the file ends, otherwise YAML; nothing at all is an empty object."""
    body = text.encode(errors="replace")
    try:
        parsed = json.parse(body, typed=False) if file.endswith(".json") else yaml.parse(body)
    except Malformed as error:
        raise CatalogueError(f"{file} cannot be read: {error.why[:LONGEST_REASON]}.") from None
    if parsed.problems:
        raise CatalogueError(f"{file}: {parsed.problems[0][:LONGEST_REASON]}.")
    if parsed.value is not None and type(parsed.value) is not dict:
        raise CatalogueError(f"{file} must have an object, not {shown(parsed.value)}.")
    return Entry(file, "", parsed.value or {})


def shown(value: Any) -> str:
    """So that it fits in a sentence."""
    return "nothing" if value is None else reprlib.repr(value)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a file, whose fields may have any type.  All methods raise CatalogueError."""

    file: str
    path: str  #: `flavors[3]`; empty: the whole file
    fields: Mapping[str, Any]

    def text(self, key: str, *, required: bool = False) -> str:
        """Empty if there is none.  A number is a text too, as YAML needs no quotes."""
        value = self.fields.get(key)
        if type(value) is int:
            value = str(value)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or not value.isprintable() or not required <= len(value) <= LONGEST_TEXT:
            raise self.wrong(key, f"a printable text of at most {LONGEST_TEXT} characters", value)
        return value

    def count(self, key: str, *, least: int = 0, default: int | None = None) -> int:
        """A whole number, or a text that has one.  Without a default it must be there."""
        value = self.fields.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, str) and WHOLE.fullmatch(value):
            value = int(value)
        if type(value) is not int or not least <= value <= MOST:
            raise self.wrong(key, f"a whole number from {least} to {MOST}", value)
        return value

    def number(self, key: str, *, default: float, most: float = MOST) -> float:
        """Any number, or a text that has one; an empty text is none."""
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

    def entry(self, key: str) -> Entry:
        """Empty if there is none."""
        value = self.fields.get(key)
        return self._inner(key, {} if value is None else value)

    def entries(self, key: str) -> list[Entry]:
        values = self.fields.get(key)
        if values is None:
            return []
        if type(values) is not list:
            raise self.wrong(key, "a list", values)
        return [self._inner(f"{key}[{index}]", value) for index, value in enumerate(values)]

    def wrong(self, key: str, expected: str, value: Any) -> CatalogueError:
        return CatalogueError(f"{self.file}: {self._path(key)} must be {expected}, not {shown(value)}.")

    def twice(self, what: str) -> CatalogueError:
        return CatalogueError(f"{self.file}: {what} is there twice, {self.path} is the second one.")

    def _inner(self, key: str, value: Any) -> Entry:
        if type(value) is not dict:
            raise self.wrong(key, "an object", value)
        return Entry(self.file, self._path(key), value)

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
