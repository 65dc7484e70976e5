"""Attacks of tenants on the EdgePlacements that lead their machines to where they are bound.

Alice may do everything in her workspace.  An operator, as the scheduler would, has made an EdgePlacement there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hub_harness import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Answer
from platform_harness import ALICE, APIS, MASTER, OPERATOR, PlatformHub

from farflung.apis.globalscheduler.names import DELIVERS_TO, DELIVERY_PREFIX
from farflung.machinery.errors import Obj
from farflung.machines.delivery import new_placement
from farflung.machines.engine.values import SiteKey
from farflung.runtime.cache import Key

PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"
ELSEWHERE: Obj = {"where": "true"}
LED = new_placement(SiteKey("clouds", "default", "az1"), Key("imw", "", "edge1"))
NAME: str = LED["metadata"]["name"]


class Grounds:
    def __init__(self, hub: PlatformHub, home: str) -> None:
        self.hub = hub
        self.home = home
        self.path = f"/clusters/{home}{PLACEMENTS}"

    async def of(self, user: str, method: str, name: str = "", body: Any = None, **rest: Any) -> Answer:
        return await self.hub.of(user, method, f"{self.path}/{name}".rstrip("/"), body, **rest)

    async def every_way(self, user: str, name: str, **changed: Any) -> list[Answer]:
        """Another spec or other annotations, by all kinds of requests."""
        present = (await self.of(MASTER, "GET", name)).json
        wanted = {
            **present,
            **{controller: {**present[controller], **fields} for controller, fields in changed.items()},
        }
        replaced = [{"op": "replace", "path": f"/{controller}", "value": wanted[controller]} for controller in changed]
        bare = {"apiVersion": present["apiVersion"], "kind": present["kind"], "metadata": {"name": name}}
        applied = {
            **bare,
            **{controller: {**bare.get(controller, {}), **fields} for controller, fields in changed.items()},
        }
        force = {"fieldManager": "alice", "force": "true"}
        return [
            await self.of(user, "PATCH", name, changed, content_type=MERGE_PATCH),
            await self.of(user, "PATCH", name, changed, content_type=MERGE_PATCH, query={"dryRun": "All"}),
            await self.of(user, "PATCH", name, replaced, content_type=JSON_PATCH),
            await self.of(user, "PUT", name, wanted),
            await self.of(user, "PATCH", name, json.dumps(applied), content_type=APPLY_PATCH, query=force),
        ]


@pytest.fixture
async def grounds() -> Grounds:
    hub = PlatformHub()
    await hub.platform.bootstrap.start(bare=False)
    async with hub.running_controllers():
        pass  # the default roles
    home = await hub.workspace("alices", ALICE)
    for path, export in (("root:compute", "kubernetes"), ("root:espw", "edge.kcp.io")):
        await hub.bind(home, export, path, export)
    found = Grounds(hub, home)
    await hub.made(OPERATOR, found.path, LED)
    return found


def forbids(answer: Answer, path: str) -> bool:
    told = "that the global scheduler manages: this requires permission to create pods/binding"
    return answer.status == 403 and path in answer.message and bool(answer.message.endswith(told))


async def test_a_tenant_cannot_redirect_the_delivery_of_a_machine(grounds: Grounds) -> None:
    forged = {DELIVERS_TO: "clouds|default/az9"}
    with grounds.hub.writes_nothing():
        for answer in await grounds.every_way(ALICE, NAME, spec=ELSEWHERE):
            assert forbids(answer, "spec"), answer.body
        for answer in await grounds.every_way(ALICE, NAME, spec={"upsync": [{"apiGroup": "", "resources": ["pods"]}]}):
            assert forbids(answer, "spec"), answer.body
        for answer in await grounds.every_way(ALICE, NAME, metadata={"annotations": forged}):
            assert forbids(answer, f"metadata.annotations[{DELIVERS_TO}]"), answer.body
        for gone in ({"annotations": {DELIVERS_TO: None}}, {"annotations": None}):
            answer = await grounds.of(ALICE, "PATCH", NAME, {"metadata": gone}, content_type=MERGE_PATCH)
            assert forbids(answer, f"metadata.annotations[{DELIVERS_TO}]"), answer.body
    answers = await grounds.every_way(OPERATOR, NAME, spec=ELSEWHERE)
    assert {answer.status for answer in answers} <= {200, 409}  # some come after others


async def test_nobody_makes_one_that_looks_as_if_the_scheduler_had(grounds: Grounds) -> None:
    bare = {"apiVersion": LED["apiVersion"], "kind": LED["kind"], "spec": LED["spec"]}
    named, free = f"{DELIVERY_PREFIX}az9-0123456789abcdef", "mine"
    for metadata, path in (
        ({"name": named}, "spec"),
        ({"name": named, "annotations": {DELIVERS_TO: "clouds|default/az9"}}, "spec"),
        ({"name": free, "annotations": {DELIVERS_TO: "clouds|default/az9"}}, f"metadata.annotations[{DELIVERS_TO}]"),
        ({"generateName": DELIVERY_PREFIX}, "spec"),
    ):
        with grounds.hub.writes_nothing():
            assert forbids(await grounds.of(ALICE, "POST", "", {**bare, "metadata": metadata}), path), metadata
            if name := metadata.get("name"):
                body = json.dumps({**bare, "metadata": metadata})
                query = {"fieldManager": "alice"}
                answer = await grounds.of(ALICE, "PATCH", str(name), body, content_type=APPLY_PATCH, query=query)
                assert forbids(answer, path), metadata
    assert (await grounds.of(ALICE, "POST", "", {**bare, "metadata": {"name": free}})).status == 201
    assert (await grounds.of(ALICE, "PATCH", free, {"spec": ELSEWHERE}, content_type=MERGE_PATCH)).status == 200
    with grounds.hub.writes_nothing():
        mark = {"metadata": {"annotations": {DELIVERS_TO: "clouds|default/az1"}}}
        answer = await grounds.of(ALICE, "PATCH", free, mark, content_type=MERGE_PATCH)
        assert forbids(answer, f"metadata.annotations[{DELIVERS_TO}]")


async def test_what_is_no_claim_is_free_and_so_is_deleting_it(grounds: Grounds) -> None:
    label = {"metadata": {"labels": {"app": "shop"}, "annotations": {"note": "mine"}}}
    assert (await grounds.of(ALICE, "PATCH", NAME, label, content_type=MERGE_PATCH)).status == 200
    present = (await grounds.of(ALICE, "GET", NAME)).json
    assert (await grounds.of(ALICE, "PUT", NAME, present)).status == 200
    assert (await grounds.of(ALICE, "DELETE", NAME)).status == 200
    with grounds.hub.writes_nothing():
        assert forbids(await grounds.of(ALICE, "POST", "", {**LED, "spec": {**LED["spec"], **ELSEWHERE}}), "spec")


async def test_no_user_does_it_through_an_own_view_or_as_a_service_account(grounds: Grounds) -> None:
    hub, home = grounds.hub, grounds.home
    found = await hub.of(ALICE, "GET", f"/clusters/{home}{APIS}/apibindings/edge.kcp.io")
    identities = {one["resource"]: one["schema"]["identityHash"] for one in found.json["status"]["boundResources"]}
    claim = {"group": "edge.kcp.io", "resource": "edgeplacements", "identityHash": identities["edgeplacements"]}
    claim |= {"all": True}
    export = {"metadata": {"name": "mine"}, "spec": {"permissionClaims": [claim]}}
    await hub.made(ALICE, f"/clusters/{home}{APIS}/apiexports", export)
    accepted = [{**claim, "state": "Accepted"}]
    await hub.bind(home, "mine", "root:alices", "mine", by=ALICE, permissionClaims=accepted)
    path = f"/services/apiexport/{home}/mine/clusters/{home}{PLACEMENTS}/{NAME}"
    assert (await hub.of(ALICE, "GET", path)).status == 200
    robot = await hub.robot(home)
    with hub.writes_nothing():
        assert forbids(await hub.of(ALICE, "PATCH", path, {"spec": ELSEWHERE}, content_type=MERGE_PATCH), "spec")
        assert forbids(await grounds.of(robot, "PATCH", NAME, {"spec": ELSEWHERE}, content_type=MERGE_PATCH), "spec")
    espw = (await hub.of(OPERATOR, "GET", f"/clusters/root:espw{APIS}/apiexports/edge.kcp.io")).json
    own = f"/services/apiexport/{espw['metadata']['annotations']['kcp.io/cluster']}/edge.kcp.io/clusters/{home}"
    answer = await hub.of(MASTER, "PATCH", f"{own}{PLACEMENTS}/{NAME}", {"spec": ELSEWHERE}, content_type=MERGE_PATCH)
    assert answer.status == 200  # as the scheduler does
