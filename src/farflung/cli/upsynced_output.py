"""The output of `farflung list-upsynced`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.inspect import fields
from farflung.inspect.upsynced import UpsyncedObject, UpsyncedObjects
from farflung.machinery import times


def printed(answer: UpsyncedObjects, output: str, now: datetime) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    remarks = [f"remark: {fields.line(one, 1000)}" for one in answer.remarks]
    if not answer.items:
        return "\n".join([f"No upsynced {answer.kind} found.", *remarks])
    return "\n".join([table(_rows(answer.items, now)), *remarks])


def _rows(items: Iterable[UpsyncedObject], now: datetime) -> Iterator[list[str]]:
    yield ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET", "AGE"]
    for one in items:
        metadata = one.object["metadata"]
        locations = ",".join([one.location, *one.other_locations])
        age = times.age(fields.text(metadata, "creationTimestamp"), now)
        yield [metadata.get("namespace") or NONE, metadata["name"], locations, one.sync_target, age]
