"""Attacks on the event loop with large APIResourceSchemas, and with many of them."""

from __future__ import annotations

from definitions import STRING, struct
from long_turns import no_long_turns
from provider_harness import APIS, BINDINGS, export
from workspaces_harness import LocalWorkspaces

from farflung.machinery.errors import Obj

PROVIDER, CONSUMER = "/clusters/root:prov", "/clusters/root:cons"


def schema_of(name: str, **fields: Obj) -> Obj:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {"name": f"v1.{name}.ex.test"},
        "spec": {
            "group": "ex.test",
            "names": {"plural": name, "singular": name, "kind": name.title(), "listKind": f"{name.title()}List"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": struct(spec=struct(**fields))}],
        },
    }


async def test_no_schema_of_an_export_holds_the_event_loop() -> None:
    hub = await LocalWorkspaces.started()
    for name in ("prov", "cons"):
        await hub.new_workspace("root", name, type={"name": "universal"})
    part = struct(a=STRING, b={"type": "array", "items": struct(c=STRING)})
    names = [f"small{number}" for number in range(30)]
    for name in names:
        await hub.create(f"{PROVIDER}{APIS}/apiresourceschemas", schema_of(name, a=STRING))
        await hub.create(f"{PROVIDER}{APIS}/apiexports", export(f"{name}.ex.test", f"v1.{name}.ex.test"))
    everything = export("everything.ex.test", *(f"v1.{name}.ex.test" for name in [*names, "larges"]))
    reference = {"export": {"path": "root:prov", "name": "everything.ex.test"}}
    bound = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "all"}}
    async with no_long_turns():
        large = schema_of("larges", **{f"f{number}": part for number in range(3_000)})
        await hub.create(f"{PROVIDER}{APIS}/apiresourceschemas", large)
        await hub.create(f"{PROVIDER}{APIS}/apiexports", everything)
        await hub.create(f"{CONSUMER}{BINDINGS}", bound | {"spec": {"reference": reference}})
        kind = {"apiVersion": "ex.test/v1", "kind": "Larges", "metadata": {"name": "x"}, "spec": {"f1": {"a": "b"}}}
        await hub.create(f"{CONSUMER}/apis/ex.test/v1/larges", kind)
        for path in ("/openapi/v2", "/openapi/v3"):
            assert (await hub.get(CONSUMER + path)).status == 200
        assert (await hub.delete(f"{PROVIDER}{APIS}/apiresourceschemas")).status == 200
    described = (await hub.get(f"{CONSUMER}/openapi/v2")).json["definitions"]
    assert described["test.ex.v1.Larges"]["properties"]["spec"]["properties"]["f7"]["properties"]["a"] == STRING
    assert "spec" in described["io.kcp.apis.v1alpha1.APIBinding"]["properties"]
