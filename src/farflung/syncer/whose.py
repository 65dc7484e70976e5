"""Whose mailbox it is.  What is in that of another SyncTarget is none of ours, and nothing is written there."""

from __future__ import annotations

from typing import Final

from farflung.client.errors import ClientError, Garbled, NotFound
from farflung.client.resource import Collection
from farflung.client.rest import Client
from farflung.runtime.reflector import CLUSTER as IDENTITY

CLUSTERS: Final = Collection("core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster")
CLUSTER: Final = "cluster"  #: the name of the one that a workspace has
PATH: Final = "kcp.io/path"  #: annotation: where a workspace is; `root` has none


class WrongMailboxError(ClientError):
    """Another one's."""

    def __init__(self, path: str, uid: str) -> None:
        super().__init__(f"{path} is not the mailbox of a SyncTarget with the uid {uid}")
        self.path = path


class ServedElsewhereError(ClientError):
    """Ours, but the syncer of another cluster serves it."""


async def cluster_of(mailbox: Client, uid: str) -> str:
    """The logical cluster that the mailbox of the SyncTarget with this uid is; empty on a server without workspaces.
    Raises WrongMailboxError if it is that of another one, and ClientError if nobody says so now."""
    try:
        metadata = (await mailbox.get(CLUSTERS, CLUSTER)).get("metadata") or {}
    except NotFound:
        return ""
    annotations = metadata.get("annotations") or {}
    cluster = annotations.get(IDENTITY)
    if not isinstance(cluster, str) or not cluster:
        raise Garbled("the mailbox does not say which logical cluster it is")
    path = str(annotations.get(PATH) or cluster)
    if not path.endswith(f"-mb-{uid}"):
        raise WrongMailboxError(path, uid)
    return cluster
