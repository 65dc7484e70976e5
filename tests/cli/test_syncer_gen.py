"""`farflung syncer-gen` without sockets: what is registered, waited for and told; and its options."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import click
import hub_harness
import pytest
import yaml
from local_transport import LocalTransport
from platform_harness import ALICE, OPERATOR, RBAC
from registered import LIFETIME, name_of, registry

from farflung.cli.settings import ServerOptions
from farflung.cli.syncer_gen import is_loopback, labels_of, lifetime_of, resources_of, server_of
from farflung.client.errors import Unauthorized
from farflung.client.rest import Client
from farflung.placement.names import GroupResource
from farflung.syncer.registration import RegistrationError, register, revoke

# --- registering ----------------------------------------------------------------------------------


async def test_registering_again_gives_the_same_and_writes_nothing_but_for_a_token() -> None:
    async with registry("florin") as one:
        first = await one.register("florin")
        before = one.fleet.hub.stored(first.cluster)
        compute = (await one.fleet.hub.of(OPERATOR, "GET", "/clusters/root:compute" + RBAC + "/clusterroles")).version
        second = await one.register("florin")
        assert one.fleet.hub.stored(first.cluster) == before
        assert (
            await one.fleet.hub.of(OPERATOR, "GET", "/clusters/root:compute" + RBAC + "/clusterroles")
        ).version == compute
        assert (first.uid, first.cluster, first.kinds) == (second.uid, second.cluster, second.kinds)
        assert first.token != second.token
        assert all(line.startswith("Waiting for ") for line in one.told)


async def test_a_token_that_it_had_is_kept_while_it_is_good_for_long_enough() -> None:
    async with registry("florin", "guilder") as one:
        had = (await one.register("florin")).token
        assert (await one.register("florin", token=had)).token == had
        assert (await one.register("florin", token=had, lifetime=LIFETIME // 2)).token != had
        assert (await one.register("guilder", token=had)).token != had
        assert (await one.register("florin", token="nonsense")).token != "nonsense"
        await revoke(one.operator, one.wanted("florin"))
        assert (await one.register("florin", token=had)).token != had


async def test_rights_follow_what_is_asked_for() -> None:
    async with registry("florin") as one:
        wide = await one.register("florin", everything=True)
        narrow = await one.register("florin", allowed=frozenset({GroupResource("batch", "jobs")}))
        path = f"/clusters/{wide.cluster}{RBAC}/clusterroles/{name_of('florin', wide)}"
        rules = (await one.fleet.hub.of(OPERATOR, "GET", path)).json["rules"]
        assert not any("*" in rule["apiGroups"] for rule in rules)
        assert any("jobs" in rule["resources"] for rule in rules)
        assert narrow.kinds.everything is False


async def test_what_is_left_out_is_told() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin")
        roles = {"apiVersion": "v1", "group": "rbac.authorization.k8s.io", "resource": "roles"}
        spec = {"namespaceScope": {"namespaces": ["shop"], "resources": [roles]}}
        path = f"/clusters/{registered.cluster}/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one"
        config = (await one.fleet.hub.of(OPERATOR, "GET", path)).json
        assert (await one.fleet.hub.of(OPERATOR, "PUT", path, config | {"spec": spec})).status == 200
        await one.register("florin")
        what = "rbac.authorization.k8s.io/roles is not allowed, although a placement selects it"
        assert one.told[-1] == f"Warning: {what}; allow it with --allow"


async def test_who_is_shut_out_is_refused_at_once() -> None:
    async with registry("florin") as one:
        registered = await one.register("florin")
        client = one.syncer(registered)
        await client.raw("/apis/edge.kcp.io/v1alpha1/syncerconfigs")
        name = name_of("florin", registered)
        gone = await revoke(one.operator, one.wanted("florin"))
        assert gone == [f"{kind} {name}" for kind in ("ServiceAccount", "ClusterRoleBinding", "ClusterRole")]
        with pytest.raises(Unauthorized):
            await client.raw("/apis/edge.kcp.io/v1alpha1/syncerconfigs")
        assert await revoke(one.operator, one.wanted("florin")) == []


# --- what is in the way ---------------------------------------------------------------------------


async def test_a_mailbox_that_does_not_come_is_told_of_and_given_up() -> None:
    async with registry("florin") as one:
        await one.fleet.crash()
        await one.fleet.target(one.inventory, "late", {})
        with pytest.raises(RegistrationError) as given_up:
            await one.register("late", seconds=0.3)
        assert one.told[0].startswith("Waiting for the mailbox root:espw:")
        assert "gave up after 0.3 s of waiting for the mailbox root:espw:" in str(given_up.value)
        assert "the mailbox controller creates it; is it running?" in str(given_up.value)


async def test_a_mailbox_that_comes_late_is_waited_for() -> None:
    async with registry() as one:
        await one.fleet.target(one.inventory, "florin", {})
        assert (await one.register("florin")).cluster


async def test_a_sync_target_that_is_not_there_is_said_so() -> None:
    async with registry() as one:
        with pytest.raises(RegistrationError, match="has no SyncTarget nowhere; select another one with --workspace"):
            await one.register("nowhere")


async def test_who_may_not_write_in_root_compute_has_a_syncer_and_a_warning() -> None:
    async with registry("florin") as one:
        ready = await one.register("florin")
        hub = one.fleet.hub
        for cluster, number in ((one.inventory, 1), ("root:espw", 2), (ready.cluster, 3)):
            everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
            access = {"nonResourceURLs": ["*"], "verbs": ["*"]}
            await hub.grant(cluster, f"alice-{number}", "alice", everything, access)
        client = Client(LocalTransport(hub.function, ALICE), f"/clusters/{one.inventory}", "alice")
        registered = await register(client, one.wanted("florin"), one.told.append, lambda: hub.now.timestamp())
        assert registered.cluster == ready.cluster
        assert one.told[-1].startswith(
            "Warning: you may not allow syncers to return the status of kinds exported by root:compute"
        )


# --- options --------------------------------------------------------------------------------------


def test_a_lifetime_has_a_unit_and_limits() -> None:
    assert lifetime_of("30d") == LIFETIME
    assert lifetime_of("10m") == 600
    for wrong in ("30", "9m", "", "1y", "99999d"):
        with pytest.raises(click.BadParameter):
            lifetime_of(wrong)


def test_several_kinds_are_named_at_once() -> None:
    assert resources_of(["batch/jobs,core/events", "x"]) == {
        GroupResource("batch", "jobs"),
        GroupResource("", "events"),
        GroupResource("", "x"),
    }
    with pytest.raises(click.BadParameter):
        resources_of(["*/*"])


def test_labels_are_pairs() -> None:
    assert labels_of(["b=2,a=1", "example.com/c="]) == {"a": "1", "b": "2", "example.com/c": ""}
    for wrong in ("a", "=b", "a=b c", "a=é"):
        with pytest.raises(click.BadParameter):
            labels_of([wrong])


def config(tmp_path: Path, **cluster: Any) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def test_a_syncer_trusts_whom_we_trust(tmp_path: Path, authority: bytes) -> None:
    data = base64.b64encode(authority).decode()
    said = {"server": "https://hub:6443/clusters/root", "certificate-authority-data": data, "tls-server-name": "n"}
    server = server_of(ServerOptions(kubeconfig=config(tmp_path, **said)), "")
    assert (server.url, server.authority, server.name) == ("https://hub:6443", authority, "n")
    (tmp_path / "ca.crt").write_bytes(authority)
    named = config(tmp_path, server="https://hub:6443", **{"certificate-authority": "ca.crt"})
    assert server_of(ServerOptions(kubeconfig=named), "https://hub.example.com").authority == authority
    assert server_of(ServerOptions(kubeconfig=named), "https://hub.example.com/").url == "https://hub.example.com"


@pytest.fixture
def authority() -> bytes:
    return hub_harness.authority().ca_pem


@pytest.mark.parametrize("url", ["hub", "http://hub", "https://u@hub", "https://hub/clusters/x", "https://"])
def test_what_is_no_address_of_a_server_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(click.BadParameter):
        server_of(ServerOptions(kubeconfig=config(tmp_path, server="https://hub:6443")), url)


def test_an_address_that_no_other_machine_can_reach_is_recognized() -> None:
    assert all(is_loopback(url) for url in ("https://127.0.0.1:1/x", "https://localhost", "https://[::1]:6443"))
    assert not any(is_loopback(url) for url in ("https://10.0.0.1", "https://hub.example.com"))
