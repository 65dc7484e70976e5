"""What is there after a start: the root workspace, its shard, its types.

Whatever is missing is made, whatever is there stays as it is: users may have changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from farflung.hub.workspaces import guards
from farflung.hub.workspaces.builtin_types import builtin_types
from farflung.hub.workspaces.paths import ROOT
from farflung.hub.workspaces.tenancy import REPLICATE, SHARD, Founding, Tenancy
from farflung.hub.workspaces.writing import SHARD as SHARDS
from farflung.hub.workspaces.writing import WORKSPACE_TYPE, Written, put_missing, written
from farflung.machinery.errors import Obj
from farflung.store.base import Store

ROOT_FOUNDING: Final = Founding(ROOT, ROOT, "root:root", (), (), {REPLICATE: "apis.kcp.io,tenancy.kcp.io"})


async def bootstrap_root(store: Store, tenancy: Tenancy, url: str, new_uid: Callable[[], str]) -> None:
    """The root workspace with its shard and types; its exports come from elsewhere.  `url`: the hub's."""
    await put_missing(store, _furnishing(url, tenancy.now(), new_uid))
    await tenancy.open_missing(ROOT_FOUNDING)


def _furnishing(url: str, now: str, new_uid: Callable[[], str]) -> Iterator[Written]:
    yield written(SHARDS, ROOT, shard(url), uid=new_uid(), now=now)
    for obj in builtin_types():
        guards.settle_type(obj, ROOT, ROOT, url, now)
        yield written(WORKSPACE_TYPE, ROOT, obj, uid=new_uid(), now=now)


def shard(url: str) -> Obj:
    return {
        "metadata": {"name": SHARD, "generation": 1, "labels": {"name": SHARD}},
        "spec": {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url},
    }
