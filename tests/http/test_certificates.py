"""The hub's certificates, and TLS with them."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from client_certificates import issue_client_certificate
from cryptography import x509
from cryptography.x509.oid import NameOID
from http_harness import Harness, Toy, eventually

from farflung.http.certificates import (
    CertificateError,
    Certificates,
    ensure_certificates,
    server_context,
)
from farflung.http.limits import Limits

NOW = datetime.now(UTC)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return ensure_certificates(tmp_path / "pki", ["hub.example"], NOW)


def server_certificate(certificates: Certificates) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificates.server_file.read_bytes())


def names(certificates: Certificates) -> set[str]:
    extension = server_certificate(certificates).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in extension.value}


def test_private_files_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure_certificates(tmp_path / "deep" / "pki", [], NOW)
    finally:
        os.umask(before)
    directory = tmp_path / "deep" / "pki"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == dict.fromkeys(
        ("ca.crt", "ca.key", "server.crt", "server.key"), 0o600
    )


def test_the_server_certificate_names_the_hub(certificates: Certificates) -> None:
    expected = {"localhost", "127.0.0.1", "::1", "hub.example", socket.gethostname().lower()}
    assert names(certificates) == expected


def test_a_second_start_changes_nothing(certificates: Certificates) -> None:
    before = {path: path.read_bytes() for path in certificates.directory.iterdir()}
    again = ensure_certificates(certificates.directory, ["HUB.example", "[::1]"], NOW + timedelta(days=300))
    assert {path: path.read_bytes() for path in certificates.directory.iterdir()} == before
    assert again.ca_pem == certificates.ca_pem == certificates.ca_file.read_bytes()


@pytest.mark.parametrize(
    ("hosts", "later"),
    [(["hub.example", "192.0.2.7"], timedelta()), (["hub.example"], timedelta(days=336)), ([], timedelta())],
)
def test_the_server_certificate_follows_its_hosts_and_its_time(
    certificates: Certificates, hosts: list[str], later: timedelta
) -> None:
    before = server_certificate(certificates)
    again = ensure_certificates(certificates.directory, hosts, NOW + later)
    after = server_certificate(again)
    assert after.serial_number != before.serial_number
    assert after.not_valid_after_utc > NOW + later + timedelta(days=364)
    assert names(again) >= set(hosts)
    assert again.ca == certificates.ca


@pytest.mark.parametrize("content", [b"not PEM", b""])
@pytest.mark.parametrize("damage", ["server.crt", "server.key"])
def test_a_damaged_server_certificate_is_replaced(certificates: Certificates, damage: str, content: bytes) -> None:
    """A power failure may leave it empty."""
    (certificates.directory / damage).write_bytes(content)
    server_context(ensure_certificates(certificates.directory, ["hub.example"], NOW))


def test_a_key_left_by_an_interrupted_start_is_no_obstacle(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, [], NOW)
    first.ca_file.unlink()
    (tmp_path / "ca.crt.new").write_bytes(b"half")
    server_context(ensure_certificates(tmp_path, [], NOW))


def test_an_authority_that_clients_trust_is_never_replaced(certificates: Certificates, tmp_path: Path) -> None:
    other = ensure_certificates(tmp_path / "other", [], NOW)
    key = certificates.directory / "ca.key"
    key.write_bytes((other.directory / "ca.key").read_bytes())
    with pytest.raises(CertificateError, match=r"ca.key is not the key of .*ca.crt"):
        ensure_certificates(certificates.directory, [], NOW)
    key.write_bytes(b"nonsense")
    with pytest.raises(CertificateError, match="holds no PEM private key"):
        ensure_certificates(certificates.directory, [], NOW)
    key.unlink()
    with pytest.raises(CertificateError, match=r"ca\.key is missing"):
        ensure_certificates(certificates.directory, [], NOW)
    with pytest.raises(CertificateError, match="expired on"):
        ensure_certificates(other.directory, [], NOW + timedelta(days=4000))


def test_no_certificate_outlives_the_authority(certificates: Certificates) -> None:
    late = NOW + timedelta(days=3600)
    certificate, _ = issue_client_certificate(certificates, "late", [], late)
    ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    assert ends == certificates.ca.not_valid_after_utc


@pytest.mark.parametrize("host", ["a b", "", "x/y", "a..b", "-" * 64])
def test_a_host_that_is_none_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(CertificateError, match="neither an address nor a host name"):
        ensure_certificates(tmp_path, [host], NOW)


def test_hubs_that_start_at_once_agree_on_the_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: ensure_certificates(tmp_path, [], NOW), range(4)))
    assert len({each.ca_pem for each in made}) == 1


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def secure(start: Callable[..., Harness], certificates: Certificates) -> Harness:
    return start(Limits(linger=0.1), server_context(certificates))


def write_client(certificates: Certificates, directory: Path, user: str, now: datetime = NOW) -> tuple[Path, Path]:
    certificate, key = issue_client_certificate(certificates, user, ["writers", "readers"], now)
    paths = directory / f"{user}.crt", directory / f"{user}.key"
    paths[0].write_bytes(certificate)
    paths[1].write_bytes(key)
    return paths


def client_context(certificates: Certificates, *chain: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    if chain:
        context.load_cert_chain(*chain)
    return context


def ask(port: int, context: ssl.SSLContext, path: str = "/certificate") -> bytes:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_a_client_is_known_by_its_certificate(secure: Harness, certificates: Certificates, tmp_path: Path) -> None:
    context = client_context(certificates, *write_client(certificates, tmp_path, "amy"))
    subject = x509.load_der_x509_certificate(ask(secure.port, context)).subject
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["amy"]
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["writers", "readers"]


def test_a_client_needs_no_certificate(secure: Harness, certificates: Certificates) -> None:
    assert ask(secure.port, client_context(certificates)) == b"none"


def test_a_certificate_of_another_authority_is_refused(
    secure: Harness, certificates: Certificates, tmp_path: Path
) -> None:
    other = ensure_certificates(tmp_path / "other", [], NOW)
    context = client_context(certificates, *write_client(other, tmp_path, "eve"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(secure.port, context)


def test_a_server_certificate_does_not_make_a_client(secure: Harness, certificates: Certificates) -> None:
    context = client_context(certificates, certificates.server_file, certificates.server_key_file)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(secure.port, context)


def test_a_resumed_session_still_knows_the_client(secure: Harness, certificates: Certificates, tmp_path: Path) -> None:
    context = client_context(certificates, *write_client(certificates, tmp_path, "amy"))
    session: ssl.SSLSession | None = None
    answers, reused = [], []
    for _ in range(2):
        with (
            socket.create_connection(("localhost", secure.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"GET /certificate HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
            answers.append(b"".join(iter(lambda read=connection.recv: read(65536), b"")).partition(b"\r\n\r\n")[2])
            reused.append(connection.session_reused)
            session = connection.session
    assert reused == [False, True]
    assert answers[0] == answers[1] != b"none"


def test_old_versions_of_tls_are_refused(secure: Harness, certificates: Certificates) -> None:
    assert server_context(certificates).minimum_version == ssl.TLSVersion.TLSv1_2
    context = client_context(certificates)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert ask(secure.port, context) == b"none"


def test_large_answers_and_refusals_arrive_over_tls(secure: Harness, certificates: Certificates) -> None:
    context = client_context(certificates)
    assert ask(secure.port, context, "/made/5000/1000") == b"x" * 5_000_000
    connection = http.client.HTTPSConnection("localhost", secure.port, context=context, timeout=60)
    connection.request("POST", "/echo", body=bytes(4 * 1024 * 1024))
    assert connection.getresponse().status == 413
    connection.close()


def test_little_is_encrypted_for_a_client_that_reads_nothing(
    secure: Harness, certificates: Certificates, toy: Toy
) -> None:
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(("localhost", secure.port))
        with client_context(certificates).wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET /made/1000/30000 HTTP/1.1\r\nHost: hub\r\n\r\n")
            eventually(lambda: any(one.writing_paused for one in secure.server._shared.connections))
            assert toy.made < 1_000_000


def test_a_watch_over_tls_ends_when_its_client_leaves(secure: Harness, certificates: Certificates, toy: Toy) -> None:
    context = client_context(certificates)
    for leave in (ssl.SSLSocket.unwrap, ssl.SSLSocket.close):
        with (
            socket.create_connection(("localhost", secure.port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n")
            received = b""
            while not received.endswith(b"hello\n\r\n"):
                received += connection.recv(65536)
            leave(connection)
            eventually(lambda: toy.watches[-1].stopped == 1)
    eventually(lambda: secure.server.open_connections == 0)


def test_stopping_does_not_wait_for_idle_clients_that_never_answer(secure: Harness, certificates: Certificates) -> None:
    context = client_context(certificates)
    with (
        socket.create_connection(("localhost", secure.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(b"GET /echo HTTP/1.1\r\nHost: hub\r\n\r\n")
        connection.recv(65536)
        secure.run(secure.server.stop(19))
    assert secure.server.open_connections == 0


def test_what_is_no_tls_is_dropped(secure: Harness, certificates: Certificates) -> None:
    assert not secure.talk(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n").startswith(b"HTTP")
    with secure.connect():
        pass
    assert ask(secure.port, client_context(certificates)) == b"none"


def test_a_handshake_that_does_not_end_times_out(start: Callable[..., Harness], certificates: Certificates) -> None:
    secure = start(Limits(header_timeout=0.1), server_context(certificates))
    with secure.connect() as client:
        assert client.read_all() == b""


def kubectls() -> list[str]:
    """The newest and the oldest at hand."""
    found = shutil.which("kubectl")
    if found is None:
        return []
    versions = sorted(Path(found).resolve().parent.glob("kubectl.1.*"))
    return [found, *map(str, versions[:1])]


@pytest.mark.parametrize("kubectl", kubectls())
def test_kubectl_is_understood(
    secure: Harness, certificates: Certificates, tmp_path: Path, toy: Toy, kubectl: str
) -> None:
    certificate, key = write_client(certificates, tmp_path, "amy")

    def run(*arguments: str, data: bytes = b"") -> bytes:
        command = [
            kubectl,
            f"--server=https://localhost:{secure.port}",
            f"--certificate-authority={certificates.ca_file}",
        ]
        command += [f"--client-certificate={certificate}", f"--client-key={key}", f"--cache-dir={tmp_path}", *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60, env=environment)
        return done.stdout

    assert b'"path":"/later/x"' in run("get", "--raw", "/later/x")
    assert run("get", "--raw", "/made/300/1000") == b"x" * 300_000
    assert run("get", "--raw", "/short") == b"hello\n"
    assert b'"body":"{}"' in run("create", "--raw", "/later/x", "-f", "-", data=b"{}")
    shown = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert {request.certificate for request in toy.requests} == {shown}
