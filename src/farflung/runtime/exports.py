"""Find the view of an APIExport: the URL of its objects in all workspaces that bind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from farflung.apis.kcp.names import API_BINDINGS, API_EXPORTS, PATH_ANNOTATION, URLS_READY
from farflung.client.errors import ClientError, Forbidden, InvalidResponse, NotFound
from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.runtime.environment import Environment

PAUSE: Final = 2.0  #: seconds between two reads of the APIExport
DOUBT: Final = 5.0  #: seconds between two checks whether failures are caused by a changed view
NOT_FOUND: Final = "Pause because APIExport not found"
ADVICE: Final = "create it there, enter the workspace that has it (kubectl ws), or name that one by --provider-path"


class View(NamedTuple):
    url: str
    path: str  #: of the workspace that has the export
    identity: str = ""  #: of the export


async def find_view(client: Client, name: str, env: Environment, log: Logger, *, v: int = 0) -> View:
    """Wait for the view.  `client`: of the workspace that has the export; `v`: verbosity of the log lines."""
    log = log.bind(exportName=name)
    reported = ""
    while True:
        export: Obj = {}
        failure: ClientError | None = None
        try:
            export = await client.get(API_EXPORTS, name)
            url, missing = url_of(export)
        except NotFound:
            url, missing = "", NOT_FOUND
        except ClientError as error:
            url, missing, failure = "", str(error), error
        if url:
            log.info("Found APIExport view", v=v, serverURL=url)
            return View(url, path_of(export), identity_of(export))
        if missing != reported and failure is not None:
            log.error(failure, "Pause because APIExport cannot be read", at=client.prefix or "/")
        elif missing != reported:
            advice = {"whatToDo": ADVICE} if missing == NOT_FOUND else {}
            log.info(missing, v=v, at=client.prefix or "/", **advice)
        reported = missing
        await env.sleep(PAUSE * (0.5 + env.random()))


async def is_missing(client: Client, name: str) -> bool:
    """Whether the server says that there is no such APIExport, or that it is not for this user."""
    try:
        await client.get(API_EXPORTS, name)
    except (NotFound, Forbidden):
        return True
    except ClientError:
        return False
    return False


async def until_there(client: Client, name: str, env: Environment) -> None:
    while await is_missing(client, name):
        await env.sleep(PAUSE * (0.5 + env.random()))


async def report_unbound(view: Client, export: str, path: str, log: Logger) -> None:
    """Log it if no workspace binds the export.  `view`: of the export; `path`: of its workspace."""
    try:
        async for page in view.pages(API_BINDINGS, size=1):
            if any(page.documents()):
                return
    except ClientError:
        return
    how = f"kubectl kcp bind apiexport {path}:{export}"
    log.info("No workspace binds the APIExport", exportName=export, exportPath=path, bindWith=how)


async def until_gone(
    client: Client, name: str, view: View, troubles: Callable[[], int], env: Environment, log: Logger
) -> None:
    """Return when the view has another URL, or none.  `troubles`: failed requests so far; the APIExport is read only
    after further failures."""
    before = troubles()
    while True:
        await env.sleep(DOUBT * (0.5 + env.random()))
        now = troubles()
        if now == before:
            continue
        before = now
        try:
            url, _ = url_of(await client.get(API_EXPORTS, name))
        except (NotFound, Forbidden):
            url = ""
        except ClientError:
            continue
        if url != view.url:
            log.warning("the view of an APIExport has changed or was deleted", exportName=name, serverURL=view.url)
            return


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _VirtualWorkspace(msgspec.Struct, frozen=True):
    url: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: list[_Condition] | None = None
    virtual_workspaces: list[_VirtualWorkspace] | None = None
    identity_hash: str = ""


class _Export(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status | None = None


def _decode(export: Obj) -> _Export:
    """Raises InvalidResponse."""
    try:
        return msgspec.convert(export, _Export)
    except msgspec.ValidationError as error:
        raise InvalidResponse(f"not an APIExport: {error}") from None


def path_of(export: Obj) -> str:
    return (_decode(export).metadata.annotations or {}).get(PATH_ANNOTATION, "")


def identity_of(export: Obj) -> str:
    status = _decode(export).status
    return "" if status is None else status.identity_hash


def url_of(export: Obj) -> tuple[str, str]:
    """(URL, empty) or (empty, the reason why there is no URL)."""
    status = _decode(export).status or _Status()
    conditions = {one.type: one.status for one in status.conditions or ()}
    urls = [one.url for one in status.virtual_workspaces or ()]
    if conditions.get(URLS_READY) != "True":
        return "", "Pause because APIExport not ready: APIExport virtual workspace URLs are not ready"
    if not urls or not urls[0]:
        return "", "Pause because APIExport not ready: APIExport does not have any virtual workspace URLs"
    return urls[0], ""
