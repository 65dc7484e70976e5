"""`farflung certs`: the files that it writes, at each moment, and a hub that uses them while it runs."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from client_certificates import issue_client_certificate
from cryptography import x509

from farflung.cli.credentials import KUBECONFIG, PLAIN, ensure_tokens
from farflung.cli.hub import HubSettings, running
from farflung.cli.main import main
from farflung.client.errors import Unreachable
from farflung.client.kubeconfig import load
from farflung.client.rest import Client
from farflung.http.certificates import (
    AuthorityFiles,
    authority_id,
    ensure_certificates,
    issue_server_certificate,
    load_certificates,
    load_keys,
    server_context,
    server_names,
)
from farflung.hub.auth.credential_files import PERIOD
from farflung.hub.auth.signing_keys import SIGNING_KEYS, SigningKeys, ensure_keys, read_keys
from farflung.syncer.authorities import AuthorityKeeper, LearnedAuthorities

NOW = datetime.now(UTC)
NAMES = {"localhost", "hub.example"}


def new_directory(path: Path) -> Path:
    """As a hub leaves it."""
    ensure_certificates(path, ["hub.example"], NOW)
    ensure_keys(path / SIGNING_KEYS)
    ensure_tokens(path, [PLAIN], NOW)
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return new_directory(tmp_path / "hub")


def certs(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["certs", *arguments, "--root-directory", str(directory)])


def done(directory: Path, *arguments: str) -> str:
    result = certs(directory, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def states(directory: Path) -> list[tuple[str, str]]:
    """Kind and state of each key and certificate."""
    return [(line.split()[0], line.split()[2]) for line in done(directory, "list").splitlines()[1:]]


def ids(directory: Path, kind: str, state: str) -> list[str]:
    rows = [line.split() for line in done(directory, "list").splitlines()[1:]]
    return [row[1] for row in rows if (row[0], row[2]) == (kind, state)]


def trusts(trusted: str, directory: Path) -> bool:
    """Whether a client that trusts these authorities accepts the server certificate, and gives it the right name."""
    return connects(directory, ssl.create_default_context(cadata=trusted))


def accepts(directory: Path, certificate: tuple[bytes, bytes], scratch: Path) -> bool:
    """Whether the hub accepts a client certificate."""
    context = ssl.create_default_context(cadata=(directory / "ca.crt").read_text())
    scratch.write_bytes(b"\n".join(certificate))
    context.load_cert_chain(scratch)
    return connects(directory, context)


def connects(directory: Path, context: ssl.SSLContext) -> bool:
    """A TLS connection without sockets."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    certificates = AuthorityFiles(directory).certificates(NOW)
    server = server_context(certificates).wrap_bio(to_server, to_client, server_side=True)
    client = context.wrap_bio(to_client, to_server, server_hostname="hub.example")
    try:
        for _ in range(4):
            for side in (client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError:
        return False
    return True


# --- list and check -------------------------------------------------------------------------------


def test_a_new_hub_has_one_authority_one_certificate_and_one_key(directory: Path) -> None:
    lines = done(directory, "list").splitlines()
    assert [re.sub(r"\s+", " ", line) for line in lines] == [
        "KIND ID STATE EXPIRES LAST USED",
        f"CertificateAuthority {authority_id(load_certificates(directory / 'ca.crt')[0])} Signs in 9y -",
        f"ServerCertificate {authority_id(load_certificates(directory / 'server.crt')[0])} Serves in 364d -",
        f"SigningKey {read_keys(directory / SIGNING_KEYS)[0].verifying.short_id} Signs - -",
    ]
    assert done(directory, "check") == "no certificate expires soon\n"


def test_what_expires_soon_is_a_failure(directory: Path) -> None:
    files = AuthorityFiles(directory)
    issue_server_certificate(files.certificates(NOW), server_names([]), NOW - timedelta(days=340))
    result = certs(directory, "check")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"Error: the server certificate [0-9a-f]{12} expires in 24d: a running hub renews it\n", result.stderr
    )
    assert done(directory, "check", "--within", "20d") == "no certificate expires soon\n"


def test_an_authority_is_reported_half_a_year_before_its_end(tmp_path: Path) -> None:
    began = NOW - timedelta(days=3650 - 170)
    ensure_certificates(tmp_path, [], began)
    ensure_keys(tmp_path / SIGNING_KEYS)
    ensure_tokens(tmp_path, [PLAIN], began)
    result = certs(tmp_path, "check", "--within", "1d")
    assert result.exit_code == 1
    assert "`farflung certs rotate --ca trust` begins to replace it" in result.stderr


# --- rotation -------------------------------------------------------------------------------------


def test_an_authority_is_replaced_in_steps_without_failing_clients(directory: Path, tmp_path: Path) -> None:
    old_bundle, old = (directory / "ca.crt").read_text(), AuthorityFiles(directory).certificates(NOW)
    old_client = issue_client_certificate(old, "ann", [], NOW)
    done(directory, "rotate", "--ca", "trust")
    assert states(directory)[:3] == [
        ("CertificateAuthority", "Signs"),
        ("CertificateAuthority", "New"),
        ("ServerCertificate", "Serves"),
    ]
    both = (directory / "ca.crt").read_text()
    assert trusts(old_bundle, directory)
    done(directory, "rotate", "--ca", "sign")
    assert not trusts(old_bundle, directory)
    assert trusts(both, directory)
    assert accepts(directory, old_client, tmp_path / "client")
    new_client = issue_client_certificate(AuthorityFiles(directory).certificates(NOW), "ann", [], NOW)
    assert ids(directory, "CertificateAuthority", "Old") == [authority_id(old.ca)]
    assert done(directory, "revoke", authority_id(old.ca)) == f"{authority_id(old.ca)} revoked\n"
    assert trusts(both, directory)
    assert accepts(directory, new_client, tmp_path / "client")
    assert not accepts(directory, old_client, tmp_path / "client")
    assert len(load_keys(directory / "ca.key")) == 1
    certificate = load_certificates(directory / "server.crt")[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} >= NAMES


def test_a_step_can_be_taken_back_until_the_old_authority_is_revoked(directory: Path) -> None:
    old_bundle = (directory / "ca.crt").read_text()
    done(directory, "rotate", "--ca", "trust")
    before = (directory / "ca.crt").read_bytes()
    done(directory, "rotate", "--ca", "sign")
    done(directory, "rotate", "--ca", "trust")
    assert (directory / "ca.crt").read_bytes() == before
    assert trusts(old_bundle, directory)


def test_a_compromised_authority_is_replaced_at_once(directory: Path, tmp_path: Path) -> None:
    stolen = AuthorityFiles(directory).certificates(NOW)
    forged = issue_client_certificate(stolen, "admin", ["system:masters"], NOW)
    said = done(directory, "rotate", "--ca", "sign", "--revoke-old")
    assert "they cannot connect before" in said
    assert not accepts(directory, forged, tmp_path / "client")
    assert trusts((directory / "ca.crt").read_text(), directory)
    assert len(load_keys(directory / "ca.key")) == 1


def test_tokens_of_an_old_key_are_valid_until_it_is_revoked(directory: Path) -> None:
    path = directory / SIGNING_KEYS
    token = ensure_keys(path).sign(b"{}")
    done(directory, "rotate", "--keys")
    assert ensure_keys(path).verify(token) is not None
    assert ensure_keys(path).verify(ensure_keys(path).sign(b"{}")) is not None
    assert path.read_text().count("PRIVATE KEY") == 2, "the old key cannot sign"
    (old,) = ids(directory, "SigningKey", "Old")
    done(directory, "revoke", old)
    assert ensure_keys(path).verify(token) is None


def test_tokens_of_a_stolen_key_are_refused_at_once(directory: Path) -> None:
    path = directory / SIGNING_KEYS
    done(directory, "rotate", "--keys")
    tokens = [SigningKeys.of([one]).sign(b"{}") for one in read_keys(path)[:1]]
    done(directory, "rotate", "--keys", "--revoke-old")
    assert [ensure_keys(path).verify(token) for token in tokens] == [None]
    assert states(directory)[2:] == [("SigningKey", "Signs")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["rotate"], "select --server, --keys or --ca"),
        (["rotate", "--ca", "trust", "--revoke-old"], "--revoke-old needs --keys or --ca sign"),
        (["rotate", "--ca", "sign"], "create one with `farflung certs rotate --ca trust`"),
        (["revoke", "0123456789ab"], "no key and no certificate authority has the id 0123456789ab"),
        (["check", "--within", "soon"], "is not a duration"),
    ],
)
def test_what_cannot_be_done_changes_nothing(directory: Path, arguments: list[str], complaint: str) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    result = certs(directory, *arguments)
    assert result.exit_code != 0
    assert complaint in result.stderr
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_what_signs_cannot_be_revoked(directory: Path) -> None:
    for kind, option in (("CertificateAuthority", "--ca trust"), ("SigningKey", "--keys")):
        (signing,) = ids(directory, kind, "Signs")
        assert f"first replace it with `farflung certs rotate {option}`" in certs(directory, "revoke", signing).stderr


def test_a_directory_without_a_hub_is_named(tmp_path: Path) -> None:
    assert "is not the directory of a hub" in certs(tmp_path, "list").stderr


# --- interruptions --------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def killing(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """The process is killed before or after one of its files is replaced."""
    replace, count = Path.replace, 0

    def replace_or_die(self: Path, target: Any) -> Path:
        nonlocal count
        for before in (True, False):
            if count == moment:
                raise Killed
            count += 1
            if before:
                result = replace(self, target)
        return result

    monkeypatch.setattr(Path, "replace", replace_or_die)


ROTATIONS: dict[str, tuple[list[list[str]], list[str]]] = {
    "server": ([], ["rotate", "--server"]),
    "keys": ([], ["rotate", "--keys"]),
    "keys, revoking": ([["rotate", "--keys"]], ["rotate", "--keys", "--revoke-old"]),
    "trust": ([], ["rotate", "--ca", "trust"]),
    "sign": ([["rotate", "--ca", "trust"]], ["rotate", "--ca", "sign"]),
    "back": ([["rotate", "--ca", "trust"], ["rotate", "--ca", "sign"]], ["rotate", "--ca", "trust"]),
    "at once": ([], ["rotate", "--ca", "sign", "--revoke-old"]),
    "at once, prepared": ([["rotate", "--ca", "trust"]], ["rotate", "--ca", "sign", "--revoke-old"]),
    "revoke, new": ([["rotate", "--ca", "trust"]], ["revoke", "New"]),
    "revoke, old": ([["rotate", "--ca", "trust"], ["rotate", "--ca", "sign"]], ["revoke", "Old"]),
}


def with_ids(directory: Path, command: list[str]) -> list[str]:
    """`Old` and `New` are the authorities in that state."""
    return [(ids(directory, "CertificateAuthority", part) or [part])[0] for part in command]


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_a_killed_command_is_completed_by_running_it_again(
    rotation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, command = ROTATIONS[rotation]
    undisturbed = new_directory(tmp_path / "undisturbed")
    for one in before:
        done(undisturbed, *one)
    done(undisturbed, *with_ids(undisturbed, command))
    for moment in range(100):
        directory = new_directory(tmp_path / str(moment))
        for one in before:
            done(directory, *one)
        command = with_ids(directory, ROTATIONS[rotation][1])
        with monkeypatch.context() as patch:
            killing(patch, moment)
            try:
                done(directory, *command)
            except Killed:
                pass
            else:
                assert moment > 1
                return
        loaded = ensure_certificates(directory, ["hub.example"], NOW)  # as a hub that starts now
        assert trusts(loaded.ca_pem.decode(), directory)
        read_keys(directory / SIGNING_KEYS)
        certs(directory, *command)
        assert trusts((directory / "ca.crt").read_text(), directory)
        if "keys" not in rotation:
            assert states(directory) == states(undisturbed)
        assert len(load_keys(directory / "ca.key")) == len(load_certificates(directory / "ca.crt"))
        modes = {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
        assert modes == {0o600}
    raise AssertionError("it never ended")


# --- a running hub --------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(PERIOD / 10)


def authorities_in(kubeconfig: Path) -> int:
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"]).count(b"BEGIN CERTIFICATE")


def refuse(port: int, trusted: str) -> None:
    """Connect as a client that trusts other authorities."""
    context = ssl.create_default_context(cadata=trusted)
    with socket.create_connection(("127.0.0.1", port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


async def served_certificate(port: int) -> str:
    """The id of the certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ssl._create_unverified_context())
    found = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    writer.close()
    return authority_id(found)


class LearningClient:
    """A syncer's connection, from a kubeconfig that nobody replaces."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._learned = LearnedAuthorities(directory, kubeconfig)
        self._access = load(str(kubeconfig), authorities=self._learned)
        self._keeper = AuthorityKeeper(self._learned, lambda problem: None)

    async def learns(self, count: int) -> None:
        """Until it trusts so many authorities."""
        async with asyncio.timeout(60), self._access.transport() as transport:
            while self._learned.trusted.count(b"BEGIN") != count:
                await self._keeper.learn(Client(transport))


async def test_a_running_hub_uses_replaced_files_and_clients_that_follow_them_never_fail(tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    kubeconfig, copied = directory / KUBECONFIG, tmp_path / "copied"

    async def run(*arguments: str) -> None:
        await asyncio.to_thread(done, directory, *arguments)

    async with running(HubSettings(directory, port=0, audits=False)) as server:
        copied.write_bytes(kubeconfig.read_bytes())
        stale, first = load(str(copied)), await served_certificate(server.port)
        followed = load(str(kubeconfig))

        async def request() -> None:
            async with followed.transport() as transport:
                await Client(transport).raw("/api/v1/namespaces")

        async def changed(previous: str) -> str:
            async with asyncio.timeout(60):
                while (found := await served_certificate(server.port)) == previous:
                    await request()
            return found

        old = (directory / "ca.crt").read_text()
        syncer = LearningClient(tmp_path, copied)
        await run("rotate", "--server", "--keys")
        second = await changed(first)
        await run("rotate", "--ca", "trust")
        await until(lambda: kubeconfig.read_text() != copied.read_text())
        await request()
        await syncer.learns(2)
        await run("rotate", "--ca", "sign")
        third = await changed(second)
        await request()
        async with stale.transport() as transport:
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await Client(transport).raw("/api/v1/namespaces")
        await asyncio.to_thread(refuse, server.port, old)
        (revoked,) = ids(directory, "CertificateAuthority", "Old")
        await run("revoke", revoked)
        await until(lambda: authorities_in(kubeconfig) == 1)
        await syncer.learns(1)
        expiring = AuthorityFiles(directory).certificates(NOW)
        issue_server_certificate(expiring, server_names([]), NOW - timedelta(days=340))
        await changed(third)
        end = load_certificates(directory / "server.crt")[0].not_valid_after_utc
        assert end > NOW + timedelta(days=364)
        await request()
        async with followed.transport() as transport:
            token = await Client(transport).raw("/openid/v1/jwks")
        assert token.count(b'"kid"') == 2
    found = await asyncio.to_thread(certs, directory, "list")
    assert "Clients that do not trust the server certificate ended 1 connections" in found.stderr
