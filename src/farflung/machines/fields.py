"""Lenient reader of fields: three spellings, any JSON value.

`flavorID`, `flavor_id` and `flavorid` are one field.  Null means missing.  An invalid value is recorded as a problem
with its path, and read as missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from farflung.apis.globalscheduler.selection import (
    MOST_COPIES,
    MOST_FLAVORS,
    MOST_REGIONS,
    MOST_REQUIREMENTS,
    MOST_RESOURCES,
    MOST_VALUES,
)
from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE
from farflung.machinery import names
from farflung.machines.engine.values import (
    FlavorChoice,
    Geo,
    Item,
    LabelRule,
    LocalStrategy,
    MachineToleration,
    Point,
    Preference,
    RegionChoice,
    SiteSelector,
    Spot,
)

ALIASES: Final = {"availablityzone": "availabilityzone"}
MAX_NAME: Final = 64  #: longest name that can be a known field
MAX_ERRORS: Final = 100
MAX_DIGITS: Final = 40  #: of a number in a string
MAX_TOLERATIONS: Final = 64
MAX_INTEGER: Final = 2**53
EFFECTS: Final = (NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE)
#: operators of Kubernetes in our spelling
OPERATORS: Final = {"doesnotexist": "!"}
VALUE_COUNTS: Final = {"exists": 0, "!": 0, "=": 1, "==": 1, "!=": 1, "gt": 1, "lt": 1, "in": None, "notin": None}


@lru_cache(1024)
def normalize_name(name: str) -> str:
    """Lower case without underscores."""
    bare = name.replace("_", "").lower()
    return ALIASES.get(bare, bare)


class FieldProblems:
    """Problems in the order in which they were found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, path: str, why: str) -> None:
        if len(self.found) < MAX_ERRORS:
            self.found.append(f"{path}: {why}")


class FieldReader:
    """Reads one JSON object."""

    __slots__ = ("_also", "_fields", "_problems", "path")

    def __init__(self, value: Any, path: str, problems: FieldProblems) -> None:
        self.path = path
        self._problems = problems
        self._fields: dict[str, tuple[str, Any]] = {}  #: normalized name → (spelling, value)
        self._also: dict[str, list[tuple[str, Any]]] = {}  #: further spellings of a name
        if value is None:
            return
        if type(value) is not dict:
            problems.note(path, "must be an object")
            return
        for name, one in value.items():
            if one is not None:
                self._add(normalize_name(name) if len(name) <= MAX_NAME else name, name, one)

    def _add(self, known: str, name: str, value: Any) -> None:
        if known in self._fields:
            first, *others = sorted(
                [self._fields[known], *self._also.get(known, ()), (name, value)], key=lambda field: field[0]
            )
            self._fields[known], self._also[known] = first, others
        else:
            self._fields[known] = (name, value)

    def has(self, name: str) -> bool:
        return name in self._fields

    def note(self, name: str, why: str) -> None:
        self._problems.note(self._at(name), why)

    def _at(self, name: str) -> str:
        return f"{self.path}.{self._fields[name][0] if name in self._fields else name}"

    def _value(self, name: str) -> Any:
        found = self._fields.get(name)
        return None if found is None else found[1]

    # --- values -----------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        value = self._value(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.note(name, "must be a string")
        return ""

    def flag(self, name: str) -> bool:
        value = self._value(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.note(name, "must be true or false")
        return False

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            self.note(name, "must be a whole number")
            return default
        if not least <= value <= most:
            self.note(name, f"must be from {least} to {most}")
            return default
        return int(value)

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number, or a string with one."""
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, str):
            value = _number_in(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note(name, "must be a number")
            return None
        if not least <= value <= most:  # also refuses nan
            self.note(name, f"must be from {least:g} to {most:g}")
            return None
        return float(value)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """By default the first of the allowed values."""
        value = self.text(name) or allowed[0]
        if value in allowed:
            return value
        self.note(name, f"must be one of {', '.join(filter(None, allowed))}")
        return allowed[0]

    # --- inner fields ----------------------------------------------------------------------------------

    def part(self, name: str) -> FieldReader:
        found = self._fields.get(name)
        if found is None:
            return FieldReader(None, f"{self.path}.{name}", self._problems)
        return FieldReader(found[1], f"{self.path}.{found[0]}", self._problems)

    def parts(self, name: str, most: int) -> Iterator[FieldReader]:
        for path, value in self._entries(name, most):
            yield FieldReader({} if value is None else value, path, self._problems)

    def texts(self, name: str, most: int) -> Iterator[str]:
        for path, value in self._entries(name, most):
            if isinstance(value, str):
                yield value
            else:
                self._problems.note(path, "must be a string")

    def texts_by_name(self, name: str, most: int) -> dict[str, str]:
        """A map with arbitrary keys, whose spelling is kept."""
        found = {}
        for key, value in self._mapped(name, most):
            if isinstance(value, str):
                found[key] = value
            else:
                self._problems.note(f"{self._at(name)}[{key[:64]}]", "must be a string")
        return found

    def wholes_by_name(self, name: str, most: int, largest: int) -> dict[str, int]:
        found = {}
        for key, value in self._mapped(name, most):
            if type(value) is int and 0 <= value <= largest:
                found[key] = value
            else:
                self._problems.note(f"{self._at(name)}[{key[:64]}]", f"must be a whole number from 0 to {largest}")
        return found

    def _mapped(self, name: str, most: int) -> list[tuple[str, Any]]:
        value = self._value(name)
        if value is None:
            return []
        if not isinstance(value, dict):
            self.note(name, "must be an object")
            return []
        if len(value) > most:
            self.note(name, f"must have at most {most} fields")
            return []
        return sorted((key, one) for key, one in value.items() if one is not None)

    def _entries(self, name: str, most: int) -> Iterator[tuple[str, Any]]:
        """Entries of all lists with this name, in any spelling."""
        if name not in self._fields:
            return
        for spelled, value in (self._fields[name], *self._also.get(name, ())):
            path = f"{self.path}.{spelled}"
            if not isinstance(value, list):
                self._problems.note(path, "must be a list")
            elif len(value) > most:
                self._problems.note(path, f"must have at most {most} entries")
            else:
                for at, one in enumerate(value):
                    yield f"{path}[{at}]", one


def _number_in(text: str) -> float | None:
    if len(text) > MAX_DIGITS:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) else None


def read_items(group: FieldReader) -> tuple[Item, ...]:
    items = []
    for at, one in enumerate(group.parts("resources", MOST_RESOURCES)):
        number = one.whole("count", 1, 1, MOST_COPIES)
        items.append(read_item(one.text("name") or f"resource-{at}", one, number))
    if not items and not group.has("resources"):
        group.note("resources", "is missing")
    elif not items:
        group.note("resources", "must have at least one entry that is valid")
    return tuple(items)


def read_item(name: str, machine: FieldReader, number: int) -> Item:
    flavors = []
    for one in machine.parts("flavors", MOST_FLAVORS):
        if flavor := one.text("flavorid"):
            flavors.append(FlavorChoice(flavor, _spot(one.part("spot")) if one.has("spot") else None))
        elif not one.has("flavorid"):
            one.note("flavorid", "is missing")
    if not flavors:
        machine.note("flavors", "must name at least one flavor")
    storage = machine.wholes_by_name("storage", MOST_FLAVORS, MAX_INTEGER)
    return Item(
        name,
        tuple(flavors),
        number,
        tuple((kind, size) for kind, size in storage.items() if size),
        machine.flag("needeip"),
    )


def _spot(spot: FieldReader) -> Spot | None:
    """A spot without values counts as none: clients of the original send one with every flavor."""
    found = Spot(
        spot.number("maxprice", 0, MAX_INTEGER) or 0.0,
        spot.whole("spotdurationhours", 0, 0, MOST_COPIES),
        spot.whole("spotdurationcount", 0, 0, MOST_COPIES),
        spot.one_of("interruptionpolicy", ("", "immediate", "delay")),
    )
    return None if found == Spot() else found


# --- selectors --------------------------------------------------------------------------------------


def read_selector(selector: FieldReader, spec: FieldReader) -> SiteSelector:
    strategy = selector.part("strategy")
    local = "locationstrategy" if strategy.has("locationstrategy") else "localstrategy"
    affinity = selector.part("clusteraffinity")
    nodes = spec.texts_by_name("nodeselector", MOST_REQUIREMENTS)
    least = selector.whole("minclusters", 0, 0, MOST_COPIES)
    most = selector.whole("maxclusters", 0, 0, MOST_COPIES)
    if 0 < most < least:
        selector.note("maxclusters", "must not be less than the minimum")
    return SiteSelector(
        read_geo(selector.part("geolocation")),
        tuple(_regions(selector)),
        selector.text("operator"),
        selector.text("siteid"),
        LocalStrategy(strategy.one_of(local, tuple(LocalStrategy))),
        strategy.one_of("regionstrategy", ("", "alone")) == "alone",
        least,
        most,
        (
            *(LabelRule(key, "in", (value,)) for key, value in nodes.items()),
            *_requirements(affinity, "required"),
        ),
        tuple(_preferences(affinity)),
        tuple(_requirements(selector, "stackaffinity")),
        tuple(_requirements(selector, "stackantiaffinity")),
        read_point(selector.part("near")) if selector.has("near") else None,
        tuple(_tolerations(spec)),
    )


def read_geo(part: FieldReader) -> Geo:
    return Geo(part.text("country"), part.text("area"), part.text("province"), part.text("city"))


def _regions(selector: FieldReader) -> Iterator[RegionChoice]:
    for one in selector.parts("regions", MOST_REGIONS):
        zones = (zone for zone in one.texts("availabilityzone", MOST_VALUES) if zone)
        yield RegionChoice(one.text("region"), tuple(dict.fromkeys(zones)))


def read_point(part: FieldReader) -> Point | None:
    latitude, longitude = part.number("latitude", -90, 90), part.number("longitude", -180, 180)
    for name in ("latitude", "longitude"):
        if not part.has(name):
            part.note(name, "is missing")
    return None if latitude is None or longitude is None else Point(latitude, longitude)


def _preferences(affinity: FieldReader) -> Iterator[Preference]:
    for one in affinity.parts("preferred", MOST_FLAVORS):
        yield Preference(one.whole("weight", 1, 1, 100), tuple(_requirements(one, "requirements")))


def _requirements(part: FieldReader, name: str) -> Iterator[LabelRule]:
    for one in part.parts(name, MOST_REQUIREMENTS):
        key, given = one.text("key"), one.text("operator").lower()
        operator = OPERATORS.get(given, given)
        values = tuple(one.texts("values", MOST_VALUES))
        if wrong := names.qualified_name(key):
            one.note("key", wrong[0])
        elif operator not in VALUE_COUNTS:
            one.note("operator", f"must be one of {', '.join(VALUE_COUNTS)}")
        elif why := _values_problem(operator, values):
            one.note("values", why)
        else:
            yield LabelRule(key, operator, values)


def _values_problem(operator: str, values: tuple[str, ...]) -> str:
    """Why the values do not suit the operator; empty: they do."""
    wanted = VALUE_COUNTS[operator]
    if wanted is None:
        return "" if values else f"must have an entry for the operator {operator}"
    if len(values) != wanted:
        return f"must have {wanted or 'no'} {'entry' if wanted == 1 else 'entries'} for the operator {operator}"
    if operator in ("gt", "lt") and not (values[0].removeprefix("-").isdecimal() and len(values[0]) < 20):
        return f"must be a whole number for the operator {operator}"
    return ""


def _tolerations(spec: FieldReader) -> Iterator[MachineToleration]:
    for one in spec.parts("tolerations", MAX_TOLERATIONS):
        found = MachineToleration(
            one.text("key"),
            one.one_of("operator", ("Equal", "Exists")),
            one.text("value"),
            one.one_of("effect", ("", *EFFECTS)),
            one.whole("tolerationseconds", 0, -MAX_INTEGER, MAX_INTEGER) if one.has("tolerationseconds") else None,
        )
        if not found.key and found.operator != "Exists":
            one.note("operator", "must be Exists without a key")
        yield found
