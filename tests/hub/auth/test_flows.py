"""Whose flow a request belongs to, and a flood that delays no other tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
from platform_harness import ALICE, BOB, MAPS, MASTER, OPERATOR, PlatformHub

from farflung.http.messages import Flow, Request, Response, Stream
from farflung.hub.auth.flows import HEARTBEATS, LEADER_ELECTION, PROBES, STRANGERS, SYSTEM, WORKLOADS
from farflung.hub.request.user import AUTHENTICATED, User

COMPONENT = "component"


def request(token: str | None, path: str = "/version", peer: str = "192.0.2.1:40000") -> Request:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return Request("GET", path, headers=headers, peer=peer)


@pytest.fixture
async def hub() -> AsyncIterator[PlatformHub]:
    hub = PlatformHub(users={COMPONENT: User("system:kube-scheduler", (AUTHENTICATED,))})
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        pass  # the default roles
    for token in (ALICE, BOB, MASTER, OPERATOR, COMPONENT):
        await hub.of(token, "GET", "/version")  # verified from now on
    yield hub


def flow_of(hub: PlatformHub, one: Request) -> Flow | None:
    return hub.assembly.flow_control.flow_of(one)


async def test_users_have_flows_by_workspace_and_administrators_never_wait(hub: PlatformHub) -> None:
    assert flow_of(hub, request(ALICE, "/clusters/root:a/api")) == Flow(WORKLOADS, "alice", "alice", "root:a")
    assert flow_of(hub, request(BOB)) == Flow(WORKLOADS, "bob", "bob")
    assert flow_of(hub, request(MASTER)) is None
    assert flow_of(hub, request(COMPONENT)) == Flow(SYSTEM, "system:kube-scheduler", "system:kube-scheduler")


async def test_leases_heartbeats_and_health_checks_have_levels_of_their_own(hub: PlatformHub) -> None:
    lease = "/clusters/root/apis/coordination.k8s.io/v1/namespaces/x/leases/y"
    report = "/clusters/x/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one/status"
    levels = [flow_of(hub, one) for one in (request(ALICE, lease), request(ALICE, report), request(None, "/readyz"))]
    assert [flow.level for flow in levels if flow is not None] == [LEADER_ELECTION, HEARTBEATS, PROBES]


async def test_service_accounts_of_all_workspaces_of_an_organization_are_one_tenant(hub: PlatformHub) -> None:
    organization = await hub.workspace("acme", ALICE)
    team = await hub.workspace("team", parent=organization)
    found = []
    for cluster in (organization, team):
        await hub.of(OPERATOR, "POST", f"/clusters/{cluster}/api/v1/namespaces", {"metadata": {"name": "default"}})
        token = await hub.robot(cluster)
        await hub.of(token, "GET", f"/clusters/{cluster}/version")
        found.append(flow_of(hub, request(token)))
    user = "system:serviceaccount:default:robot"
    assert found == [Flow(WORKLOADS, "root:acme", user)] * 2


async def test_unknown_users_and_unverified_credentials_have_flows_by_address(hub: PlatformHub) -> None:
    assert flow_of(hub, request(None)) == Flow(STRANGERS, "192.0.2.1", "")
    assert flow_of(hub, request("forged", peer="[2001:db8::1]:443")) == Flow(STRANGERS, "[2001:db8::1]", "")


async def test_a_flood_of_one_user_delays_no_other_user_and_is_refused_beyond_its_limit(hub: PlatformHub) -> None:
    """The attack: one user sends more requests at once than the hub answers in a turn of its event loop."""
    shop, other = await hub.workspace("shop", ALICE), await hub.workspace("other", BOB)
    codes: dict[str, list[int]] = {ALICE: [], BOB: []}
    answered: list[str] = []

    async def send(token: str, cluster: str) -> None:
        one = request(token, f"/clusters/{cluster}{MAPS}")
        answer: object = hub.assembly.flow_control(one)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert isinstance(answer, Response)
        codes[token].append(answer.status)
        if answer.status == 200:
            answered.append(token)

    async with asyncio.TaskGroup() as group:
        for _ in range(3_000):
            group.create_task(send(ALICE, shop))
        group.create_task(send(BOB, other))
    waited = len(answered) - answered.index(BOB)
    assert codes[BOB] == [200]
    assert codes[ALICE].count(429) >= 900  # 500 wait, and those before the loop was busy are answered at once
    assert waited > 400


async def test_the_metrics_of_flow_control_have_the_names_of_kubernetes(hub: PlatformHub) -> None:
    control = hub.assembly.flow_control
    control.rejected[WORKLOADS, "queue-full"] = 3
    control.dispatched[WORKLOADS] = 5
    page = (await hub.of(MASTER, "GET", "/metrics")).body.decode()
    assert (
        'apiserver_flowcontrol_rejected_requests_total{priority_level="workload-low",reason="queue-full"} 3.0' in page
    )
    assert 'apiserver_flowcontrol_dispatched_requests_total{priority_level="workload-low"} 5.0' in page
    assert 'apiserver_current_inflight_requests{request_kind="mutating"} 0.0' in page


async def test_a_watch_through_flow_control_counts_until_it_ends(hub: PlatformHub) -> None:
    shop = await hub.workspace("shop", ALICE)
    answer = hub.assembly.flow_control(request(ALICE, f"/clusters/{shop}/api/v1/watch/namespaces"))
    assert isinstance(answer, Awaitable)
    stream = await answer
    assert isinstance(stream, Stream)
    assert (hub.assembly.flow_control.open_streams, hub.assembly.flow_control.reading.taken) == (1, 0)
    stream.stop()
    assert hub.assembly.flow_control.open_streams == 0
