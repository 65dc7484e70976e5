"""The output of `farflung list-upsynced`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from farflung.cli.output import NONE, TABLE, machine_readable, table
from farflung.inspect import fields
from farflung.machinery import times
from farflung.machinery.errors import Obj


def printed(answer: Obj, output: str, now: datetime) -> str:
    if output != TABLE:
        return machine_readable(answer, output)
    remarks = [f"remark: {fields.line(one, 1000)}" for one in answer["remarks"]]
    if not answer["items"]:
        return "\n".join([f"No upsynced {answer['kind']} found.", *remarks])
    return "\n".join([table(_rows(answer["items"], now)), *remarks])


def _rows(items: Iterable[Obj], now: datetime) -> Iterator[list[str]]:
    yield ["NAMESPACE", "NAME", "LOCATION", "SYNCTARGET", "AGE"]
    for one in items:
        metadata = one["object"]["metadata"]
        locations = ",".join([one["location"], *one["otherLocations"]])
        age = times.age(fields.text(metadata, "creationTimestamp"), now)
        yield [metadata.get("namespace") or NONE, metadata["name"], locations, one["syncTarget"], age]
