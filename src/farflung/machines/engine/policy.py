"""Scheduler policies: ordered filters and weighted scorers, read from policy files."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from farflung.machinery.codec import yaml
from farflung.machinery.errors import Malformed
from farflung.machines.engine.plugins import (
    FIT_FILTERS,
    FIT_SCORERS,
    OPTIONAL_FILTERS,
    REQUIRED_FILTERS,
    SITE_SCORERS,
    STACK_SCORERS,
)
from farflung.machines.engine.values import SiteSelector

HIGHEST_WEIGHT: Final = 2**63 // 100 - 1  #: of all scorers together
FILTERS: Final = frozenset({*OPTIONAL_FILTERS, *REQUIRED_FILTERS, *FIT_FILTERS})
SCORERS: Final = frozenset({*SITE_SCORERS, *STACK_SCORERS, *FIT_SCORERS})
#: fields of a SiteSelector → the filter or scorer that uses them; other fields are always used
FILTER_FIELDS: Final = {"geo": "LocationAndOperator", "operator": "LocationAndOperator", "regions": "regionandaz"}
SCORER_FIELDS: Final = {
    "affinity": "StackAffinity",
    "antiaffinity": "StackAffinity",
    "near": "Distance",
    "preferred": "PreferredAffinity",
}
EMPTY_SELECTOR: Final = SiteSelector()
#: allowed keys; `argument` is ignored
POLICY_KEYS: Final = ("predicates", "priorities")
PREDICATE_KEYS: Final = ("name", "argument")
PRIORITY_KEYS: Final = ("name", "weight", "argument")
#: names of the first file format
FORMER_NAMES: Final = {
    "NodeAvailability": "SiteAvailability",
    "ExclusiveNode": "ExclusiveSite",
    "NodeResourcesFit": "SiteResourcesFit",
    "NodeResourcesLeastAllocated": "SiteResourcesLeastAllocated",
}


class PolicyError(ValueError):
    """An invalid policy; the text says why."""


@dataclass(frozen=True, slots=True)
class SchedulerPolicy:
    filters: tuple[str, ...] = ()
    scorers: tuple[tuple[str, int], ...] = ()  #: (name, weight)
    spot_fake: bool = False  #: every site has 1000 spot machines

    def weighs(self, scorer: str) -> bool:
        return any(name == scorer for name, _ in self.scorers)

    def overlooked(self, selector: SiteSelector) -> Mapping[str, str]:
        """Fields of the selector that the policy ignores → the plugin that would use them."""
        missing = {choice: name for choice, name in FILTER_FIELDS.items() if name not in self.filters}
        missing |= {choice: name for choice, name in SCORER_FIELDS.items() if not self.weighs(name)}
        return {
            choice: name
            for choice, name in missing.items()
            if getattr(selector, choice) != getattr(EMPTY_SELECTOR, choice)
        }


def default_policy() -> SchedulerPolicy:
    """Used without a policy file.  Scorers without input are inactive."""
    return SchedulerPolicy(
        filters=(
            "SiteAvailability",
            "LocationAndOperator",
            "regionandaz",
            "Flavor",
            "Volume",
            "EipAvailability",
            "ExclusiveSite",
            "TaintToleration",
            "ClusterAffinity",
        ),
        scorers=(
            ("StackAffinity", 1),
            ("Flavor", 1),
            ("SiteResourcesLeastAllocated", 1),
            ("TaintToleration", 1),
            ("PreferredAffinity", 1),
            ("Distance", 2),
            ("Steady", 2),
        ),
    )


def read_policy(text: str) -> SchedulerPolicy:
    """`predicates` with names, `priorities` with names and weights, as YAML or JSON.

    Raises PolicyError for unknown or duplicate plugins, invalid weights, duplicate keys and unknown keys.
    """
    try:
        parsed = yaml.parse(text.encode(errors="replace"))
    except Malformed as error:
        raise PolicyError(f"not YAML: {error.why.removeprefix('yaml: ')}") from None
    if parsed.problems:
        raise PolicyError(parsed.problems[0])
    content = parsed.value
    if not isinstance(content, Mapping):
        raise PolicyError("neither predicates nor priorities")
    _refuse_unknown("the file", content, POLICY_KEYS)
    chosen = tuple(_name(one, FILTERS) for one in _list(content, "predicates", PREDICATE_KEYS))
    weighed = tuple((_name(one, SCORERS), _weight(one)) for one in _list(content, "priorities", PRIORITY_KEYS))
    _refuse_twice("predicates", chosen)
    _refuse_twice("priorities", tuple(name for name, _ in weighed))
    if sum(weight for _, weight in weighed) > HIGHEST_WEIGHT:
        raise PolicyError("the weights of the priorities are too large")
    return SchedulerPolicy(chosen, weighed)


def _list(content: Mapping[str, Any], field: str, keys: Collection[str]) -> list[Mapping[str, Any]]:
    found = content.get(field) or []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise PolicyError(f"{field} is not a list of names")
    for index, one in enumerate(found):
        _refuse_unknown(f"{field}[{index}]", one, keys)
    return found


def _refuse_unknown(what: str, entry: Mapping[Any, Any], keys: Collection[str]) -> None:
    for key in entry:
        if key not in keys:
            near = get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(keys)}"
            raise PolicyError(f"{what} has the unknown key {reprlib.repr(key)}; {hint}")


def _name(plugin: Mapping[str, Any], known: Collection[str]) -> str:
    given = plugin.get("name")
    name = FORMER_NAMES.get(given, given) if isinstance(given, str) else given
    if not isinstance(name, str) or name not in known:
        raise PolicyError(f"unknown plugin {given!r}; known are {', '.join(sorted(known))}")
    return name


def _weight(plugin: Mapping[str, Any]) -> int:
    weight = plugin.get("weight", 0)
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 0:
        raise PolicyError(f"the weight of {plugin['name']} is {weight!r}, not a number from 0")
    return weight or 1


def _refuse_twice(field: str, names: tuple[str, ...]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PolicyError(f"{field} names {name} twice")
