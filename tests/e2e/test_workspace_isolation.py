"""A real hub with workspaces, attacked over the wire by those who may see one of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hub_process import FARFLUNG, HubProcess, Json, Reply

TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRET = "what-only-bob-may-know"


def token_of(directory: Path, name: str, *groups: str) -> str:
    options = [option for group in groups for option in ("--group", group)]
    command = [FARFLUNG, "token", "create", name, *options, "--root-directory", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Tenants:
    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.tokens = {name: token_of(hub.directory, name) for name in ("alice", "bob")}
        self._make("root", "org", "")
        self.alices = self._make("root:org", "alices", "alice")
        self.bobs = self._make("root:org", "bobs", "bob")
        with hub.client() as client:
            body = {"metadata": {"name": "his"}, "data": {"k": SECRET}}
            client.create(f"/clusters/{self.bobs}{MAPS}", body)
            account = f"/clusters/{self.alices}/api/v1/namespaces/default/serviceaccounts/default/token"
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            self.tokens["robot"] = client.create(account, review)["status"]["token"]

    def _make(self, parent: str, name: str, owner: str) -> str:
        spec = {"type": {"name": "universal", "path": "root"}}
        body: Json = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        with self.hub.client() as client:
            made = client.create(f"/clusters/{parent}{TENANCY}/workspaces", {**body, "spec": spec})
            cluster: str = made["spec"]["cluster"]
            if owner:
                group = "rbac.authorization.k8s.io"
                role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
                subjects = [{"apiGroup": group, "kind": "User", "name": owner}]
                bound = {"metadata": {"name": "owner"}, "roleRef": role, "subjects": subjects}
                client.create(f"/clusters/{cluster}{RBAC}/clusterrolebindings", bound)
        return cluster

    def send(self, who: str, method: str, path: str, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        with self.hub.client() as client:
            return client.request(method, path, headers={"Authorization": f"Bearer {self.tokens[who]}", **sent})

    def raw(self, who: str, target: bytes) -> bytes:
        """The answer to a request line of any bytes."""
        head = b"GET %b HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nAuthorization: Bearer %b\r\n\r\n"
        with self.hub.raw() as connection:
            connection.sendall(head % (target, self.tokens[who].encode()))
            answer = b""
            while part := connection.recv(65536):
                answer += part
        return answer


@pytest.fixture(scope="session")
def tenants(session_workspaces: HubProcess) -> Tenants:
    return Tenants(session_workspaces)


def test_only_each_owner_has_access(tenants: Tenants) -> None:
    assert SECRET in tenants.send("bob", "GET", f"/clusters/root:org:bobs{MAPS}").body.decode()
    assert tenants.send("alice", "GET", f"/clusters/{tenants.alices}{MAPS}").status == 200
    for who in ("alice", "robot"):
        assert tenants.send(who, "GET", f"/clusters/{tenants.bobs}{MAPS}").status == 403


TARGETS = [
    "/clusters/BOBS{}",
    "/clusters/root:org:bobs{}",
    "/clusters/root%3Aorg%3Abobs{}",
    "/clusters/*{}",
    "/clusters/%2A{}",
    "/clusters/ALICES/../BOBS{}",
    "/clusters/ALICES%2F..%2FBOBS{}",
    "/clusters/ALICES/clusters/BOBS{}",
    "/clusters/ALICES\\..\\BOBS{}",
    "/clusters/BOBS%00{}",
    "/clusters/BOBS;ALICES{}",
    "/clusters/BOBS#{}",
    "/clusters/BOBS%23{}",
    "/clusters/BOBS%3F{}",
    "//clusters/BOBS{}",
    "/./clusters/BOBS{}",
    "/x/../clusters/BOBS{}",
    "/clusters/system:admin{}",
    "/clusters/user:kcp-admin{}",
    "http://hub/clusters/BOBS{}",
    "https://127.0.0.1/clusters/BOBS{}",
    "clusters/BOBS{}",
    "*{}",
    "/services/apiexport/root/tenancy.kcp.io/clusters/*{}",
    "/services/apiexport/../../clusters/BOBS{}",
    "/services/apiexport/ALICES/x/clusters/BOBS{}",
    "/services/initializingworkspaces/root:universal/clusters/*{}",
]


@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_on_the_wire_lead_into_anothers_workspace(tenants: Tenants, target: str) -> None:
    named = target.replace("BOBS", tenants.bobs).replace("ALICES", tenants.alices)
    for rest in ("/api/v1/configmaps", f"{MAPS}/his", "/api/v1/configmaps?watch=1"):
        for who in ("alice", "robot"):
            answer = tenants.raw(who, named.format(rest).encode())
            assert answer[9:12] in (b"400", b"403", b"404", b"405"), answer
            assert SECRET.encode() not in answer
    upper = named.format(MAPS).upper().encode()
    assert SECRET.encode() not in tenants.raw("alice", upper)


@pytest.mark.parametrize("name", ["bob", "kcp-admin", "shard-admin", "system:serviceaccount:default:default"])
def test_no_user_is_impersonated_in_other_workspaces(tenants: Tenants, name: str) -> None:
    for group in ("system:masters", "system:kcp:admin", "system:authenticated"):
        headers = {"Impersonate_User": name, "Impersonate_Group": group}
        for where in (tenants.bobs, "root", "root:org", "*"):
            for who in ("alice", "robot"):
                assert tenants.send(who, "GET", f"/clusters/{where}/api/v1/configmaps", **headers).status == 403


def test_only_the_operator_of_the_hub_names_the_administrators_group(tenants: Tenants) -> None:
    """A token with the group of the operators is an operator's: `farflung token create` is for who has the files."""
    tenants.tokens["operator"] = token_of(tenants.hub.directory, "olga", "system:kcp:admin")
    assert tenants.send("operator", "GET", f"/clusters/{tenants.bobs}{MAPS}").status == 200
    assert tenants.send("operator", "GET", "/clusters/*/api/v1/configmaps").status == 403
    for path in ("/metrics", f"/clusters/{tenants.alices}/metrics", "/clusters/root/metrics"):
        assert tenants.send("alice", "GET", path).status == 403
