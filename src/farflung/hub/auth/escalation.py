"""Prevention of privilege escalation: users cannot grant permissions that they do not have.

Roles and bindings are checked before they are written, unless the user is an administrator or may `escalate` or `bind`
the role.

A rule allows all combinations of its groups, resources, verbs and names, which may be millions: it is a box.  A box
without another box is a few boxes, so combinations are never enumerated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Final, NamedTuple

from farflung.apis.names import RBAC_GROUP
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.rbac import INDEXING, PolicyRule, aggregate, rule_of
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import Target
from farflung.hub.request.turns import finished, in_turns
from farflung.hub.request.user import User, is_administrator
from farflung.machinery.errors import ApiError, Obj, forbidden, go_quote, not_found
from farflung.machinery.turns import Steps, at_once

MAX_WORK: Final = 1_000_000  #: comparisons with a word of a rule; a check that needs more fails
COMPARING: Final = 200  #: work of the allowance of a turn, for a comparison of two rules …
WORD: Final = 10  #: … and for a word
MAX_LINES: Final = 500  #: of a message …
MAX_VERBS: Final = 5000  #: … and verbs in all of its lines

Side = Sequence[str]
Box = tuple[Side, ...]  #: groups, resources, verbs and names; or paths and verbs

NAMELESS: Final = ("",)  #: the names of a rule without resourceNames


class UncoveredRule(NamedTuple):
    """The part of a rule that other rules do not cover."""

    rule: PolicyRule
    boxes: list[Box]


def uncovered(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[UncoveredRule]:
    """The parts of the wanted rules that the owned rules do not allow.  Rules that are too expensive to compare count
    as not covered.  A rule without verbs, groups or resources allows nothing, and validation refuses it."""
    return at_once(uncovered_steps(owned, wanted))


def uncovered_steps(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> Steps[list[UncoveredRule]]:
    work = MAX_WORK
    found = []
    for rule in wanted:
        boxes = [box] if all(box := box_of(rule)) else []
        for owner in owned:
            words = sum(len(side) for box in boxes for side in box)
            work -= words
            if not boxes or work < 0:
                break
            yield COMPARING + WORD * words
            boxes = [piece for box in boxes for piece in without(box, owner, named=bool(rule.names))]
        if boxes:
            found.append(UncoveredRule(rule, boxes))
    return found


def rule_steps(role: Obj) -> Steps[list[PolicyRule]]:
    rules = []
    for one in role.get("rules") or ():
        yield INDEXING
        rules.append(rule_of(one))
    return rules


def box_of(rule: PolicyRule) -> Box:
    if rule.paths:
        return tuple(rule.paths), tuple(rule.verbs)
    return tuple(rule.groups), tuple(rule.resources), tuple(rule.verbs), tuple(rule.names) or NAMELESS


def without(box: Box, owner: PolicyRule, *, named: bool) -> Iterator[Box]:
    """The rest of a box without everything that a rule allows: at most one box per side."""
    inside: list[Side] = []
    for side, allows in zip(box, allowances(box, owner, named=named), strict=True):
        inside.append([word for word in side if allows(word)])
        if not inside[-1]:
            yield box
            return
    for at, side in enumerate(box):
        if len(inside[at]) < len(side):
            removed = frozenset(inside[at])
            yield (*inside[:at], [word for word in side if word not in removed], *box[at + 1 :])


def allowances(box: Box, owner: PolicyRule, *, named: bool) -> tuple[Callable[[str], bool], ...]:
    """For each side of a box, a function that tells whether a rule allows a word."""
    if len(box) == 2:
        return owner.has_path, owner.has_verb
    has_name = owner.has_name if named else lambda name: not owner.names
    return owner.has_group, owner.has_resource, owner.has_verb, has_name


# --- messages -------------------------------------------------------------------------------------


def describe_uncovered(parts: Iterable[UncoveredRule]) -> list[str]:
    """Kubernetes' message about uncovered rules: sorted, a line per resource, and per verb on a path."""
    resources: dict[tuple[str, str, str | None], dict[str, None]] = {}
    paths: dict[str, None] = {}
    for rule, boxes in parts:
        if rule.paths:
            pairs = islice((pair for box in boxes for pair in product(*box)), MAX_LINES)
            paths |= {f"{{NonResourceURLs:{quoted([path])}, Verbs:{quoted([verb])}}}": None for path, verb in pairs}
        else:
            for what, verbs in by_resource(rule, boxes).items():
                resources.setdefault(what, {}).update(dict.fromkeys(verb for verb in rule.verbs if verb in verbs))
        if len(resources) + len(paths) >= MAX_LINES:
            break
    return sorted([*(line(*what, verbs) for what, verbs in resources.items()), *paths])


def by_resource(rule: PolicyRule, boxes: Iterable[Box]) -> dict[tuple[str, str, str | None], set[str]]:
    """(group, resource, name) → uncovered verbs."""
    found: dict[tuple[str, str, str | None], set[str]] = {}
    for groups, resources, verbs, names in boxes:
        if len(found) >= MAX_LINES:
            break
        most = max(min(MAX_LINES, MAX_VERBS // len(verbs)), 1)
        for group, resource, name in islice(product(groups, resources, names), most):
            found.setdefault((group, resource, name if rule.names else None), set()).update(verbs)
    return found


def line(group: str, resource: str, name: str | None, verbs: Iterable[str]) -> str:
    named = "" if name is None else f", ResourceNames:{quoted([name])}"
    return f"{{APIGroups:{quoted([group])}, Resources:{quoted([resource])}{named}, Verbs:{quoted(verbs)}}}"


def quoted(texts: Iterable[str]) -> str:
    """As Go's %q prints a list."""
    return f"[{' '.join(map(go_quote, texts))}]"


ALL_RULES: Final = (
    rule_of({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
    rule_of({"verbs": ["*"], "nonResourceURLs": ["*"]}),
)
ROLES: Final = ("roles", "clusterroles")


def check_no_escalation(
    authorizer: Authorizer, user: User, target: Target, new: Obj, old: Obj | None
) -> Awaitable[None] | None:
    """Raises 403 if a role or binding grants more than its author may do."""
    if target.group != RBAC_GROUP or is_administrator(user) or (old is not None and only_removes_holders(new, old)):
        return None
    if target.plural in ROLES:
        return check_role(authorizer, user, target, new, old or {})
    return check_binding(authorizer, user, target, new)


def only_removes_holders(new: Obj, old: Obj) -> bool:
    """Whether only finalizers and owners change.  The garbage collector must be able to remove them."""
    freely = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation")
    return all(
        _without(new["metadata"], freely) == _without(old["metadata"], freely)
        if part == "metadata"
        else new.get(part) == old.get(part)
        for part in new.keys() | old.keys()
    )


def _without(metadata: Obj, names: Sequence[str]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in names}


async def check_role(authorizer: Authorizer, user: User, target: Target, new: Obj, old: Obj) -> None:
    escalate = Attributes("escalate", RBAC_GROUP, target.plural, "", target.namespace, target.name)
    if (await in_turns(lambda: authorizer.decide(target.cluster, user, escalate))).allowed:
        return
    wanted = await finished(lambda: rule_steps(new))
    if problem := await describe_escalation(authorizer, user, target, wanted):
        raise escalation_refusal(target, new, problem)
    aggregates = new.get("aggregationRule") is not None or old.get("aggregationRule") is not None
    if aggregates and await describe_escalation(authorizer, user, target, ALL_RULES):
        raise escalation_refusal(target, new, "must have cluster-admin privileges to use the aggregationRule")


async def check_binding(authorizer: Authorizer, user: User, target: Target, new: Obj) -> None:
    role = new.get("roleRef") or {}
    kind, name = role.get("kind", ""), role.get("name", "")
    plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(kind)
    if plural is None:
        return  # validation refuses it
    bind = Attributes("bind", role.get("apiGroup", ""), plural, "", target.namespace, name)
    if (await in_turns(lambda: authorizer.decide(target.cluster, user, bind))).allowed:
        return
    bound = authorizer.role(target.cluster, kind, target.namespace, name)
    if bound is None:
        raise not_found(RBAC_GROUP, target.plural, name)
    rules = await in_turns(lambda: bound.rules)
    if problem := await describe_escalation(authorizer, user, target, rules):
        raise escalation_refusal(target, new, problem)


async def describe_escalation(authorizer: Authorizer, user: User, target: Target, wanted: Sequence[PolicyRule]) -> str:
    """The error about permissions that the user does not have; empty if there are none."""
    owned, errors = await in_turns(lambda: authorizer.rules_of(target.cluster, user, target.namespace))
    lacking = await finished(lambda: uncovered_steps(owned, wanted))
    if not lacking:
        return ""
    text = (
        f"user {go_quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions not "
        "currently held:\n" + "\n".join(describe_uncovered(lacking))
    )
    return f"{text}; resolution errors: [{aggregate(errors)}]" if errors else text


def escalation_refusal(target: Target, new: Obj, why: str) -> ApiError:
    return forbidden(RBAC_GROUP, target.plural, target.name or new["metadata"].get("name", ""), why)
