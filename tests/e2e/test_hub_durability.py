"""What the hub has acknowledged is there, though it be killed or its disk be full."""

from __future__ import annotations

import http.client
import random
import resource
import threading
import time
from pathlib import Path

import pytest
from hub_process import Client, HubProcess, Json

PATH = "/api/v1/namespaces/default/configmaps"
LOST = (OSError, http.client.HTTPException)  #: what a client sees of a hub that dies


class Writer(threading.Thread):
    """Creates, changes and deletes objects of its own until the hub dies, and remembers what was acknowledged."""

    def __init__(self, hub: HubProcess, name: str) -> None:
        super().__init__(name=name)
        self._hub = hub
        self._random = random.Random(name)
        self.acknowledged: dict[str, Json | None] = {}
        self.uncertain = ""  #: the object whose write was under way in the end
        self.writes = 0
        self.unexpected: list[object] = []

    def run(self) -> None:
        with self._hub.client() as client:
            try:
                while True:
                    self._write(client)
            except LOST:
                return
            except Exception as error:
                self.unexpected.append(error)

    def _write(self, client: Client) -> None:
        living = [name for name, obj in self.acknowledged.items() if obj is not None]
        choice = self._random.random()
        data = {"value": str(self.writes), "filling": "x" * self._random.randrange(2000)}
        if not living or choice < 0.5:
            name, obj = f"{self.name}-{self.writes}", None
            self.uncertain = name
            reply = client.request("POST", PATH, {"metadata": {"name": name}, "data": data})
        elif choice < 0.8:
            name = self._random.choice(living)
            obj = self.acknowledged[name]
            assert obj is not None
            self.uncertain = name
            reply = client.request("PUT", f"{PATH}/{name}", {**obj, "data": data})
        else:
            name, obj = self._random.choice(living), None
            self.uncertain = name
            reply = client.request("DELETE", f"{PATH}/{name}")
        if reply.status not in (200, 201):
            self.unexpected.append(reply)
        self.acknowledged[name] = reply.json if reply.json["kind"] == "ConfigMap" else None
        self.uncertain = ""
        self.writes += 1


def everything(hub: HubProcess) -> dict[str, Json]:
    with hub.client() as client:
        items = client.get(PATH)["items"]
    return {item["metadata"]["name"]: item for item in items if item["metadata"]["name"] != "kube-root-ca.crt"}


def same(kept: Json | None, acknowledged: Json | None) -> bool:
    """Items of a list have no kind of their own."""
    if kept is None or acknowledged is None:
        return kept is acknowledged
    return (kept["metadata"], kept["data"]) == (acknowledged["metadata"], acknowledged["data"])


def write_and_kill(hub: HubProcess, delay: float, name: str) -> list[Writer]:
    writers = [Writer(hub, f"{name}-{number}") for number in range(4)]
    for writer in writers:
        writer.start()
    while sum(writer.writes for writer in writers) < 40:
        assert any(writer.is_alive() for writer in writers), [writer.unexpected for writer in writers]
        time.sleep(0.001)
    time.sleep(delay)  # not waiting for anything: the moment of death is to be any
    hub.kill()
    for writer in writers:
        writer.join()
        assert writer.unexpected == []
    return writers


def kill_and_compare(directory: Path, times: int) -> None:
    chance = random.Random(times)
    expected: dict[str, Json] = {}
    hub = HubProcess(directory)
    try:
        for turn in range(times):
            writers = write_and_kill(hub, chance.random() / 5, f"turn-{turn}")
            hub = HubProcess(directory)
            kept = everything(hub)
            for writer in writers:
                for name, acknowledged in writer.acknowledged.items():
                    if name != writer.uncertain:
                        assert same(kept.get(name), acknowledged), name
                        if acknowledged is not None:
                            expected[name] = kept[name]
                if writer.uncertain in kept:
                    expected[writer.uncertain] = kept[writer.uncertain]
            assert kept == expected
        hub.stop()
        assert hub.trouble() == []
    finally:
        hub.kill()


def test_a_killed_hub_loses_no_acknowledged_write(tmp_path: Path) -> None:
    kill_and_compare(tmp_path / "data", times=1)


@pytest.mark.long
def test_a_hub_killed_many_times_loses_no_acknowledged_write(tmp_path: Path) -> None:
    kill_and_compare(tmp_path / "data", times=12)


def give_room(hub: HubProcess, size: int) -> None:
    """No file of the hub can grow beyond `size` bytes: what a full disk is to it."""
    _, hard = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def write_until_refused(client: Client, name: str) -> list[str]:
    """The names that were acknowledged before the disk was full."""
    written: list[str] = []
    while True:
        body = {"metadata": {"name": f"{name}-{len(written)}"}, "data": {"filling": "x" * 20_000}}
        reply = client.request("POST", PATH, body)
        if reply.status != 201:
            break
        written.append(body["metadata"]["name"])
    assert 500 <= reply.status < 600
    assert (reply.json["kind"], reply.json["status"], reply.json["reason"]) == (
        "Status",
        "Failure",
        "ServiceUnavailable",
    )
    return written


def overwrite_until_refused(client: Client, name: str) -> None:
    """A log that was emptied meanwhile has room again, but not for long: what was overwritten is kept as well."""
    for attempt in range(100):
        large = {"metadata": {"name": name}, "data": {"filling": str(attempt) + "y" * 100_000}}
        status = client.request("PUT", f"{PATH}/{name}", large).status
        if status == 503:
            return
        assert status == 200
    raise AssertionError("the disk is full, and takes ten megabytes")


def test_a_full_disk_stops_writes_alone_and_nothing_is_lost(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "data")
    try:
        with hub.client() as client:
            largest = max(file.stat().st_size for file in hub.directory.iterdir())
            give_room(hub, largest + 300_000)
            written = write_until_refused(client, "before")
            assert written
            assert set(everything(hub)) == set(written)
            for name in written[:3]:
                overwrite_until_refused(client, name)
                assert client.request("GET", "/readyz").status == 500
                assert client.text("/livez") == "ok"
                assert client.request("DELETE", f"{PATH}/{name}").status in (200, 503)  # a few bytes may be left
            left = set(everything(hub))
            assert left >= set(written[3:])
            give_room(hub, resource.RLIM_INFINITY)
            client.create(PATH, {"metadata": {"name": "relieved"}})
            assert client.text("/readyz") == "ok"
            left.add("relieved")
            give_room(hub, max(file.stat().st_size for file in hub.directory.iterdir()) + 100_000)
            left.update(write_until_refused(client, "again"))
        kept = everything(hub)
        assert set(kept) == left
        hub.kill()
        hub = HubProcess(tmp_path / "data")
        assert everything(hub) == kept
        with hub.client() as client:
            client.create(PATH, {"metadata": {"name": "after"}})
        hub.stop()
    finally:
        hub.kill()
