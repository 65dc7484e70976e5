"""Summaries, from what copies report to what is said where they are described."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fleet import EDGE
from summarized import COLLECTORS, DEPLOYMENTS, SUMMARIES, WEB, Reported, ready, reported
from translated import DEFINITIONS, NAMESPACES, deployment, inside, namespace, widget, world

from farflung.machinery.errors import Obj

WIDGETS = inside("shop", "widgets", "example.org/v1")
COUNT = "kubestellar.io/executing-count"
RETURNED = "edge.kcp.io/status-returned-from"


async def test_a_summary_counts_what_all_copies_report() -> None:
    async with reported() as one:
        first = await one.eventually(expected=2, reporting=0, missing=0)
        assert first["subject"] == {
            "group": "apps",
            "version": "v1",
            "kind": "Deployment",
            "resource": "deployments",
            "namespace": "shop",
            "name": "web",
            "uid": (await one.source())["metadata"]["uid"],
        }
        await one.report("florin", ready(1))
        await one.report("guilder", ready(3, of=3))
        found = await one.eventually(reporting=2)
        assert found["destinations"] == {"expected": 2, "reporting": 2, "missing": 0, "stale": 0, "broken": 0}
        assert found["aggregates"]["readyReplicas"] == {"count": 2, "sum": 4, "min": 1, "max": 3}
        assert found["conditions"] == {"Available": {"True": 2}}
        assert found["observedAt"] == f"{one.world.fleet.hub.now:%Y-%m-%dT%H:%M:%SZ}"
        [owner] = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("EdgePlacement", "p")


async def test_what_is_broken_is_listed_with_its_reason_and_since_when() -> None:
    async with reported() as one:
        await one.report("guilder", ready(0))
        found = await one.eventually(broken=1)
        [broken] = found["broken"]
        assert (broken["syncTargetName"], broken["locationName"]) == ("guilder", "guilder")
        assert (broken["reason"], broken["since"]) == ("MinimumReplicasAvailable", "2024-05-01T12:00:00Z")
        await one.report("guilder", ready(1))
        assert not (await one.eventually(broken=0, reporting=1)).get("broken")


async def test_a_copy_whose_cluster_does_not_run_the_last_change_is_progressing() -> None:
    async with reported("florin") as one:
        await one.report("florin", ready(1))
        assert "progressing" not in (await one.eventually(reporting=1))["destinations"]
        image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
        assert await one.world.patch(one.cluster, f"{DEPLOYMENTS}/web", image) is not None

        async def changed() -> bool:
            copy = await one.world.copy("florin", f"{DEPLOYMENTS}/web")
            return copy is not None and copy["metadata"]["generation"] == 2

        await one.world.fleet.eventually(changed, "the new copy")
        await one.say("florin", syncer={"version": "2", "translatesGenerations": True})
        await one.eventually(reporting=1, broken=0, progressing=1)
        await one.report("florin", {**ready(1), "observedGeneration": 2, "replicas": 2})
        await one.eventually(reporting=1, broken=0, progressing=1)
        await one.report("florin", {**ready(1), "observedGeneration": 2})

        async def runs() -> bool:
            return "progressing" not in ((await one.summary()) or {"destinations": {"progressing": 1}})["destinations"]

        await one.world.fleet.eventually(runs, "the end of the rollout")


async def test_a_cluster_without_heartbeat_is_stale_until_the_next_one() -> None:
    async with reported() as one:
        for box in ("florin", "guilder"):
            await one.report(box, ready(1))
        await one.beat("florin", "guilder")
        await one.passes(40)
        await one.beat("florin")
        await one.passes(30)
        found = await one.eventually(stale=1, broken=1, reporting=2)
        [broken] = found["broken"]
        assert (broken["syncTargetName"], broken["reason"]) == ("guilder", "HeartbeatMissing")
        before = one.world.fleet.hub.now - timedelta(seconds=70)
        assert broken["since"] == f"{before:%Y-%m-%dT%H:%M:%SZ}"
        await one.beat("guilder")
        await one.eventually(stale=0, broken=0)


async def test_a_syncer_that_does_not_reach_its_cluster_makes_what_is_known_stale() -> None:
    async with reported() as one:
        await one.report("florin", ready(1))
        await one.beat("florin")
        since = "2024-05-01T11:00:00Z"
        trouble = {"type": "EdgeReachable", "status": "False", "reason": "Unreachable", "message": "no route"}
        await one.say("florin", conditions=[{**trouble, "lastTransitionTime": since}])
        [broken] = (await one.eventually(stale=1))["broken"]
        assert (broken["reason"], broken["message"], broken["since"]) == ("EdgeUnreachable", "no route", since)


async def test_what_a_syncer_cannot_bring_is_broken_although_nothing_is_reported() -> None:
    async with reported() as one:
        part = {"group": "apps", "resource": "deployments", "namespace": "shop", "name": "web"}
        problem = {**part, "direction": "down", "reason": "NotManaged", "message": "it is there already", "tries": 3}
        await one.say("florin", problems=[problem])
        [broken] = (await one.eventually(broken=1, reporting=0))["broken"]
        assert (broken["syncTargetName"], broken["reason"]) == ("florin", "NotManaged")
        await one.say("florin", problems=[])
        await one.eventually(broken=0)


async def test_deleting_the_object_or_its_placement_deletes_the_summary() -> None:
    async with reported() as one:
        await one.world.must_put(one.cluster, DEPLOYMENTS, deployment("other", "httpd"))
        await one.eventually("p.deployments.apps.other", expected=2)
        await one.world.delete(one.cluster, f"{DEPLOYMENTS}/other")
        await one.gone("p.deployments.apps.other")
        await one.eventually(expected=2)
        await one.world.delete(one.cluster, f"{EDGE}/edgeplacements/p")
        await one.gone()


async def test_a_summary_that_another_client_changes_or_deletes_is_restored() -> None:
    async with reported() as one:
        await one.eventually(expected=2)
        path = f"{SUMMARIES}/{WEB}"
        await one.world.patch(one.cluster, path, {"destinations": {"expected": 9}, "metadata": {"labels": {"a": "b"}}})
        found = await one.eventually(expected=2)
        assert found["metadata"]["labels"]["a"] == "b"
        await one.world.delete(one.cluster, path)
        await one.eventually(expected=2)


async def test_a_placement_says_what_is_summarized() -> None:
    async with reported() as one:
        await one.eventually(expected=2)

        async def wish(what: str | None) -> None:
            patch = {"metadata": {"annotations": {"edge.kcp.io/summarize": what}}}
            assert await one.world.patch(one.cluster, f"{EDGE}/edgeplacements/p", patch) is not None

        await wish("false")
        await one.gone()
        await wish("deployments.apps")
        await one.eventually(expected=2)
        await wish("services")
        await one.gone()
        await wish(None)
        await one.eventually(expected=2)


async def test_of_custom_resources_there_is_a_summary_once_one_reports() -> None:
    async with reported("florin") as one:
        defined: dict[str, Any] = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.org"},
            "spec": {
                "group": "example.org",
                "names": {"plural": "widgets", "kind": "Widget"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        await one.world.must_put(one.cluster, DEFINITIONS, defined)
        await one.world.fleet.eventually(lambda: one.world.put(one.cluster, WIDGETS, widget("w", 1)), "the widget")
        await one.world.fleet.eventually(lambda: one.world.has(["florin"], f"{WIDGETS}/w"), "its copy")
        assert await one.summary("p.widgets.example.org.w") is None
        await one.report("florin", {"phase": "Ready", "units": 4}, f"{WIDGETS}/w")
        found = await one.eventually("p.widgets.example.org.w", reporting=1)
        assert found["values"] == {"phase": {"Ready": 1}}
        assert found["aggregates"]["units"]["sum"] == 4
        await one.report("florin", None, f"{WIDGETS}/w")
        await one.gone("p.widgets.example.org.w")


async def test_after_a_restart_nothing_is_written() -> None:
    async with reported() as one:
        await one.report("florin", ready(1))
        await one.beat("florin", "guilder")
        await one.eventually(reporting=1)
        await one.world.at_rest()
        with one.world.fleet.hub.writes_nothing():
            await one.world.restart()
            await one.world.at_rest()
        assert await one.says(reporting=1)


async def test_changes_while_no_summarizer_ran_are_summarized_later() -> None:
    async with reported() as one:
        await one.world.must_put(one.cluster, DEPLOYMENTS, deployment("other", "httpd"))
        await one.eventually("p.deployments.apps.other", expected=2)
        await one.eventually(expected=2)
        await one.world.fleet.crash()
        await one.report("guilder", ready(1))
        await one.world.delete(one.cluster, f"{DEPLOYMENTS}/other")
        await one.world.start()
        await one.eventually(reporting=1)
        await one.gone("p.deployments.apps.other")


# --- questions ------------------------------------------------------------------------------------

ALL = [{"apiGroup": "apps", "resources": ["deployments"], "objectNames": ["*"], "statusCollectors": ["replicas"]}]


async def test_a_question_is_answered_in_the_summary() -> None:
    async with reported(downsync=ALL) as one:
        await one.eventually(expected=2)
        missing = await one.answer("replicas")
        assert missing is not None and "no StatusCollector" in missing["errors"][0]["message"]
        await one.ask(
            "replicas",
            filter="has(returned.status)",
            select=[
                {"name": "where", "def": "inventory.name"},
                {"name": "ready", "def": "returned.status.readyReplicas"},
                {"name": "image", "def": "obj.spec.template.spec.containers[0].image"},
            ],
        )
        await one.report("florin", ready(1))
        await one.report("guilder", ready(2, of=2))

        async def rows(*expected: tuple[object, ...]) -> bool:
            answer = await one.answer("replicas") or {}
            found = [
                tuple(cell.get("string", cell.get("float")) for cell in row["columns"])
                for row in answer.get("rows") or ()
            ]
            return found == list(expected)

        await one.world.fleet.eventually(
            lambda: rows(("florin", "1", "httpd"), ("guilder", "2", "httpd")), "the answer"
        )
        combined = [{"name": "all", "type": "SUM", "subject": "returned.status.readyReplicas"}]
        await one.ask("replicas", filter="has(returned.status)", combinedFields=combined)
        await one.world.fleet.eventually(lambda: rows(("3",)), "another answer")
        await one.report("guilder", ready(5, of=5))
        await one.world.fleet.eventually(lambda: rows(("6",)), "a new sum")


async def test_an_invalid_collector_reports_its_problem() -> None:
    async with reported(downsync=ALL) as one:

        async def valid(status: str, *words: str) -> bool:
            found = await one.world.get(one.cluster, f"{COLLECTORS}/replicas") or {}
            conditions = (found.get("status") or {}).get("conditions") or []
            return [one["status"] for one in conditions] == [status] and all(
                word in str(found["status"]) for word in words
            )

        await one.ask("replicas", select=[{"name": "x", "def": "nobody.knows("}])
        await one.world.fleet.eventually(lambda: valid("False", "spec.select[0].def"), "a condition")

        async def unanswered(why: str) -> bool:
            return (await one.answer("replicas") or {}).get("errors") == [{"message": why}]

        wrong = "it is invalid; its status has the errors"
        await one.world.fleet.eventually(lambda: unanswered(wrong), "no answer")
        await one.world.delete(one.cluster, f"{COLLECTORS}/replicas")
        missing = "there is no StatusCollector of this name"
        await one.world.fleet.eventually(lambda: unanswered(missing), "no question")
        await one.ask("replicas", select=[{"name": "x", "def": "inventory.name"}])
        await one.world.fleet.eventually(lambda: valid("True"), "a good condition")

        async def answered() -> bool:
            return len((await one.answer("replicas") or {}).get("rows") or ()) == 2

        await one.world.fleet.eventually(answered, "the answer")


async def test_questions_may_be_about_labels_of_locations() -> None:
    async with reported(downsync=ALL) as one:
        count = [{"name": "n", "type": "COUNT"}]
        group = [{"name": "tier", "def": "'tier' in inventory.labels ? inventory.labels.tier : 'none'"}]
        await one.ask("replicas", combinedFields=count, groupBy=group)

        async def tiers(*expected: str) -> bool:
            answer = await one.answer("replicas") or {}
            return [row["columns"][0].get("string") for row in answer.get("rows") or ()] == list(expected)

        await one.world.fleet.eventually(lambda: tiers("none"), "one group")
        await one.world.location("florin", tier="gold")
        await one.world.fleet.eventually(lambda: tiers("gold", "none"), "two groups")


# --- the status of the only copy ------------------------------------------------------------------


def marks(obj: Obj) -> tuple[str | None, str | None]:
    labels, annotations = (obj["metadata"].get(section) or {} for section in ("labels", "annotations"))
    return labels.get(COUNT), annotations.get(RETURNED)


async def becomes(one: Reported, *expected: str | None, replicas: int | None) -> None:
    async def is_so() -> bool:
        found = await one.source()
        return marks(found) == expected and (found.get("status") or {}).get("readyReplicas") == replicas

    await one.world.fleet.eventually(is_so, f"{expected} {replicas}")


async def test_the_status_of_the_only_copy_is_returned_and_removed_when_there_are_more() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await becomes(one, "1", None, replicas=None)
        await one.report("florin", ready(1))
        await becomes(one, "1", "florin", replicas=1)
        await one.report("florin", ready(2, of=2))
        await becomes(one, "1", "florin", replicas=2)
        copy = await one.world.copy("florin", f"{DEPLOYMENTS}/web")
        assert copy is not None and marks(copy) == (None, None)
        await one.world.fleet.target(one.world.inventory, "guilder", {"id": "guilder"})
        await one.world.location("guilder")
        await becomes(one, "2", None, replicas=None)


async def test_status_and_annotations_are_removed_when_no_placement_asks_for_them() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await one.report("florin", ready(1))
        await becomes(one, "1", "florin", replicas=1)
        patch = {"spec": {"wantSingletonReportedState": False}}
        await one.world.patch(one.cluster, f"{EDGE}/edgeplacements/p", patch)
        await becomes(one, None, None, replicas=None)


@pytest.mark.parametrize("crashed", [False, True])
async def test_a_deleted_placement_leaves_nothing_in_the_object(crashed: bool) -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await one.report("florin", ready(1))
        await becomes(one, "1", "florin", replicas=1)
        if crashed:
            await one.world.fleet.crash()
        await one.world.delete(one.cluster, f"{EDGE}/edgeplacements/p")
        if crashed:
            await one.world.start()
        await becomes(one, None, None, replicas=None)


async def test_a_returned_status_that_another_client_changes_is_restored() -> None:
    async with reported("florin", wantSingletonReportedState=True) as one:
        await one.report("florin", ready(1))
        await becomes(one, "1", "florin", replicas=1)
        await one.world.patch(one.cluster, f"{DEPLOYMENTS}/web/status", {"status": {"readyReplicas": 7}})
        await becomes(one, "1", "florin", replicas=1)


async def test_the_namespace_of_summaries_is_not_copied() -> None:
    async with world("florin", summarizes=True) as one:
        await one.must_put(one.workloads[0], NAMESPACES, namespace("edge-status", env="prod"))
        await one.must_put(one.workloads[0], NAMESPACES, namespace("shop", env="prod"))
        await one.placement(0, "p", namespaceSelector={})
        await one.fleet.eventually(lambda: one.has(["florin"], f"{NAMESPACES}/shop"), "a namespace")
        await one.at_rest()
        assert await one.lacks(["florin"], f"{NAMESPACES}/edge-status")
        config = await one.get(one.boxes["florin"], f"{EDGE}/syncerconfigs/the-one")
        assert config is not None and "edge-status" not in config["spec"]["namespaceScope"]["namespaces"]
