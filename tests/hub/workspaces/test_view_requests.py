"""Views of exports, as requests see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from apis_harness import widget_schema
from hub_harness import Answer
from workspaces_harness import LocalWorkspaces

from farflung.machinery.errors import Obj

APIS = "/apis/apis.kcp.io/v1alpha1"
WIDGETS = "/apis/ex.test/v1/widgets"
BINDINGS = f"{APIS}/apibindings"
MAPS = "/api/v1/namespaces/default/configmaps"
CLAIM = {"resource": "configmaps", "all": True}
ACCEPTED = {**CLAIM, "state": "Accepted"}


def api(kind: str, name: str, **spec: Any) -> Obj:
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def widget(name: str) -> Obj:
    return {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}}


@dataclass(frozen=True)
class Provided:
    """Widgets, exported by one workspace and bound by another; a third one has nothing to do with it."""

    hub: LocalWorkspaces
    provider: str
    consumer: str
    other: str

    def view(self, path: str, cluster: str = "*") -> str:
        return f"/services/apiexport/{self.provider}/ex.test/clusters/{cluster}{path}"

    async def get(self, path: str, cluster: str = "*") -> Answer:
        return await self.hub.get(self.view(path, cluster))


@pytest.fixture
async def world() -> Provided:
    hub = await LocalWorkspaces.started()
    names = ("prov", "cons", "other")
    clusters = [(await hub.workspace("root", name, type={"name": "universal"}))["spec"]["cluster"] for name in names]
    home = f"/clusters/{clusters[0]}{APIS}"
    schema = {**widget_schema(), "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema"}
    await hub.create(f"{home}/apiresourceschemas", schema)
    wanted = {"latestResourceSchemas": ["v1.widgets.ex.test"], "permissionClaims": [CLAIM]}
    await hub.create(f"{home}/apiexports", api("APIExport", "ex.test", **wanted))
    await hub.create(f"/clusters/{clusters[1]}{BINDINGS}", binding())
    return Provided(hub, *clusters)


def binding(**spec: Any) -> Obj:
    return api("APIBinding", "w", reference={"export": {"path": "root:prov", "name": "ex.test"}}, **spec)


def is_no_resource(answer: Answer) -> bool:
    causes = [{"reason": "UnexpectedServerResponse", "message": "404 page not found"}]
    what = "the server could not find the requested resource"
    return (answer.status, answer.message, answer.json["details"]) == (404, what, {"causes": causes})


# --- what is there --------------------------------------------------------------------------------


async def test_objects_have_no_name_in_all_workspaces_at_once(world: Provided) -> None:
    await world.hub.create(f"/clusters/{world.consumer}{WIDGETS}", widget("a"))
    assert [one["metadata"]["name"] for one in (await world.get(WIDGETS)).json["items"]] == ["a"]
    for method, path in (
        ("GET", f"{WIDGETS}/a"),
        ("POST", WIDGETS),
        ("PUT", f"{WIDGETS}/a"),
        ("PATCH", f"{WIDGETS}/a"),
        ("DELETE", f"{WIDGETS}/a"),
        ("DELETE", WIDGETS),
        ("GET", f"{WIDGETS}/a/status"),
    ):
        assert is_no_resource(await world.hub.request(method, world.view(path), widget("a"))), f"{method} {path}"


@pytest.mark.parametrize("cluster", ["other", "prov", "nosuch", "root"])
async def test_a_workspace_that_has_not_bound_the_export_does_not_have_its_resources(
    world: Provided, cluster: str
) -> None:
    cluster = {"other": world.other, "prov": world.provider}.get(cluster, cluster)
    assert is_no_resource(await world.get(WIDGETS, cluster))
    assert is_no_resource(await world.hub.post(world.view(WIDGETS, cluster), widget("a")))


async def test_what_an_export_neither_has_nor_claims_is_no_page(world: Provided) -> None:
    for path in ("/api/v1/secrets", "/api/v1/namespaces/default", "/apis/apps/v1/deployments", f"{APIS}/apiexports"):
        answer = await world.get(path, world.consumer)
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), path


async def test_the_group_without_a_name_is_there_before_anything_of_it_is_claimed(world: Provided) -> None:
    home = f"/clusters/{world.provider}{APIS}/apiexports/ex.test"
    found = [one["name"] for one in (await world.get("/api/v1")).json["resources"]]
    assert found == ["configmaps"]
    await world.hub.patch(home, {"spec": {"permissionClaims": []}})
    assert (await world.get("/api")).json["versions"] == ["v1"]
    answer = await world.get("/api/v1")
    assert answer.json == {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
    assert (await world.get("/api/v2")).status == 404
