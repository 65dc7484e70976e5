"""Do some rules allow all that others do?

A rule allows every combination of its groups, resources, verbs and names, of which there may be millions: it is a box.
What is left of a box when another one is taken away is again a few boxes, so nothing is ever counted out one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Final, NamedTuple

from farflung.hub.auth.rbac.rules import Rule
from farflung.machinery.errors import go_quote

MOST_WORK: Final = 1_000_000  #: looks at a word of a rule; whoever needs more is taken not to be covered
MOST_LINES: Final = 500  #: about what is missing; nobody reads more …
MOST_VERBS: Final = 5000  #: … and all of them together say no more verbs

Side = Sequence[str]
Box = tuple[Side, ...]  #: groups, resources, verbs and names; or paths and verbs

NAMELESS: Final = ("",)  #: the names of a rule that names nothing


class Missing(NamedTuple):
    """What a rule allows and the others do not."""

    rule: Rule
    boxes: list[Box]


def missing(owned: Sequence[Rule], wanted: Iterable[Rule]) -> list[Missing]:
    """The parts of the wanted rules that the owned ones do not allow.  It errs on the safe side about rules that are
    made to be expensive.  A rule without verbs, groups or resources allows nothing: it is for others to find it wrong.
    """
    work = MOST_WORK
    found = []
    for rule in wanted:
        boxes = [box] if all(box := box_of(rule)) else []
        for owner in owned:
            work -= sum(len(side) for box in boxes for side in box)
            if not boxes or work < 0:
                break
            boxes = [piece for box in boxes for piece in without(box, owner, named=bool(rule.names))]
        if boxes:
            found.append(Missing(rule, boxes))
    return found


def box_of(rule: Rule) -> Box:
    if rule.paths:
        return tuple(rule.paths), tuple(rule.verbs)
    return tuple(rule.groups), tuple(rule.resources), tuple(rule.verbs), tuple(rule.names) or NAMELESS


def without(box: Box, owner: Rule, *, named: bool) -> Iterator[Box]:
    """What is left of a box when all that a rule allows is taken away: at most one box for each of its sides."""
    inside: list[Side] = []
    for side, allows in zip(box, allowances(box, owner, named=named), strict=True):
        inside.append([word for word in side if allows(word)])
        if not inside[-1]:
            yield box
            return
    for at, side in enumerate(box):
        if len(inside[at]) < len(side):
            gone = frozenset(inside[at])
            yield (*inside[:at], [word for word in side if word not in gone], *box[at + 1 :])


def allowances(box: Box, owner: Rule, *, named: bool) -> tuple[Callable[[str], bool], ...]:
    """For each side of a box, whether a rule allows a word of it."""
    if len(box) == 2:
        return owner.has_path, owner.has_verb
    has_name = owner.has_name if named else lambda name: not owner.names
    return owner.has_group, owner.has_resource, owner.has_verb, has_name


# --- in words -------------------------------------------------------------------------------------


def described(parts: Iterable[Missing]) -> list[str]:
    """What is missing, in the words of Kubernetes: sorted, a line for each resource, and for each verb on a path."""
    resources: dict[tuple[str, str, str | None], dict[str, None]] = {}
    paths: dict[str, None] = {}
    for rule, boxes in parts:
        if rule.paths:
            pairs = islice((pair for box in boxes for pair in product(*box)), MOST_LINES)
            paths |= {f"{{NonResourceURLs:{quoted([path])}, Verbs:{quoted([verb])}}}": None for path, verb in pairs}
        else:
            for what, verbs in by_resource(rule, boxes).items():
                resources.setdefault(what, {}).update(dict.fromkeys(verb for verb in rule.verbs if verb in verbs))
        if len(resources) + len(paths) >= MOST_LINES:
            break
    return sorted([*(line(*what, verbs) for what, verbs in resources.items()), *paths])


def by_resource(rule: Rule, boxes: Iterable[Box]) -> dict[tuple[str, str, str | None], set[str]]:
    """(group, resource, name) → the verbs that are missing on it."""
    found: dict[tuple[str, str, str | None], set[str]] = {}
    for groups, resources, verbs, names in boxes:
        if len(found) >= MOST_LINES:
            break
        most = max(min(MOST_LINES, MOST_VERBS // len(verbs)), 1)
        for group, resource, name in islice(product(groups, resources, names), most):
            found.setdefault((group, resource, name if rule.names else None), set()).update(verbs)
    return found


def line(group: str, resource: str, name: str | None, verbs: Iterable[str]) -> str:
    named = "" if name is None else f", ResourceNames:{quoted([name])}"
    return f"{{APIGroups:{quoted([group])}, Resources:{quoted([resource])}{named}, Verbs:{quoted(verbs)}}}"


def quoted(texts: Iterable[str]) -> str:
    """A list as Go's %q prints it."""
    return f"[{' '.join(map(go_quote, texts))}]"
