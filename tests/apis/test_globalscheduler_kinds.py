"""Clusters and Allocations: described in full, and defined the same by definitions and by schemas that are exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from documented import undocumented
from hub_harness import LocalHub

from farflung.apis.globalscheduler import kinds as globalscheduler
from farflung.apis.kcp import compute
from farflung.machinery.errors import Obj

CONFIG = Path(__file__).resolve().parents[2] / "config" / "globalscheduler"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def documents(folder: str) -> list[Obj]:
    return [yaml.safe_load(path.read_text()) for path in sorted((CONFIG / folder).glob("*.yaml"))]


@pytest.mark.parametrize("kind", globalscheduler.KINDS)
def test_every_field_is_documented(kind: str) -> None:
    assert undocumented(globalscheduler.KINDS[kind].schema()) == []


def test_every_field_of_a_virtual_machine_is_documented() -> None:
    [pods] = [one for one in compute.kinds("kubernetes") if one.plural == "pods"]
    fields = pods.fields["spec"]["properties"]
    ours = {name: fields[name] for name in ("virtualMachine", "nics", "clusterName", "resourceType")}
    ours["virtualMachine"] = {
        **ours["virtualMachine"],
        "properties": {
            name: field
            for name, field in ours["virtualMachine"]["properties"].items()
            if name not in ("resources", "volumeMounts", "volumeDevices")  # in the words of Kubernetes
        },
    }
    assert undocumented({"properties": ours}) == []


async def test_a_strict_server_accepts_the_definitions() -> None:
    hub = await LocalHub.in_memory().furnish()
    for definition in documents("crds"):
        answer = await hub.post(DEFINITIONS, definition, {"fieldValidation": "Strict"})
        assert answer.status == 201, answer.body


def test_the_export_names_the_schemas_that_are_beside_it() -> None:
    export, *schemas = documents("exports")
    assert export["spec"]["latestResourceSchemas"] == [one["metadata"]["name"] for one in schemas]
    assert [one["spec"]["reference"]["export"] for one in documents("imports")] == [
        {"path": "root:compute", "name": "globalscheduler.com"}
    ]


@pytest.mark.parametrize("kind", globalscheduler.KINDS)
def test_no_list_of_a_spec_is_endless(kind: str) -> None:
    assert endless(globalscheduler.KINDS[kind].fields["spec"], "spec") == []


def endless(schema: Obj, path: str) -> list[str]:
    found = [path] if schema.get("type") == "array" and "maxItems" not in schema else []
    if "additionalProperties" in schema and "maxProperties" not in schema:
        found.append(path)
    for name, field in schema.get("properties", {}).items():
        found += endless(field, f"{path}.{name}")
    return found + (endless(schema["items"], f"{path}[]") if "items" in schema else [])
