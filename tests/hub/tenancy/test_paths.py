"""Which cluster a text means."""

from __future__ import annotations

import asyncio

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tenancy_harness import LocalTenancy, workspace_controller

from farflung.hub.tenancy.paths import invalid_cluster, is_path


@pytest.mark.parametrize("text", ["root", "a", "root:a-b:c", "0", "system:admin", "a" * 63])
def test_names_and_paths_look_like_that(text: str) -> None:
    assert is_path(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":",
            "root:",
            ":root",
            "root::a",
            "Root",
            "ROOT",
            "a.b",
            "-a",
            "a-",
            "a_b",
            "a" * 64,
            "*",
            "root:*",
            "..",
        ),
        *("root/..", "root%2Fa", "root\n", "root:a\n", "ro\x00ot", "röot", "٣"),
        "root:" + ":".join("a" * 63 for _ in range(999)),
    ],
)
def test_what_does_not_is_no_path(text: str) -> None:
    assert not is_path(text)
    assert invalid_cluster(text).code == 400


def test_a_malformed_cluster_is_refused_with_kcps_message() -> None:
    assert invalid_cluster("Bad_Name").message == 'invalid cluster: "Bad_Name" does not match the regex'


async def test_names_and_paths_lead_to_clusters_that_exist() -> None:
    local = await LocalTenancy.in_memory()
    organization = (await local.create("root", "org"))["spec"]["cluster"]
    child = (await local.create(organization, "kid"))["spec"]["cluster"]
    resolve = local.clusters.resolve
    assert resolve("root") == "root"
    assert resolve("root:org") == resolve(organization) == organization
    assert resolve("root:org:kid") == resolve(f"{organization}:kid") == child
    assert local.clusters.path_of(child) == "root:org:kid"
    for text in ("nosuch", "root:nosuch", "nosuch:org", "root:org:kid:x", "user", "user:nobody", "system:admin", "*"):
        assert resolve(text) is None


async def test_a_workspace_without_a_cluster_leads_nowhere() -> None:
    local = await LocalTenancy.in_memory()
    await local.create("root", "o6", location={"selector": {"matchLabels": {"no": "such"}}})
    assert local.clusters.resolve("root:o6") is None
    assert local.clusters.resolve("root:o6:x") is None


async def test_a_path_is_not_believed_but_walked() -> None:
    local = await LocalTenancy.in_memory()
    cluster = (await local.create("root", "org"))["spec"]["cluster"]
    key = f"/core.kcp.io/logicalclusters/{cluster}/cluster"
    entry = local.store.get(key)
    assert entry is not None
    lying = entry.value.replace(b'"kcp.io/path":"root:org"', b'"kcp.io/path":"user:kcp-admin"')
    await local.store.put(key, lying, expect=entry.revision)
    assert local.clusters.path_of(cluster) == "root:org"


Step = tuple[str, int, int]
STEPS = st.lists(st.tuples(st.sampled_from(["create", "create", "delete"]), st.integers(0, 9), st.integers(0, 3)))


@given(STEPS)
@settings(max_examples=examples(40))
def test_after_any_history_paths_lead_where_a_walk_does(steps: list[Step]) -> None:
    asyncio.run(live(steps))


async def live(steps: list[Step]) -> None:
    local = await LocalTenancy.in_memory()
    seen = ["root"]
    async with workspace_controller(local) as controller:
        for verb, at, number in steps:
            parent, name = seen[at % len(seen)], f"w{number}"
            cluster, present = local.clusters.resolve(parent), local.clusters.resolve(f"{parent}:{name}")
            if cluster is None:
                continue
            if verb == "create" and present is None:
                await local.create(cluster, name, type={"name": "universal", "path": "root"})
                seen.append(f"{parent}:{name}")
            elif verb == "delete" and present is not None:
                await local.delete(cluster, name)
                await controller.queue.finished()
            for text in seen:
                assert local.clusters.resolve(text) == local.walked(text)
                found = local.clusters.resolve(text)
                assert found is None or local.clusters.path_of(found) == text
    clusters = {key.split("/")[3] for key in local.stored()}
    assert clusters == {local.clusters.resolve(text) for text in seen} - {None}
