"""The output of `farflung explain placement`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET

from farflung.apis.edge.names import SELECTED_COUNT, WORKLOAD_PROJECTED
from farflung.cli.output import NONE, pairs, printer, table
from farflung.controllers.edge_scheduler.decide import READY
from farflung.inspect.explain import (
    DestinationEntry,
    InventoryTarget,
    LocationVerdict,
    PlacementExplanation,
    TargetVerdict,
    WrittenState,
)
from farflung.lib.words import count
from farflung.placement.names import GroupResource, ObjectRef

PROBLEMS: Final = {READY: "Problem", WORKLOAD_PROJECTED: "Copies"}  #: words for conditions that are False
BEHIND: Final = "the scheduler is behind or not running"


@printer
def printed(answer: PlacementExplanation, *, detailed: bool = False) -> Iterator[str]:
    if detailed:
        yield from (f"{_detailed(one)}\n" for one in answer.locations)
    elif answer.locations:
        yield f"{table(_rows(answer.locations))}\n"
    yield from (_summary(answer), _author(answer), *_now(answer.now), *answer.remarks)


def _rows(locations: Iterable[LocationVerdict]) -> Iterator[list[str]]:
    yield ["WORKSPACE", "LOCATION", "SYNCTARGET", "CHOSEN", "REASON"]
    for location in locations:
        head = [location.workspace, location.name]
        targets, reason = location.sync_targets, location.reason or ""
        if reason and [one.reason for one in targets] != [reason]:
            yield [*head, NONE, "no", reason]
        for target in targets:
            yield [*head, target.name, yes_or_no(target.chosen), target.reason or ""]


def _detailed(location: LocationVerdict) -> str:
    facts = [
        ("Location", location.name),
        ("Workspace", location.workspace),
        ("Labels", pairs((location.labels or {}).items())),
        ("Taints", ",".join(location.taints or ()) or NONE),
        ("Chosen", "yes" if location.chosen else f"no: {location.reason}"),
    ]
    if spread := location.spread:
        facts.append(("Spread by", pairs((key, NONE if value is None else value) for key, value in spread.items())))
    tables = [table([f"{name}:", value] for name, value in facts)]
    if selectors := [[one.path, yes_or_no(one.matches), one.reason or ""] for one in location.selectors or ()]:
        tables.append(table([["SELECTOR", "MATCHES", "REASON"], *selectors]))
    if location.inventory:
        tables.append(table(_target_rows(location, location.inventory)))
    if copies := location.being_withdrawn:
        refs = [ObjectRef(GroupResource(one.group, one.resource), one.namespace, one.name) for one in copies]
        rows = [[one.sync_target, str(ref)] for one, ref in zip(copies, refs, strict=True)]
        tables.append(table([["SYNCTARGET", "BEING WITHDRAWN"], *rows]))
    if number := location.not_asked:
        targets = count(number, "SyncTarget")
        tables.append(f"{targets} more may have copies that are being withdrawn; they were not checked.")
    return "\n\n".join(tables)


def _target_rows(location: LocationVerdict, inventory: Iterable[InventoryTarget]) -> Iterator[list[str]]:
    yield ["SYNCTARGET", "LABELS", "TAINTS", "CHOSEN", "REASON"]
    known = {one.name: one for one in location.sync_targets}
    for target in inventory:
        found = known.get(target.name) or TargetVerdict(target.name)
        reason = found.reason or ""
        if not target.selected:
            reason = "the Location's spec.instanceSelector does not select it"
        elif not found.chosen and not reason:
            reason = location.reason or ""
        taints = ",".join(target.taints) or NONE
        yield [target.name, pairs(target.labels.items()), taints, yes_or_no(found.chosen), reason]


def _summary(answer: PlacementExplanation) -> str:
    name, summary = answer.placement.name, answer.summary
    if answer.problem:
        return f"EdgePlacement {name} is invalid, and its slices do not change: {answer.problem}"
    chosen = f"{summary.chosen} of {count(summary.locations, 'Location')} chosen"
    wanted = "" if summary.wanted is UNSET else f", {summary.wanted} wanted"
    destinations = count(summary.destinations, "destination")
    left_out = f", {summary.left_out} left out" if summary.left_out else ""
    return f"EdgePlacement {name}: {chosen}, {summary.matching} matching{left_out}{wanted}; {destinations}."


def _author(answer: PlacementExplanation) -> str:
    author = answer.placement.author
    if not author:
        claim = answer.placement.claim_with
        return f"Author of the spec: not recorded{f'; to become it: {claim}' if claim else ''}"
    where = f", in {author.workspace} only" if author.workspace else ""
    return f"Author of the spec: {author.user}{where}"


def _now(now: WrittenState) -> Iterator[str]:
    if now.deleted:
        yield "It is being deleted; the scheduler ignores it."
        return
    yield f"Status now: {_status(now.status)}{_describe_state(now.status_is_current)}"
    for one in now.status.get("conditions") or ():
        if one.get("status") == "False" and one.get("type") in PROBLEMS:
            yield f"{PROBLEMS[one['type']]} now: {one.get('reason', '')}: {one.get('message', '')}"
    destinations = sum(one.destinations for one in now.slices)
    slices = f"{count(destinations, 'destination')} in {count(len(now.slices), 'slice')}"
    yield f"Slices now: {slices if now.slices else NONE}{_describe_state(now.slices_are_current)}"
    yield from changes(("+", now.missing), ("-", now.surplus))


def _status(status: Mapping[str, Any]) -> str:
    if not status:
        return NONE
    conditions = [one for one in status.get("conditions") or () if one.get("type") == READY]
    ready = conditions[0] if conditions else {}
    words = [f"Ready={ready.get('status', 'Unknown')}", *([f"({ready['reason']})"] if ready.get("reason") else [])]
    matching = f"{status.get('matchingLocationCount', 0)} matching"
    selected = "" if SELECTED_COUNT not in status else f", {count(status[SELECTED_COUNT], 'object')} selected"
    return f"{' '.join(words)}, {matching}{selected}, of generation {status.get('specGeneration', 0)}"


def _describe_state(current: bool) -> str:
    return "; up to date" if current else f"; {BEHIND}"


def changes(*kinds: tuple[str, Iterable[DestinationEntry]]) -> list[str]:
    """A line per destination: `+ workspace location syncTarget`."""
    rows = [
        [f"{sign} {one.workspace}", one.location_name, one.sync_target_name] for sign, some in kinds for one in some
    ]
    return table(rows).splitlines() if rows else []


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
