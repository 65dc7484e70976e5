"""Secrets of a hub are not in its files, and survive any change of keys, however often hub and command are killed."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_process import FARFLUNG, PATIENCE, Client, HubProcess, eventually, refused

from farflung.lib.key_file import KeyFile

PATH = "/api/v1/namespaces/default"
PLANTED = "correct horse battery staple"
ENCODED = base64.b64encode(PLANTED.encode()).decode()
COUNT = 300


def secret(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"password": ENCODED}}


def files_with(directory: Path, *texts: str) -> set[str]:
    return {
        str(file.relative_to(directory))
        for file in directory.rglob("*")
        if file.is_file() and any(text.encode() in file.read_bytes() for text in texts)
    }


class RestartedHub:
    """Of all tests here, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = HubProcess(directory)
        with self.process.client() as client:
            for number in range(COUNT):
                client.create(f"{PATH}/secrets", secret(f"s-{number}"))

    def start(self, *arguments: str) -> None:
        """Also while the command does the work of a stopped hub: it is refused until then."""

        def starts() -> bool:
            try:
                self.process = HubProcess(self.directory, arguments=arguments)
            except AssertionError as error:
                if "hub.sqlite is in use by another process" not in str(error).splitlines()[-1]:
                    raise
                return False
            return True

        eventually(starts, "the hub starts")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedHub]:
    hub = RestartedHub(tmp_path_factory.mktemp("hub") / "data")
    yield hub
    hub.process.kill()


def versions(client: Client) -> dict[str, str]:
    """resourceVersions of all Secrets, which have their content."""
    items = client.get(f"{PATH}/secrets")["items"]
    assert [one["data"] for one in items if one["metadata"]["name"].startswith("s-")] == [{"password": ENCODED}] * COUNT
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}


def test_no_file_of_a_hub_has_the_content_of_a_secret(hub: RestartedHub) -> None:
    with hub.process.client() as client:
        client.create(f"{PATH}/secrets", secret("deleted"))
        client.request("DELETE", f"{PATH}/secrets/deleted")
        client.create(f"{PATH}/configmaps", {"metadata": {"name": "a"}, "data": {"a": "not a secret"}})
    assert files_with(hub.directory, PLANTED, ENCODED) == set()
    assert files_with(hub.directory, "not a secret") == {"hub.sqlite-wal"}
    hub.process.kill()
    assert files_with(hub.directory, PLANTED, ENCODED) == set()
    hub.start()
    hub.process.stop()
    assert files_with(hub.directory, PLANTED, ENCODED) == set()
    assert files_with(hub.directory, "not a secret") == {"hub.sqlite"}
    assert PLANTED not in hub.process.log() and ENCODED not in hub.process.log()
    hub.start()


def test_a_hub_without_its_key_does_not_start_and_one_with_it_has_the_secrets(hub: RestartedHub) -> None:
    hub.process.stop()
    key, elsewhere = hub.directory / "encryption.key", hub.directory.with_name("elsewhere")
    [stored] = KeyFile(key).read()
    key.rename(elsewhere)
    code, said = refused("--root-directory", str(hub.directory), "--port", "0")
    assert code == 1
    needs = f"{hub.directory}/hub.sqlite has values that are encrypted with the key {stored.id}"
    assert said == f"farflung hub: {needs}, and {key} is missing: restore it, or name it with --encryption-key-file\n"
    assert not key.exists()
    hub.start("--encryption-key-file", str(elsewhere))
    with hub.process.client() as client:
        versions(client)
    hub.process.stop()
    elsewhere.rename(key)
    hub.start()


class Rekeying(threading.Thread):
    """Runs the command until it succeeds, and kills it at random moments before."""

    def __init__(self, hub: RestartedHub, kills: int) -> None:
        super().__init__()
        self._command = [FARFLUNG, "rekey", "--root-directory", str(hub.directory)]
        self._kills = kills
        self._random = random.Random(kills)
        self.code = -1
        self.said = ""

    def run(self) -> None:
        for _ in range(self._kills):
            process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=0.3 + self._random.random() * 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        ended = subprocess.run(self._command, capture_output=True, text=True, timeout=PATIENCE * 2)
        self.code, self.said = ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_new_key_while_hub_and_command_are_killed(hub: RestartedHub, kills: int) -> None:
    keys = KeyFile(hub.directory / "encryption.key")
    [old] = keys.read()
    copy = shutil.copy(keys.path, keys.path.with_name("copy"))
    with hub.process.client() as client:
        before = versions(client)
    chance = random.Random(kills)
    rekeying = Rekeying(hub, kills)
    rekeying.start()
    for _ in range(kills):
        time.sleep(chance.random())  # not waiting for anything: the moment of death is to be any
        hub.process.kill()
        hub.start()
    rekeying.join()
    assert rekeying.code == 0, rekeying.said + hub.process.log()
    [new] = keys.read()
    assert new.id != old.id
    with hub.process.client() as client:
        assert versions(client) == before
        client.create(f"{PATH}/secrets", secret(f"later-{kills}"))
    hub.process.stop()
    assert not any(line for line in hub.process.trouble() if "encrypt" in line)
    assert "encrypted with the key" in refused("--root-directory", str(hub.directory), "--encryption-key-file", copy)[1]
    hub.start()


def test_watches_are_not_notified_of_a_new_key_and_commands_may_overlap(hub: RestartedHub) -> None:
    command = [FARFLUNG, "rekey", "--root-directory", str(hub.directory)]
    with hub.process.client() as client, hub.process.client() as watching:
        revision = client.get(f"{PATH}/secrets")["metadata"]["resourceVersion"]
        both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [one.wait(timeout=PATIENCE) for one in both] == [0, 0]
        assert len(KeyFile(hub.directory / "encryption.key").read()) == 1
        events = watching.text(f"{PATH}/secrets?watch=true&timeoutSeconds=1&resourceVersion={revision}")
        assert events == ""
        eventually(
            lambda: "all values are encrypted with the first key" in hub.process.log(), "the hub says that it is done"
        )


def test_a_key_that_is_taken_from_a_running_hub_stays_in_use(hub: RestartedHub) -> None:
    keys = KeyFile(hub.directory / "encryption.key")
    kept = keys.read()
    keys.write([keys.new_key()])
    eventually(lambda: "which the key file lacks" in hub.process.log(), "the hub refuses the file")
    with hub.process.client() as client:
        client.create(f"{PATH}/secrets", secret("taken"))
    keys.write(kept)
    hub.process.stop()
    hub.start()
    with hub.process.client() as client:
        assert client.get(f"{PATH}/secrets/taken")["data"] == {"password": ENCODED}
