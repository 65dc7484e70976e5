"""What the global scheduler says of the files that it works by: in its Lease, which it writes anyway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson

from farflung.cli import fields
from farflung.cli.global_scheduler import COMPUTE, FILES
from farflung.cli.scheduler_files import Configuration
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.global_scheduler.controller import NAME
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.runtime.leader import LEASES

LONGEST: Final = 1000  #: letters of what is wrong with them


async def files_of(root: Client) -> Obj | None:
    """Which they are (`options`), how many `sites` they have, `when` they said what counts, and the `problem` with them
    and `since` when there is one.  None: there are none, nobody works, or one may not know."""
    try:
        lease = await root.workspace(COMPUTE).get(LEASES, NAME, "default")
    except (NotFound, Forbidden):
        return None
    said = fields.texts(lease, "metadata", "annotations").get(FILES, "")
    return _read(said) if fields.text(lease, "spec", "holderIdentity") else None


def _read(said: str) -> Obj | None:
    try:
        found = orjson.loads(said)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    options = found.get("options")
    return {
        "options": [one for one in options if isinstance(one, str)] if isinstance(options, list) else [],
        "sites": fields.number(found, "sites"),
        **{name: fields.text(found, name) for name in ("when", "problem", "since")},
    }


def lines(files: Obj) -> Iterator[str]:
    """For people who look whether all is well."""
    if number := files["sites"]:
        yield f"{count(number, 'site')} from files ({fields.line(' '.join(files['options']))})"
    if files["problem"]:
        yield f"The files of the global scheduler are wrong since {fields.line(files['since'])}: {_wrong(files)}"


async def remarks(root: Client, configured: Configuration) -> list[str]:
    """For people who ask what it decides.  `configured`: what the files say that they named."""
    files = await files_of(root)
    return [] if files is None else list(_remarks(files, named=configured != Configuration()))


def _remarks(files: Obj, *, named: bool) -> Iterator[str]:
    if not named:
        yield f"the global scheduler works by {fields.line(' '.join(files['options']))}, which was not said here"
    if files["problem"]:
        yield f"its files are wrong since {fields.line(files['since'])}: {_wrong(files)}"


def _wrong(files: Obj) -> str:
    return f"{fields.line(files['problem'], LONGEST)}; what they said at {fields.line(files['when'])} counts"
