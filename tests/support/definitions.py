"""CustomResourceDefinitions for tests."""

from __future__ import annotations

from typing import Any

from farflung.machinery.errors import Obj

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
STRING: Obj = {"type": "string"}
INTEGER: Obj = {"type": "integer"}


def struct(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


def version(name: str = "v1", *, storage: bool = True, served: bool = True, status: bool = False, **spec: Obj) -> Obj:
    """A version whose objects have these fields in their spec."""
    described: Obj = {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": struct(spec=struct(**spec), status=struct(phase=STRING))},
    }
    if status:
        described["subresources"] = {"status": {}}
    return described


def definition(*versions: Obj, plural: str = "things", kind: str = "Thing", **spec: Any) -> Obj:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": list(versions) or [version(a=STRING)],
            **spec,
        },
    }


def thing(name: str, *, api_version: str = "example.com/v1", **spec: Any) -> Obj:
    return {"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name}, "spec": spec}
