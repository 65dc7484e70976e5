"""The output of `farflung plan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson
from msgspec import UNSET

from farflung.apis.edge.names import EDGE_GROUP
from farflung.cli.explain_output import changes
from farflung.cli.machine_output import NAMED as CLUSTERS_NAMED
from farflung.cli.machine_output import bound_to, decision_lines, names_of
from farflung.cli.output import named, object_name, printer, remark_lines
from farflung.inspect.differences import Difference, SyncerConfigChange
from farflung.inspect.plan import GONE, Plan, PlannedObject, PlannedPlacement
from farflung.inspect.plan_copies import PlannedCopy, PlannedDestination
from farflung.inspect.scheduler_model import MachineDecision
from farflung.lib.words import count
from farflung.placement.names import THE_ONE, GroupResource, ObjectRef

NAMED: Final = 5  #: destinations in one line
KINDS_NAMED: Final = 3
MAX_VALUE: Final = 100  #: longest printed value
SYNCER_CONFIGS: Final = GroupResource(EDGE_GROUP, "syncerconfigs")


@printer
def printed(answer: Plan, *, verbose: bool = False) -> Iterator[str]:
    parts = ["\n".join(_placement(one, verbose)) for one in answer.placements]
    parts += ["\n".join(_object(one)) for one in answer.objects]
    parts += ["\n".join(lines) for lines in copied(answer.destinations)]
    if len(answer.placements) > 1:
        summary = answer.summary
        counts = f"{summary.added} added, {summary.removed} removed, {summary.unchanged} unchanged"
        errors = sum(bool(one.error) for one in answer.placements)
        wrong = f"; {count(errors, 'placement')} cannot be planned" if errors else ""
        parts.append(f"{count(len(answer.placements), 'EdgePlacement')}: {counts}{wrong}.")
    yield "\n\n".join([*parts, *remark_lines(answer.remarks)])


def _placement(one: PlannedPlacement, verbose: bool) -> Iterator[str]:
    head = f"EdgePlacement {one.name}"
    if one.error:
        yield f"{head}: error: {one.error}"
        return
    added, removed, unchanged = one.added or [], one.removed or [], one.unchanged or []
    yield f"{head} ({one.spec})"
    yield from changes(("+", added), ("-", removed), (" ", unchanged if verbose else ()))
    if one.warning:
        nowhere = "" if added or unchanged else "no destination: "
        yield f"warning: {nowhere}{one.warning}"
    selected = "" if one.spec == GONE else f"; {count(one.selected or 0, 'object')} selected"
    yield f"{len(added)} added, {len(removed)} removed, {len(unchanged)} unchanged{selected}"


def _object(one: PlannedObject) -> Iterator[str]:
    head = object_name(one.kind, one.namespace, one.name)
    if one.error:
        yield f"{head}: error: {one.error}"
        return
    yield f"{head} ({one.spec})"
    if one.decision:
        yield from _machine(one.decision)
    number = len(one.goes_to or ())
    if one.spec != GONE and (number or one.decision is UNSET):
        yield (
            f"placed on {count(number, 'destination')}" if number else f"not placed: {_unplaced(one.selected_by or [])}"
        )


def _unplaced(selected_by: list[str]) -> str:
    if not selected_by:
        return "no EdgePlacement selects it"
    names = named(selected_by, NAMED)
    if len(selected_by) == 1:
        return f"EdgePlacement {names} selects it, and has no destinations (farflung explain placement {names})"
    return (
        f"the EdgePlacements {names} select it, and have no destinations (farflung explain placement {selected_by[0]})"
    )


def copied(destinations: Iterable[PlannedDestination]) -> Iterator[list[str]]:
    """Destinations with equal changes in one entry."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in destinations:
        alike.setdefault(tuple(_copies(one)), []).append(f"{one.location_name}/{one.sync_target_name}")
    for lines, names in alike.items():
        yield [f"{count(len(names), 'destination')}: {named(names, NAMED)}", *lines]


def _copies(one: PlannedDestination) -> Iterator[str]:
    if one.syncer_config:
        yield f"~ {ObjectRef(SYNCER_CONFIGS, '', THE_ONE)}"
        yield from (f"    {each}" for each in syncer_config_lines(one.syncer_config))
    for copy in one.created:
        yield f"+ {_named(copy)}"
    for copy in one.changed:
        yield f"~ {_named(copy)}"
        yield from (f"    {line(each)}" for each in copy.differences or ())
    for copy in one.deleted:
        yield f"- {_named(copy)}{' (held until confirmed)' if copy.held else ''}"
    for copy in one.being_withdrawn:
        anew = ", then created again" if copy.anew else ""
        yield f"{'+' if anew else '-'} {_named(copy)} (being withdrawn{anew})"
    yield from (f"! {problem}" for problem in one.problems)


def _named(copy: PlannedCopy) -> str:
    return str(ObjectRef(GroupResource(copy.group, copy.resource), copy.namespace, copy.name))


def _machine(decision: MachineDecision) -> Iterator[str]:
    if decision.leaving:
        verb = "is bound to it and is evicted if it fits"
        if len(decision.leaving) > 1:
            verb = "are bound to it and are evicted if they fit"
        machines = [object_name(one.kind, one.namespace, one.name) for one in decision.leaving]
        yield f"{named(machines, CLUSTERS_NAMED)} {verb} elsewhere"
    if decision.released is not UNSET:
        places = decision.released
        yield f"no longer {bound_to(places, names_of(places))}" if places else "was not bound"
        return
    names = names_of([*(decision.stays or ()), *(decision.chosen or ())])
    if decision.stays:
        why = "" if decision.placed else f", because no Cluster fits: {decision.message}"
        yield f"stays {bound_to(decision.stays, names)}{why}"
    elif decision.placed is not UNSET:
        yield from decision_lines(decision, names)


def line(one: Difference) -> str:
    """`spec.replicas: 1 → 3`"""
    if one.change:
        return f"{one.path} {one.change}"
    if one.before is UNSET:
        return f"{one.path}: {_shown(one.after)} added"
    if one.after is UNSET:
        return f"{one.path}: {_shown(one.before)} removed"
    return f"{one.path}: {_shown(one.before)} → {_shown(one.after)}"


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def syncer_config_lines(found: Iterable[SyncerConfigChange]) -> Iterator[str]:
    """`spec.clusterScope: clusterroles.rbac.authorization.k8s.io r added`.  Many kinds are only counted."""
    together: dict[tuple[str, str], list[str]] = {}
    for one in found:
        together.setdefault((one.path, one.change), []).append(one.what)
    for (path, change), some in together.items():
        if path.endswith(".resources") and len(some) > KINDS_NAMED:
            yield f"{path}: {count(len(some), 'kind')} {change}"
        else:
            yield from (f"{path}: {what} {change}" for what in some)
