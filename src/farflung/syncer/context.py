"""The options of a syncer, and the dependencies that its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.client.rest import Client
from farflung.lib.klog import Logger
from farflung.runtime.environment import Environment
from farflung.syncer.decide import Adopt
from farflung.syncer.discovery import SharedKinds
from farflung.syncer.journal import Journal

HEARTBEAT_INTERVAL: Final = 20.0  #: seconds between two heartbeats
REPORT_INTERVAL: Final = 1.0  #: seconds, about, from a change to its report, and so between two reports


@dataclass(frozen=True, slots=True)
class SyncerOptions:
    mailbox: Client
    edge: Client
    name: str  #: of the SyncTarget
    uid: str  #: of the SyncTarget
    now: Callable[[], datetime]
    adopt: Adopt = Adopt.IF_IDENTICAL
    beat: float = HEARTBEAT_INTERVAL
    pause: float = REPORT_INTERVAL


@dataclass(frozen=True, slots=True)
class SyncerContext:
    options: SyncerOptions
    journal: Journal
    kinds: SharedKinds
    log: Logger
    env: Environment
    mailbox_env: Environment  #: its sleeps end when the hub answers again
    edge_env: Environment  #: its sleeps end when the edge answers again
