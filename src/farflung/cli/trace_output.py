"""The output of `farflung trace` and `farflung list-upsynced`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from farflung.cli.output import NONE, object_name, printer, remark_lines, show_progress, table
from farflung.inspect import fields
from farflung.inspect.results import as_document
from farflung.inspect.trace import MANY, ObjectState, Trace
from farflung.inspect.trace_source import TracedPlacement
from farflung.inspect.trace_steps import StepState, TracedDestination, age
from farflung.inspect.upsynced import UpsyncedObject, UpsyncedObjects
from farflung.lib.words import count
from farflung.machinery import times

MAX_MESSAGE: Final = 500  #: characters of a message


@printer
def printed(answer: Trace, now: datetime) -> Iterator[str]:
    yield _object(answer.object, now)
    for placement in answer.placements:
        yield from _placement(placement, now)
    for destination in answer.destinations:
        yield from _destination(destination, now)
    if left_out := answer.left_out.destinations:
        counts = as_document(answer.left_out)
        others = [f"{counts[state]} {state}" for state in StepState if state is not StepState.DONE and counts[state]]
        yield f"  … and {left_out} more, {', '.join(others) or 'without problems'}"
    yield from remark_lines(answer.remarks)
    yield fields.line(answer.conclusion.message, MAX_MESSAGE)
    if advice := fields.line(answer.conclusion.advice, MAX_MESSAGE):
        yield f"What to do: {advice}{'' if advice.endswith('?') else '.'}"


def _object(one: ObjectState, now: datetime) -> str:
    name = object_name(one.kind, one.namespace, one.name)
    if not one.exists:
        return f"{name} not found"
    generation = f", generation {one.generation}" if one.generation else ""
    deleted = f", deleted {age(one.deleted, now)} ago" if one.deleted else ""
    return f"{name}{generation}, changed {age(one.changed or '', now)} ago{deleted}"


def _placement(one: TracedPlacement, now: datetime) -> Iterator[str]:
    head = f"EdgePlacement {one.name}"
    if one.problem:
        yield f"{head} is invalid: {fields.line(one.problem, MAX_MESSAGE)}"
        return
    by = f" by {' and '.join(one.clauses)}" if one.clauses else ""
    yield f"{head} selects it{by}, with {count(one.destinations, 'destination')}"
    for problem in one.problems:
        since = f", for {age(problem.since, now)}" if age(problem.since, now) else ""
        message = fields.line(problem.message, MAX_MESSAGE) if problem.concerns else "because of other objects"
        yield f"  {problem.type} is False ({problem.reason}){since}: {message}"


def _destination(one: TracedDestination, now: datetime) -> Iterator[str]:
    yield f"  {one.name}"
    for step in one.steps:
        if step.name == "mailbox" and step.state is StepState.DONE:
            continue
        state = "" if step.state is StepState.DONE else f"{step.state}: "
        yield f"    {step.name:<8} {age(step.time or '', now):>5}  {state}{fields.line(step.message, MAX_MESSAGE)}"


@contextlib.contextmanager
def show_reading(number: int) -> Iterator[None]:
    """Progress on a terminal, if many mailboxes are read."""
    if number < MANY or not sys.stderr.isatty():
        yield
        return
    with show_progress(sys.stderr) as steps, steps.step(f"reading {number} mailboxes"):
        yield


# --- list-upsynced --------------------------------------------------------------------------------


@printer
def print_upsynced(answer: UpsyncedObjects, now: datetime) -> Iterator[str]:
    yield table(_upsynced_rows(answer.items, now)) if answer.items else f"No upsynced {answer.kind} found."
    yield from remark_lines(answer.remarks)


def _upsynced_rows(items: Iterable[UpsyncedObject], now: datetime) -> Iterator[list[str]]:
    yield ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET", "AGE"]
    for one in items:
        metadata = one.object["metadata"]
        locations = ",".join([one.location, *one.other_locations])
        lasting = times.age(fields.text(metadata, "creationTimestamp"), now)
        yield [metadata.get("namespace") or NONE, metadata["name"], locations, one.sync_target, lasting]
