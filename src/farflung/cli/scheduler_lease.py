"""What the Lease of the global scheduler says: whether somebody works, and by which files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import orjson

from farflung.apis.globalscheduler.names import FILES_ANNOTATION
from farflung.apis.names import LEASES
from farflung.cli import fields
from farflung.cli.global_scheduler import COMPUTE
from farflung.cli.scheduler_configuration import Configuration
from farflung.client.errors import Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.global_scheduler.controller import NAME
from farflung.lib.words import count
from farflung.machinery import times
from farflung.machinery.errors import Obj

LONGEST: Final = 1000  #: letters of what is wrong with them
SILENT: Final = timedelta(minutes=1)  #: after which nobody works who does not renew; clocks may differ a little


async def lease_of(root: Client) -> Obj | None:
    """Empty: there is none; None: one may not know."""
    try:
        return await root.workspace(COMPUTE).get(LEASES, NAME, "default")
    except NotFound:
        return {}
    except Forbidden:
        return None


def told_by(lease: Obj, now: datetime) -> Obj:
    """Whether somebody `works`, when it was `heard` last, and of its `files` which they are (`options`), how many
    `sites` they have, `when` they said what counts, and the `problem` with them and `since` when there is one."""
    heard = fields.moment(lease, "spec", "renewTime")
    is_held = bool(fields.text(lease, "spec", "holderIdentity"))
    works = is_held and (heard is None or now - heard < SILENT)
    return {"works": works, "heard": "" if heard is None else times.format_seconds(heard), "files": _files(lease)}


def _files(lease: Obj) -> Obj | None:
    """None: there are none, or nobody works by them."""
    if not fields.text(lease, "spec", "holderIdentity"):
        return None
    said = fields.texts(lease, "metadata", "annotations").get(FILES_ANNOTATION, "")
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


def is_well(told: Obj) -> bool:
    return told["works"] and not (told["files"] or {}).get("problem")


def lines(told: Obj) -> Iterator[str]:
    """For people who look whether all is well."""
    if not told["works"]:
        last = f"; the last one was heard at {told['heard']}" if told["heard"] else ""
        yield f"No global scheduler works{last}"
    if (files := told["files"]) is None:
        return
    if number := files["sites"]:
        yield f"{count(number, 'site')} from files ({fields.line(' '.join(files['options']))})"
    if files["problem"]:
        yield f"The files of the global scheduler are wrong since {fields.line(files['since'])}: {_wrong(files)}"


def has_sites(lease: Obj | None) -> bool:
    """Whether somebody may be bound although there are no Clusters."""
    files = _files(lease or {})
    return files is not None and files["sites"] > 0


async def remarks(root: Client, configured: Configuration) -> list[str]:
    """For people who ask what it decides.  `configured`: what the files say that they named."""
    files = _files(await lease_of(root) or {})
    return [] if files is None else list(_remarks(files, named=configured != Configuration()))


def _remarks(files: Obj, *, named: bool) -> Iterator[str]:
    if not named:
        yield f"the global scheduler works by {fields.line(' '.join(files['options']))}, which was not said here"
    if files["problem"]:
        yield f"its files are wrong since {fields.line(files['since'])}: {_wrong(files)}"


def _wrong(files: Obj) -> str:
    return f"{fields.line(files['problem'], LONGEST)}; what they said at {fields.line(files['when'])} counts"
