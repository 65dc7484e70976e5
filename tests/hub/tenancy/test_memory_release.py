"""What a hub remembers of workspaces goes with them: tens of thousands come and go."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from apis_harness import widget_schema
from platform_harness import ALICE, APIS, OPERATOR, TENANCY, PlatformHub, platform_hub

from farflung.machinery.errors import Obj

WIDGETS = "/apis/ex.test/v1/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLAIM = {"resource": "configmaps", "all": True}
UNIVERSAL = {"name": "universal", "path": "root"}
PASSING = "passing-b7kq"  #: no word, as descriptions of kinds are made of
#: what is of the past, of the last commit alone, or begins anew when it is full
BOUNDED = ("._log", "._deleted_bindings", "._shared", "._known", "._candidates")
APART = (str, bytes, int, float, bool, type, ModuleType, type(None))


def parts_of(thing: Any) -> Iterator[tuple[str, Any]]:
    match thing:
        case dict():
            yield from (("{}", one) for pair in thing.items() for one in pair)
        case list() | tuple() | set() | frozenset():
            yield from (("[]", one) for one in thing)
        case MethodType():
            yield "", thing.__self__
        case FunctionType():
            yield from (("()", cell.cell_contents) for cell in thing.__closure__ or ())
        case _:
            yield from ((f".{name}", value) for name, value in getattr(thing, "__dict__", {}).items())
            slots = [name for one in type(thing).__mro__ for name in getattr(one, "__slots__", ())]
            yield from ((f".{name}", getattr(thing, name)) for name in slots if hasattr(thing, name))


def naming(root: Any, text: str) -> list[str]:
    """Where a text is remembered."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("hub", root)]
    found = []
    while waiting:
        path, thing = waiting.pop()
        if isinstance(thing, str) and text in thing:
            found.append(path)
        if isinstance(thing, APART) or id(thing) in seen or path.endswith(BOUNDED):
            continue
        seen.add(id(thing))
        waiting += [(path + step, controller) for step, controller in parts_of(thing)]
    return found


def definition() -> Obj:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
    spec = {"group": "z.test", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}, "versions": versions}
    return {"metadata": {"name": "foos.z.test"}, "spec": spec}


async def furnished(hub: PlatformHub, name: str) -> str:
    """A workspace in which there is something of everything."""
    cluster = await hub.workspace(name, ALICE)
    at = f"/clusters/{cluster}"
    await hub.export(cluster, "ex.test", widget_schema(), permissionClaims=[CLAIM])
    await hub.export(cluster, "unbound", widget_schema("v1.widgets.un.test", group="un.test"))
    await hub.bind(cluster, "w", f"root:{name}", "ex.test", permissionClaims=[{**CLAIM, "state": "Accepted"}])
    await hub.made(ALICE, at + WIDGETS, {"metadata": {"name": "a"}, "spec": {"size": 1}})
    for view in (f"ex.test/clusters/*{WIDGETS}", "unbound/clusters/*/apis/un.test/v1/widgets"):
        assert (await hub.of(OPERATOR, "GET", f"/services/apiexport/{cluster}/{view}")).status == 200
    await hub.made(ALICE, f"{at}/api/v1/namespaces", {"metadata": {"name": "n"}})
    await hub.made(ALICE, f"{at}/api/v1/namespaces/n/configmaps", {"metadata": {"name": "m"}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}}
    await hub.made(ALICE, f"{at}/api/v1/namespaces/n/resourcequotas", quota)
    extending = {"metadata": {"name": "mine"}, "spec": {"extend": {"with": [UNIVERSAL]}}}
    await hub.made(ALICE, f"{at}{TENANCY}/workspacetypes", extending)
    child = {"metadata": {"name": "child"}, "spec": {"type": {"name": "mine", "path": f"root:{name}"}}}
    await hub.made(ALICE, f"{at}{TENANCY}/workspaces", child)
    await hub.made(ALICE, at + DEFINITIONS, definition())
    target = {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "t"}, "spec": {}}
    await hub.made(OPERATOR, f"{at}/apis/workload.kcp.io/v1alpha1/synctargets", target)
    await hub.controllers.finished()
    made = {"apiVersion": "z.test/v1", "kind": "Foo", "metadata": {"name": "f"}}
    await hub.made(ALICE, f"{at}/apis/z.test/v1/foos", made)
    return cluster


async def test_nothing_is_cached_of_a_deleted_workspace() -> None:
    hub = await platform_hub()
    async with hub.running_controllers():
        cluster = await furnished(hub, "gone")
        remembered = set(naming(hub, cluster))
        assert len(remembered) > 10, "or else this test looks at too little"
        await hub.of(OPERATOR, "DELETE", f"/clusters/root{TENANCY}/workspaces/gone")
        await hub.controllers.finished()
        assert not hub.stored(cluster)
        assert naming(hub, cluster) == []


async def test_nothing_is_cached_of_deleted_exports() -> None:
    hub = await platform_hub()
    async with hub.running_controllers():
        cluster = await hub.workspace("w")
        at = f"/clusters/{cluster}{APIS}"
        await hub.export(cluster, PASSING, widget_schema(), permissionClaims=[CLAIM])
        await hub.bind(cluster, "b", "root:w", PASSING, permissionClaims=[{**CLAIM, "state": "Accepted"}])
        view = f"/services/apiexport/{cluster}/{PASSING}/clusters/*{WIDGETS}"
        assert (await hub.of(OPERATOR, "GET", view)).status == 200
        for path in (f"apiexports/{PASSING}", "apibindings/b"):
            assert (await hub.of(OPERATOR, "DELETE", f"{at}/{path}")).status == 200
            await hub.controllers.finished()
        identity = f"/core/secrets/{cluster}/kcp-system/{PASSING}"
        assert {key for key in hub.stored(cluster) if key.endswith(f"/{PASSING}")} == {identity}
        where = [one for one in naming(hub, PASSING) if "._store" not in one]
        assert where == []
