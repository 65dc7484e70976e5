"""Which syncer serves a mailbox, if syncers of several clusters have access to it.

The serving syncer writes the uid of its cluster and a heartbeat to the status of `the-one`.  The clocks of two clusters
are never compared: a syncer on standby measures by its own clock how long the heartbeat did not change.  Only time in
which it could read the heartbeat counts, because an unreachable hub keeps every syncer from reporting.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

from farflung.apis.edge.names import SERVED_BY
from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOGICAL_CLUSTERS, PATH_ANNOTATION
from farflung.client.errors import ClientError, InvalidResponse, NotFound
from farflung.client.rest import Client
from farflung.machinery.errors import Obj

HEARTBEAT: Final = "lastSyncerHeartbeatTime"


class HolderRecord(NamedTuple):
    """The holder of a mailbox, from the SyncerConfig `the-one`; empty fields are unknown."""

    uid: str  #: of the cluster whose syncer reported last
    heartbeat: str
    chosen: str  #: uid of the cluster that an operator chose by annotation
    started: str = ""  #: when the process of that syncer started


def holder_record(config: Obj) -> HolderRecord:
    status, annotations = _fields(config, "status"), _fields(_fields(config, "metadata"), "annotations")
    return HolderRecord(
        str(_fields(status, "edge").get("uid") or ""),
        str(status.get(HEARTBEAT) or ""),
        str(annotations.get(SERVED_BY) or ""),
        str(_fields(status, "syncer").get("started") or ""),
    )


def _fields(obj: Obj, name: str) -> Obj:
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


class LeaseTracker:
    """A syncer may serve the mailbox unless a syncer of another cluster does.  It takes over when the heartbeat of that
    one did not change for `patience` seconds, or an operator chose its cluster."""

    def __init__(self, patience: float) -> None:
        self.holder = ""  #: uid of the other cluster whose syncer serves the mailbox; empty: none does
        self._patience = patience
        self._last = ("", "")
        self._since = 0.0  #: since when the heartbeat did not change
        self._looked = float("-inf")

    def check(self, record: HolderRecord, own: Set[str], now: float) -> bool:
        """Whether this syncer may serve the mailbox.  `own`: the uids of its cluster: two after the cluster was
        replaced, none before it answered."""
        if not record.uid or record.uid in own or record.chosen in own:
            self.holder, self._last = "", ("", "")
            return True
        if self._last != (record.uid, record.heartbeat) or now - self._looked > self._patience / 2:
            self._last, self._since = (record.uid, record.heartbeat), now
        self._looked = now
        is_silent = now - self._since >= self._patience
        self.holder = "" if is_silent else record.uid
        return is_silent

    def forget_silence(self) -> None:
        """The hub was unreachable: the heartbeat may have stopped for that reason."""
        self._looked = float("-inf")

    def silence(self, now: float) -> float:
        """Seconds since the heartbeat of the holder last changed."""
        return max(0.0, now - self._since)


CLUSTER: Final = "cluster"  #: the name of the LogicalCluster of every workspace


class WrongMailboxError(ClientError):
    """The mailbox belongs to another SyncTarget."""

    def __init__(self, path: str, uid: str) -> None:
        super().__init__(f"{path} is not the mailbox of a SyncTarget with the uid {uid}")
        self.path = path


class ServedElsewhereError(ClientError):
    """A syncer of another cluster serves the mailbox."""


async def cluster_of(mailbox: Client, uid: str) -> str:
    """The logical cluster of the mailbox; empty on a server without workspaces.  Raises WrongMailboxError if it is not
    the mailbox of the SyncTarget with this uid."""
    try:
        metadata = (await mailbox.get(LOGICAL_CLUSTERS, CLUSTER)).get("metadata") or {}
    except NotFound:
        return ""
    annotations = metadata.get("annotations") or {}
    cluster = annotations.get(CLUSTER_ANNOTATION)
    if not isinstance(cluster, str) or not cluster:
        raise InvalidResponse("the mailbox does not say which logical cluster it is")
    path = str(annotations.get(PATH_ANNOTATION) or cluster)
    if not path.endswith(f"-mb-{uid}"):
        raise WrongMailboxError(path, uid)
    return cluster
