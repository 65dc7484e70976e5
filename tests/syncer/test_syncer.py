"""What a mailbox holds is at the edge, what the edge says of it is in the mailbox, and what is withdrawn goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from syncing import CONFIGS, DEPLOYMENTS, MAPS, NAMESPACES, Link, gone, linked, scope
from translated import config_map, deployment, namespace

from farflung.apis.edge.names import DOWNSYNCED, SYNCER_FINALIZER
from farflung.apis.names import PODS
from farflung.client.errors import Forbidden
from farflung.client.transport import OutgoingRequest
from farflung.syncer import downsync, upsync
from farflung.syncer.metrics import SyncerMetrics

GONE = "the hub cannot be reached"


async def furnished(link: Link) -> None:
    await link.configure(scope("shop"))
    await link.put(NAMESPACES, namespace("shop"))
    await link.put(MAPS, config_map("page", {"index.html": "hello"}), "shop")
    await link.put(DEPLOYMENTS, deployment("web", "httpd"), "shop")


async def test_a_copy_is_applied_at_the_edge_with_annotation_and_finalizer(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        page = await link.at_edge(MAPS, "page", "shop")
        assert page["data"] == {"index.html": "hello"}
        assert page["metadata"]["annotations"] == {DOWNSYNCED: "ConfigMap/shop/page"}
        await link.at_edge(DEPLOYMENTS, "web", "shop")
        copy = await link.mailbox.get(MAPS, "page", "shop")
        assert copy["metadata"]["finalizers"] == [SYNCER_FINALIZER]


async def test_writes_are_counted_in_the_metrics(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(MAPS, "page", "shop")
        registry = CollectorRegistry()
        registry.register(SyncerMetrics(link.syncer.summary, link.syncer.controllers))
        assert (registry.get_sample_value("farflung_syncer_writes_total", {"what": "apply"}) or 0) >= 2


async def test_a_change_follows_and_so_does_what_is_taken_away(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(MAPS, "page", "shop")
        await link.mailbox.patch(MAPS, "page", {"data": {"index.html": None, "other": "1"}}, "shop")

        async def changed() -> bool:
            return (await link.cluster.get(MAPS, "page", "shop"))["data"] == {"other": "1"}

        await link.eventually(changed, "the change")


async def test_the_status_of_a_deployment_is_returned(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(DEPLOYMENTS, "web", "shop")
        for replicas in (1, 2):
            status = {"status": {"replicas": replicas, "observedGeneration": 1}}
            await link.cluster.patch(DEPLOYMENTS, "web", status, "shop", "status")

            async def returned(replicas: int = replicas) -> bool:
                copy = await link.mailbox.get(DEPLOYMENTS, "web", "shop")
                return bool(copy["status"]["replicas"] == replicas)

            await link.eventually(returned, "the status")


async def test_the_status_says_which_generation_of_the_copy_the_edge_runs_also_after_a_restart(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(DEPLOYMENTS, "web", "shop")

        async def observe(replicas: int) -> None:
            """As the controller of the edge does."""
            live = await link.cluster.get(DEPLOYMENTS, "web", "shop")
            status = {"replicas": replicas, "observedGeneration": live["metadata"]["generation"]}
            await link.cluster.patch(DEPLOYMENTS, "web", {"status": status}, "shop", "status")

        async def returns(replicas: int, lag: int) -> None:
            async def does() -> bool:
                copy = await link.mailbox.get(DEPLOYMENTS, "web", "shop")
                status = copy.get("status") or {}
                expected = replicas, copy["metadata"]["generation"] - lag
                return (status.get("replicas"), status.get("observedGeneration")) == expected

            await link.eventually(does, "the status")

        for number in (1, 2):  # the generations of the edge differ from those of the copy
            await link.cluster.patch(DEPLOYMENTS, "web", {"spec": {"minReadySeconds": number}}, "shop")
        await observe(1)
        await returns(1, 0)
        await link.mailbox.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}}, "shop")
        await returns(1, 1)
        await link.restart()
        await observe(2)
        await returns(2, 0)


async def test_a_pod_that_does_not_start_is_reported_in_the_status_of_its_workload_until_the_rollout_ends(
    tmp_path: Path,
) -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    container = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    async with linked(tmp_path) as link:
        await furnished(link)
        live = await link.at_edge(DEPLOYMENTS, "web", "shop")
        labels = live["spec"]["selector"]["matchLabels"]
        spec = {"containers": [{"name": "main", "image": "x"}]}
        for name, its in (("web-1", labels), ("other", {"app": "other"})):
            metadata = {"name": name, "labels": its}
            await link.cluster.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "shop"
            )
            status = {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}
            await link.cluster.patch(PODS, name, {"status": status}, "shop", "status")

        async def returns(reason: str | None, **status: int) -> None:
            await link.cluster.patch(DEPLOYMENTS, "web", {"status": status}, "shop", "status")

            async def does() -> bool:
                found = (await link.mailbox.get(DEPLOYMENTS, "web", "shop")).get("status") or {}
                reasons = [(one["type"], one["reason"]) for one in found.get("conditions") or ()]
                expected = [] if reason is None else [("edge.kcp.io/PodsStuck", reason)]
                return reasons == expected and status.items() <= found.items()

            await link.eventually(does, f"the reason {reason}")

        await returns("ImagePullBackOff", replicas=1)
        await link.cluster.delete(PODS, "web-1", "shop")
        await returns(None, replicas=1, updatedReplicas=1)
        await returns(None, replicas=1, updatedReplicas=1, readyReplicas=1, availableReplicas=1)


async def test_a_deleted_copy_is_deleted_at_the_edge_first_and_then_in_the_mailbox(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(MAPS, "page", "shop")
        await link.mailbox.delete(MAPS, "page", "shop")
        await link.gone_at_edge(MAPS, "page", "shop")
        await link.gone_in_mailbox(MAPS, "page", "shop")
        assert not await gone(link.cluster, DEPLOYMENTS, "web", "shop")


async def test_the_syncer_says_that_it_lives_and_how_far_it_is(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(DEPLOYMENTS, "web", "shop")

        async def told() -> bool:
            report = await link.report()
            return bool(report["objects"]["synced"] == 3 and report["objects"]["pending"] == 0)

        await link.eventually(told, "the report")
        report = await link.report()
        assert report["lastSyncerHeartbeatTime"]
        assert report["problems"] == []
        copy = await link.mailbox.get(MAPS, "page", "shop")
        through = {one["resource"]: int(one["resourceVersion"]) for one in report["syncedThrough"]}
        assert through["configmaps"] <= int(copy["metadata"]["resourceVersion"])
        assert {one["type"]: one["status"] for one in report["conditions"]} == {
            "EdgeReachable": "True",
            "OrphansPresent": "False",
            "Synced": "True",
        }
        assert (await link.mailbox.get(CONFIGS, "the-one"))["spec"]


def logged(link: Link, words: str) -> list[str]:
    return [line for line in link.log.getvalue().splitlines() if f'"{words}"' in line]


async def test_an_unreachable_hub_and_its_return_are_logged_once(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.settled()
        link.up.before = 1_000_000
        link.up.cut()
        await link.eventually(lambda: logged(link, "cannot report"), "a second failure")
        await link.eventually(lambda: logged(link, "cannot watch the mailbox"), "a watch that fails")
        assert not logged(link, "the hub can be reached again")
        link.up.before = 0
        await link.eventually(lambda: logged(link, "the hub can be reached again"), "the return of the hub")
        [lost], [back] = logged(link, f"{GONE}; continuing without it"), logged(link, "the hub can be reached again")
        assert (lost[0], back[0]) == ("W", "I")
        assert 'error="the line broke"' in lost
        assert any('resource="syncerconfigs.edge.kcp.io"' in line for line in link.log.getvalue().splitlines())
        assert "Resource(" not in link.log.getvalue()


async def test_a_hub_that_refuses_reports_is_not_unreachable(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.settled()

        async def refuse(request: OutgoingRequest) -> None:
            if request.method == "PATCH":
                raise Forbidden(403, "Forbidden", "not you")

        link.up.gate = refuse
        await link.eventually(lambda: logged(link, "cannot report"), "a second failure")
        assert len(logged(link, "cannot report to the hub; continuing without it")) == 1
        link.up.gate = None
        await link.eventually(lambda: logged(link, "the hub takes reports again"), "a report")
        assert GONE not in link.log.getvalue()


async def test_an_unreachable_edge_and_its_return_are_logged_once(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.settled()
        link.down.before = 1_000_000
        await link.eventually(lambda: logged(link, "the edge cannot be reached"), "the loss of the edge")
        await link.eventually(lambda: link.down.before < 1_000_000 - 5, "further tries")
        assert not logged(link, "the edge can be reached again")
        link.down.before = 0
        await link.eventually(lambda: logged(link, "the edge can be reached again"), "the return of the edge")
        [lost], [back] = logged(link, "the edge cannot be reached"), logged(link, "the edge can be reached again")
        assert (lost[0], back[0]) == ("W", "I")
        assert ' error="' in lost


async def test_a_change_that_is_taken_back_is_taken_back_although_its_answer_was_lost(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(MAPS, "page", "shop")
        await link.settled()
        link.down.after = 1_000_000
        await link.mailbox.patch(MAPS, "page", {"data": {"index.html": "other"}}, "shop")
        await link.eventually(lambda: shows(link, "other"), "the change")
        await link.mailbox.patch(MAPS, "page", {"data": {"index.html": "hello"}}, "shop")
        link.down.after = 0
        await link.eventually(lambda: shows(link, "hello"), "the change back")


async def test_a_change_that_is_taken_back_is_taken_back_although_the_syncer_was_killed(tmp_path: Path) -> None:
    async with linked(tmp_path) as link:
        await furnished(link)
        await link.at_edge(MAPS, "page", "shop")
        await link.settled()
        link.forget()
        await link.mailbox.patch(MAPS, "page", {"data": {"index.html": "other"}}, "shop")
        await link.eventually(lambda: shows(link, "other"), "the change")
        await link.stop(forgetting=True)
        await link.mailbox.patch(MAPS, "page", {"data": {"index.html": "hello"}}, "shop")
        await link.start()
        await link.eventually(lambda: shows(link, "hello"), "the change back")


async def test_our_object_is_applied_after_an_unmanaged_one_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downsync, "RECHECK_SECONDS", 0.01)  # nobody tells us of it
    async with linked(tmp_path) as link:
        await link.cluster.create(NAMESPACES, namespace("shop"))
        await link.cluster.create(MAPS, config_map("page", {"index.html": "mine"}), "shop")
        await furnished(link)

        async def refused() -> bool:
            return bool((await link.report())["problems"][0]["reason"] == "NotManaged")

        await link.eventually(refused, "the report")
        await link.cluster.delete(MAPS, "page", "shop")
        await link.eventually(lambda: shows(link, "hello"), "what the hub wants")


async def test_an_upsynced_namespace_stays_in_the_mailbox_while_it_contains_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsync, "RECHECK_SECONDS", 0.01)  # nobody tells us of it
    async with linked(tmp_path) as link:
        up = {"apiGroup": "", "resources": ["namespaces"], "namespaces": [], "names": ["local"]}
        await link.configure(scope("local", upsync=[up]))
        await link.cluster.create(NAMESPACES, namespace("local"))
        await link.eventually(lambda: link.mailbox.get(NAMESPACES, "local"), "the namespace in the mailbox")
        await link.put(MAPS, config_map("page", {}), "local")
        uid = (await link.at_edge(MAPS, "page", "local"))["metadata"]["uid"]
        await link.configure(scope("local"))

        async def told() -> bool:
            return [one["reason"] for one in (await link.report())["problems"]] == ["NotEmpty"]

        await link.eventually(told, "the report")
        assert (await link.cluster.get(MAPS, "page", "local"))["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in (await link.mailbox.get(NAMESPACES, "local"))["metadata"]
        await link.mailbox.delete(MAPS, "page", "local")
        await link.gone_in_mailbox(NAMESPACES, "local")
        assert not await gone(link.cluster, NAMESPACES, "local")


async def shows(link: Link, words: str) -> bool:
    return bool((await link.cluster.get(MAPS, "page", "shop"))["data"]["index.html"] == words)
