"""Find the view of an APIExport: where its objects are, of all workspaces that bind it."""

from __future__ import annotations

from typing import Final, NamedTuple

from farflung.client.errors import ClientError, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.informer.reflector import Surroundings
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj

API_EXPORTS: Final = Collection("apis.kcp.io", "v1alpha1", "apiexports", "APIExport")
PAUSE: Final = 2.0  #: seconds between two looks
URLS_READY: Final = "VirtualWorkspaceURLsReady"
PATH: Final = "kcp.io/path"


class View(NamedTuple):
    url: str
    path: str  #: of the workspace that has the export


async def find_view(client: Client, name: str, outside: Surroundings, log: Logger, *, v: int = 0) -> View:
    """As soon as there is one.  `client`: of the workspace that has the export; `v`: how much this matters."""
    log = log.bind(exportName=name)
    told = ""
    while True:
        export: Obj = {}
        try:
            export = await client.get(API_EXPORTS, name)
            url, missing = url_of(export)
        except NotFound:
            url, missing = "", "Pause because APIExport not found"
        except ClientError as error:
            url, missing = "", "Pause because APIExport cannot be read"
            log.error(error, missing)
        if url:
            log.info("Found APIExport view", v=v, serverURL=url)
            return View(url, path_of(export))
        if missing != told:
            log.info(missing, v=v)
        told = missing
        await outside.sleep(PAUSE * (0.5 + outside.random()))


def path_of(export: Obj) -> str:
    metadata = export.get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(PATH, ""))


def url_of(export: Obj) -> tuple[str, str]:
    """(URL, empty) or (empty, why there is none)."""
    status = export.get("status") or {}
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    urls = [one.get("url") for one in status.get("virtualWorkspaces") or ()]
    if conditions.get(URLS_READY) != "True":
        return "", "Pause because APIExport not ready: APIExport virtual workspace URLs are not ready"
    if not urls or not urls[0]:
        return "", "Pause because APIExport not ready: APIExport does not have any virtual workspace URLs"
    return str(urls[0]), ""
