"""Composes a hub, for the commands and for tests.

    store ─► kinds, access, workspaces ─► Hub, which answers requests ─► ControllerManager, which sends it requests

The caller owns files, sockets and signals (`cli/hub.py`).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from farflung.apis.builtin.kinds import BUILTIN
from farflung.apis.edge.names import STALE_AFTER
from farflung.http.certificates import CertificateHolder
from farflung.http.flow_control import FlowControl, FlowLimits
from farflung.hub.admission.placement_specs import PlacementSpecs, SpecProblem
from farflung.hub.admission.plugins import Plugins
from farflung.hub.admission.pod_admission import MachineAdmission
from farflung.hub.admission.policies.registry import Policies
from farflung.hub.admission.quota_tracker import Quotas
from farflung.hub.admission.service_pools import ClusterPools
from farflung.hub.app import Hub
from farflung.hub.auth.authenticator import Authenticator
from farflung.hub.auth.authorizer import Authorizer
from farflung.hub.auth.credential_uses import CredentialUses
from farflung.hub.auth.flows import JOB_SHARES, SHARES, Flows
from farflung.hub.auth.service_account_tokens import ServiceAccountTokens
from farflung.hub.auth.signing_keys import SigningKeys
from farflung.hub.auth.static_tokens import StaticTokens, token_hash
from farflung.hub.catalog.machine_pods import MACHINES, machine_resources
from farflung.hub.catalog.served import ClusterKinds, kinds_in
from farflung.hub.controllers.events import DEFAULT_TTL_SECONDS
from farflung.hub.controllers.manager import ControllerManager, ManagerDependencies, ManagerOptions
from farflung.hub.controllers.namespaces import DEFAULT_PACE, Pace
from farflung.hub.endpoints import logs, pods, token_request
from farflung.hub.endpoints.logs import Nodes
from farflung.hub.endpoints.reviews import Reviews
from farflung.hub.metrics import flow_metrics
from farflung.hub.registry.call import CallDependencies, Handler, StorageLimits
from farflung.hub.registry.pipeline import STEPS, Pipeline
from farflung.hub.registry.watch import Watches
from farflung.hub.request.audit import Audit
from farflung.hub.request.user import ADMINISTRATORS, User
from farflung.hub.routing.dispatcher import Dispatcher, Endpoints
from farflung.lib import ids
from farflung.lib.worker_pool import WorkerPool
from farflung.store.base import Store

if TYPE_CHECKING:  # a hub without workspaces does not load these modules
    from farflung.hub.tenancy.platform import WorkspaceServices

CONTROLLER_MANAGER: Final = User(
    "system:kube-controller-manager", (ADMINISTRATORS,)
)  #: its token never leaves the process


@cache
def builtin_kinds() -> ClusterKinds:
    """The kinds of a hub without workspaces.  All hubs of a process share them, so each is compiled once."""
    return ClusterKinds(BUILTIN)


@cache
def machine_kinds() -> ClusterKinds:
    """The same, and Pods may be virtual machines."""
    return ClusterKinds(machine_resources(), extended=MACHINES)


def utc_now() -> datetime:
    return datetime.now(UTC)


def watch_seconds(timeout: int) -> float:
    """How long a watch stays open; `timeout`: the requested seconds, or 0.  Random, so that many clients do not
    reconnect at once."""
    return min(timeout, random.uniform(3600, 3960)) if timeout else random.uniform(1800, 3600)  # noqa: S311


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a hub."""

    url: str | None = None  #: with workspaces: the URL of the hub for its clients; None: one cluster without workspaces
    bare: bool = False  #: with workspaces: create only what no client could create
    event_seconds: float = DEFAULT_TTL_SECONDS  #: how long Events are kept
    pace: Pace = DEFAULT_PACE  #: of deleting namespaces
    stale_after: float = STALE_AFTER  #: seconds without a heartbeat, after which a SyncTarget is not ready
    token_seconds: int = 90 * 86400  #: longest lifetime of the tokens of ServiceAccounts
    flows: FlowLimits = field(default_factory=FlowLimits)
    storage: StorageLimits = field(default_factory=StorageLimits)
    home_workspaces: int = 100  #: below one home workspace


@dataclass(frozen=True, slots=True)
class TimeAndRandomness:
    """Time and random values."""

    clock: Callable[[], datetime] = utc_now
    new_uid: Callable[[], str] = field(default_factory=ids.Uids)
    random_suffix: Callable[[], str] = ids.random_suffix  #: five characters, for generateName
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    watch_seconds: Callable[[int], float] = watch_seconds


@dataclass(frozen=True, slots=True)
class HubDependencies:
    """The parts of a hub that its caller opens and closes."""

    store: Store
    keys: SigningKeys  #: of ServiceAccount tokens
    certificates: CertificateHolder
    tokens: Mapping[str, User] = field(default_factory=dict)  #: users by the hashes of their tokens
    tokens_file: Path | None = None  #: further tokens
    audit: Audit | None = None  #: None: audit lines go to the log
    nodes: Nodes | None = None  #: what runs pods; None: pods never run
    uses: CredentialUses = field(default_factory=CredentialUses)  #: of old keys and authorities
    placement_problem: SpecProblem | None = None  #: None: every EdgePlacement that fits its schema is valid


class Assembly:
    """A hub on a store, and the parts that callers need."""

    def __init__(self, dependencies: HubDependencies, options: Options, environment: TimeAndRandomness) -> None:
        """Raises Unusable for a damaged file of tokens."""
        store, certificates = dependencies.store, dependencies.certificates
        own_token = ids.new_token()
        clock, new_uid = environment.clock, environment.new_uid
        self._store, self._certificates, self._options, self._clock = store, certificates, options, clock
        self._authorization = f"Bearer {own_token}"
        self.workspaces: WorkspaceServices | None = None
        if options.url is None:
            served = machine_kinds() if dependencies.nodes is None else builtin_kinds()
            self.kinds, self.authorizer = kinds_in(store, served), Authorizer(store)
        else:
            from farflung.hub.tenancy.direct_writes import CreationContext
            from farflung.hub.tenancy.platform import assemble_workspaces, workspace_kinds
            from farflung.hub.tenancy.workspace_authorizer import WorkspaceAuthorizer

            self.kinds, authorizer = kinds_in(store, workspace_kinds()), WorkspaceAuthorizer(store)
            self.authorizer = authorizer
            context = CreationContext(
                options.url,
                clock,
                new_uid,
                environment.random_bytes,
                lambda: certificates.bundle,
                options.home_workspaces,
            )
            self.workspaces = assemble_workspaces(store, self.kinds, authorizer, context)
        self.accounts = ServiceAccountTokens(
            store, dependencies.keys, clock, new_uid, show_cluster=self.workspaces is not None
        )
        self.quotas, self.policies = Quotas(store), Policies(store, self.kinds)
        #: a computation in `workers` may wait for one of these, so they are not the same
        self.evaluators = WorkerPool(weights=JOB_SHARES)
        admission = Plugins(self.authorizer, ClusterPools(store), self.quotas, self.policies, self.evaluators)
        more_steps = MachineAdmission(self.authorizer).steps if self.workspaces is None else self.workspaces.steps
        if dependencies.placement_problem is not None:
            more_steps += PlacementSpecs(dependencies.placement_problem, self.evaluators).steps
        self.pipeline = Pipeline((*STEPS, *admission.steps, *more_steps))
        self.workers = WorkerPool(weights=JOB_SHARES)
        known = StaticTokens(
            {**dependencies.tokens, token_hash(own_token): CONTROLLER_MANAGER}, dependencies.tokens_file
        )
        self.authenticator = Authenticator(known, self.accounts, certificates, dependencies.uses, clock)
        flow_of = Flows(
            self.authenticator, str if self.workspaces is None else self.workspaces.tenancy.clusters.path_of
        )
        tools = CallDependencies(
            store,
            self.kinds,
            clock,
            new_uid,
            environment.random_suffix,
            self.authorizer,
            self.pipeline,
            self.workers,
            flow_of,
            options.storage,
        )
        self.watches = Watches(store, lasting=environment.watch_seconds)
        self.kinds.subscribe(self.watches.end)
        create_token = partial(token_request.create_token, self.accounts, options.token_seconds)
        own_endpoints = endpoints(self.authenticator, self.authorizer, create_token, dependencies.nodes)
        if self.workspaces is None:
            dispatcher, routes = Dispatcher(self.watches, own_endpoints), None
        else:
            self.workspaces.views.subscribe(self.watches.expire)
            tools = replace(tools, annotates=True, views=self.workspaces.views)
            home_workspace = self.workspaces.writes.home_workspace
            dispatcher, routes = Dispatcher(self.watches, own_endpoints, home_workspace), self.workspaces.routes
        self.hub = Hub(self.kinds, tools, self.authenticator, dispatcher, dependencies.audit, routes)
        self.flow_control = FlowControl(self.hub, flow_of, options.flows, SHARES)
        metrics = self.hub.metrics
        metrics.sources.append(partial(flow_metrics, self.flow_control))
        metrics.gauge("farflung_watches", "Open watch streams.", lambda: self.watches.count)
        metrics.gauge("farflung_workspace_objects_max", "Objects of the largest workspace.", lambda: store.most().keys)
        metrics.gauge(
            "farflung_workspace_bytes_max", "Bytes of the objects of the largest workspace.", lambda: store.most().size
        )
        metrics.gauge(
            "farflung_jobs_waiting",
            "Computations that wait for a worker.",
            lambda: self.workers.waiting + self.evaluators.waiting,
        )
        metrics.gauge(
            "farflung_jobs_running",
            "Computations in worker processes.",
            lambda: self.workers.running + self.evaluators.running,
        )

    @cached_property
    def controllers(self) -> ControllerManager:
        options = ManagerOptions(pace=self._options.pace, event_seconds=self._options.event_seconds)
        if self.workspaces is not None:
            from farflung.hub.controllers.workspaces import with_workspaces

            more = self._options.stale_after, self._options.storage
            options = with_workspaces(options, self._store, self._clock, self.workspaces, *more)
        dependencies = ManagerDependencies(
            self._store,
            self.kinds,
            self.hub,
            self._authorization,
            self._certificates,
            self.accounts,
            self.quotas,
            self._clock,
        )
        return ControllerManager(dependencies, options)

    async def start(self) -> None:
        """Create the objects that every hub has, and start the controllers."""
        if self.workspaces is not None:
            await self.workspaces.bootstrap.start(bare=self._options.bare)
        await self.controllers.start()

    async def stop(self) -> None:
        await self.controllers.stop()
        self.workers.close()
        self.evaluators.close()


def endpoints(
    authenticator: Authenticator, authorizer: Authorizer, create_token: Handler, nodes: Nodes | None
) -> Endpoints:
    """`nodes`: run pods and have their logs; None: pods never run."""
    subresources: dict[tuple[str, str], Handler] = {
        ("token", "create"): create_token,
        ("binding", "create"): pods.bind,
        ("eviction", "create"): pods.evict,
    }
    if nodes is not None:
        subresources["log", "get"] = partial(logs.get_log, nodes)
    kinds = {**Reviews(authenticator, authorizer).handlers, "Binding": pods.bind_named}
    return Endpoints(kinds, subresources, has_nodes=nodes is not None)
