"""What becomes of exports and bindings after they were written: by others, by crashes, by their deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apis_harness import API_BINDING, DEFINITION, EXPORT, LATER, LocalApis, condition, widget_schema

from farflung.apis.resource import Resource
from farflung.http.messages import Answer, Request, Response
from farflung.hub.catalog import objects
from farflung.hub.controllers.api_bindings import APIBindingController
from farflung.hub.controllers.loopback import LoopbackClient, collection_path
from farflung.hub.tenancy.api_exports import SECRET
from farflung.hub.tenancy.direct_writes import CONFIG_MAP, encode_new, encode_stored, minimal_resource
from farflung.machinery.errors import Obj
from farflung.store.base import ABSENT
from farflung.store.sqlite.store import SqliteStore

OWN = "/apis.kcp.io/apibindings/c-cons/w"


class Following(LocalApis):
    """With what follows exports and bindings, and the deletion of collections for a front door."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.deleted: list[str] = []
        self.freed: list[tuple[str, str]] = []
        self.controller = APIBindingController(
            self,
            self.store,
            LoopbackClient(self.front_door, "", "test"),
            lambda: datetime(2024, 5, 1, 12, 0, 7, tzinfo=UTC),
            release_names=lambda cluster, group: self.freed.append((cluster, group)),
        )

    async def front_door(self, request: Request) -> Answer:
        assert request.method == "DELETE"
        self.deleted.append(request.path)
        for definition in self.kinds.of("c-cons").definitions:
            for resource in definition.resources:
                if request.path == collection_path(resource, "c-cons"):
                    await self._delete_collection(resource)
        return Response(200, b"{}")

    async def _delete_collection(self, resource: Resource) -> None:
        for entry in self.store.list(objects.prefix(resource, "c-cons")).entries:
            obj = objects.decode(entry)
            if not obj["metadata"].get("finalizers"):
                await self.store.delete(entry.key, expect=entry.revision)
            else:
                metadata = obj["metadata"] | {"deletionTimestamp": LATER}
                await self.store.put(entry.key, encode_stored(obj | {"metadata": metadata}), expect=entry.revision)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.controller.start()
        async with asyncio.TaskGroup() as group:
            tasks = asyncio.create_task(self._work(), name="bindings")
            group.create_task(asyncio.wait([tasks]))
            yield
            self.controller.stop()
            tasks.cancel()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            self.controller.queue.start(group)

    async def quiet(self) -> None:
        async with asyncio.timeout(60):
            await self.controller.queue.finished()

    async def unbind(self, name: str = "w") -> None:
        binding = self.read(API_BINDING, "c-cons", name)
        binding["metadata"]["deletionTimestamp"] = LATER
        await self.write(API_BINDING, "c-cons", binding)

    async def widget(self, cluster: str, name: str, **metadata: Any) -> str:
        resource = self.kinds.of(cluster).of("ex.test", "v1", "widgets").resource
        obj: Obj = {"metadata": {"name": name, **metadata}, "spec": {}}
        key, value = encode_new(resource, cluster, obj, uid=self.new_uid(), now=LATER)
        await self.store.put(key, value, expect=ABSENT)
        return key


async def following(*args: Any) -> Following:
    local = Following(*args)
    await local.root()
    for name in ("prov", "cons", "other"):
        await local.cluster(name)
    await local.schema("c-prov", widget_schema())
    return local


async def exporting(*args: Any) -> Following:
    local = await following(*args)
    await local.export("c-prov", "ex.test", "v1.widgets.ex.test")
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    return local


def phase(local: Following, cluster: str = "c-cons", name: str = "w") -> str:
    return str(local.read(API_BINDING, cluster, name)["status"]["phase"])


async def test_nobody_looks_at_bindings_when_an_export_changes_in_what_does_not_concern_them() -> None:
    local = await exporting()
    async with local.running():
        await local.quiet()
        export = local.read(EXPORT, "c-prov", "ex.test")
        export["status"]["virtualWorkspaces"] = [{"url": "https://elsewhere"}]
        await local.write(EXPORT, "c-prov", export)
        assert not local.controller.queue.is_busy
        export["metadata"].setdefault("annotations", {})["extra.apis.kcp.io/foo"] = "bar"
        await local.write(EXPORT, "c-prov", export)
        assert local.controller.queue.is_busy
        await local.quiet()
    assert local.read(API_BINDING, "c-cons", "w")["metadata"]["annotations"]["extra.apis.kcp.io/foo"] == "bar"


# --- following ----------------------------------------------------------------------------------------


async def test_a_binding_is_bound_when_its_export_is_created() -> None:
    local = await following()
    await local.bind("c-cons", "w", "root", "later")
    async with local.running():
        await local.quiet()
        assert phase(local) == "Binding"
        await local.schema("root", widget_schema())
        await local.export("root", "later", "v1.widgets.ex.test")
        await local.quiet()
        assert phase(local) == "Bound"
        assert local.kinds.of("c-cons").find("ex.test", "v1", "widgets") is not None


async def test_a_binding_is_bound_when_a_missing_schema_is_created() -> None:
    local = await following()
    await local.export("c-prov", "ex.test", "v9.widgets.ex.test")
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    async with local.running():
        await local.schema("c-prov", widget_schema("v9.widgets.ex.test"))
        await local.quiet()
        assert phase(local) == "Bound"


async def test_every_binding_follows_its_export() -> None:
    local = await exporting()
    await local.bind("c-other", "w", "root:prov", "ex.test")
    async with local.running():
        await local.schema("c-prov", widget_schema("v2.widgets.ex.test"))
        claim = {"resource": "configmaps", "all": True}
        await local.change_export(
            "c-prov", "ex.test", latestResourceSchemas=["v2.widgets.ex.test"], permissionClaims=[claim]
        )
        await local.quiet()
        for cluster in ("c-cons", "c-other"):
            status = local.read(API_BINDING, cluster, "w")["status"]
            assert [one["schema"]["name"] for one in status["boundResources"]] == ["v2.widgets.ex.test"]
            assert status["exportPermissionClaims"] == [claim]


async def test_a_deleted_export_is_reported_and_bound_kinds_stay() -> None:
    local = await exporting()
    async with local.running():
        await local.remove(EXPORT, "c-prov", "ex.test")
        await local.quiet()
        binding = local.read(API_BINDING, "c-cons", "w")
        assert condition(binding, "APIExportValid")["reason"] == "APIExportNotFound"
        assert binding["status"]["phase"] == "Bound"
        await local.export("c-prov", "ex.test", "v1.widgets.ex.test")
        await local.quiet()
        assert condition(local.read(API_BINDING, "c-cons", "w"), "APIExportValid")["status"] == "True"


async def test_an_export_tells_whether_its_secret_still_has_its_identity() -> None:
    local = await exporting()
    await local.export("c-other", "elsewhere")

    def valid() -> tuple[str, str]:
        found = condition(local.read(EXPORT, "c-prov", "ex.test"), "IdentityValid")
        return found["status"], found.get("message", "")

    key = objects.key(SECRET, "c-prov", "kcp-system", "ex.test")
    secret = local.store.get(key)
    assert secret is not None
    untouched = local.read(EXPORT, "c-other", "elsewhere")
    async with local.running():
        await local.quiet()
        await local.store.delete(key, expect=secret.revision)
        await local.quiet()
        assert valid() == ("False", 'secrets "ex.test" not found')
        await local.store.put(key, secret.value, expect=ABSENT)
        await local.quiet()
        assert valid() == ("True", "")
        other = {**objects.decode(secret), "data": {"key": "b3RoZXI="}}
        entry = local.store.get(key)
        assert entry is not None
        await local.store.put(key, encode_stored(other), expect=entry.revision)
        await local.quiet()
        assert valid()[0] == "False"
        assert phase(local) == "Bound"
        assert local.read(EXPORT, "c-other", "elsewhere") == untouched


async def test_names_that_become_free_are_given_to_a_waiting_binding() -> None:
    local = await exporting()
    await local.bind("c-cons", "second", "root:prov", "ex.test")
    await local.definition("c-other", "widgets", "ex.test", "Widget")
    await local.bind("c-other", "w", "root:prov", "ex.test")
    async with local.running():
        await local.quiet()
        assert (phase(local, name="second"), phase(local, "c-other")) == ("Binding", "Binding")
        await local.remove(DEFINITION, "c-other", "widgets.ex.test")
        await local.unbind()
        await local.quiet()
        assert (phase(local, name="second"), phase(local, "c-other")) == ("Bound", "Bound")


async def test_further_names_that_become_free_are_had_by_who_has_some_and_waits_for_more() -> None:
    local = await exporting()
    names = {"kind": "Gadget", "listKind": "GadgetList", "plural": "gadgets", "singular": "gadget"}
    await local.schema("c-prov", widget_schema("v1.gadgets.ex.test", names=names))
    await local.definition("c-cons", "gadgets", "ex.test", "Gadget")

    def bound() -> list[str]:
        return [one["resource"] for one in local.read(API_BINDING, "c-cons", "w")["status"]["boundResources"]]

    async with local.running():
        schemas = ["v1.widgets.ex.test", "v1.gadgets.ex.test"]
        await local.change_export("c-prov", "ex.test", latestResourceSchemas=schemas)
        await local.quiet()
        assert bound() == ["widgets"]
        assert condition(local.read(API_BINDING, "c-cons", "w"), "BindingUpToDate")["reason"] == "NamingConflicts"
        await local.remove(DEFINITION, "c-cons", "gadgets.ex.test")
        await local.quiet()
        assert bound() == ["widgets", "gadgets"]
        assert condition(local.read(API_BINDING, "c-cons", "w"), "BindingUpToDate")["status"] == "True"


async def test_what_is_as_it_should_be_is_not_written() -> None:
    local = await exporting()
    before = local.store.revision
    async with local.running():
        await local.quiet()
    assert local.store.revision == before


# --- after a crash ------------------------------------------------------------------------------------


async def test_a_half_made_export_is_finished_at_the_next_start() -> None:
    local = await following()
    resource = minimal_resource("apis.kcp.io", "v1alpha1", "apiexports", "APIExport")
    bare: Obj = {"metadata": {"name": "ex.test"}, "spec": {"latestResourceSchemas": ["v1.widgets.ex.test"]}}
    key, value = encode_new(resource, "c-prov", bare, uid="u", now=LATER)
    await local.store.put(key, value, expect=ABSENT)
    await local.bind("c-cons", "w", "root:prov", "ex.test")
    assert condition(local.read(API_BINDING, "c-cons", "w"), "APIExportValid")["reason"] == "MissingIdentityHash"
    async with local.running():
        await local.quiet()
        assert local.read(EXPORT, "c-prov", "ex.test")["status"]["identityHash"]
        assert phase(local) == "Bound"


async def test_a_change_that_a_crash_cut_off_reaches_the_bindings_at_the_next_start() -> None:
    local = await exporting()
    await local.schema("c-prov", widget_schema("v2.widgets.ex.test"))
    await local.change_export("c-prov", "ex.test", latestResourceSchemas=["v2.widgets.ex.test"])
    again = Following(local.store)
    async with again.running():
        await again.quiet()
        bound = again.read(API_BINDING, "c-cons", "w")["status"]["boundResources"]
        assert [one["schema"]["name"] for one in bound] == ["v2.widgets.ex.test"]


async def test_a_deletion_that_a_crash_interrupted_continues() -> None:
    local = await exporting()
    widget = await local.widget("c-cons", "a")
    await local.unbind()
    again = Following(local.store)
    async with again.running():
        await again.quiet()
        assert again.store.get(widget) is None
        assert again.store.get(OWN) is None


# --- the end ------------------------------------------------------------------------------------------


async def test_unbinding_deletes_the_objects_of_that_workspace_and_no_others() -> None:
    local = await exporting()
    await local.bind("c-other", "w", "root:prov", "ex.test")
    mine, theirs = await local.widget("c-cons", "a"), await local.widget("c-other", "a")
    obj: Obj = {"metadata": {"name": "a", "namespace": "default"}}
    key, value = encode_new(CONFIG_MAP, "c-cons", obj, uid="u", now=LATER)
    await local.store.put(key, value, expect=ABSENT)
    async with local.running():
        await local.unbind()
        await local.quiet()
        assert local.store.get(mine) is None
        assert local.store.get(OWN) is None
        assert local.store.get(theirs) is not None
        assert local.store.get(key) is not None
        assert local.kinds.of("c-cons").find("ex.test", "v1", "widgets") is None
        assert local.freed == [("c-cons", "ex.test")]


async def test_a_binding_waits_for_objects_that_are_held() -> None:
    local = await exporting()
    widget = await local.widget("c-cons", "a", finalizers=["me/too"])
    async with local.running():
        await local.unbind()
        await local.quiet()
        ending = local.read(API_BINDING, "c-cons", "w")
        assert condition(ending, "BindingResourceDeleteSuccess")["status"] == "False"
        entry = local.store.get(widget)
        assert entry is not None
        await local.store.delete(widget, expect=entry.revision)
        await local.quiet()
        assert local.store.get(OWN) is None


async def test_a_binding_that_lost_its_names_deletes_nothing_of_the_one_that_has_them() -> None:
    local = await exporting()
    first = local.read(API_BINDING, "c-cons", "w")
    await local._put(API_BINDING, "c-cons", {**first, "metadata": {**first["metadata"], "name": "x"}})
    widget = await local.widget("c-cons", "a")
    async with local.running():
        await local.unbind("x")
        await local.quiet()
        assert local.store.get("/apis.kcp.io/apibindings/c-cons/x") is None
        assert local.store.get(widget) is not None
        assert local.deleted == []


async def test_two_bindings_of_the_same_that_go_at_once_leave_no_objects(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", stamp=objects.stamp)
    local = await exporting(store)
    first = local.read(API_BINDING, "c-cons", "w")
    await local._put(API_BINDING, "c-cons", {**first, "metadata": {**first["metadata"], "name": "x"}})
    widget = await local.widget("c-cons", "a")
    async with local.running():
        await asyncio.gather(local.unbind("w"), local.unbind("x"))
        await local.quiet()
        assert not local.apis.in_cluster("c-cons")
        assert store.get(widget) is None
    await store.close()


async def test_nobody_listens_for_the_end_of_objects_whose_binding_somebody_else_removed() -> None:
    local = await exporting()
    widget = await local.widget("c-cons", "a", finalizers=["me/too"])
    async with local.running():
        await local.unbind()
        await local.quiet()
        assert local.controller._waiting
        for key in (widget, OWN):
            entry = local.store.get(key)
            assert entry is not None
            await local.store.delete(key, expect=entry.revision)
        await local.quiet()
        assert not local.controller._waiting


async def test_a_binding_that_others_hold_stays_without_our_finalizer() -> None:
    local = await exporting()
    binding = local.read(API_BINDING, "c-cons", "w")
    binding["metadata"]["finalizers"].append("somebody/else")
    await local.write(API_BINDING, "c-cons", binding)
    async with local.running():
        await local.unbind()
        await local.quiet()
        assert local.read(API_BINDING, "c-cons", "w")["metadata"]["finalizers"] == ["somebody/else"]
