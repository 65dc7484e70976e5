"""Reviews the rights of authors to place: one key per author and workspace with Locations.

Rights are not stored: a restarted process reviews them again.  Until a right is known, and while a review fails,
nothing is withdrawn and nothing new is placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import orjson

from farflung.apis.kcp.names import CLUSTER_ANNOTATION, LOGICAL_CLUSTERS, PATH_ANNOTATION
from farflung.apis.names import ACCESS_REVIEWS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Collection
from farflung.client.errors import ClientError, NotFound, TooMany, Unreachable
from farflung.client.rest import Client
from farflung.controllers.placing_rights import decide
from farflung.controllers.placing_rights.decide import PlacingRoles, RightKey
from farflung.lib.klog import Logger
from farflung.lib.workqueue import WorkQueue
from farflung.placement.types import PlacingRight
from farflung.runtime.cache import CacheChange
from farflung.runtime.controller import Controller
from farflung.runtime.environment import Environment
from farflung.runtime.informer import Informer, SharedInformers
from farflung.runtime.manager import Manager

NAME: Final = "placing-rights"
WORKERS: Final = 8
PAUSE: Final = 2.0  #: seconds between two reads of the server's version
REVIEW_SECONDS: Final = 1800.0  #: seconds after which a right is reviewed again, if no known role changed

T = TypeVar("T")


class RightsUser(Protocol):
    """A scheduler."""

    def needs_right(self, key: RightKey) -> bool:
        """Whether it still uses this right."""

    def doubt_right(self, key: RightKey) -> None:
        """The right is being reviewed again."""

    def put_right(self, key: RightKey, right: PlacingRight) -> None:
        """The right is known."""

    def fail_right(self, key: RightKey) -> None:
        """The server refuses to review the right; the controller tries again."""


class Reviewer(Protocol):
    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Of the objects on which rights depend."""

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """`listener`: called with the logical cluster in which such an object changed."""

    async def review(self, key: RightKey) -> PlacingRight:
        """Raises ClientError."""


class AccessReviewer:
    """Asks a server that records authors.  `everywhere`: a client for all workspaces."""

    def __init__(
        self, everywhere: Client, informers: SharedInformers, trouble: Callable[[str, Exception], None]
    ) -> None:
        self._everywhere = everywhere
        self._index = PlacingRoles()
        self._listener: Callable[[str], None] = lambda cluster: None
        self._informers: list[Informer[Any]] = []

        def follow(
            collection: Collection, decode: Callable[[bytes], T], put: Callable[[str, str, T | None], bool]
        ) -> None:
            def listener(change: CacheChange[T]) -> None:
                if put(change.key.cluster, change.key.name, change.new):
                    self._listener(change.key.cluster)

            informer = informers.informer(everywhere, collection, decode, trouble)
            informer.subscribe(listener)
            self._informers.append(informer)

        follow(CLUSTER_ROLES, decide.decode_role, self._index.put_role)
        follow(CLUSTER_ROLE_BINDINGS, decide.decode_binding, self._index.put_binding)
        workspaces = informers.informer(everywhere, LOGICAL_CLUSTERS, decide.decode_required_groups, trouble)
        workspaces.subscribe(self._on_workspace)
        self._informers.append(workspaces)

    def _on_workspace(self, change: CacheChange[str]) -> None:
        if (change.old or "") != (change.new or ""):
            self._listener(change.key.cluster)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return self._informers

    def subscribe(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    async def review(self, key: RightKey) -> PlacingRight:
        if not self._index.may_place(key):
            return PlacingRight()  # most authors have no right in most workspaces: not worth a request each
        if await self._is_allowed(key, ""):
            return PlacingRight(everywhere=True)
        names = sorted(self._index.candidates(key))
        return PlacingRight(names=frozenset([name for name in names if await self._is_allowed(key, name)]))

    async def _is_allowed(self, key: RightKey, location: str) -> bool:
        workspace = self._everywhere.workspace(key.cluster)
        return decide.is_allowed(await workspace.create(ACCESS_REVIEWS, decide.new_review(key, location)))


class TrustedWorkspaces:
    """For a server that records no authors: the placements of trusted workspaces may use all Locations.  `workspace`: a
    client for a logical cluster."""

    def __init__(self, trusted: Iterable[str], workspace: Callable[[str], Client]) -> None:
        self._trusted = tuple(trusted)
        self._workspace = workspace

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return ()

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """The path of a logical cluster never changes."""

    async def review(self, key: RightKey) -> PlacingRight:
        if decide.ROOT in self._trusted:
            return PlacingRight(everywhere=True)
        path = (await self._annotations(key.author.cluster)).get(PATH_ANNOTATION, "")
        is_trusted = decide.is_trusted(path, self._trusted)
        if is_trusted:  # some servers let administrators of a workspace change the annotation
            is_trusted = (await self._annotations(path)).get(CLUSTER_ANNOTATION) == key.author.cluster
        return PlacingRight(everywhere=is_trusted)

    async def _annotations(self, workspace: str) -> Mapping[str, str]:
        """Of its LogicalCluster; empty if it does not exist."""
        try:
            found = await self._workspace(workspace).get(LOGICAL_CLUSTERS, "cluster")
        except NotFound:
            return {}
        return found["metadata"].get("annotations") or {}


class PlacingRights(Controller[RightKey]):
    verbosity = 4  # it is a part of the schedulers that use the rights

    def __init__(self, reviewer: Reviewer, env: Environment, log: Logger, *, by_workspace: bool = False) -> None:
        """`by_workspace`: workspaces have rights, and not authors."""
        super().__init__(
            NAME, self._reconcile_right, workers=WORKERS, backoff=env.backoff, queue=WorkQueue(env.monotonic), log=log
        )
        self.by_workspace = by_workspace
        self._reviewer = reviewer
        self._users: list[RightsUser] = []
        self._rights: dict[RightKey, PlacingRight] = {}  #: known and not doubted
        self._wanted: dict[RightKey, int] = {}  #: how often each was doubted
        self._failing: set[RightKey] = set()
        reviewer.subscribe(self._on_change)

    def join(self, manager: Manager) -> None:
        manager.add(self, self._reviewer.informers)

    @contextmanager
    def used_by(self, user: RightsUser) -> Iterator[None]:
        self.subscribe(user)
        try:
            yield
        finally:
            self._users.remove(user)

    def subscribe(self, user: RightsUser) -> None:
        self._users.append(user)

    def want(self, key: RightKey) -> None:
        """Calls `put_right` when the right is known, at once if it is."""
        if (right := self._rights.get(key)) is not None:
            for user in self._users:
                user.put_right(key, right)
        elif key not in self._wanted:
            self._wanted[key] = 0
            self.queue.add(key)

    def is_failing(self, key: RightKey) -> bool:
        return key in self._failing

    def _on_change(self, cluster: str) -> None:
        for key in decide.concerned(cluster, self._wanted):
            self._wanted[key] += 1
            self._rights.pop(key, None)
            for user in self._users:
                user.doubt_right(key)
            self.queue.add(key)

    async def _reconcile_right(self, key: RightKey, worker: int) -> float | None:
        if not any(user.needs_right(key) for user in self._users):
            self._forget(key)
            return None
        doubts = self._wanted.setdefault(key, 0)
        try:
            right = await self._reviewer.review(key)
        except (Unreachable, TooMany):
            raise
        except ClientError:
            self._failing.add(key)
            for user in self._users:
                user.fail_right(key)
            raise
        if self._wanted.get(key) != doubts:
            return None  # it is queued again
        self._failing.discard(key)
        self._rights[key] = right
        for user in self._users:
            user.put_right(key, right)
        return REVIEW_SECONDS

    def _forget(self, key: RightKey) -> None:
        """Its user may have kept it: without further reviews it would be outdated."""
        for user in self._users:
            user.doubt_right(key)
        self._wanted.pop(key, None)
        self._rights.pop(key, None)
        self._failing.discard(key)


async def records_authors(client: Client, env: Environment, log: Logger) -> bool:
    """Whether the server records the authors of placements.  Waits until it tells."""
    while True:
        try:
            return decide.records_authors(orjson.loads(await client.raw("/version")))
        except orjson.JSONDecodeError:
            return False
        except ClientError as error:
            log.error(error, "cannot read the version of the server")
        await env.sleep(PAUSE * (0.5 + env.random()))
