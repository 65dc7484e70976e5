"""The output of `farflung explain placement`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from farflung.cli.output import NONE, TABLE, machine_readable, pairs, table
from farflung.controllers.edge_scheduler.decide import READY
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, Part

BEHIND: Final = "the scheduler is behind or not running"


def printed(answer: Obj, output: str, *, detailed: bool = False) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    parts: list[str] = []
    if detailed:
        parts += map(_detailed, answer["locations"])
    elif answer["locations"]:
        parts.append(table(_rows(answer["locations"])))
    parts.append("\n".join([*_summary(answer), *_now(answer["now"])]))
    return "\n\n".join(parts)


def _rows(locations: Iterable[Obj]) -> Iterator[list[str]]:
    yield ["CLUSTER", "LOCATION", "SYNCTARGET", "CHOSEN", "REASON"]
    for location in locations:
        head = [location["cluster"], location["name"]]
        targets, reason = location["syncTargets"], location.get("reason", "")
        if reason and [one.get("reason") for one in targets] != [reason]:
            yield [*head, NONE, "no", reason]
        for target in targets:
            yield [*head, target["name"], _yes(target["chosen"]), target.get("reason", "")]


def _detailed(location: Obj) -> str:
    facts = [
        ("Location", location["name"]),
        ("Cluster", location["cluster"]),
        ("Labels", pairs(location["labels"].items())),
        ("Taints", ",".join(location["taints"]) or NONE),
        ("Chosen", "yes" if location["chosen"] else f"no: {location['reason']}"),
    ]
    if spread := location["spread"]:
        facts.append(("Spread by", pairs((key, NONE if value is None else value) for key, value in spread.items())))
    text = table([f"{name}:", value] for name, value in facts)
    selectors = [[one["path"], _yes(one["matches"]), one.get("reason", "")] for one in location["selectors"]]
    if selectors:
        text += f"\n\n{table([['SELECTOR', 'MATCHES', 'REASON'], *selectors])}"
    if location["inventory"]:
        text += f"\n\n{table(_target_rows(location))}"
    if gone := location.get("beingWithdrawn"):
        rows = [[one["syncTarget"], str(_part(one))] for one in gone]
        text += f"\n\n{table([['SYNCTARGET', 'BEING WITHDRAWN'], *rows])}"
    if number := location.get("notAsked"):
        text += (
            f"\n\n{count(number, 'SyncTarget')} more may have copies that are being withdrawn; they were not checked."
        )
    return text


def _part(one: Obj) -> Part:
    return Part(GroupResource(one["group"], one["resource"]), one["namespace"], one["name"])


def _target_rows(location: Obj) -> Iterator[list[str]]:
    yield ["SYNCTARGET", "LABELS", "TAINTS", "CHOSEN", "REASON"]
    known = {one["name"]: one for one in location["syncTargets"]}
    for target in location["inventory"]:
        found = known.get(target["name"], {"chosen": False})
        reason = found.get("reason", "")
        if not target["selected"]:
            reason = "the Location's spec.instanceSelector does not select it"
        elif not found["chosen"] and not reason:
            reason = location.get("reason", "")
        taints = ",".join(target["taints"]) or NONE
        yield [target["name"], pairs(target["labels"].items()), taints, _yes(found["chosen"]), reason]


def _summary(answer: Obj) -> Iterator[str]:
    name, summary = answer["placement"]["name"], answer["summary"]
    if problem := answer.get("problem"):
        yield f"EdgePlacement {name} is invalid, and its slices do not change: {problem}"
        return
    chosen = f"{summary['chosen']} of {count(summary['locations'], 'Location')} chosen"
    destinations = count(summary["destinations"], "destination")
    wanted = f", {summary['wanted']} wanted" if "wanted" in summary else ""
    yield f"EdgePlacement {name}: {chosen}, {summary['matching']} matching{wanted}; {destinations}."


def _now(now: Obj) -> Iterator[str]:
    if now.get("deleted"):
        yield "It is being deleted; the scheduler ignores it."
        return
    yield f"Status now: {_status(now['status'])}{_describe_state(now['statusIsCurrent'])}"
    destinations = sum(one["destinations"] for one in now["slices"])
    slices = f"{count(destinations, 'destination')} in {count(len(now['slices']), 'slice')}"
    yield f"Slices now: {slices if now['slices'] else NONE}{_describe_state(now['slicesAreCurrent'])}"
    yield from changes(("+", now["missing"]), ("-", now["surplus"]))


def _status(status: Mapping[str, Any]) -> str:
    if not status:
        return NONE
    conditions = [one for one in status.get("conditions") or () if one.get("type") == READY]
    ready = conditions[0] if conditions else {}
    words = [f"Ready={ready.get('status', 'Unknown')}", *([f"({ready['reason']})"] if ready.get("reason") else [])]
    matching = f"{status.get('matchingLocationCount', 0)} matching, of generation {status.get('specGeneration', 0)}"
    return f"{' '.join(words)}, {matching}"


def _describe_state(current: bool) -> str:
    return "; up to date" if current else f"; {BEHIND}"


def changes(*kinds: tuple[str, Iterable[Obj]]) -> list[str]:
    """A line per destination: `+ cluster location syncTarget`."""
    rows = [
        [f"{sign} {one['cluster']}", one["locationName"], one["syncTargetName"]] for sign, some in kinds for one in some
    ]
    return table(rows).splitlines() if rows else []


def _yes(value: bool) -> str:
    return "yes" if value else "no"
