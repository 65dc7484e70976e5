"""Write a hub's directory with one version of Farflung, for later versions to start from.

    .venv/bin/python tests/support/written_directory.py FARFLUNG NAME

FARFLUNG is the command of the version that writes; the result is NAME.tar.xz, the directory, and NAME.json.xz, what
that hub served of it.  Both are kept for good: tests/upgrade/README.md says which ones there are.
"""

from __future__ import annotations

import argparse
import base64
import io
import lzma
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hub_process
import orjson
from hub_process import Client, HubProcess, Json, eventually

HERE: Final = Path(__file__).parent.parent / "upgrade"
#: Certificates expire, and an identity is of one machine: a hub makes new ones.
LEFT_OUT: Final = frozenset(
    {"ca.crt", "ca.key", "server.crt", "server.key", "controllers.identity", "workspaces.sqlite.lock"}
)
#: Resources that the hub and its controllers write all the time.
FLEETING: Final = frozenset({"events", "leases"})
WORKSPACES: Final = ("root:inventory", "root:shop", "root:shop:web", "root:shop:readings")
MAILBOXES: Final = "root:espw"
SECRET: Final = "correct horse battery staple"

EDGE: Final = "edge.kcp.io/v1alpha1"


def binding(name: str, path: str, export: str) -> Json:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIBinding",
        "metadata": {"name": name},
        "spec": {"reference": {"export": {"path": path, "name": export}}},
    }


def target(name: str) -> Json:
    return {
        "apiVersion": "workload.kcp.io/v1alpha1",
        "kind": "SyncTarget",
        "metadata": {"name": name, "labels": {"env": name}},
        "spec": {"cells": {}},
    }


def location(name: str) -> Json:
    resource = {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    return {
        "apiVersion": "scheduling.kcp.io/v1alpha1",
        "kind": "Location",
        "metadata": {"name": name, "labels": {"env": name}},
        "spec": {"resource": resource, "instanceSelector": {"matchLabels": {"env": name}}},
    }


NAMES: Final = {"plural": "readings", "singular": "reading", "kind": "Reading", "listKind": "ReadingList"}
SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"celsius": {"type": "integer"}}}},
}
DEFINITION: Final[Json] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sensors.example.org"},
    "spec": {
        "group": "example.org",
        "names": {"plural": "sensors", "singular": "sensor", "kind": "Sensor", "listKind": "SensorList"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
    },
}
EXPORTED: Final[Json] = {
    "apiVersion": "apis.kcp.io/v1alpha1",
    "kind": "APIResourceSchema",
    "metadata": {"name": "v1.readings.example.org"},
    "spec": {
        "group": "example.org",
        "names": NAMES,
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
    },
}
EXPORT: Final[Json] = {
    "apiVersion": "apis.kcp.io/v1alpha1",
    "kind": "APIExport",
    "metadata": {"name": "example.org"},
    "spec": {"latestResourceSchemas": ["v1.readings.example.org"]},
}
CONTAINER: Final[Json] = {"name": "httpd", "image": "httpd:2.4"}
DEPLOYMENT: Final[Json] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
    },
}
PLACEMENT: Final[Json] = {
    "apiVersion": EDGE,
    "kind": "EdgePlacement",
    "metadata": {"name": "shop"},
    "spec": {
        "locationSelectors": [{}],
        "namespaceSelector": {"matchLabels": {"app": "shop"}},
        "nonNamespacedObjects": [
            {"apiGroup": "apis.kcp.io", "resources": ["apibindings"], "resourceNames": ["kubernetes"]}
        ],
    },
}
SHOP: Final = "/api/v1/namespaces/shop"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def objects() -> Iterator[tuple[str, str, Json]]:
    """Workspace, path of the collection and object, in the order in which they are created."""
    for name in ("dev", "prod"):
        yield "root:inventory", "/apis/workload.kcp.io/v1alpha1/synctargets", target(name)
        yield "root:inventory", "/apis/scheduling.kcp.io/v1alpha1/locations", location(name)
    bindings = "/apis/apis.kcp.io/v1alpha1/apibindings"
    yield "root:shop:readings", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas", EXPORTED
    yield "root:shop:readings", "/apis/apis.kcp.io/v1alpha1/apiexports", EXPORT
    web = "root:shop:web"
    yield web, bindings, binding("kubernetes", "root:compute", "kubernetes")
    yield web, bindings, binding("edge.kcp.io", "root:espw", "edge.kcp.io")
    yield web, bindings, binding("readings", "root:shop:readings", "example.org")
    yield web, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION
    yield web, "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"app": "shop"}}}
    for number in range(20):
        data = {"number": str(number), "text": "żółć\n" * number}
        yield web, f"{SHOP}/configmaps", {"metadata": {"name": f"page-{number}"}, "data": data}
    secret = {"metadata": {"name": "password"}, "data": {"password": encoded(SECRET), "empty": ""}}
    yield web, f"{SHOP}/secrets", secret
    yield web, f"{SHOP}/serviceaccounts", {"metadata": {"name": "robot"}}
    owner = {"kubernetes.io/service-account.name": "robot"}
    token = {"metadata": {"name": "robot", "annotations": owner}, "type": "kubernetes.io/service-account-token"}
    yield web, f"{SHOP}/secrets", token
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"
    yield web, f"{rights}/roles", {"metadata": {"name": "reader"}, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}]
    yield web, f"{rights}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects}
    yield web, "/apis/apps/v1/namespaces/shop/deployments", DEPLOYMENT
    for kind in ("Sensor", "Reading"):
        obj = {"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "roof"}, "spec": {"celsius": -3}}
        yield web, f"/apis/example.org/v1/namespaces/shop/{kind.lower()}s", obj
    yield web, "/apis/edge.kcp.io/v1alpha1/edgeplacements", PLACEMENT


def create(client: Client) -> None:
    for path in WORKSPACES:
        parent, _, name = path.rpartition(":")
        workspaces = f"/clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces"
        client.create(
            workspaces, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        )
        eventually(lambda: client.get(f"{workspaces}/{name}")["status"].get("phase") == "Ready", f"Ready {path}")  # noqa: B023
    for workspace, path, obj in objects():
        where = f"/clusters/{workspace}{path}"
        eventually(lambda: client.request("GET", where).status == 200, where)  # noqa: B023 - bound kinds take a moment
        client.create(where, obj)


def mailboxes(client: Client) -> list[str]:
    found = client.get(f"/clusters/{MAILBOXES}/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
    return [f"{MAILBOXES}:{one['metadata']['name']}" for one in found]


def is_copied(client: Client) -> bool:
    paths = (f"{SHOP}/secrets/password", f"{SHOP}/configmaps/page-19", "/apis/apps/v1/namespaces/shop/deployments/web")
    found = mailboxes(client)
    copied = (client.request("GET", f"/clusters/{where}{path}").status == 200 for where in found for path in paths)
    return len(found) == 2 and all(copied)


# --- what is served -------------------------------------------------------------------------------


def served(client: Client) -> Json:
    """Everything in the workspaces above and in the mailboxes, by workspace, resource and `namespace/name`."""
    return {path: dict(_resources(client, f"/clusters/{path}")) for path in (*WORKSPACES, *mailboxes(client))}


def settled(client: Client) -> Json:
    """What is served when the controllers have nothing more to write."""
    before: Json = {}
    found = served(client)
    while found != before:
        time.sleep(2)
        before, found = found, served(client)
    return found


def _resources(client: Client, prefix: str) -> Iterator[tuple[str, Json]]:
    groups = client.get(f"{prefix}/apis")["groups"]
    for path in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        for resource in client.get(f"{prefix}{path}")["resources"]:
            name = resource["name"]
            if "list" in resource["verbs"] and name not in FLEETING:
                items = client.get(f"{prefix}{path}/{name}")["items"]
                yield f"{path}/{name}", {_name(item["metadata"]): item for item in items}


def _name(metadata: Json) -> str:
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


# --- files ----------------------------------------------------------------------------------------


def pack(directory: Path, file: Path) -> None:
    """The same bytes for the same files: without times and owners."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(directory.iterdir()):
            if path.name not in LEFT_OUT:
                entry = tarfile.TarInfo(path.name)
                entry.size, entry.mode = path.stat().st_size, 0o600
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    file.write_bytes(lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(file: Path, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    with tarfile.open(file) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content is not None
            path = directory / entry.name
            path.touch(mode=0o600)
            path.write_bytes(content.read())


def write(farflung: str, name: str) -> None:
    hub_process.FARFLUNG = farflung
    with tempfile.TemporaryDirectory() as folder:
        hub = HubProcess(Path(folder, "hub"), command="start")
        try:
            with hub.client() as client:
                create(client)
                eventually(lambda: is_copied(client), "copies in the mailboxes")
                found = settled(client)
            hub.stop()
        finally:
            hub.kill()
        assert not list(hub.directory.glob("*-wal")), "a clean stop leaves no write-ahead log"
        pack(hub.directory, HERE / f"{name}.tar.xz")
    (HERE / f"{name}.json.xz").write_bytes(lzma.compress(orjson.dumps(found, option=orjson.OPT_SORT_KEYS)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("farflung", metavar="FARFLUNG")
    parser.add_argument("name", metavar="NAME")
    arguments = parser.parse_args()
    write(arguments.farflung, arguments.name)
