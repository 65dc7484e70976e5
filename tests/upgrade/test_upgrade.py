"""A hub of today on directories that earlier versions wrote."""

from __future__ import annotations

import base64
import lzma
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml
from hub_process import Client, HubProcess, Json, eventually
from written_directory import SECRET, SHOP, mailboxes, served, unpack

from farflung.apis.edge.names import PROJECTION

HERE = Path(__file__).parent
DIRECTORIES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
WEB = "/clusters/root:shop:web"
#: Has the certificate authority in it, which is not kept with the directory.
AUTHORITY = "kube-root-ca.crt"

pytestmark = pytest.mark.slow


class Upgraded:
    """A hub with its controllers on a copy of an old directory."""

    def __init__(self, name: str, directory: Path) -> None:
        unpack(HERE / f"{name}.tar.xz", directory)
        users = yaml.safe_load((directory / "admin.kubeconfig").read_text())["users"]
        self.tokens: dict[str, str] = {user["name"]: user["user"]["token"] for user in users}
        self.before: Json = orjson.loads(lzma.decompress((HERE / f"{name}.json.xz").read_bytes()))
        self.hub = HubProcess(directory, command="start")

    def everything(self) -> Iterator[tuple[str, str, str, Json]]:
        """Workspace, resource, name and object, as the old hub served it."""
        for workspace, resources in self.before.items():
            for resource, objects in resources.items():
                for name, obj in objects.items():
                    yield workspace, resource, name, obj


@pytest.fixture(scope="module", params=DIRECTORIES)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    found = Upgraded(request.param, tmp_path_factory.mktemp("upgrade") / "hub")
    yield found
    found.hub.stop()


@pytest.fixture
def client(upgraded: Upgraded) -> Iterator[Client]:
    with upgraded.hub.client() as client:
        yield client


def content(obj: Json) -> Json:
    """What users and controllers wrote, without what a server or a heartbeat changes by itself, and without the
    translator's record in a copy, to which this version adds the tenants."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    if PROJECTION in metadata.get("annotations", {}):  # a newer translator may record more
        metadata["annotations"] = {name: one for name, one in metadata["annotations"].items() if name != PROJECTION}
    parts = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    if obj.get("type") == "kubernetes.io/service-account-token":
        parts["data"] = {key: value for key, value in obj["data"].items() if key != "ca.crt"}
    return {**parts, "metadata": metadata}


def test_there_is_a_directory_of_each_format() -> None:
    assert DIRECTORIES == ["format-1", "format-2"]


def test_every_object_is_served_as_it_was(upgraded: Upgraded, client: Client) -> None:
    now = served(client)
    assert sum(1 for _ in upgraded.everything()) > 150
    for workspace, resource, name, obj in upgraded.everything():
        found = now[workspace][resource].get(name)
        assert found is not None, (workspace, resource, name)
        if not name.endswith(f"/{AUTHORITY}"):
            assert content(found) == content(obj), (workspace, resource, name)


def test_secrets_and_their_copies_have_their_content(client: Client) -> None:
    places = [WEB, *(f"/clusters/{path}" for path in mailboxes(client))]
    assert len(places) == 3
    for place in places:
        secret = client.get(f"{place}{SHOP}/secrets/password")
        assert base64.b64decode(secret["data"]["password"]).decode() == SECRET
        assert secret["data"]["empty"] == ""


def test_resource_versions_go_on_growing(upgraded: Upgraded, client: Client) -> None:
    newest = max(int(obj["metadata"]["resourceVersion"]) for *_, obj in upgraded.everything())
    made = client.create(f"{WEB}{SHOP}/configmaps", {"metadata": {"name": "made-later"}})
    assert int(made["metadata"]["resourceVersion"]) > newest
    listed = client.get(f"{WEB}{SHOP}/configmaps")
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert client.request("DELETE", f"{WEB}{SHOP}/configmaps/made-later").status == 200


def test_old_tokens_are_accepted(upgraded: Upgraded, client: Client) -> None:
    for user, token in upgraded.tokens.items():
        found = client.request("GET", "/clusters/root/api/v1/namespaces", headers={"Authorization": f"Bearer {token}"})
        assert found.status == 200, user
    secret = client.get(f"{WEB}{SHOP}/secrets/robot")
    robot = {"Authorization": f"Bearer {base64.b64decode(secret['data']['token']).decode()}"}
    assert client.request("GET", f"{WEB}{SHOP}/configmaps", headers=robot).status == 200
    assert client.request("GET", f"{WEB}{SHOP}/secrets", headers=robot).status == 403


def test_controllers_go_on_with_old_placements(client: Client) -> None:
    page = f"{SHOP}/configmaps/page-7"
    changed = client.get(f"{WEB}{page}")
    before = changed["data"]
    copies = [f"/clusters/{path}{page}" for path in mailboxes(client)]
    for data in ({**before, "number": "70"}, before):
        changed["data"] = data
        answer = client.request("PUT", f"{WEB}{page}", changed)
        assert answer.status == 200, answer.body
        changed = answer.json
        eventually(lambda: all(client.get(copy)["data"] == data for copy in copies), "the copies have the new data")  # noqa: B023
