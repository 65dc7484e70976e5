"""Syncers as their users first described them: what the configurations in a mailbox name comes to the edge and back,
and no more."""

from __future__ import annotations

from typing import Any

import pytest
from edge_contract import Link, is_gone
from edge_objects import (
    DEFINITIONS,
    DEPLOYMENTS,
    MAPS,
    NAMESPACES,
    SECRETS,
    definition,
    deployment,
    obj,
    parts,
    scope,
    upsync,
    whole,
)

from farflung.apis.names import Collection
from farflung.machinery.errors import Obj


def named(collection: Collection, name: str, namespace: str = "") -> Obj:
    """As an EdgeSyncConfig has it."""
    head = {"kind": collection.kind, "group": collection.group, "version": collection.version, "name": name}
    return {**head, "namespace": namespace} if namespace else head


# --- custom resources -----------------------------------------------------------------------------


async def samples_go_down_and_up(link: Link, samples: Collection, namespace: str) -> None:
    """The definition is in the mailbox and goes to the edge; then one goes down, and one is born there."""
    await link.put(NAMESPACES, obj(NAMESPACES, namespace))
    await link.put(samples, obj(samples, "sample-downsync", {"spec": {"foo": "bar"}}), namespace)
    await link.start()
    found = await link.at_edge(samples, "sample-downsync", namespace)
    assert found["spec"] == {"foo": "bar"}
    born = obj(samples, "sample-upsync", {"spec": {"foo": "born"}})
    await link.at_edge_already(samples, born, namespace)
    copy = await link.in_mailbox(samples, "sample-upsync", namespace)
    assert copy["spec"] == {"foo": "born"}
    await link.cluster.patch(samples, "sample-upsync", {"spec": {"foo": "edited"}}, namespace)
    await link.in_mailbox(samples, "sample-upsync", namespace, lambda one: one["spec"] == {"foo": "edited"})


async def test_an_edge_sync_config_brings_a_custom_resource_down_and_another_one_up(link: Link) -> None:
    samples, namespace = link.kind("samples", "Sample", "v1alpha1"), link.called("test")
    described = definition(samples)
    await link.define(link.mailbox, samples=described)
    await link.configure_old(
        downSyncedResources=[
            named(NAMESPACES, namespace),
            named(DEFINITIONS, described["metadata"]["name"]),
            named(samples, "sample-downsync", namespace),
        ],
        upSyncedResources=[named(samples, "sample-upsync", namespace)],
    )
    await link.register(down=[samples], up=[samples])
    await samples_go_down_and_up(link, samples, namespace)
    other = obj(samples, "of-no-interest", {"spec": {"foo": "born"}})
    await link.at_edge_already(samples, other, namespace)
    await link.settled()
    assert await is_gone(link.mailbox, samples, "of-no-interest", namespace)


@pytest.mark.parametrize("variant", ["namespaceScope", "namespacedObjects", "wildcards"])
async def test_a_syncer_config_brings_a_custom_resource_down_and_another_one_up(link: Link, variant: str) -> None:
    samples, others = link.kind("samples", "Sample"), link.kind("anothers", "Another")
    namespace = link.called("test")
    described = [definition(samples), definition(others)]
    await link.define(link.mailbox, samples=described[0], others=described[1])
    down: Obj = {"namespaceScope": scope([namespace], samples, others)}
    up = upsync(samples.group, ["samples"], [namespace], ["sample-upsync"])
    if variant == "namespacedObjects":
        some = {namespace: ["sample-downsync"]}
        down = {"namespacedObjects": [parts(samples, **some), parts(others, **some)]}
    elif variant == "wildcards":
        everything = {namespace: ["*"]}
        down = {"namespacedObjects": [parts(samples, **everything), parts(others, **everything)]}
        up = upsync(samples.group, ["*"], ["*"], ["*"])
    await link.configure(
        **down, clusterScope=[whole(DEFINITIONS, *(one["metadata"]["name"] for one in described))], upsync=[up]
    )
    await link.register(up=[samples, others])
    await link.put(NAMESPACES, obj(NAMESPACES, link.called("of-no-interest")))
    await samples_go_down_and_up(link, samples, namespace)
    await link.put(others, obj(others, "sample-downsync", {"spec": {"foo": "other"}}), namespace)
    await link.at_edge(others, "sample-downsync", namespace, lambda one: one["spec"] == {"foo": "other"})
    assert await is_gone(link.cluster, NAMESPACES, link.called("of-no-interest"))
    await link.no_problem()


# --- namespaced objects ---------------------------------------------------------------------------


async def test_only_what_is_named_of_a_namespace_goes_down(link: Link) -> None:
    every = ("test1", "test2", "test3", "should-not-synced")
    test1, test2, test3, fourth = [await link.put_namespace(name) for name in every]
    for namespace in (test1, test2, test3, fourth):
        for name in ("cm1", "cm2"):
            await link.put_map(namespace, name, of=name)
        await link.put(SECRETS, obj(SECRETS, "s1", {"stringData": {"of": "s1"}}), namespace)
    await link.configure(
        namespaceScope=scope([test1], MAPS, SECRETS),
        namespacedObjects=[
            parts(MAPS, **{test2: ["cm1"], fourth: []}),
            parts(SECRETS, **{test3: ["s1"]}),
        ],
    )
    await link.start()
    for collection, name, namespace in (
        (MAPS, "cm1", test1),
        (MAPS, "cm2", test1),
        (SECRETS, "s1", test1),
        (MAPS, "cm1", test2),
        (SECRETS, "s1", test3),
    ):
        await link.at_edge(collection, name, namespace)
    await link.settled()
    for collection, name, namespace in (
        (MAPS, "cm2", test2),
        (SECRETS, "s1", test2),
        (MAPS, "cm1", test3),
        (NAMESPACES, fourth, ""),
    ):
        assert await is_gone(link.cluster, collection, name, namespace), (name, namespace)


# --- policies and their reports -------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["SyncerConfig", "EdgeSyncConfig", "both"])
async def test_a_policy_and_its_controller_go_down_and_reports_come_up(link: Link, variant: str) -> None:
    policies = link.kind("clusterpolicies", "ClusterPolicy")
    reports, cluster_reports = (
        link.kind("policyreports", "PolicyReport"),
        link.kind("clusterpolicyreports", "ClusterPolicyReport"),
    )
    definitions = {
        "policies": definition(policies, namespaced=False),
        "reports": definition(reports),
        "cluster_reports": definition(cluster_reports, namespaced=False),
    }
    await link.define(link.mailbox, **definitions)
    names = [one["metadata"]["name"] for one in definitions.values()]
    home = await link.put_namespace("kyverno")
    await link.put(DEPLOYMENTS, deployment("kyverno"), home)
    await link.put(policies, obj(policies, "sample-policy", {"spec": {"validationFailureAction": "audit"}}))
    new: dict[str, Any] = {
        "namespaceScope": scope([home], DEPLOYMENTS),
        "clusterScope": [whole(DEFINITIONS, *names), whole(policies, "sample-policy")],
        "upsync": [upsync(reports.group, ["policyreports", "clusterpolicyreports"], ["*"], ["*"])],
    }
    old: dict[str, Any] = {
        "downSyncedResources": [
            named(NAMESPACES, home),
            *(named(DEFINITIONS, name) for name in names),
            named(DEPLOYMENTS, "*", home),
            named(policies, "sample-policy"),
        ],
        "upSyncedResources": [named(reports, "*", "*"), named(cluster_reports, "*")],
    }
    if variant != "EdgeSyncConfig":
        await link.configure(**new)
    if variant != "SyncerConfig":
        await link.configure_old(**old)
    await link.register(down=[policies], up=[reports, cluster_reports])
    await link.start()
    await link.at_edge(DEPLOYMENTS, "kyverno", home)
    await link.at_edge(policies, "sample-policy")
    for one in names:
        await link.established(link.cluster, one)
    elsewhere = link.called("audited")
    await link.at_edge_already(reports, obj(reports, "sample-policy", {"spec": {"pass": 1}}), elsewhere)
    await link.at_edge_already(cluster_reports, obj(cluster_reports, "sample-policy", {"spec": {"fail": 2}}))
    await link.in_mailbox(reports, "sample-policy", elsewhere, lambda one: one["spec"] == {"pass": 1})
    await link.in_mailbox(cluster_reports, "sample-policy", holds=lambda one: one["spec"] == {"fail": 2})
    await link.cluster.delete(cluster_reports, "sample-policy")
    await link.gone_in_mailbox(cluster_reports, "sample-policy")
