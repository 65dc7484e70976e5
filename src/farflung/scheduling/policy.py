"""What decides: filters in their order, scorers with their weights; read from files in the format of the original."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from farflung.machinery.codec import yaml
from farflung.machinery.codec.malformed import Malformed
from farflung.scheduling.plugins import ABOUT_ROOM, ALWAYS, CHOSEN, OF_ROOM, OF_SITES, OF_STACKS
from farflung.scheduling.values import Selector

HIGHEST_WEIGHT: Final = 2**63 // 100 - 1  #: of all scorers together
FILTERS: Final = frozenset({*CHOSEN, *ALWAYS, *ABOUT_ROOM})
SCORERS: Final = frozenset({*OF_SITES, *OF_STACKS, *OF_ROOM})
#: the filters and scorers that look at wishes of a Selector; others are looked at whatever a policy says
FILTERED: Final = {"geo": "LocationAndOperator", "operator": "LocationAndOperator", "regions": "regionandaz"}
SCORED: Final = {
    "affinity": "StackAffinity",
    "antiaffinity": "StackAffinity",
    "near": "Distance",
    "preferred": "PreferredAffinity",
}
NO_WISHES: Final = Selector()
#: which keys there are; arguments are of the original, which ignores them
WHOLE: Final = ("predicates", "priorities")
OF_PREDICATES: Final = ("name", "argument")
OF_PRIORITIES: Final = ("name", "weight", "argument")
#: what the first version of the original called some of them, before its nodes were sites
EARLIER: Final = {
    "NodeAvailability": "SiteAvailability",
    "ExclusiveNode": "ExclusiveSite",
    "NodeResourcesFit": "SiteResourcesFit",
    "NodeResourcesLeastAllocated": "SiteResourcesLeastAllocated",
}


class PolicyError(ValueError):
    """A policy that nobody can follow; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Policy:
    filters: tuple[str, ...] = ()
    scorers: tuple[tuple[str, int], ...] = ()  #: (name, weight)
    spot_fake: bool = False  #: every spot request is taken as satisfiable, 1000 times at each site

    def weighs(self, scorer: str) -> bool:
        return any(name == scorer for name, _ in self.scorers)

    def overlooked(self, selector: Selector) -> Mapping[str, str]:
        """Wishes that nothing in it looks at, by their names in a Selector, with what would."""
        missing = {wish: name for wish, name in FILTERED.items() if name not in self.filters}
        missing |= {wish: name for wish, name in SCORED.items() if not self.weighs(name)}
        return {wish: name for wish, name in missing.items() if getattr(selector, wish) != getattr(NO_WISHES, wish)}


def default_policy() -> Policy:
    """That of the original, and what people may ask for beside: it has no say where nobody asks."""
    return Policy(
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


def read_policy(text: str) -> Policy:
    """`predicates` with a name each, `priorities` with a name and a weight each, as YAML or JSON.

    Raises PolicyError for a plugin that is unknown or named twice, by whichever names, for weights that make no sense,
    for a key that is there twice, and for any other key, as it may be one of these misspelt.
    """
    try:
        parsed = yaml.parse(text.encode(errors="replace"))
    except Malformed as error:
        raise PolicyError(f"it is not YAML: {error.why.removeprefix('yaml: ')}") from None
    if parsed.problems:
        raise PolicyError(parsed.problems[0])
    content = parsed.value
    if not isinstance(content, Mapping):
        raise PolicyError("it has neither predicates nor priorities")
    _refuse_unknown("the file", content, WHOLE)
    chosen = tuple(_name(one, FILTERS) for one in _list(content, "predicates", OF_PREDICATES))
    weighed = tuple((_name(one, SCORERS), _weight(one)) for one in _list(content, "priorities", OF_PRIORITIES))
    _refuse_twice("predicates", chosen)
    _refuse_twice("priorities", tuple(name for name, _ in weighed))
    if sum(weight for _, weight in weighed) > HIGHEST_WEIGHT:
        raise PolicyError("the weights of the priorities are too large")
    return Policy(chosen, weighed)


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
            hint = f"is {near[0]} meant?" if near else f"it may have {', '.join(keys)}"
            raise PolicyError(f"{what} has the unknown key {reprlib.repr(key)}; {hint}")


def _name(plugin: Mapping[str, Any], known: Collection[str]) -> str:
    said = plugin.get("name")
    name = EARLIER.get(said, said) if isinstance(said, str) else said
    if not isinstance(name, str) or name not in known:
        raise PolicyError(f"there is no plugin {said!r} here, only {', '.join(sorted(known))}")
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
