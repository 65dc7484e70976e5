"""Attacks by those who own a workspace on what others export, bind and are called.

Alice and Bob each own a workspace below one that neither may enter.
"""

from __future__ import annotations

from typing import Any

import pytest
from apis_harness import widget_schema
from hub_harness import APPLY_PATCH, MERGE_PATCH, Answer
from platform_harness import ALICE, APIS, BOB, OPERATOR, TENANCY, PlatformHub, api_binding, platform_hub

from farflung.hub.tenancy.binding_strategy import OR_MISSING
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT

WIDGETS = "/apis/ex.test/v1/widgets"
LOGICAL_CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
SECRET = "what-only-bob-may-know"


class Neighbours:
    hub: PlatformHub
    alices: str
    bobs: str
    identity: str

    async def settle(self) -> Neighbours:
        """Bob exports and binds an API that nobody else may have."""
        hub = self.hub = await platform_hub()
        await hub.workspace("org")
        self.alices = await hub.workspace("alices", ALICE, parent="root:org")
        self.bobs = await hub.workspace("bobs", BOB, parent="root:org")
        schema = widget_schema()
        schema["spec"]["versions"][0]["schema"]["description"] = SECRET
        exported = await hub.export(self.bobs, "bobs-api", schema, by=BOB)
        self.identity = exported["status"]["identityHash"]
        await hub.bind(self.bobs, "own", "root:org:bobs", "bobs-api", by=BOB)
        await hub.made(BOB, f"/clusters/{self.bobs}{WIDGETS}", {"metadata": {"name": "w"}})
        return self

    async def attempt(self, method: str, rest: str, body: Any = None, query: str = "", **headers: str) -> Answer:
        """Alice's, in her own workspace."""
        return await self.hub.of(ALICE, method, f"/clusters/{self.alices}{rest}", body, query, **headers)


@pytest.fixture
async def neighbours() -> Neighbours:
    return await Neighbours().settle()


# --- exports of others ----------------------------------------------------------------------------


@pytest.mark.parametrize("plural", ["apibindings", "apiexportendpointslices"])
async def test_the_existence_of_an_export_is_hidden_from_users_who_may_not_bind_it(
    neighbours: Neighbours, plural: str
) -> None:
    told = set()
    for path, name in (
        ("root:org:bobs", "bobs-api"),
        ("root:org:bobs", "nosuch"),
        ("root:org:nosuch", "bobs-api"),
        (neighbours.bobs, "bobs-api"),
        ("cccccccccccccccc", "bobs-api"),
        ("system:admin", "bobs-api"),
    ):
        export = {"path": path, "name": name}
        body = api_binding("x", path, name) if plural == "apibindings" else export_slice(export)
        with neighbours.hub.writes_nothing():
            answer = await neighbours.attempt("POST", f"{APIS}/{plural}", body)
        told.add((answer.status, answer.message.replace(f"{path}:{name}", "EXPORT")))
    assert len(told) == 1, told
    assert next(iter(told))[0] == 403


def export_slice(export: Obj) -> Obj:
    return {"metadata": {"name": "x"}, "spec": {"export": export}}


async def test_an_endpoint_slice_cannot_turn_to_an_export_of_others(neighbours: Neighbours) -> None:
    await neighbours.hub.export(neighbours.alices, "mine", widget_schema(), by=ALICE)
    mine = {"path": "root:org:alices", "name": "mine"}
    assert (await neighbours.attempt("POST", f"{APIS}/apiexportendpointslices", export_slice(mine))).status == 201
    turned = {"spec": {"export": {"path": "root:org:bobs", "name": "bobs-api"}}}
    answer = await neighbours.attempt("PATCH", f"{APIS}/apiexportendpointslices/x", turned, content_type=MERGE_PATCH)
    assert answer.status == 422
    assert neighbours.bobs.encode() not in answer.body


@pytest.mark.parametrize("path", ["root:org:bobs", "root:org:nosuch"])
async def test_a_type_binds_nothing_that_its_author_may_not_bind(neighbours: Neighbours, path: str) -> None:
    extend = {"with": [{"name": "universal", "path": "root"}]}
    spec = {"extend": extend, "defaultAPIBindings": [{"path": path, "export": "bobs-api"}]}
    answer = await neighbours.attempt("POST", f"{TENANCY}/workspacetypes", {"metadata": {"name": "evil"}, "spec": spec})
    assert answer.status == 403
    assert answer.message == (
        f'workspacetypes.tenancy.kcp.io "evil" is forbidden: no permission to bind to export {path}:bobs-api'
        f"{OR_MISSING}"
    )
    harmless = {"metadata": {"name": "evil"}, "spec": {"extend": extend}}
    assert (await neighbours.attempt("POST", f"{TENANCY}/workspacetypes", harmless)).status == 201
    later = await neighbours.attempt(
        "PATCH", f"{TENANCY}/workspacetypes/evil", {"spec": spec}, content_type=MERGE_PATCH
    )
    assert later.status == 403


async def test_a_type_may_bind_what_its_author_exports(neighbours: Neighbours) -> None:
    await neighbours.hub.export(neighbours.alices, "mine", widget_schema(), by=ALICE)
    extend = {"with": [{"name": "universal", "path": "root"}]}
    spec = {"extend": extend, "defaultAPIBindings": [{"path": "root:org:alices", "export": "mine"}]}
    made = await neighbours.attempt("POST", f"{TENANCY}/workspacetypes", {"metadata": {"name": "t"}, "spec": spec})
    assert made.status == 201
    workspace = {"metadata": {"name": "child"}, "spec": {"type": {"name": "t", "path": "root:org:alices"}}}
    child = (await neighbours.attempt("POST", f"{TENANCY}/workspaces", workspace)).json["spec"]["cluster"]
    assert (await neighbours.hub.of(ALICE, "GET", f"/clusters/{child}{WIDGETS}")).names == []


async def test_the_existence_of_a_type_is_hidden_from_users_who_may_not_use_it(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    await hub.made(BOB, f"/clusters/{neighbours.bobs}{TENANCY}/workspacetypes", {"metadata": {"name": "t"}, "spec": {}})
    told = set()
    for number, (path, name) in enumerate(
        (("root:org:bobs", "t"), ("root:org:bobs", "none"), ("root:org:none", "t"), (neighbours.bobs, "t"))
    ):
        workspace = {"metadata": {"name": "x"}, "spec": {"type": {"path": path, "name": name}}}
        direct = await neighbours.attempt("POST", f"{TENANCY}/workspaces", workspace)
        extended = {"metadata": {"name": f"e{number}"}, "spec": {"extend": {"with": [{"path": path, "name": name}]}}}
        assert (await neighbours.attempt("POST", f"{TENANCY}/workspacetypes", extended)).status == 201
        through = {"metadata": {"name": "x"}, "spec": {"type": {"path": "root:org:alices", "name": f"e{number}"}}}
        indirect = await neighbours.attempt("POST", f"{TENANCY}/workspaces", through)
        told.add(tuple((one.status, one.message.replace(f"{path}:{name}", "TYPE")) for one in (direct, indirect)))
    assert len(told) == 1, told


# --- identities -----------------------------------------------------------------------------------


async def test_an_identity_is_not_had_by_saying_so(neighbours: Neighbours) -> None:
    """The status of an export says under which identity objects are stored: no client writes it."""
    hub, stolen = neighbours.hub, {"identityHash": neighbours.identity}
    await hub.made(ALICE, f"/clusters/{neighbours.alices}{APIS}/apiresourceschemas", widget_schema())
    spec = {"latestResourceSchemas": ["v1.widgets.ex.test"]}
    export = {"metadata": {"name": "mine"}, "spec": spec, "status": stolen}
    assert (await neighbours.attempt("POST", f"{APIS}/apiexports", export)).status == 201
    for controller in ("", "/status"):
        at = f"{APIS}/apiexports/mine{controller}"
        await neighbours.attempt("PATCH", at, {"status": stolen}, content_type=MERGE_PATCH)
        present = (await neighbours.attempt("GET", f"{APIS}/apiexports/mine")).json
        await neighbours.attempt("PUT", at, {**present, "status": {**present["status"], **stolen}})
    found = await neighbours.attempt("GET", f"{APIS}/apiexports/mine")
    assert found.json["status"]["identityHash"] != neighbours.identity
    view = f"/services/apiexport/{neighbours.alices}/mine/clusters/*{WIDGETS}"
    assert (await hub.of(ALICE, "GET", view)).names == []


@pytest.mark.parametrize("secret", ["kcp-system/bobs-api", "../kcp-system/bobs-api"])
async def test_an_identity_is_not_had_by_naming_anothers_secret(neighbours: Neighbours, secret: str) -> None:
    namespace, _, name = secret.rpartition("/")
    for reference in (
        {"namespace": namespace, "name": name},
        {"namespace": f"../{neighbours.bobs}/kcp-system", "name": name},
        {"namespace": "kcp-system", "name": f"../../{neighbours.bobs}/kcp-system/{name}"},
    ):
        spec = {"latestResourceSchemas": [], "identity": {"secretRef": reference}}
        answer = await neighbours.attempt("POST", f"{APIS}/apiexports", {"metadata": {"name": "mine"}, "spec": spec})
        assert neighbours.identity.encode() not in answer.body
        await neighbours.attempt("DELETE", f"{APIS}/apiexports/mine")


async def test_a_binding_is_not_bound_by_saying_so(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    await hub.export(neighbours.alices, "bobs-api", widget_schema(), by=ALICE)
    resource = {
        "group": "ex.test",
        "resource": "widgets",
        "schema": {"name": "v1.widgets.ex.test", "UID": "x", "identityHash": neighbours.identity},
        "storageVersions": ["v1"],
    }
    status = {"apiExportClusterName": neighbours.bobs, "phase": "Bound", "boundResources": [resource]}
    body = {**api_binding("x", "root:org:alices", "bobs-api"), "status": status}
    answer = await neighbours.attempt("POST", f"{APIS}/apibindings", body)
    assert answer.status == 201
    for controller in ("", "/status"):
        at = f"{APIS}/apibindings/x{controller}"
        await neighbours.attempt("PATCH", at, {"status": status}, content_type=MERGE_PATCH)
    found = await neighbours.attempt("GET", f"{APIS}/apibindings/x")
    assert neighbours.bobs.encode() not in found.body
    assert neighbours.identity.encode() not in found.body
    assert (await neighbours.attempt("GET", WIDGETS)).names == []


@pytest.mark.parametrize("plural", ["widgets", "Widgets", "widgets:", "*"])
async def test_no_client_names_objects_by_their_identity(neighbours: Neighbours, plural: str) -> None:
    """Only administrators of the whole hub do."""
    asked = f"{plural}:{neighbours.identity}" if not plural.endswith(":") else f"{plural}{neighbours.identity}"
    for where in (neighbours.alices, neighbours.bobs, "*"):
        answer = await neighbours.hub.of(ALICE, "GET", f"/clusters/{where}/apis/ex.test/v1/{asked}")
        assert answer.status in (403, 404)
        assert SECRET.encode() not in answer.body


async def test_a_definition_of_the_same_name_has_objects_of_its_own(neighbours: Neighbours) -> None:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "ex.test", "names": names, "scope": "Cluster", "versions": [version]}
    made = await neighbours.attempt(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"metadata": {"name": "widgets.ex.test"}, "spec": spec},
    )
    assert made.status == 201
    assert (await neighbours.attempt("GET", WIDGETS)).names == []
    assert (await neighbours.attempt("POST", WIDGETS, {"metadata": {"name": "mine"}, **WIDGET})).status == 201
    view = f"/services/apiexport/{neighbours.bobs}/bobs-api/clusters/*{WIDGETS}"
    assert (await neighbours.hub.of(BOB, "GET", view)).names == ["w"]
    for document in ("/openapi/v2", "/openapi/v3/apis/ex.test/v1", "/apis/ex.test/v1", "/apis"):
        answer = await neighbours.attempt("GET", document)
        assert answer.status == 200
        assert SECRET.encode() not in answer.body


WIDGET = {"apiVersion": "ex.test/v1", "kind": "Widget"}


# --- what a workspace is called and who has it ----------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"owner": {"cluster": "root", "name": "bobs", "uid": "x"}}},
        {"metadata": {"annotations": {"authorization.kcp.io/required-groups": ""}}},
        {"metadata": {"annotations": {"authorization.kcp.io/required-groups": "mine"}}},
        {"metadata": {"annotations": {"kcp.io/path": "root:bob"}}},
        {"metadata": {"annotations": {"internal.tenancy.kcp.io/type": "root:home"}}},
        {"metadata": {"annotations": None}},
    ],
)
async def test_a_workspace_belongs_to_whom_it_was_made_for(neighbours: Neighbours, patch: Obj) -> None:
    answer = await neighbours.attempt("PATCH", LOGICAL_CLUSTER, patch, content_type=MERGE_PATCH)
    assert answer.status == 403
    operator = await neighbours.hub.of(
        OPERATOR,
        "PATCH",
        f"/clusters/{neighbours.alices}{LOGICAL_CLUSTER}",
        {"metadata": {"annotations": {"authorization.kcp.io/required-groups": ""}}},
        content_type=MERGE_PATCH,
    )
    assert operator.status == 200


async def test_the_groups_that_a_workspace_asks_for_stay_as_long_as_it_waits(neighbours: Neighbours) -> None:
    spec = {"type": {"name": "universal", "path": "root"}, "location": {"selector": {"matchLabels": {"x": "y"}}}}
    made = await neighbours.attempt("POST", f"{TENANCY}/workspaces", {"metadata": {"name": "waits"}, "spec": spec})
    assert "cluster" not in made.json["spec"]
    for patch in (
        {"metadata": {"annotations": {"experimental.tenancy.kcp.io/owner": '{"username":"bob"}'}}},
        {"metadata": {"annotations": {"authorization.kcp.io/required-groups": "mine"}}},
        {"spec": {"cluster": neighbours.bobs}},
        {"spec": {"URL": "https://evil"}},
    ):
        answer = await neighbours.attempt("PATCH", f"{TENANCY}/workspaces/waits", patch, content_type=MERGE_PATCH)
        assert answer.status == 403, answer.body


async def test_a_workspace_cannot_be_made_of_a_cluster_that_is_there(neighbours: Neighbours) -> None:
    for spec in (
        {"cluster": neighbours.bobs},
        {"cluster": neighbours.bobs, "URL": "https://hub"},
        {"URL": "https://x"},
    ):
        body = {"metadata": {"name": "mine"}, "spec": {"type": {"name": "universal", "path": "root"}, **spec}}
        assert (await neighbours.attempt("POST", f"{TENANCY}/workspaces", body)).status == 403
    patch = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "mine"}}
    applied = await neighbours.attempt(
        "PATCH",
        f"{TENANCY}/workspaces/mine",
        {**patch, "spec": {"cluster": neighbours.bobs}},
        query="fieldManager=x",
        content_type=APPLY_PATCH,
    )
    assert applied.status == 403


async def test_of_what_nobody_has_bound_any_more_nothing_is_kept(neighbours: Neighbours) -> None:
    hub, copies = neighbours.hub, f"/apis.kcp.io/apiresourceschemas:bound/{neighbours.identity}/"
    assert len(hub.store.list(copies).entries) == 1
    async with hub.running_controllers() as controllers:
        await hub.of(BOB, "DELETE", f"/clusters/{neighbours.bobs}{APIS}/apibindings/own")
        await controllers.finished()
        assert hub.store.list(copies).entries == []
        await hub.bind(neighbours.bobs, "again", "root:org:bobs", "bobs-api", by=BOB)
        await hub.made(BOB, f"/clusters/{neighbours.bobs}{WIDGETS}", {"metadata": {"name": "w"}})
        await controllers.finished()
        assert len(hub.store.list(copies).entries) == 1
        await hub.of(OPERATOR, "DELETE", f"/clusters/root:org{TENANCY}/workspaces/bobs")
        await controllers.finished()
    assert hub.store.list(copies).entries == []
    assert not [key for key in hub.stored() if neighbours.bobs in key or neighbours.identity in key]


async def test_a_copy_of_a_schema_without_a_binding_is_deleted_at_the_next_start(neighbours: Neighbours) -> None:
    hub = neighbours.hub
    held = hub.store.list("/apis.kcp.io/apiresourceschemas:bound/").entries
    key = f"/apis.kcp.io/apiresourceschemas:bound/{'0' * 64}/some-uid"
    await hub.store.put(key, held[0].value, expect=ABSENT)
    async with hub.running_controllers() as controllers:
        await controllers.finished()
    assert [entry.key for entry in hub.store.list("/apis.kcp.io/apiresourceschemas:bound/").entries] == [
        entry.key for entry in held
    ]
