"""A provider of widgets, and workspaces that bind them or could, in a hub that is called as a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def schema(name: str = "v1.widgets.ex.test", **spec: Any) -> Obj:
    return {**api("APIResourceSchema", name), **widget_schema(name, **spec)}


def export(name: str, *schemas: str, **spec: Any) -> Obj:
    return api("APIExport", name, latestResourceSchemas=list(schemas), **spec)


def binding(name: str = "w", path: str = "root:prov", export: str = "ex.test", **spec: Any) -> Obj:
    """Without a path, to an export of the same workspace."""
    wanted = {"path": path, "name": export} if path else {"name": export}
    return api("APIBinding", name, reference={"export": wanted}, **spec)


def widget(name: str) -> Obj:
    return {"apiVersion": "ex.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}}


@dataclass(frozen=True)
class Provided:
    """Widgets, exported by one workspace and bound by another; a third one has nothing to do with it."""

    hub: LocalWorkspaces
    provider: str
    consumer: str
    other: str

    @classmethod
    async def started(cls) -> Provided:
        hub = await LocalWorkspaces.started()
        universal, names = {"name": "universal"}, ("prov", "cons", "other")
        clusters = [(await hub.new_workspace("root", name, type=universal))["spec"]["cluster"] for name in names]
        home = f"/clusters/{clusters[0]}{APIS}"
        await hub.create(f"{home}/apiresourceschemas", schema())
        await hub.create(f"{home}/apiexports", export("ex.test", "v1.widgets.ex.test", permissionClaims=[CLAIM]))
        await hub.create(f"/clusters/{clusters[1]}{BINDINGS}", binding())
        return cls(hub, *clusters)

    def view(self, path: str, cluster: str = "*") -> str:
        return f"/services/apiexport/{self.provider}/ex.test/clusters/{cluster}{path}"

    async def get(self, path: str, cluster: str = "*") -> Answer:
        """Through the view."""
        return await self.hub.get(self.view(path, cluster))
