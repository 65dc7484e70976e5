"""The objects of a syncer, and how it is called."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.machinery.names import dns_label
from farflung.syncer.manifest import (
    HEALTH_PORT,
    LABEL_LENGTH,
    USER,
    MailboxServer,
    SyncerInstallation,
    as_yaml,
    edge_objects,
    find_token,
    identity,
    kubeconfig,
    mailbox_objects,
    policy_objects,
)
from farflung.syncer.rbac import edge_rules, synced_kinds

UID = "0c2bf0c3-3f0e-4b1e-8a3b-5a1e2d6f7a10"
SERVER = MailboxServer("https://hub.example.com:6443/clusters/abc", b"PEM")
NAME = identity("florin", UID)


def syncer(**how: Any) -> SyncerInstallation:
    return SyncerInstallation(
        "florin", UID, SERVER, **{"token": "a.b.c", "rules": edge_rules(synced_kinds({})), "image": "i:1", **how}
    )


def by_kind(objects: list[Obj]) -> dict[str, Obj]:
    return {obj["kind"]: obj for obj in objects}


# --- names ----------------------------------------------------------------------------------------


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", fullmatch=True), st.uuids().map(str))
def test_a_syncer_of_whatever_name_is_called_by_a_label(target: str, uid: str) -> None:
    assert dns_label(identity(target, uid)) == ()
    assert identity(target, uid) == identity(target, uid)


@given(st.text(), st.text())
def test_even_nonsense_becomes_a_label(target: str, uid: str) -> None:
    assert list(dns_label(identity(target, uid))) == []


def test_a_long_name_is_cut_and_stays_different_from_others() -> None:
    names = {identity("a" * 200, uid) for uid in ("1", "2", "3")}
    assert len(names) == 3
    assert {len(name) for name in names} == {LABEL_LENGTH}


def test_a_sync_target_made_anew_has_another_syncer() -> None:
    assert identity("florin", UID) != identity("florin", UID.replace("0", "1"))


# --- at the edge ----------------------------------------------------------------------------------


def test_everything_is_there_in_the_order_in_which_it_is_needed() -> None:
    kinds = [obj["kind"] for obj in edge_objects(syncer())]
    assert kinds == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Deployment"]


def test_the_same_syncer_has_the_same_manifest_and_another_token_changes_nothing_but_itself() -> None:
    one, other = (as_yaml(edge_objects(syncer(token=token))) for token in ("a.b.c", "d.e.f"))
    assert one == as_yaml(edge_objects(syncer()))
    different = [line for line, twin in zip(one.splitlines(), other.splitlines(), strict=True) if line != twin]
    assert different == [f"  token: {base64.b64encode(b'a.b.c').decode()}"]
    assert list(yaml.safe_load_all(one)) == edge_objects(syncer())


def test_the_kubeconfig_in_the_secret_leads_to_the_mailbox_with_a_token_that_can_change() -> None:
    data = by_kind(edge_objects(syncer()))["Secret"]["data"]
    config = yaml.safe_load(base64.b64decode(data["kubeconfig"]))
    assert config["clusters"][0]["cluster"] == {
        "server": SERVER.url,
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
    }
    assert config["users"][0]["user"] == {"tokenFile": "token"}
    assert base64.b64decode(data["token"]) == b"a.b.c"


def test_the_syncer_has_no_privileges_and_never_a_twin() -> None:
    spec = by_kind(edge_objects(syncer()))["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_the_manifest_names_the_sync_target_and_has_probes() -> None:
    [container] = by_kind(edge_objects(syncer()))["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "syncer",
        "--from-kubeconfig=/etc/farflung/kubeconfig",
        "--sync-target-name=florin",
        f"--sync-target-uid={UID}",
        "--state-directory=/var/lib/farflung/syncer",
        f"--token-secret={NAME}/{NAME}",
        f"--server-bind-address=:{HEALTH_PORT}",
    ]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["credentials"]["readOnly"] is True
    assert mounts["state"]["mountPath"] == "/var/lib/farflung"


def test_what_it_remembers_lasts_as_long_as_its_pod_or_as_a_claim() -> None:
    def state(**how: Any) -> Obj:
        [*_, volume] = by_kind(edge_objects(syncer(**how)))["Deployment"]["spec"]["template"]["spec"]["volumes"]
        return {name: value for name, value in volume.items() if name != "name"}

    assert state() == {"emptyDir": {"sizeLimit": "1Gi"}}
    assert state(claim="disk") == {"persistentVolumeClaim": {"claimName": "disk"}}


def test_a_namespace_labels_and_the_number_can_be_chosen() -> None:
    objects = edge_objects(syncer(namespace="here", labels={"team": "x"}, replicas=0))
    assert all(obj["metadata"]["labels"]["team"] == "x" for obj in objects)
    assert {obj["metadata"].get("namespace", "here") for obj in objects} == {"here"}
    kinds = by_kind(objects)
    assert kinds["Namespace"]["metadata"]["name"] == "here"
    assert kinds["ClusterRoleBinding"]["subjects"][0]["namespace"] == "here"
    assert kinds["Deployment"]["spec"]["replicas"] == 0


def test_the_image_runs_as_the_user_of_the_pod() -> None:
    file = (Path(__file__).parents[2] / "config" / "syncer" / "Containerfile").read_text().splitlines()
    assert f"USER {USER}:{USER}" in file
    assert 'ENTRYPOINT ["farflung"]' in file
    copied = [name for line in file if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]]
    assert all((Path(__file__).parents[2] / name).exists() for name in copied)


def test_labels_of_others_do_not_change_what_a_deployment_selects() -> None:
    labels = {"app.kubernetes.io/instance": "mine"}
    spec = by_kind(edge_objects(syncer(labels=labels)))["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_a_pod_starts_anew_when_the_hub_is_elsewhere_and_not_when_the_token_is_new() -> None:
    def template(**how: Any) -> Obj:
        found: Obj = by_kind(edge_objects(syncer(**how)))["Deployment"]["spec"]["template"]["metadata"]
        return found

    moved = SyncerInstallation("florin", UID, MailboxServer("https://elsewhere/clusters/abc"), "a.b.c", [], "i:1")
    assert template() == template(token="x.y.z")
    assert template() != by_kind(edge_objects(moved))["Deployment"]["spec"]["template"]["metadata"]


def test_the_kubeconfig_defines_the_trust_in_a_server() -> None:
    server = MailboxServer("https://1.2.3.4/clusters/x", name="hub", insecure=True)
    cluster = yaml.safe_load(kubeconfig(server, {"token": "t"}))["clusters"][0]["cluster"]
    assert cluster == {"server": server.url, "tls-server-name": "hub", "insecure-skip-tls-verify": True}


def test_a_token_is_not_shown_with_its_syncer() -> None:
    assert "a.b.c" not in repr(syncer())


# --- on the hub -----------------------------------------------------------------------------------


def test_the_owner_of_an_export_knows_a_syncer_by_its_mailbox_and_its_account() -> None:
    [role, binding] = policy_objects(NAME, "1x2y3z", [])
    assert binding["subjects"] == [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": f"apis.kcp.io:binding:system:kcp:serviceaccount:1x2y3z:farflung-syncer:{NAME}",
        }
    ]
    assert (role["metadata"]["name"], binding["roleRef"]["name"]) == ("farflung-syncers", "farflung-syncers")
    assert binding["metadata"]["name"] == NAME
    [_, account, *_] = mailbox_objects(NAME, [])
    assert (account["metadata"]["name"], account["metadata"]["namespace"]) == (NAME, "farflung-syncer")


# --- tokens in files ------------------------------------------------------------------------------


def test_a_token_is_found_in_what_was_written_before() -> None:
    assert find_token(as_yaml(edge_objects(syncer()))) == "a.b.c"
    assert find_token(kubeconfig(SERVER, {"token": "a.b.c"})) == "a.b.c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "kind: Secret\n",
        "kind: Secret\ndata: 3\n",
        "kind: Secret\ndata: {token: '%'}\n",
        "kind: Secret\ndata: {token: /w==}\n",
        "kind: Config\nusers: []\n",
        "- 1\n",
        "[" * 5000,
        "\x00",
    ],
)
def test_no_token_is_found_in_anything_else(text: str) -> None:
    assert find_token(text) == ""
