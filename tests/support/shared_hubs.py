"""The hubs that documents share, one `farflung start` and one `farflung hub`, and what a document leaves in them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import yaml
from audited_controllers import audit_options, check_controllers
from hub_process import PATIENCE, Client, HubProcess

POLL: Final = 0.2  #: seconds
#: resources that the hub and its controllers write, whatever a document does
PASSING: Final = {"events", "leases"}
#: prefix of the ClusterRole of all syncers and its bindings in root:compute, which `farflung syncer-gen` creates
OF_SYNCERS: Final = "farflung-syncer"
#: of `kubectl ws`: where the reader is, and was before
WHEREABOUTS: Final = {"workspace.kcp.io/current", "workspace.kcp.io/previous"}
METADATA: Final = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
DISCOVERY: Final = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


class SharedHub:
    """A hub that one document at a time uses, from construction until `stop` or `kill`."""

    def __init__(self, directory: Path, command: str) -> None:
        """`directory`: the hub's root directory.  `command`: `start` or `hub`."""
        self.directory = directory
        self._prefix = "/clusters/*" if command == "start" else ""
        self._audits = command == "start"
        options = audit_options(directory) if self._audits else []
        self._process = HubProcess(directory, command=command, arguments=options)
        self.output = f"{self._process.ready_line}\n{self._process.hint}\n"
        try:
            self._before = self._content_with_home() if command == "start" else self._content()
        except BaseException:
            self.kill()
            raise

    def check(self) -> None:
        """Raises AssertionError if the documents so far left something behind, which no controller deletes."""
        left = self._content() - self._before
        deadline = time.monotonic() + PATIENCE
        while left:
            assert time.monotonic() < deadline, f"left behind: {sorted(left)}"
            time.sleep(POLL)
            left = self._content() - self._before

    def stop(self) -> None:
        """Raises AssertionError if it logged that something went wrong, or refused a controller."""
        if self._audits:
            check_controllers(self._process)
        self._process.stop()
        assert self._process.trouble() == []

    def kill(self) -> None:
        self._process.kill()

    def _content_with_home(self) -> set[tuple[str, ...]]:
        """The first visit creates the administrator's home workspace, which stays."""
        with self._process.client() as client:
            client.get("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/~")
        users = {user["name"]: user["user"]["token"] for user in self._process.config["users"]}
        self._process.token = users["shard-admin"]  # this user may list the objects of all workspaces
        return self._content()

    def _content(self) -> set[tuple[str, ...]]:
        """All objects, tokens and contexts by their names, and the current workspace."""
        with self._process.client() as client:
            objects = set(self._objects(client))
        tokens = orjson.loads((self.directory / "tokens.json").read_bytes())
        return objects | {("token", str(token)) for token in tokens} | set(self._kubeconfig())

    def _kubeconfig(self) -> Iterator[tuple[str, ...]]:
        """The contexts, and where the current one leads."""
        config = yaml.safe_load((self.directory / "admin.kubeconfig").read_text())
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        servers = {entry["name"]: entry["cluster"]["server"] for entry in config["clusters"]}
        yield "current", servers[contexts[config["current-context"]]["cluster"]]
        for name in contexts.keys() - WHEREABOUTS:
            yield "context", name

    def _objects(self, client: Client) -> Iterator[tuple[str, ...]]:
        for path in self._paths(client):
            answer = client.request("GET", path, headers=METADATA)
            assert answer.status == 200, (path, answer.body)
            for item in answer.json["items"]:
                metadata = item["metadata"]
                cluster = metadata.get("annotations", {}).get("kcp.io/cluster", "")
                if not (metadata["name"].startswith(OF_SYNCERS) and "/rbac.authorization.k8s.io/" in path):
                    yield path, cluster, metadata.get("namespace", ""), metadata["name"]

    def _paths(self, client: Client) -> Iterator[str]:
        """Of every resource that can be listed."""
        for root in ("/api", "/apis"):
            answer = client.request("GET", f"{self._prefix}{root}", headers=DISCOVERY)
            for group in answer.json["items"]:
                version = group["versions"][0]
                at = f"{self._prefix}{root}/{group['metadata'].get('name', '')}/{version['version']}"
                for resource in version["resources"]:
                    if "list" in resource["verbs"] and resource["resource"] not in PASSING:
                        yield f"{re.sub('//', '/', at)}/{resource['resource']}"


class SharedHubs:
    """Each of them is started when the first document needs it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._hubs: dict[str, SharedHub] = {}
        self._started = 0

    def hub(self, command: str) -> SharedHub:
        if command not in self._hubs:
            self._started += 1
            directory = self._directory / f"{command}-{self._started}" / ".farflung"
            directory.parent.mkdir()
            self._hubs[command] = SharedHub(directory, command)
        return self._hubs[command]

    def discard(self, hub: SharedHub) -> None:
        """Kill a hub whose document failed, as the document may have left objects behind."""
        hub.kill()
        self._hubs = {command: other for command, other in self._hubs.items() if other is not hub}

    def stop(self) -> None:
        for hub in self._hubs.values():
            hub.stop()
