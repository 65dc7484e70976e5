"""Summaries and returned statuses in situations that nobody wishes for."""

from __future__ import annotations

import pytest
from fleet import EDGE
from platform_harness import APIS
from summarized import DEPLOYMENTS, Reported, ready, reported
from translated import DEFINITIONS, NAMESPACES, PROD, WORKSPACES, definition, inside, widget

from farflung.client.errors import Unreachable
from farflung.client.transport import OutgoingRequest
from farflung.machinery.errors import Obj

COUNT = "kubestellar.io/executing-count"
RETURNED = "edge.kcp.io/status-returned-from"
QUOTAS = inside("shop", "resourcequotas")
WIDGETS = inside("shop", "widgets", "example.org/v1")
SERVICES = inside("shop", "services")
SOMETHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TURNING = {"phase": "Turning"}


async def counts(one: Reported, expected: str | None) -> bool:
    return ((await one.source())["metadata"].get("labels") or {}).get(COUNT) == expected


async def test_copies_are_missing_when_their_mailbox_is_deleted() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await one.report("florin", ready(1))
        await one.world.fleet.crash()
        await one.world.fleet.start(translator=True, summarizer=True)
        await one.eventually(expected=1, reporting=1)
        await one.world.fleet.eventually(lambda: counts(one, "1"), "the mark")
        assert await one.world.fleet.do("DELETE", f"{WORKSPACES}/{one.world.names['florin']}")
        await one.eventually(expected=1, reporting=0, missing=1)

        async def is_cleared() -> bool:
            return not (await one.source()).get("status")

        await one.world.fleet.eventually(is_cleared, "the end of the status")


async def test_deleting_a_placement_without_destinations_leaves_no_annotation() -> None:
    async with reported("florin") as one:
        nowhere = {"matchLabels": {"no": "where"}}
        await one.world.placement(0, "q", nowhere, namespaceSelector=PROD, wantSingletonReportedState=True)
        await one.world.fleet.eventually(lambda: counts(one, "0"), "the mark")
        await one.world.at_rest()
        await one.world.delete(one.cluster, f"{EDGE}/edgeplacements/q")
        await one.world.fleet.eventually(lambda: counts(one, None), "the end of the mark")


@pytest.mark.parametrize(
    "path", [f"{NAMESPACES}/shop", f"{APIS}/apibindings/kube", f"{DEFINITIONS}/widgets.example.org"]
)
async def test_no_annotation_lets_us_write_a_status_that_the_hub_itself_writes(path: str) -> None:
    async with reported("florin") as one:
        await one.world.must_put(one.cluster, DEFINITIONS, definition("v1"))
        await one.eventually(expected=1)
        assert (await one.source(path))["status"]
        await one.world.patch(one.cluster, path, {"metadata": {"annotations": {RETURNED: "florin"}}})

        async def is_unmarked() -> bool:
            return RETURNED not in ((await one.source(path))["metadata"].get("annotations") or {})

        await one.world.fleet.eventually(is_unmarked, "the end of the mark")
        assert 'what="status"' not in one.world.fleet.log.getvalue()


async def test_the_use_of_a_quota_is_that_of_its_own_workspace() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"pods": "5"}},
        }
        await one.world.must_put(one.cluster, QUOTAS, quota)
        await one.world.fleet.eventually(lambda: one.world.has(["florin"], f"{QUOTAS}/q"), "the copy")
        await one.report("florin", {"hard": {"pods": "5"}, "used": {"pods": "3"}}, f"{QUOTAS}/q")
        await one.world.at_rest()
        assert RETURNED not in ((await one.source(f"{QUOTAS}/q"))["metadata"].get("annotations") or {})


async def test_a_label_that_is_added_while_an_object_is_annotated_stays() -> None:
    async with reported("florin") as one:
        await one.world.at_rest()
        assert not (await one.source())["metadata"].get("labels")

        async def label_first(request: OutgoingRequest) -> None:
            if request.method == "PATCH" and request.target.startswith(f"/clusters/{one.cluster}{DEPLOYMENTS}/web"):
                one.world.fleet.masters.gate = None
                patch = {"metadata": {"labels": {"mine": "yes"}}}
                assert await one.world.patch(one.cluster, f"{DEPLOYMENTS}/web", patch) is not None

        one.world.fleet.masters.gate = label_first
        patch = {"spec": {"wantSingletonReportedState": True}}
        await one.world.patch(one.cluster, f"{EDGE}/edgeplacements/p", patch)
        await one.world.fleet.eventually(lambda: counts(one, "1"), "the mark")
        assert (await one.source())["metadata"]["labels"]["mine"] == "yes"


async def test_collectors_beyond_the_limit_report_it() -> None:
    names = [f"q{number:03}" for number in range(200)]
    wanted = {"apiGroup": "apps", "resources": ["deployments"], "objectNames": ["*"], "statusCollectors": names}
    async with reported(downsync=[wanted]) as one:
        columns = [{"name": str(number), "def": f"'{'x' * 1000}'"} for number in range(8)]
        for name in names:
            await one.ask(name, select=columns)

        async def is_answered() -> bool:
            return bool((await one.answer("q000") or {}).get("rows"))

        await one.world.fleet.eventually(is_answered, "the answers")
        await one.report("florin", ready(1))
        found = await one.eventually(reporting=1)
        said = {answer["name"]: answer for answer in found["collected"]}
        assert [len(said[name]["rows"]) for name in names[:16]] == [2] * 16
        assert all("at most 16" in said[name]["errors"][0]["message"] for name in names[16:64])
        assert len(said) == 64


async def test_marks_go_although_another_kind_cannot_be_listed() -> None:
    async with reported("florin") as one:
        await one.world.delete(one.cluster, f"{EDGE}/edgeplacements/p")
        await one.world.at_rest()
        await one.world.fleet.crash()
        for plural in ("gadgets", "widgets"):
            one_of_two = definition("v1")
            one_of_two["metadata"]["name"] = f"{plural}.example.org"
            one_of_two["spec"]["names"] = {"plural": plural, "kind": plural.title()}
            await one.world.must_put(one.cluster, DEFINITIONS, one_of_two)
        marked = {**widget("w", 1, labels={COUNT: "1"}), "kind": "Widgets"}
        await one.world.fleet.eventually(lambda: one.world.put(one.cluster, WIDGETS, marked), "the widget")

        async def hide(request: OutgoingRequest) -> None:
            if "/gadgets" in request.target:
                raise Unreachable("somebody broke it")

        one.world.fleet.masters.gate = hide
        await one.world.start()

        async def is_unmarked() -> bool:
            return not (await one.source(f"{WIDGETS}/w"))["metadata"].get("labels")

        await one.world.fleet.eventually(is_unmarked, "the end of the mark")


async def test_what_a_syncer_cannot_bring_of_a_whole_kind_is_broken() -> None:
    async with reported("florin") as one:
        await one.eventually(expected=1, broken=0)
        kind = {"group": "apps", "resource": "deployments", "namespace": "", "name": "*"}
        await one.say(
            "florin", problems=[{**kind, "direction": "down", "reason": "Forbidden", "message": "no", "tries": 1}]
        )
        [broken] = (await one.eventually(broken=1))["broken"]
        assert (broken["reason"], broken["message"]) == ("Forbidden", "no")
        await one.say("florin", problems=[])
        await one.eventually(broken=0)


async def test_a_status_that_a_syncer_cannot_bring_is_stale_however_well_it_looks() -> None:
    async with reported("florin") as one:
        await one.report("florin", ready(1))
        await one.eventually(reporting=1, stale=0, broken=0)
        about = {"group": "apps", "resource": "deployments", "namespace": "shop", "name": "web"}
        trouble = {**about, "direction": "status", "reason": "Invalid", "message": "no such field", "tries": 1}
        await one.say("florin", problems=[trouble, {**trouble, "direction": "up", "name": "*"}])
        [broken] = (await one.eventually(stale=1, broken=1))["broken"]
        why = "its syncer cannot return its status: Invalid: no such field"
        assert (broken["reason"], broken["message"]) == ("StatusNotReturned", why)
        await one.say("florin", problems=[])
        await one.eventually(stale=0, broken=0)


async def turning(one: Reported, schema: Obj) -> Obj:
    """A widget of a kind that has a status with this schema, and the status of its copy.  The definition."""
    described: Obj = definition("v1")
    whole = {"type": "object", "properties": {"spec": SOMETHING, "status": schema}}
    described["spec"]["versions"][0] |= {"subresources": {"status": {}}, "schema": {"openAPIV3Schema": whole}}
    await one.world.must_put(one.cluster, DEFINITIONS, described)
    await one.world.fleet.eventually(lambda: one.world.put(one.cluster, WIDGETS, widget("w", 1)), "the widget")
    await one.world.fleet.eventually(lambda: one.world.has(["florin"], f"{WIDGETS}/w"), "its copy")
    assert await one.world.patch(one.world.boxes["florin"], f"{WIDGETS}/w/status", {"status": TURNING}) is not None
    return described


async def test_a_status_is_removed_although_its_kind_refuses_an_empty_one() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await turning(one, {"type": "object", "required": ["phase"], "properties": {"phase": {"type": "string"}}})

        async def has(expected: Obj | None) -> bool:
            found = await one.source(f"{WIDGETS}/w")
            marked = RETURNED in (found["metadata"].get("annotations") or {})
            return (found.get("status") or None) == expected and marked == (expected is not None)

        await one.world.fleet.eventually(lambda: has(TURNING), "the status")
        await one.world.patch(one.cluster, f"{EDGE}/edgeplacements/p", {"spec": {"wantSingletonReportedState": False}})
        await one.world.fleet.eventually(lambda: has(None), "the end of the status")


async def test_a_status_that_its_schema_refuses_is_reported_and_retried_after_a_change() -> None:
    async with reported("florin") as one:
        tried: list[str] = []

        async def count(request: OutgoingRequest) -> None:
            if request.method == "PATCH" and request.target.partition("?")[0].endswith("/widgets/w/status"):
                tried.append(request.target)

        one.world.fleet.masters.gate = count
        phase: Obj = {"type": "string"}
        described = await turning(one, {**SOMETHING, "properties": {"phase": phase}})
        phase["enum"] = ["Resting"]
        await one.world.must_put(one.cluster, DEFINITIONS, described)
        await one.world.patch(one.cluster, f"{EDGE}/edgeplacements/p", {"spec": {"wantSingletonReportedState": True}})

        async def told() -> bool:
            found = await one.world.items(one.cluster, inside("shop", "events"))
            return any(event["reason"] == "StatusNotReturned" and "Turning" in event["message"] for event in found)

        await one.world.fleet.eventually(told, "the event")
        await one.world.at_rest()
        assert len(tried) == 1
        await one.world.patch(one.cluster, f"{WIDGETS}/w", {"metadata": {"labels": {"other": "yes"}}})
        await one.world.fleet.eventually(lambda: len(tried) == 2, "the second attempt")
        await one.world.at_rest()
        del phase["enum"]
        await one.world.must_put(one.cluster, DEFINITIONS, described)

        async def returned() -> bool:
            return (await one.source(f"{WIDGETS}/w")).get("status") == TURNING

        await one.world.fleet.eventually(returned, "the status")
        assert len(tried) == 3


async def test_summaries_stay_until_their_objects_can_be_listed() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80}]},
        }
        await one.world.must_put(one.cluster, SERVICES, service)
        await one.world.fleet.eventually(lambda: one.world.has(["florin"], f"{SERVICES}/web"), "the copy")
        await one.eventually("p.services.web", expected=1)
        before = await one.eventually(expected=1)
        await one.world.fleet.crash()
        await one.report("florin", ready(1))
        await one.report("florin", {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}, f"{SERVICES}/web")

        async def hide(request: OutgoingRequest) -> None:
            if "/deployments" in request.target:
                raise Unreachable("not now")

        one.world.fleet.masters.gate = hide
        await one.world.start()
        await one.eventually("p.services.web", reporting=1)
        assert await one.summary() == before
        one.world.fleet.masters.gate = None
        found = await one.eventually(reporting=1)
        assert found["metadata"]["uid"] == before["metadata"]["uid"]
