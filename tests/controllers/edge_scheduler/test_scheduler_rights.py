"""Placing is a right of the inventory: a placement leads only where its author may place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from fleet import EDGE, PROVIDER, SCHEDULING, Fleet, fleet
from hub_harness import MERGE_PATCH
from platform_harness import ALICE, APIS, BOB, MASTER, OPERATOR
from translated import NAMESPACES, PROD, binding, deployment, inside, namespace, secret, world

from farflung.apis.edge.names import AUTHOR
from farflung.client.errors import Forbidden
from farflung.client.transport import OutgoingRequest
from farflung.controllers.placing_rights.controller import REVIEW_SECONDS
from farflung.hub.tenancy.direct_writes import encode_stored
from farflung.machinery.errors import Obj

MALLORY = BOB
SECRETS, PODS = inside("shop", "secrets"), inside("shop", "pods")
DEPLOYMENTS = inside("shop", "deployments", "apps/v1")
KUBE = [{"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kube"]}]
DEV: Obj = {"matchLabels": {"env": "dev"}}
PLACEMENTS = f"{EDGE}/edgeplacements"
REASONS = {"root:wm": "WorkspaceNotTrusted", "root:wmw": "Resolved"}


class Tenants:
    """An inventory with the Locations `prod` and `dev`, and a workspace of alice and bob, who are strangers there."""

    def __init__(self, fleet: Fleet, inventory: str, workload: str) -> None:
        self.fleet = fleet
        self.inventory = inventory
        self.workload = workload

    async def place(self, by: str, name: str, *selectors: Obj, **spec: object) -> None:
        where = f"/clusters/{self.workload}{PLACEMENTS}"
        await self.fleet.put(where, "EdgePlacement", name, by=by, spec={"locationSelectors": list(selectors), **spec})

    async def get(self, name: str) -> Obj:
        found = await self.fleet.do("GET", f"/clusters/{self.workload}{PLACEMENTS}/{name}")
        assert found is not None
        return found

    async def ready(self, name: str) -> Obj:
        conditions = ((await self.get(name)).get("status") or {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "Ready"), {})

    async def locations(self, name: str) -> list[str] | None:
        """None: there is no slice yet."""
        found = await self.fleet.do("GET", f"/clusters/{self.workload}{EDGE}/singleplacementslices/{name}")
        return None if found is None else [one["locationName"] for one in found["destinations"]]

    async def leads_to(self, name: str, *locations: str, reason: str = "") -> None:
        async def leads() -> bool:
            ready = await self.ready(name)
            return await self.locations(name) == [*locations] and ready.get("reason") == (reason or "Resolved")

        await self.fleet.eventually(leads, f"{name} leads to {locations}")

    async def rest(self) -> None:
        manager = self.fleet.manager
        assert manager is not None
        await self.fleet.eventually(lambda: manager.idle, "rest")

    async def rewrite(self, name: str, change: Callable[[Obj], object]) -> None:
        """As an earlier version of the hub would have stored it."""
        stored = self.fleet.hub.stored(self.workload)
        [key] = [key for key in stored if "/edgeplacements" in key and key.endswith(f"/{name}")]
        entry = self.fleet.hub.store.get(key)
        assert entry is not None
        obj = orjson.loads(entry.value)
        change(obj)
        await self.fleet.hub.store.put(key, encode_stored(obj), expect=entry.revision)


@asynccontextmanager
async def tenants(*, start: bool = True) -> AsyncIterator[Tenants]:
    async with fleet() as one:
        inventory, workload = await one.hub.workspace("imw"), await one.hub.workspace("wmw", ALICE)
        await one.hub.bind(workload, "edge", PROVIDER, "edge.kcp.io")
        rules = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}
        await one.hub.grant(workload, "bob", BOB, *rules)
        await one.target(inventory, "florin", {})
        for name in ("prod", "dev"):
            await one.location(inventory, name, {"env": name}, {})
        path = f"/clusters/{inventory}{SCHEDULING}/locations/default"
        await one.eventually(lambda: one.do("GET", path), "the default Location")
        await one.do("DELETE", path)
        if start:
            await one.start()
        yield Tenants(one, inventory, workload)


@pytest.fixture
async def one() -> AsyncIterator[Tenants]:
    async with tenants() as found:
        yield found


async def test_an_author_without_the_right_gets_no_destination_and_learns_nothing_else(one: Tenants) -> None:
    await one.place(ALICE, "p", PROD)
    await one.leads_to("p", reason="PlacingNotAllowed")
    found = await one.get("p")
    ready = await one.ready("p")
    assert (ready["status"], ready["severity"], found["status"]["matchingLocationCount"]) == ("False", "Warning", 0)
    assert ready["message"] == (
        'matching Locations are left out, because the author of the spec, "alice", may not place there; ask their '
        'owners for the verb "place" on locations.scheduling.kcp.io and for access to their workspace'
    )
    assert one.inventory not in orjson.dumps(found["status"]).decode()


async def test_a_right_is_granted_for_all_locations_or_for_some_and_withdrawn(one: Tenants) -> None:
    await one.place(ALICE, "p", {})
    await one.leads_to("p", reason="PlacingNotAllowed")
    await one.fleet.may_place(one.inventory, ALICE)
    await one.leads_to("p", "dev", "prod")
    await one.fleet.may_place(one.inventory, ALICE, "prod")
    await one.leads_to("p", "prod")
    assert (await one.ready("p"))["message"].startswith("matching Locations are left out")
    await one.fleet.location(one.inventory, "test", {"env": "test"}, {})
    await one.fleet.may_place(one.inventory, ALICE, "prod", "test")
    await one.leads_to("p", "prod", "test")
    await one.fleet.may_place(one.inventory, ALICE, allowed=False)
    await one.leads_to("p", reason="PlacingNotAllowed")


async def test_an_invalid_spec_keeps_no_destination_after_the_right_is_lost(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", {})
    await one.leads_to("p", "dev", "prod")
    await one.rewrite("p", lambda obj: obj["spec"].update(where="1"))
    await one.leads_to("p", "dev", "prod", reason="InvalidSpec")
    await one.fleet.may_place(one.inventory, ALICE, "prod")
    await one.leads_to("p", "prod", reason="InvalidSpec")
    await one.fleet.crash()
    await one.fleet.may_place(one.inventory, ALICE, allowed=False)
    await one.fleet.start()
    await one.leads_to("p", reason="InvalidSpec")


async def test_the_right_needs_access_to_the_workspace_and_the_groups_that_it_requires(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", PROD)
    await one.leads_to("p", "prod")
    path = f"/clusters/{one.inventory}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    required = {"metadata": {"annotations": {"authorization.kcp.io/required-groups": "staff"}}}
    assert await one.fleet.do("PATCH", path, required, content_type=MERGE_PATCH)
    await one.leads_to("p", reason="PlacingNotAllowed")


async def test_a_user_who_changes_the_spec_needs_the_right(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", PROD)
    await one.leads_to("p", "prod")
    await one.place(BOB, "p", PROD, DEV)
    await one.leads_to("p", reason="PlacingNotAllowed")
    await one.place(ALICE, "p", PROD, DEV)
    await one.rest()
    assert await one.locations("p") == [], "nothing changed, so bob is still the author"
    await one.place(ALICE, "p", DEV, PROD)
    await one.leads_to("p", "dev", "prod")


async def test_administrators_of_both_workspaces_need_nothing_more(one: Tenants) -> None:
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BOB}
    at = f"/clusters/{one.inventory}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await one.fleet.put(at, "ClusterRoleBinding", "bob", roleRef=group, subjects=[subject])
    for user in (OPERATOR, BOB):
        await one.place(user, user, PROD)
        await one.leads_to(user, "prod")


async def test_a_service_account_of_another_workspace_has_the_rights_of_its_name_there(one: Tenants) -> None:
    robot = await one.fleet.hub.robot(one.workload)
    await one.fleet.may_place(one.inventory, "system:serviceaccount:default:robot")
    await one.place(robot, "p", PROD)
    await one.leads_to("p", reason="PlacingNotAllowed")
    at = f"/clusters/{one.inventory}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    name = f"system:kcp:serviceaccount:{one.workload}:default:robot"
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    await one.fleet.put(at, "ClusterRoleBinding", "robot", roleRef=reference, subjects=[subject])
    await one.leads_to("p", "prod")


async def test_a_change_of_roles_writes_only_the_placements_that_it_concerns(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, BOB)
    for number in range(5):
        await one.place(ALICE, f"a{number}", PROD)
        await one.place(BOB, f"b{number}", PROD)
    for number in range(5):
        await one.leads_to(f"a{number}", reason="PlacingNotAllowed")
        await one.leads_to(f"b{number}", "prod")
    await one.rest()
    one.fleet.transport.requests.clear()
    one.fleet.masters.requests.clear()
    await one.fleet.may_place(one.inventory, ALICE, "dev")
    await one.fleet.may_place(one.inventory, BOB, "prod", "dev")
    await one.rest()
    await one.fleet.may_place(one.inventory, ALICE, "prod")
    for number in range(5):
        await one.leads_to(f"a{number}", "prod")
    await one.rest()
    written = [request.target.partition("?")[0].rpartition("/")[0] for request in one.fleet.transport.writes]
    assert len(written) == 10 and {request.target.count("/a") > 0 for request in one.fleet.transport.writes} == {True}
    reviews = [one for one in one.fleet.masters.requests if "subjectaccessreviews" in one.target]
    assert len(reviews) <= 20, "one or two per author and change, however many placements there are"


async def test_an_existing_placement_without_an_author_keeps_its_destinations_until_a_user_claims_it() -> None:
    async with tenants(start=False) as one:
        await one.place(OPERATOR, "p", {})
        await one.fleet.start()
        await one.leads_to("p", "dev", "prod")
        await one.fleet.crash()
        await one.rewrite("p", lambda obj: obj["metadata"]["annotations"].pop(AUTHOR))
        await one.fleet.start()
        await one.leads_to("p", "dev", "prod", reason="AuthorUnknown")
        await one.fleet.location(one.inventory, "test", {"env": "test"}, {})
        await one.fleet.do("DELETE", f"/clusters/{one.inventory}{SCHEDULING}/locations/dev")
        await one.leads_to("p", "prod", reason="AuthorUnknown")
        ready = await one.ready("p")
        assert (ready["status"], ready["severity"]) == ("False", "Warning")
        assert ready["message"] == (
            "its author is not recorded, so it keeps its destinations and gets no new ones; a user who may place on "
            "its Locations has to change its spec, or to run: kubectl annotate edgeplacement p edge.kcp.io/author=me"
        )
        path = f"/clusters/{one.workload}{PLACEMENTS}/p"
        claim = {"metadata": {"annotations": {AUTHOR: "me"}}}
        await one.fleet.may_place(one.inventory, ALICE)
        assert await one.fleet.do("PATCH", path, claim, ALICE, content_type=MERGE_PATCH)
        await one.leads_to("p", "prod", "test")
        assert await one.fleet.do("PATCH", path, claim, BOB, content_type=MERGE_PATCH)
        await one.rest()
        assert '"user":"alice"' in (await one.get("p"))["metadata"]["annotations"][AUTHOR]


async def test_while_reviews_are_refused_nothing_is_withdrawn_and_nothing_new_is_placed(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", {})
    await one.leads_to("p", "dev", "prod")

    async def refuse(request: OutgoingRequest) -> None:
        if "subjectaccessreviews" in request.target:
            raise Forbidden(403, "Forbidden", "no reviews today")

    one.fleet.masters.gate = refuse
    await one.fleet.may_place(one.inventory, ALICE, "prod")
    await one.fleet.location(one.inventory, "test", {"env": "test"}, {})
    await one.leads_to("p", "dev", "prod", reason="AccessReviewFailed")
    assert "report the scheduler's log line" in (await one.ready("p"))["message"]
    await one.fleet.crash()
    await one.fleet.start()
    await one.rest()
    assert await one.locations("p") == ["dev", "prod"]
    one.fleet.masters.gate = None
    await one.leads_to("p", "prod")


async def test_while_the_hub_cannot_be_asked_nothing_is_written(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", PROD)
    await one.leads_to("p", "prod")
    one.fleet.masters.go_down()
    await one.fleet.may_place(one.inventory, ALICE, allowed=False)
    await one.place(MASTER, "q", PROD)
    await one.fleet.eventually(lambda: knows(one, "q"), "the placement")
    await one.rest()
    assert (await one.locations("p"), await one.ready("q")) == (["prod"], {})
    one.fleet.masters.up = True
    await one.leads_to("p", reason="PlacingNotAllowed")
    await one.leads_to("q", "prod")


def knows(one: Tenants, name: str) -> bool:
    assert one.fleet.manager is not None
    found = next(each for each in one.fleet.manager.informers if each.collection.plural == "edgeplacements")
    return name in [key.name for key in found.cache]


async def test_rights_that_no_placement_needs_are_forgotten_and_reviewed_again_later(one: Tenants) -> None:
    await one.fleet.may_place(one.inventory, ALICE)
    await one.place(ALICE, "p", PROD)
    await one.leads_to("p", "prod")
    await one.fleet.do("DELETE", f"/clusters/{one.inventory}{SCHEDULING}/locations/prod")
    await one.fleet.do("DELETE", f"/clusters/{one.inventory}{SCHEDULING}/locations/dev")
    await one.leads_to("p", reason="NoDestinations")
    await asyncio.sleep(REVIEW_SECONDS)
    rights = one.fleet.rights
    assert rights is not None and not len(rights.queue)
    await one.fleet.may_place(one.inventory, ALICE, allowed=False)
    await one.rest()
    await one.fleet.location(one.inventory, "prod", {"env": "prod"}, {})
    await one.leads_to("p", reason="PlacingNotAllowed")


async def test_without_authors_the_placements_of_trusted_workspaces_lead_everywhere() -> None:
    async with tenants(start=False) as one:
        one.fleet.trusted = ("root",)
        await one.place(ALICE, "p", PROD)
        await one.fleet.start()
        await one.leads_to("p", "prod")
        await one.rewrite("p", lambda obj: obj["metadata"]["annotations"].pop(AUTHOR))
        await one.place(BOB, "q", DEV)
        await one.leads_to("q", "dev")
        for trusted in (("root:other", "root:wm"), ("root:other", "root:wmw")):
            await one.fleet.crash()
            one.fleet.trusted = trusted
            await one.fleet.start()
            await one.leads_to("p", *(["prod"] if "root:wmw" in trusted else []), reason=REASONS[trusted[1]])
        await one.fleet.crash()
        path = f"/clusters/{one.workload}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
        forged = {"metadata": {"annotations": {"kcp.io/path": "root:imw"}}}
        assert await one.fleet.do("PATCH", path, forged, content_type=MERGE_PATCH), "other servers let tenants do this"
        one.fleet.trusted = ("root:imw",)
        await one.fleet.start()
        await one.leads_to("p", reason="WorkspaceNotTrusted")


# --- the attack -----------------------------------------------------------------------------------


async def test_a_tenant_brings_no_namesakes_to_the_clusters_of_an_owner_and_reads_no_secret_there() -> None:
    """Alice owns the cluster, and runs a web server with a Secret there.  Mallory, whose workspace has the same parent,
    places a namespace and a Deployment of these names, and a Pod that reads the Secret."""
    async with world("florin") as one:
        victim, attacker = one.workloads
        for cluster, user in ((victim, ALICE), (one.inventory, ALICE), (attacker, MALLORY)):
            at = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
            await one.must_put(cluster, at, {**rolebinding(user), "kind": "ClusterRoleBinding"})
        await one.must_put(attacker, f"{APIS}/apibindings", binding("kube"))
        selecting = {"namespaceSelector": PROD, "nonNamespacedObjects": KUBE}
        for cluster, image, user in ((victim, "httpd:2.4", ALICE), (attacker, "evil:1", MALLORY)):
            await one.must_put(cluster, NAMESPACES, namespace("shop", env="prod"))
            await one.must_put(cluster, DEPLOYMENTS, deployment("web", image))
            if user == ALICE:
                await one.must_put(cluster, SECRETS, secret("password", {"value": "hers"}))
            else:
                await one.must_put(cluster, PODS, reader("password"))
            where = f"/clusters/{cluster}{PLACEMENTS}"
            spec = {"locationSelectors": [{}], **selecting}
            await one.fleet.put(where, "EdgePlacement", user, by=user, spec=spec)
            if user == ALICE:
                await one.fleet.eventually(lambda: one.has(["florin"], f"{DEPLOYMENTS}/web"), "her Deployment")
                await one.fleet.eventually(lambda: one.has(["florin"], f"{SECRETS}/password"), "her Secret")

        async def refused() -> bool:
            found = await one.get(attacker, f"{PLACEMENTS}/{MALLORY}")
            conditions = ((found or {}).get("status") or {}).get("conditions") or []
            return [each["reason"] for each in conditions if each["type"] == "Ready"] == ["PlacingNotAllowed"]

        await one.fleet.eventually(refused)
        await one.at_rest()
        copy = await one.copy("florin", f"{DEPLOYMENTS}/web")
        assert copy is not None
        assert [each["image"] for each in copy["spec"]["template"]["spec"]["containers"]] == ["httpd:2.4"]
        assert await one.copy("florin", f"{PODS}/reader") is None
        await one.restart()
        await one.at_rest()
        assert await one.copy("florin", f"{PODS}/reader") is None


def rolebinding(user: str) -> Obj:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "metadata": {"name": f"admin-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def reader(name: str) -> Obj:
    """A Pod with the content of a Secret."""
    value = {"secretKeyRef": {"name": name, "key": "value"}}
    container = {"name": "main", "image": "evil:1", "env": [{"name": "STOLEN", "valueFrom": value}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": {"containers": [container]}}
