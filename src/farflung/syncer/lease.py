"""Whose turn it is to serve a mailbox, if syncers of several clusters were let into it.  Pure.

Whoever serves it says so in the status of `the-one`, by the uid of its cluster and a heartbeat.  The clocks of two
clusters are never compared: what counts is whether the heartbeat was another one lately, by the clock of whoever looks.
Only who saw that it stayed the same has seen silence: a hub that was away kept everybody from reporting.
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
    """What is said in a mailbox; empty: nothing."""

    uid: str  #: of the cluster whose syncer reported last
    heartbeat: str
    chosen: str  #: of the one that an operator wants there
    began: str = ""  #: when that syncer did


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
    """Ours, until a syncer of another cluster is found to serve the mailbox; and again when it has been silent for so
    many seconds, or an operator says so."""

    def __init__(self, patience: float) -> None:
        self.rival = ""  #: the cluster whose syncer serves the mailbox in our place; empty: we may
        self._patience = patience
        self._last = ("", "")
        self._since = 0.0  #: from when on it was seen to be the same
        self._looked = float("-inf")

    def judge(self, said: HolderRecord, own: Set[str], now: float) -> bool:
        """Whether it is ours.  `own`: the uids of our cluster, of which there are two after it was replaced, and none
        as long as it could not be asked."""
        if not said.uid or said.uid in own or said.chosen in own:
            self.rival, self._last = "", ("", "")
            return True
        if self._last != (said.uid, said.heartbeat) or now - self._looked > self._patience / 2:
            self._last, self._since = (said.uid, said.heartbeat), now
        self._looked = now
        is_silent = now - self._since >= self._patience
        self.rival = "" if is_silent else said.uid
        return is_silent

    def lose_sight(self) -> None:
        """The hub could not be asked."""
        self._looked = float("-inf")

    def silence(self, now: float) -> float:
        """Seconds since the rival was last heard, as far as we know."""
        return max(0.0, now - self._since)


CLUSTER: Final = "cluster"  #: the name of the one that a workspace has


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
