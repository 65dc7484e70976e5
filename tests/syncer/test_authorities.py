"""The hub's certificate authorities: which ones a syncer trusts, and how it learns others."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hub_harness import LocalHub
from local_transport import LocalTransport

from farflung.client.errors import KubeconfigError
from farflung.client.rest import Client
from farflung.http.certificates import new_authority, new_key
from farflung.syncer.authorities import FILE, AuthorityKeeper, LearnedAuthorities, certificates_in


def authority(name: str) -> str:
    return new_authority(new_key(), datetime.now(UTC), name).public_bytes(Encoding.PEM).decode()


OLD, NEW, OTHER = authority("old"), authority("new"), authority("other")
CONFIG_MAP = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"


class LearningSyncer:
    """A syncer whose kubeconfig has these authorities, and its hub."""

    def __init__(self, directory: Path, hub: LocalHub, given: str = OLD) -> None:
        self.state, self.secret = directory / "state", directory / "secret"
        for one in (self.state, self.secret):
            one.mkdir(exist_ok=True)
        self.copies: list[str] = []
        self.client = Client(LocalTransport(hub.function, hub.token or ""))
        self._hub = hub
        self.start(given)

    def start(self, given: str) -> None:
        """As a process does that knows nothing but its directories."""
        self.learned = LearnedAuthorities(self.state, self.secret / "kubeconfig")
        self.learned.choose(given.encode())
        self.keeper = AuthorityKeeper(self.learned, lambda problem: None, self._copy)

    async def _copy(self, text: str) -> None:
        self.copies.append(text)

    async def publish(self, data: Any) -> None:
        await self._hub.delete(CONFIG_MAP)
        name = {"metadata": {"name": "kube-root-ca.crt"}}
        await self._hub.create("/api/v1/namespaces/default/configmaps", name | ({"data": data} if data else {}))

    async def learn(self, *authorities: str) -> None:
        await self.publish({FILE: "".join(authorities)})
        await self.keeper.learn(self.client)

    @property
    def trusts(self) -> set[str]:
        names = {OLD: "old", NEW: "new", OTHER: "other"}
        found = certificates_in(self.learned.trusted.decode())
        return {name for pem, name in names.items() if ssl.PEM_cert_to_DER_cert(pem) in found}


@pytest.fixture
async def syncer(tmp_path: Path) -> LearningSyncer:
    return LearningSyncer(tmp_path, await LocalHub.in_memory().furnish())


async def test_a_syncer_follows_the_steps_of_a_rotation_and_remembers_them(syncer: LearningSyncer) -> None:
    await syncer.learn(OLD)
    assert list(syncer.state.iterdir()) == []
    for published, trusted in (((OLD, NEW), {"old", "new"}), ((NEW, OLD), {"old", "new"}), ((NEW,), {"new"})):
        await syncer.learn(*published)
        assert syncer.trusts == trusted
        syncer.start(OLD)
        assert syncer.trusts == trusted
    assert (syncer.state / FILE).stat().st_mode & 0o777 == 0o600


async def test_authorities_without_one_that_is_trusted_are_not_learned(syncer: LearningSyncer) -> None:
    """Another server may publish those of another endpoint."""
    await syncer.learn(OTHER)
    assert syncer.trusts == {"old"}
    await syncer.learn(OLD, NEW)
    await syncer.learn(OTHER)
    assert syncer.trusts == {"old", "new"}


@pytest.mark.parametrize(
    "data", [None, {FILE: ""}, {FILE: "nothing"}, {FILE: OLD + NEW.replace("MII", "MIJ", 1)}, {"other": OLD}]
)
async def test_what_is_damaged_is_not_learned(syncer: LearningSyncer, data: Any) -> None:
    await syncer.publish(data)
    await syncer.keeper.learn(syncer.client)
    assert syncer.trusts == {"old"}


async def test_a_server_that_publishes_none_changes_nothing(syncer: LearningSyncer) -> None:
    await syncer.keeper.learn(syncer.client)
    assert syncer.trusts == {"old"}


@pytest.mark.parametrize("damaged", ["", "# instead of nothing\n" + NEW, NEW])
async def test_a_damaged_file_is_not_trusted(syncer: LearningSyncer, damaged: str) -> None:
    await syncer.learn(OLD, NEW)
    (syncer.state / FILE).write_text(damaged)
    assert syncer.trusts == {"old"}


async def test_a_kubeconfig_with_other_authorities_is_used_as_it_is(syncer: LearningSyncer) -> None:
    """The operator registered the syncer again, perhaps because an authority was stolen."""
    await syncer.learn(OLD, NEW)
    syncer.start(OTHER)
    assert syncer.trusts == {"other"}
    await syncer.learn(OTHER, NEW)
    assert syncer.trusts == {"new", "other"}


async def test_a_syncer_that_trusts_those_of_the_machine_learns_none(syncer: LearningSyncer) -> None:
    syncer.start("")
    await syncer.learn(OLD, NEW)
    assert syncer.learned.trusted == b""


async def test_a_syncer_without_its_state_directory_finds_them_in_its_secret(syncer: LearningSyncer) -> None:
    await syncer.learn(OLD, NEW)
    (copy,) = syncer.copies
    (syncer.secret / FILE).write_text(copy)
    (syncer.state / FILE).unlink()
    syncer.start(OLD)
    assert syncer.trusts == {"old", "new"}
    await syncer.keeper.learn(syncer.client)
    assert len(syncer.copies) == 1


async def test_a_full_disk_is_reported(syncer: LearningSyncer) -> None:
    (syncer.state / f"{FILE}.new").mkdir()
    with pytest.raises(KubeconfigError, match="cannot store authorities in"):
        await syncer.learn(OLD, NEW)
