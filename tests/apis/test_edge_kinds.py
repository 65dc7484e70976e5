"""The edge API: its kinds are documented and accepted, its manifests are those that are in config/, its samples fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented import undocumented
from hub_harness import TABLE, LocalHub

from farflung.apis.custom_kinds import CustomKind
from farflung.apis.edge import kinds as edge
from farflung.apis.kcp import kinds as kcp
from farflung.machinery.errors import Obj

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict"}
KNOWN: dict[str, CustomKind] = {**kcp.KINDS, **edge.KINDS}


def documents(folder: str) -> dict[str, Obj]:
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted((CONFIG / folder).glob("*.yaml"))}


def collection(kind: str, namespace: str = "default") -> str:
    one = KNOWN[kind]
    place = f"namespaces/{namespace}/" if one.namespaced else ""
    return f"/apis/{one.group}/{one.version}/{place}{one.plural}"


@pytest.fixture
async def hub() -> LocalHub:
    """Serves kcp's kinds and those of config/crds."""
    hub = await LocalHub.in_memory().furnish()
    for definition in (*map(kcp.definition, kcp.KINDS), *documents("crds").values()):
        answer = await hub.request("POST", DEFINITIONS, definition, query=STRICT)
        assert answer.status == 201, answer.body
    return hub


async def created(hub: LocalHub, obj: Obj) -> Obj:
    answer = await hub.request("POST", collection(obj["kind"]), obj, query=STRICT)
    assert answer.status == 201, answer.body
    made: Obj = answer.json
    return made


def body(kind: str, name: str, **rest: Any) -> Obj:
    return {"apiVersion": "edge.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, **rest}


# --- manifests ------------------------------------------------------------------------------------


def test_the_manifests_in_config_are_those_of_the_kinds() -> None:
    ended = subprocess.run([sys.executable, ROOT / "tools/manifests.py", "--check"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), "run `make manifests`"


def test_manifests_can_be_put_one_after_the_other() -> None:
    for folder in ("crds", "exports"):
        files = sorted((ROOT / "config" / folder).glob("*.yaml"))
        found = [one for one in yaml.safe_load_all("".join(file.read_text() for file in files)) if one]
        assert len(found) == len(files) > 1


def test_the_workspace_to_import_from_can_be_another() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "tools/manifests.py", "--check", "--provider", "root:edge"],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (1, "config/imports/apibinding-edge.kcp.io.yaml\n")


def test_a_provider_that_is_no_path_of_a_workspace_is_refused() -> None:
    for wrong in ("Root:Edge", "root/edge", "root:"):
        command = [sys.executable, ROOT / "tools/manifests.py", "--check", "--provider", wrong]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 2
        assert f"'{wrong}' is not the path of a workspace, like root:edge\n" in ended.stderr


def test_the_export_names_the_schemas_that_are_beside_it() -> None:
    exported = documents("exports")
    export = exported.pop("apiexport-edge.kcp.io.yaml")
    assert export["spec"]["latestResourceSchemas"] == [one["metadata"]["name"] for one in exported.values()]
    assert all(one["kind"] == "APIResourceSchema" for one in exported.values())


async def test_a_strict_server_accepts_exports_imports_and_samples(hub: LocalHub) -> None:
    for folder in ("exports", "imports", "samples"):
        for obj in documents(folder).values():
            await created(hub, obj)


def test_samples_are_those_of_two_environments() -> None:
    found = {name: (one["kind"], one["metadata"]["name"]) for name, one in documents("samples").items()}
    assert found == {
        "edgeplacement_all2all.yaml": ("EdgePlacement", "all2all"),
        "edgeplacement_dev.yaml": ("EdgePlacement", "dev"),
        "edgeplacement_test-1.yaml": ("EdgePlacement", "test-1"),
        "location_dev.yaml": ("Location", "dev"),
        "location_prod.yaml": ("Location", "prod"),
        "synctarget_dev.yaml": ("SyncTarget", "dev"),
        "synctarget_prod.yaml": ("SyncTarget", "prod"),
        "test-placement-1.yaml": ("EdgePlacement", "test-placement-1"),
    }


# --- kinds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", edge.KINDS)
def test_every_field_is_documented(kind: str) -> None:
    assert undocumented(edge.KINDS[kind].schema()) == []


def test_another_schema_has_another_name() -> None:
    names = {one.resource_schema_name.partition(".")[0] for one in edge.KINDS.values()}
    assert len(names) == len(edge.KINDS)


async def test_a_placement_stays_as_it_was_sent(hub: LocalHub) -> None:
    spec = {
        "locationSelectors": [{"matchLabels": {"env": "prod"}}],
        "namespaceSelector": {"matchLabels": {"common": "si"}},
        "nonNamespacedObjects": [
            {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["bind-kube"]}
        ],
        "upsync": [
            {
                "apiGroup": "group1.test",
                "resources": ["sprockets", "flanges"],
                "namespaces": ["orbital"],
                "names": ["george", "cosmo"],
            },
            {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["William"]},
        ],
    }
    made = await created(hub, body("EdgePlacement", "edge-placement-c", spec=spec))
    assert made["spec"] == spec
    assert "status" not in made


async def test_a_slice_has_destinations_and_no_spec(hub: LocalHub) -> None:
    place = {"cluster": "c", "locationName": "l", "syncTargetName": "s", "syncTargetUID": "u"}
    made = await created(hub, body("SinglePlacementSlice", "one", destinations=[place]))
    assert made["destinations"] == [place]
    answer = await hub.request("POST", collection("SinglePlacementSlice"), body("SinglePlacementSlice", "two"))
    assert "destinations: Required value" in answer.message


async def test_a_syncer_config_has_a_status_before_anybody_reports(hub: LocalHub) -> None:
    spec = {
        "namespaceScope": {"namespaces": ["n"], "resources": [{"apiVersion": "v1", "group": "", "resource": "pods"}]}
    }
    made = await created(hub, body("SyncerConfig", "the-one", spec=spec, status={}))
    assert (made["spec"], made["status"], made["metadata"]["generation"]) == (spec, {}, 1)


async def test_a_syncer_config_shows_the_report_of_its_syncer_at_a_glance(hub: LocalHub) -> None:
    made = await created(hub, body("SyncerConfig", "the-one", spec={}))
    now = "2024-05-01T12:00:00Z"
    report = {
        "lastSyncerHeartbeatTime": now,
        "syncedThrough": [{"group": "apps", "resource": "deployments", "resourceVersion": "12"}],
        "syncer": {"version": "0.1.0", "started": now},
        "edge": {"uid": "u", "version": "v1.34.0"},
        "objects": {"synced": 7, "pending": 0, "failing": 1, "orphaned": 2, "upsynced": 3},
        "driftCorrected": 1 << 40,
        "problems": [
            {
                "group": "apps",
                "resource": "deployments",
                "namespace": "n",
                "name": "x",
                "direction": "down",
                "reason": "Invalid",
                "message": "no",
                "lastTry": now,
                "tries": 3,
            }
        ],
        "problemsOmitted": 0,
        "conditions": [{"type": "EdgeReachable", "status": "True", "lastTransitionTime": now}],
    }
    path = f"{collection('SyncerConfig')}/the-one/status"
    answer = await hub.request("PUT", path, {**made, "status": report}, query=STRICT)
    assert (answer.status, answer.json["status"]) == (200, report)
    table = (await hub.request("GET", collection("SyncerConfig"), accept=TABLE)).json
    headings = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert headings == ["Name", "Synced", "Pending", "Failing", "Heartbeat", "Age"]
    shown = dict(zip((one["name"] for one in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    assert (shown["Synced"], shown["Pending"], shown["Failing"]) == (7, 0, 1)
    assert (shown["Orphaned"], shown["Upsynced"], shown["Reachable"]) == (2, 3, "True")


async def test_placements_tell_where_they_lead_and_what_came_of_it_to_who_wants_to_know_more(hub: LocalHub) -> None:
    made = await created(hub, body("EdgePlacement", "p", spec={"locationSelectors": [{}]}))
    now = "2024-05-01T12:00:00Z"
    said = (("WorkloadProjected", "False", "Conflict"), ("Ready", "False", "NoDestinations"))
    conditions = [{"type": one, "status": two, "reason": three, "lastTransitionTime": now} for one, two, three in said]
    status = {"matchingLocationCount": 3, "conditions": conditions}
    answer = await hub.request("PUT", f"{collection('EdgePlacement')}/p/status", {**made, "status": status})
    assert answer.status == 200
    table = (await hub.request("GET", collection("EdgePlacement"), accept=TABLE)).json
    assert [one["name"] for one in table["columnDefinitions"] if not one["priority"]] == [
        "Name",
        "Ready",
        "Age",
    ]
    assert table["rows"][0]["cells"][1:-1] == [3, None, "False", "NoDestinations", "False"]


async def test_the_old_way_to_tell_a_syncer_is_accepted(hub: LocalHub) -> None:
    samples = {"group": "my.domain", "version": "v1alpha1", "kind": "Sample", "namespace": "test", "name": "*"}
    spec = {
        "downSyncedResources": [{"version": "v1", "kind": "Namespace", "name": "test"}, samples],
        "upSyncedResources": [{**samples, "namespace": "*"}],
        "conversions": [{"upstream": samples, "downstream": {**samples, "version": "v1"}}],
    }
    made = await created(hub, body("EdgeSyncConfig", "florin", spec=spec))
    assert made["spec"] == spec
    beat = {"lastSyncerHeartbeatTime": "2024-05-01T12:00:00Z"}
    path = f"{collection('EdgeSyncConfig')}/florin/status"
    answer = await hub.request("PUT", path, {**made, "status": beat}, query=STRICT)
    assert answer.json["status"] == beat


async def test_a_collector_selects_or_combines(hub: LocalHub) -> None:
    column = {"name": "ready", "def": "returned.status.readyReplicas"}
    combined = {"name": "sum", "type": "SUM", "subject": "returned.status.readyReplicas"}

    async def refused(**spec: Any) -> str:
        return (
            await hub.request("POST", collection("StatusCollector"), body("StatusCollector", "x", spec=spec))
        ).message

    assert "exclude each other" in await refused(select=[column], combinedFields=[combined])
    assert "groupBy needs combinedFields" in await refused(groupBy=[column], select=[column])
    made = await created(hub, body("StatusCollector", "x", spec={"groupBy": [column], "combinedFields": [combined]}))
    assert made["spec"]["limit"] == 20


async def test_a_summary_shows_how_many_copies_there_are(hub: LocalHub) -> None:
    summary = body(
        "StatusSummary",
        "edge-placement-s.deployments.apps.speciald",
        subject={"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments", "name": "speciald"},
        destinations={"expected": 2, "reporting": 1, "missing": 1, "stale": 0, "broken": 0},
        aggregates={"readyReplicas": {"sum": 1, "min": 1, "max": 1, "count": 1}},
        conditions={"Available": {"True": 1}},
        values={"phase": {"Running": 1}},
        broken=[],
        brokenTruncated=0,
        collected=[],
    )
    await created(hub, summary)
    table = (await hub.request("GET", collection("StatusSummary"), accept=TABLE)).json
    headings = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert headings == ["Name", "Kind", "Object", "Expected", "Reporting", "Broken", "Age"]
    assert table["rows"][0]["cells"][1:6] == ["Deployment", "speciald", 2, 1, 0]
