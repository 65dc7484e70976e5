"""What has to be done about one mailbox.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final

import msgspec

from farflung.controllers.mailbox.room import Room
from farflung.machinery.errors import Obj
from farflung.runtime.cache import Key

SYNC_TARGET_NAME: Final = "edge.kcp.io/sync-target-name"  #: the annotation that marks a workspace as a mailbox
BINDING: Final = "bind-edge"
CONFIG: Final = "the-one"
EXPORT: Final = "edge.kcp.io"
FINALIZER: Final = "edge.kcp.io/syncer"  #: on copies in a mailbox, which stay until a syncer takes it off
_NAME: Final = re.compile(r"(?P<cluster>[a-z0-9][a-z0-9-]*)-mb-(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")

# --- what is known --------------------------------------------------------------------------------


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str
    status: str = ""
    severity: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class TargetStatus(msgspec.Struct, frozen=True, rename="camel"):
    last_syncer_heartbeat_time: str | None = None
    conditions: tuple[Condition, ...] | None = None
    allocatable: Any = None
    capacity: Any = None


class Target(msgspec.Struct, frozen=True):
    """A SyncTarget."""

    metadata: Metadata
    status: TargetStatus | None = None

    @property
    def alive(self) -> bool:
        return self.metadata.deletion_timestamp is None

    @property
    def heartbeat(self) -> str:
        """Empty if there is none."""
        return (self.status.last_syncer_heartbeat_time if self.status is not None else None) or ""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (self.status.conditions if self.status is not None else None) or ()


class WorkspaceSpec(msgspec.Struct, frozen=True):
    cluster: str = ""


class WorkspaceStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Workspace(msgspec.Struct, frozen=True):
    """A workspace below the provider's, mailbox or not."""

    metadata: Metadata
    spec: WorkspaceSpec | None = None
    status: WorkspaceStatus | None = None

    @property
    def alive(self) -> bool:
        return self.metadata.deletion_timestamp is None

    @property
    def cluster(self) -> str:
        """Empty until it has one."""
        return self.spec.cluster if self.spec is not None else ""

    @property
    def ready(self) -> bool:
        return bool(self.cluster) and self.status is not None and self.status.phase == "Ready"

    @property
    def target_name(self) -> str:
        """What the mark says; empty if it is not there."""
        return (self.metadata.annotations or {}).get(SYNC_TARGET_NAME, "")


class Export(msgspec.Struct, frozen=True):
    name: str = ""
    path: str = ""


class Reference(msgspec.Struct, frozen=True):
    export: Export | None = None


class BindingSpec(msgspec.Struct, frozen=True):
    reference: Reference | None = None


class BindingStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Binding(msgspec.Struct, frozen=True):
    """An APIBinding."""

    metadata: Metadata
    spec: BindingSpec | None = None
    status: BindingStatus | None = None

    @property
    def alive(self) -> bool:
        return self.metadata.deletion_timestamp is None

    @property
    def bound(self) -> bool:
        return self.status is not None and self.status.phase == "Bound"

    @property
    def export(self) -> Export | None:
        reference = self.spec.reference if self.spec is not None else None
        return reference.export if reference is not None else None


class Config(msgspec.Struct, frozen=True):
    """A SyncerConfig, as far as it tells of its syncer."""

    beat: datetime | None = None  #: when the server last took a heartbeat, by its own clock
    edge: Condition | None = None  #: whether the syncer reaches its cluster, if it says so
    room: Room | None = None  #: what its cluster has; None: nobody has looked


# --- names ----------------------------------------------------------------------------------------


def mailbox_name(target: Key, uid: str) -> str:
    return f"{target.cluster}-mb-{uid}"


def is_mailbox_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def cluster_of(name: str) -> str:
    """The cluster of the SyncTarget, as the mailbox's name says."""
    found = _NAME.fullmatch(name)
    return found["cluster"] if found is not None else ""


# --- decisions ------------------------------------------------------------------------------------


class Step(Enum):
    """What is next.  After it one looks again."""

    NOTHING = auto()
    LEAVE = auto()  #: it is not ours
    WAIT = auto()  #: until it has a cluster, or is gone, or is bound
    CREATE = auto()
    MARK = auto()
    DELETE = auto()


def about_workspace(target: Target | None, workspace: Workspace | None) -> Step:
    wanted = target is not None and target.alive
    if workspace is None:
        return Step.CREATE if wanted else Step.NOTHING
    if not workspace.alive:
        return Step.WAIT if wanted else Step.NOTHING
    if not wanted:
        return Step.DELETE if workspace.target_name else Step.LEAVE
    assert target is not None
    if workspace.target_name != target.metadata.name:
        return Step.MARK
    return Step.NOTHING if workspace.ready else Step.WAIT


def is_ending(target: Target | None, workspace: Workspace) -> bool:
    """Whether this is a mailbox, and on its way out."""
    return not workspace.alive and bool(workspace.target_name or target is not None)


def about_binding(binding: Binding | None, provider: str) -> Step:
    if binding is None:
        return Step.CREATE
    if not binding.alive:
        return Step.WAIT
    if binding.export != Export(EXPORT, provider):
        return Step.DELETE
    return Step.NOTHING if binding.bound else Step.WAIT


# --- what is written ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """The objects of a mailbox."""

    workspace: Obj
    binding: Obj
    config: Obj


def made(name: str, target: str, provider: str) -> Made:
    return Made(
        {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name, "annotations": {SYNC_TARGET_NAME: target}},
            "spec": {},
        },
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIBinding",
            "metadata": {"name": BINDING},
            "spec": {"reference": {"export": {"path": provider, "name": EXPORT}}},
        },
        {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "SyncerConfig", "metadata": {"name": CONFIG}, "spec": {}},
    )
