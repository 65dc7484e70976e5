"""A hub with the edge API, workspaces with Locations and placements, and controllers that talk to it by a line that
can fail in every way."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from audited_controllers import lacks_permission
from hypothesis import strategies as st
from local_transport import LocalReply, LocalTransport, once
from platform_harness import MASTER, OPERATOR, USERS, PlatformHub
from simulated_time import monotonic, poll, simulated_environment

from farflung.client.errors import Unreachable
from farflung.client.rest import Client
from farflung.client.transport import OutgoingRequest, Reply
from farflung.controllers.edge_scheduler.controller import EdgeScheduler, EdgeSchedulerSetting
from farflung.controllers.mailbox.controller import MailboxController, MailboxSetting
from farflung.controllers.placement_translator.controller import PlacementTranslator
from farflung.controllers.placing_rights.controller import AccessReviewer, PlacingRights, TrustedWorkspaces
from farflung.controllers.status_summarizer.controller import StatusSummarizer
from farflung.http.messages import Request
from farflung.hub.request import attributes
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.target import target_of
from farflung.hub.tenancy.controller_roles import user_of
from farflung.hub.tenancy.paths import LogicalClusters
from farflung.lib.klog import Logger
from farflung.machinery.errors import ApiError, Obj
from farflung.machines.controller import GlobalScheduler
from farflung.machines.controller import GlobalSchedulerSetting as GlobalSetting
from farflung.placement.feeds import FeedViews, PlacementFeed
from farflung.placement.guard import WithdrawalLimits
from farflung.runtime.environment import Environment
from farflung.runtime.exports import find_view
from farflung.runtime.informer import SharedInformers
from farflung.runtime.manager import Manager
from farflung.runtime.recorder import Recorder

EDGE = "/apis/edge.kcp.io/v1alpha1"
SCHEDULING = "/apis/scheduling.kcp.io/v1alpha1"
WORKLOAD = "/apis/workload.kcp.io/v1alpha1"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
PROVIDER = "root:espw"


#: what can happen to controllers and their line, each with its argument
FAULTS = st.one_of(
    st.tuples(st.just("crash"), st.none()),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("lose requests"), st.integers(1, 5)),
    st.tuples(st.just("lose answers"), st.integers(1, 5)),
    st.tuples(st.just("turns"), st.integers(1, 50)),
)


@dataclass
class FaultyTransport(LocalTransport):
    """Fails the next requests: before they are sent, or after they were done, when only the answer is lost."""

    before: int = 0
    after: int = 0
    gate: Callable[[OutgoingRequest], Awaitable[None]] | None = None  #: awaited before a request is sent

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        if self.gate is not None:
            await self.gate(request)
        if self.before > 0:
            self.before -= 1
            raise Unreachable("the line broke")
        async with super().open(request) as reply:
            if self.after > 0 and "watch=" not in request.target:
                self.after -= 1
                raise Unreachable("the answer was lost")
            yield reply


class SentRequest(NamedTuple):
    user: str
    path: str  #: of the workspace; `*`: all
    asked: Attributes


@dataclass(frozen=True)
class OwnLine:
    """A line as the user of a controller."""

    line: FaultyTransport
    user: str
    note: Callable[[str, OutgoingRequest, bool], None]  #: (user, request, whether the hub refused it)

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        headers = {**request.headers, "Authorization": f"Bearer {self.user}"}
        async with self.line.open(replace(request, headers=headers)) as reply:
            is_refused = False
            if reply.status == 403:
                body = await reply.read()
                is_refused = lacks_permission(reply.status, body.decode())
                reply = LocalReply(reply.status, {}, partial(once, body))
            self.note(self.user, request, is_refused)
            yield reply


@dataclass
class Fleet:
    hub: PlatformHub
    transport: FaultyTransport
    masters: FaultyTransport  #: the line of those who see all workspaces at once
    log: io.StringIO = field(default_factory=io.StringIO)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    manager: Manager | None = None
    rights: PlacingRights | None = None
    trusted: tuple[str, ...] | None = None  #: paths of workspaces, as if the hub recorded no authors
    translator: PlacementTranslator | None = None
    summarizer: StatusSummarizer | None = None
    global_scheduler: GlobalScheduler | None = None
    globals: dict[str, Any] = field(default_factory=dict)  #: what the global scheduler is told beside where things are
    limits: WithdrawalLimits = field(default_factory=WithdrawalLimits)
    verbosity: int = 3
    shares_watches: bool = True  #: as in one process; otherwise as if each controller had its own
    sent: set[SentRequest] | None = None  #: requests of controllers, if they are recorded
    refusals: list[str] = field(default_factory=list)  #: requests that a controller lacks the permission for

    @property
    def env(self) -> Environment:
        return simulated_environment()

    def client(self, prefix: str = "") -> Client:
        return Client(self.transport, prefix, "test")

    def own(self, controller: str, prefix: str = "", line: FaultyTransport | None = None) -> Client:
        """A client of a controller."""
        line = line or self.transport
        group = line if self.shares_watches else controller
        return Client(OwnLine(line, user_of(controller), self._note), prefix, "test", group=group)

    def _note(self, user: str, request: OutgoingRequest, is_refused: bool) -> None:
        path, _, query = request.target.partition("?")
        routes, master = self.hub.platform.routes, USERS[MASTER]
        try:
            route = routes.route(path, master)
            target = target_of(*route)
            if target is None:
                asked = attributes.of_path(request.method, route.path)
            else:
                asked = attributes.of_target(request.method, target, Request(request.method, path, query).query)
            if self.sent is not None:
                self.sent.add(SentRequest(user, LogicalClusters(self.hub.store).path_of(route.cluster), asked))
            if is_refused:
                routes.check(route.cluster, route.view, master, asked)  # an administrator may be refused too
                self.refusals.append(f"{user} {request.method} {request.target}")
        except ApiError:
            return

    # --- controllers ------------------------------------------------------------------------------

    async def start(
        self,
        *,
        scheduler: bool = True,
        mailboxes: bool = False,
        translator: bool = False,
        summarizer: bool = False,
        globals: bool = False,
    ) -> None:
        """Controllers that know nothing yet."""
        log = Logger(self.log, self.verbosity)
        self.manager = Manager(log)
        espw, root = (self.own("edge-scheduler", f"/clusters/{path}") for path in (PROVIDER, "root"))
        edge, scheduling, workload = [
            (await find_view(client, name, self.env, log)).url
            for client, name in ((espw, "edge.kcp.io"), (root, "scheduling.kcp.io"), (root, "workload.kcp.io"))
        ]
        informers = SharedInformers(self.env)
        rights = self.rights = self._rights("edge-scheduler" if scheduler else "global-scheduler", informers, log)
        if scheduler or globals:
            rights.join(self.manager)
        if scheduler:
            setting = EdgeSchedulerSetting(espw, root, edge, scheduling, workload, rights, lambda: self.hub.now)
            EdgeScheduler(setting, "edge-scheduler", informers, log).join(self.manager)
        if mailboxes:
            espw, root = (self.own("mailbox-controller", f"/clusters/{path}") for path in (PROVIDER, "root"))
            mailbox = MailboxSetting(espw, root, PROVIDER, edge, workload)
            MailboxController(mailbox, informers, log).join(self.manager)
        if scheduler or mailboxes or globals:
            self._tasks.append(asyncio.create_task(self.manager.run()))
        if translator or summarizer:
            reader = "placement-translator" if translator else "status-summarizer"
            feed = self._feed(edge, scheduling, reader, informers, log)
            if translator:
                self.translator = self._translator(feed)
            if summarizer:
                recorder = self._recorder(feed.views.of("status-summarizer").everywhere, log)
                self.summarizer = StatusSummarizer(feed, recorder, lambda: self.hub.now, pause=0.02)
            self._tasks.append(asyncio.create_task(feed.run()))
        if globals:
            views = workload, scheduling, edge
            self.global_scheduler = await self._global_scheduler(views, rights, informers, log)
            self._tasks.append(asyncio.create_task(self.global_scheduler.run()))

    def _rights(self, user: str, informers: SharedInformers, log: Logger) -> PlacingRights:
        if self.trusted is not None:
            trusted = TrustedWorkspaces(self.trusted, self.client().workspace)
            return PlacingRights(trusted, self.env, log, by_workspace=True)
        everywhere = self.own(user, "/clusters/*", self.masters)
        reviewer = AccessReviewer(everywhere, informers, lambda what, error: log.error(error, what))
        return PlacingRights(reviewer, self.env, log)

    async def _global_scheduler(
        self, views: tuple[str, str, str], rights: PlacingRights, informers: SharedInformers, log: Logger
    ) -> GlobalScheduler:
        paths = (PROVIDER, "root", "root:compute")
        espw, root, compute = (self.own("global-scheduler", f"/clusters/{path}") for path in paths)
        pods, clusters = [
            (await find_view(compute, name, self.env, log)).url for name in ("kubernetes", "globalscheduler.com")
        ]
        everywhere = self.own("global-scheduler", "/clusters/*", self.masters)
        setting = GlobalSetting(
            everywhere,
            espw,
            root,
            pods,
            clusters,
            *views,
            rights,
            lambda: self.hub.now,
            **self.globals,
        )
        return GlobalScheduler(setting, self._recorder(everywhere, log), informers, log)

    def _feed(self, edge: str, scheduling: str, reader: str, informers: SharedInformers, log: Logger) -> PlacementFeed:
        """`reader`: the controller that reads for both."""
        own: dict[str, FeedViews] = {}
        for controller in ("placement-translator", "status-summarizer"):
            espw, root = (self.own(controller, f"/clusters/{path}") for path in (PROVIDER, "root"))
            everywhere = self.own(controller, "/clusters/*", self.masters)
            own[controller] = FeedViews(everywhere, espw, root, edge, scheduling)
        return PlacementFeed(replace(own[reader], own=own), self.limits, informers, log)

    def _translator(self, feed: PlacementFeed) -> PlacementTranslator:
        recorder = self._recorder(feed.views.of("placement-translator").everywhere, feed.log)
        return PlacementTranslator(feed, recorder, lambda: self.hub.now)

    def _recorder(self, everywhere: Client, log: Logger) -> Recorder:
        suffixes = itertools.count()
        return Recorder(everywhere, "test", lambda: self.hub.now, monotonic, lambda: f"{next(suffixes):x}", log)

    async def crash(self) -> None:
        """At once, whatever they are doing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def suffer(self, what: str, how: Any, **controllers: bool) -> None:
        """One of FAULTS, with its argument.  `controllers`: those that are started again after a crash."""
        match what:
            case "crash":
                await self.crash()
                await self.start(**controllers)
            case "cut":
                self.transport.cut()
                self.masters.cut()
            case "lose requests":
                self.transport.before = self.masters.before = how
            case "lose answers":
                self.transport.after = self.masters.after = how
            case "turns":
                for _ in range(how):
                    await asyncio.sleep(0)
            case _:
                raise ValueError(what)

    # --- objects ----------------------------------------------------------------------------------

    async def do(self, method: str, path: str, body: Any = None, by: str = OPERATOR, **headers: str) -> Obj | None:
        """None if it was refused."""
        answer = await self.hub.of(by, method, path, body, **headers)
        return answer.json if answer.status < 300 else None

    async def put(
        self, path: str, kind: str, name: str, labels: dict[str, str] | None = None, by: str = OPERATOR, **parts: Any
    ) -> Obj:
        """Made, or put in the place of what is there."""
        group_version = "/".join(path.split("/apis/")[1].split("/")[:2])
        metadata: Obj = {"name": name, **({"labels": labels} if labels else {})}
        obj = {"apiVersion": group_version, "kind": kind, "metadata": metadata, **parts}
        before = await self.do("GET", f"{path}/{name}")
        if before is None:
            made = await self.do("POST", path, obj, by)
        else:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
            made = await self.do("PUT", f"{path}/{name}", obj, by)
        assert made is not None
        return made

    async def location(self, cluster: str, name: str, labels: dict[str, str], selector: Obj) -> Obj:
        spec = {"resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}}
        where = f"/clusters/{cluster}{SCHEDULING}/locations"
        return await self.put(where, "Location", name, labels, spec=spec | {"instanceSelector": selector})

    async def target(self, cluster: str, name: str, labels: dict[str, str], **spec: Any) -> Obj:
        return await self.put(f"/clusters/{cluster}{WORKLOAD}/synctargets", "SyncTarget", name, labels, spec=spec)

    async def placement(self, cluster: str, name: str, *selectors: Obj, **spec: Any) -> Obj:
        where = f"/clusters/{cluster}{EDGE}/edgeplacements"
        return await self.put(where, "EdgePlacement", name, spec={"locationSelectors": list(selectors), **spec})

    async def may_place(self, cluster: str, user: str, *names: str, allowed: bool = True) -> None:
        """What a user may use of an inventory: all Locations, or these, or none."""
        at, group = f"/clusters/{cluster}/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
        rule = {"apiGroups": ["scheduling.kcp.io"], "resources": ["locations"], "verbs": ["place"]}
        named = {"resourceNames": list(names)} if names else {}
        enter = {"nonResourceURLs": ["/"], "verbs": ["access"]}
        rules = [enter, {**rule, **named}] if allowed else [enter]
        await self.put(f"{at}/clusterroles", "ClusterRole", f"place-{user}", rules=rules)
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": f"place-{user}"}
        subjects = [{"apiGroup": group, "kind": "User", "name": user}]
        await self.put(
            f"{at}/clusterrolebindings", "ClusterRoleBinding", f"place-{user}", roleRef=reference, subjects=subjects
        )

    async def items(self, path: str) -> list[Obj]:
        found = await self.do("GET", path)
        assert found is not None, path
        items: list[Obj] = found["items"]
        return items

    async def eventually(self, condition: Callable[[], Any], what: str = "the condition") -> None:
        """`condition` may be a coroutine function."""
        assert await poll(condition), f"{what} did not come true\n{self.refusals}\n{self.log.getvalue()[-5000:]}"


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    """With `root:espw`, and running controllers."""
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        one = Fleet(hub, FaultyTransport(hub.function, OPERATOR), FaultyTransport(hub.function, MASTER))
        try:
            yield one
        finally:
            await one.crash()
        assert one.refusals == [], "a controller lacks a permission"
