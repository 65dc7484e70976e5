"""What kubeconfig files say, and what is said of those that say nothing useful."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from client_certificates import issue_client_certificate
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from hub_process import PATIENCE, HubProcess

from farflung.apis.names import Collection
from farflung.client import credentials, dialer, kubeconfig
from farflung.client.credentials import ExecCommand, ExecCredentials, TokenFile
from farflung.client.errors import KubeconfigError, Unauthorized, Unreachable
from farflung.client.kubeconfig import in_cluster_config, load
from farflung.client.rest import Client
from farflung.http.certificates import ensure_certificates

NAMESPACES = Collection("", "v1", "namespaces", "Namespace")
REVIEWS = Collection("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
PROXIES = [f"{name}_proxy" for name in ("http", "https", "no", "all")]


@pytest.fixture(autouse=True)
def _nothing_but_what_the_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *(name.upper() for name in PROXIES), "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    process = HubProcess(tmp_path_factory.mktemp("hub") / "data")
    yield process
    process.kill()


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **further: Any) -> dict[str, Any]:
    where = {"server": "https://hub.example:6443", **(cluster or {})}
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": where}],
        "users": [{"name": "me", "user": user or {}}],
        **further,
    }


def written(directory: Path, content: object, name: str = "config") -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def program(directory: Path, text: str, name: str = "who-am-i") -> Path:
    path = directory / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def user_name(access: kubeconfig.ClientConfig) -> str:
    async with access.transport() as transport:
        review = await Client(transport, access.prefix).create(REVIEWS, {"apiVersion": "authentication.k8s.io/v1"})
    return str(review["status"]["userInfo"]["username"])


# --- which file, and what of it ---------------------------------------------------------------------


def test_the_current_context_leads_to_a_cluster_a_user_and_a_namespace(tmp_path: Path) -> None:
    said = config({"server": "https://hub.example:6443/clusters/root:shop/", "tls-server-name": "other.example"})
    said["contexts"][0]["context"]["namespace"] = "mine"
    access = load(written(tmp_path, said))
    assert (access.server, access.prefix) == ("https://hub.example:6443", "/clusters/root:shop")
    assert (access.namespace, access.server_name, access.proxy) == ("mine", "other.example", None)


def test_context_cluster_and_user_can_be_chosen_by_name(tmp_path: Path) -> None:
    said = config()
    said["contexts"].append({"name": "second", "context": {"cluster": "plain", "namespace": "n"}})
    said["clusters"].append({"name": "plain", "cluster": {"server": "http://plain.example"}})
    path = written(tmp_path, said)
    assert load(path, context="second").server == "http://plain.example"
    assert load(path, context="second").namespace == "n"
    assert load(path, cluster="plain").server == "http://plain.example"
    assert load(path, cluster="plain").tls is None


async def test_another_user_can_be_chosen_by_name(tmp_path: Path) -> None:
    said = config(user={"token": "mine"})
    said["users"].append({"name": "you", "user": {"token": "yours"}})
    assert await load(written(tmp_path, said), user="you").credentials() == {"Authorization": "Bearer yours"}


def test_a_cluster_can_be_chosen_where_there_is_no_context(tmp_path: Path) -> None:
    said = {"clusters": [{"name": "there", "cluster": {"server": "http://plain.example"}}]}
    access = load(written(tmp_path, said), cluster="there")
    assert (access.server, access.namespace) == ("http://plain.example", "default")


async def test_of_several_files_the_first_that_says_something_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "a", {"contexts": [{"name": "here", "context": {"cluster": "there", "user": "me"}}]})
    second = written(tmp_path / "b", config({"server": "http://second.example"}, {"tokenFile": "token"}))
    written(tmp_path / "b", "the-token\n", "token")
    third = written(tmp_path / "c", {**config({"server": "http://third.example"}), "current-context": "third"})
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([missing, first, "", second, third]))
    access = load()
    assert access.server == "http://second.example"
    assert await access.credentials() == {"Authorization": "Bearer the-token"}


def test_the_file_of_the_home_directory_is_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubeconfigError, match=r"there is no .*/\.kube/config"):
        load()
    written(tmp_path / ".kube", config({"server": "http://home.example"}))
    assert load().server == "http://home.example"


def test_a_file_that_cannot_be_found_is_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    monkeypatch.setenv("KUBECONFIG", str(circle / "config"))
    with pytest.raises(KubeconfigError, match=r"cannot read .*/circle/config: too many levels of symbolic links"):
        load()


MISTAKES = {
    "{": "is not YAML",
    "- a list": "is not a kubeconfig",
    "a: b: c": "is not YAML",
    "[" * 1500: "is not YAML",
    "[" * 200_000: "is not YAML",
    "a: 1\n---\nb: 2\n": "is not YAML",
    "clusters: 7": "clusters is not a list",
    "clusters: [x]": "an entry of clusters has no name",
    "users: [{name: 5}]": "an entry of users has no name",
    "contexts: [{name: c, context: x}]": "contexts c is not an object",
    "kind: Config": "no context is chosen in .*use-context` chooses one",
    "current-context: [x]\n": "current-context is not a text",
    "current-context: nowhere": "there is no context 'nowhere' in ",
    "{current-context: c, contexts: [{name: c}]}": "context 'c' in .* does not name a cluster",
    "{current-context: c, contexts: [{name: c, context: {cluster: x}}]}": "there is no cluster 'x' in ",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_the_mistake_of_a_file_is_reported_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(KubeconfigError, match=MISTAKES[text]) as raised:
        load(written(tmp_path, text))
    assert "\n" not in str(raised.value)


ENTRIES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"server": None}, {}, "'' is not the URL of a server"),
    ({"server": "hub.example:6443"}, {}, "is not the URL of a server"),
    ({"server": "ftp://hub.example"}, {}, "is not the URL of a server"),
    ({"server": "https://"}, {}, "is not the URL of a server"),
    ({"server": "https://hub:port"}, {}, "is not the URL of a server"),
    ({"server": "https://[hub"}, {}, "is not the URL of a server"),
    ({"server": "https://me:secret@hub"}, {}, "is not the URL of a server"),
    ({"server": ["x"]}, {}, "server is not a text"),
    ({"proxy-url": "socks5://proxy.example"}, {}, "is not the URL of a proxy that speaks HTTP"),
    ({"certificate-authority": "none.crt"}, {}, "cannot read certificate-authority .*none.crt: no such file"),
    ({"certificate-authority": "empty"}, {}, "certificate-authority .*empty is empty"),
    ({"certificate-authority-data": "?"}, {}, "certificate-authority-data is not base64"),
    ({"certificate-authority-data": "aGVsbG8="}, {}, "the certificate-authority is no certificate"),
    ({"certificate-authority-data": "/////w=="}, {}, "the certificate-authority is no certificate"),
    ({}, {"client-certificate-data": "aGVsbG8="}, "only of use together"),
    ({}, {"client-key-data": "aGVsbG8="}, "only of use together"),
    ({}, {"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}, "cannot be used"),
    ({}, {"token": "two\nlines"}, "the token of the user is not a token"),
    ({}, {"token": "naïve"}, "is not a token"),
    ({}, {"token": {"a": 1}}, "token is not a text"),
    ({}, {"auth-provider": {"name": "gcp"}}, "an auth-provider is not supported"),
    ({}, {"as-groups": ["a"]}, "of no use without as"),
    ({}, {"as": "x", "as-groups": "a"}, "as-groups is not a list"),
    ({}, {"as": "x\r\nAuthorization: y"}, "cannot be sent|can be sent"),
    ({}, {"exec": "x"}, "exec does not name a command"),
    ({}, {"exec": {"args": []}}, "exec does not name a command"),
    ({}, {"exec": {"command": "x", "args": "y"}}, "args and env of exec are not lists"),
    ({}, {"exec": {"command": "x", "env": ["y"]}}, "an entry of env of exec has no name"),
    ({}, {"exec": {"command": "x", "interactiveMode": "Always"}}, "x needs a terminal"),
]


@pytest.mark.parametrize(("cluster", "user", "sentence"), ENTRIES)
def test_the_mistake_of_an_entry_is_reported_in_one_sentence(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    written(tmp_path, "", "empty")
    with pytest.raises(KubeconfigError, match=sentence) as raised:
        load(written(tmp_path, config(cluster, user)))
    assert "secret" not in str(raised.value)


def test_a_user_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="there is no user 'you' in "):
        load(written(tmp_path, config()), user="you")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"there is no .*nowhere"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(KubeconfigError, match=r"cannot read .*: is a directory"):
        load(str(tmp_path))


# --- by whom ----------------------------------------------------------------------------------------


def test_the_proxy_is_that_of_the_kubeconfig_or_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment.example:3128")
    monkeypatch.setenv("NO_PROXY", "near.example,.inside.example")
    assert load(written(tmp_path, config())).proxy == "http://environment.example:3128"
    assert load(written(tmp_path, config({"proxy-url": "http://own.example"}))).proxy == "http://own.example"
    for near in ("https://near.example", "https://a.inside.example:6443", "https://127.0.0.1:1", "https://localhost:1"):
        assert load(written(tmp_path, config({"server": near}))).proxy is None
    assert load(written(tmp_path, config({"server": "http://plain.example"}))).proxy is None


# --- who we are -------------------------------------------------------------------------------------


async def test_a_password_is_sent_as_basic_authentication(tmp_path: Path) -> None:
    access = load(written(tmp_path, config(user={"username": "me", "password": "pass:word"})))
    assert await access.credentials() == {"Authorization": f"Basic {base64.b64encode(b'me:pass:word').decode()}"}


async def test_a_user_without_credentials_sends_none(tmp_path: Path) -> None:
    assert await load(written(tmp_path, config())).credentials() == {}


async def test_impersonation_is_sent_with_the_credentials(tmp_path: Path) -> None:
    user = {"token": "t", "as": "you", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["x", "y"]}}
    headers = await load(written(tmp_path, config(user=user))).credentials()
    assert list(headers.items()) == [
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "you"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "x"),
        ("Impersonate-Extra-scopes", "y"),
    ]


async def test_a_token_file_is_read_again_after_a_while_and_when_it_was_not_believed(tmp_path: Path) -> None:
    path, now = tmp_path / "token", 0.0
    tokens = TokenFile(path, lambda: now)
    with pytest.raises(KubeconfigError, match=r"cannot read tokenFile .*token: no such file"):
        await tokens.headers()
    path.write_text("\n")
    with pytest.raises(KubeconfigError, match=r"the content of tokenFile .* is not a token"):
        await tokens.headers()
    path.write_text("first\n")
    assert await tokens.headers() == {"Authorization": "Bearer first"}
    path.write_text("second")
    assert await tokens.headers() == {"Authorization": "Bearer first"}
    tokens.forget()
    assert await tokens.headers() == {"Authorization": "Bearer second"}
    path.write_text("third")
    now += credentials.TOKEN_SECONDS + 1
    assert await tokens.headers() == {"Authorization": "Bearer third"}
    path.unlink()
    now += credentials.TOKEN_SECONDS + 1
    assert await tokens.headers() == {"Authorization": "Bearer third"}


# --- programs ---------------------------------------------------------------------------------------


def counting(directory: Path, **status: str) -> str:
    """A program that says how often it was asked."""
    return f"""
import json, pathlib, os
seen = pathlib.Path({str(directory / "seen")!r})
seen.write_text((seen.read_text() if seen.exists() else "") + os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
count = len(seen.read_text().splitlines())
print(json.dumps({{"kind": "ExecCredential", "status": {{"token": f"token-{{count}}", **{status!r}}}}}))
"""


async def test_a_credential_program_identifies_the_user_until_the_server_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", counting(tmp_path))
    command = {"command": "./bin/who-am-i", "apiVersion": "client.authentication.k8s.io/v1beta1"}
    access = load(written(tmp_path, config(user={"exec": command})))
    assert await access.credentials() == {"Authorization": "Bearer token-1"}
    assert await access.credentials() == {"Authorization": "Bearer token-1"}
    access.forget()
    assert await access.credentials() == {"Authorization": "Bearer token-2"}
    told = [orjson.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    said = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "spec": {"interactive": False},
    }
    assert told == [said, said]


@pytest.mark.parametrize("until", ["2001-01-01T00:00:00Z", "2001-01-01T00:00:00"])
async def test_credentials_of_a_plugin_expire_when_it_says_so(tmp_path: Path, until: str) -> None:
    path = program(tmp_path, counting(tmp_path, expirationTimestamp=until))
    access = load(written(tmp_path, config(user={"exec": {"command": str(path)}})))
    assert await access.credentials() == {"Authorization": "Bearer token-1"}
    assert await access.credentials() == {"Authorization": "Bearer token-2"}


async def test_a_plugin_gets_its_arguments_environment_and_on_request_the_server(tmp_path: Path) -> None:
    text = """
import json, os, sys
spec = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]
token = "/".join([*sys.argv[1:], os.environ["COLOUR"], spec["cluster"]["server"], spec["cluster"]["config"]["a"]])
print(json.dumps({"status": {"token": token}}))
"""
    command = {
        "command": str(program(tmp_path, text)),
        "args": ["one", 2],
        "env": [{"name": "COLOUR", "value": "blue"}],
        "provideClusterInfo": True,
    }
    cluster = {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": "b"}}]}
    access = load(written(tmp_path, config(cluster, {"exec": command})))
    assert await access.credentials() == {"Authorization": "Bearer one/2/blue/https://hub.example:6443/b"}


PROGRAMS = {
    "import sys; sys.exit(3)": "it ended with exit code 3",
    "print('hello')": "it does not print an ExecCredential",
    "print('[' * 100000)": "it does not print an ExecCredential",
    "print('{}')": "it does not print an ExecCredential",
    """print('{"status": {}}')""": "neither a token nor a certificate with its key",
    """print('{"status": {"token": 5}}')""": "it does not print an ExecCredential",
    """print('{"status": {"token": "a b\\\\nc"}}')""": "is not a token",
    """print('{"status": {"token": "a", "expirationTimestamp": "soon"}}')""": "it does not print an ExecCredential",
    """print('{"status": {"clientCertificateData": "a", "clientKeyData": "b"}}')""": "cannot be used",
}


@pytest.mark.parametrize("text", PROGRAMS)
async def test_a_credential_program_that_knows_no_user_is_named(tmp_path: Path, text: str) -> None:
    command = {"command": str(program(tmp_path, text)), "installHint": "get another"}
    access = load(written(tmp_path, config(user={"exec": command})))
    with pytest.raises(KubeconfigError, match=PROGRAMS[text]):
        await access.credentials()


async def test_a_program_that_is_not_there_is_named_with_the_hint_how_to_get_it(tmp_path: Path) -> None:
    command = {"command": "no-such-program", "installHint": "get it at home"}
    access = load(written(tmp_path, config(user={"exec": command})))
    with pytest.raises(KubeconfigError, match=r"no-such-program .*cannot be run: no such file.*; get it at home"):
        await access.credentials()


async def test_a_program_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    asked = ExecCredentials(ExecCommand("sleep", ["1000"], seconds=0.1), None)
    with pytest.raises(KubeconfigError, match="it takes too long"):
        await asked.headers()


async def test_a_credential_program_ends_with_its_caller(tmp_path: Path) -> None:
    number = tmp_path / "number"
    asked = ExecCredentials(
        ExecCommand("sh", ["-c", f"echo $$ > {number}.new; mv {number}.new {number}; exec sleep 1000"]), None
    )
    asking = asyncio.create_task(asked.headers())
    async with asyncio.timeout(PATIENCE):
        while not number.exists():
            await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


# --- a real hub -------------------------------------------------------------------------------------


async def test_the_kubeconfig_of_a_hub_leads_into_it(hub: HubProcess) -> None:
    access = load(str(hub.kubeconfig))
    assert await user_name(access) == "farflung-admin"


async def test_a_hub_is_only_believed_by_its_authority_or_if_anybody_is(hub: HubProcess, tmp_path: Path) -> None:
    url = hub.config["clusters"][0]["cluster"]["server"]
    token = {"token": hub.token}
    (tmp_path / "ca.crt").write_bytes((hub.directory / "ca.crt").read_bytes())
    assert await user_name(load(written(tmp_path, config({"server": url, "certificate-authority": "ca.crt"}, token))))
    assert await user_name(load(written(tmp_path, config({"server": url, "insecure-skip-tls-verify": True}, token))))
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await user_name(load(written(tmp_path, config({"server": url}, token))))
    other = {"server": url, "certificate-authority": "ca.crt", "tls-server-name": "other.example"}
    with pytest.raises(Unreachable, match=r"other\.example"):
        await user_name(load(written(tmp_path, config(other, token))))


@pytest.mark.parametrize("inline", [True, False], ids=["data", "file"])
async def test_new_connections_use_a_replaced_authority(hub: HubProcess, tmp_path: Path, inline: bool) -> None:
    """The kubeconfig that cannot be read while it is written changes nothing."""
    other = ensure_certificates(tmp_path / "other", [], datetime.now(UTC)).ca_pem
    good = (hub.directory / "ca.crt").read_bytes()
    url, token = hub.config["clusters"][0]["cluster"]["server"], {"token": hub.token}

    def write(authority: bytes) -> str:
        written(tmp_path, authority.decode(), "ca.crt")
        data = {"certificate-authority-data": base64.b64encode(authority).decode()}
        return written(
            tmp_path, config({"server": url, **(data if inline else {"certificate-authority": "ca.crt"})}, token)
        )

    access = load(write(other))
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await user_name(access)
    write(good)
    assert await user_name(access)
    written(tmp_path, "{")
    assert await user_name(access)
    write(other)
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await user_name(access)


def certificate_of(hub: HubProcess, name: str) -> tuple[bytes, bytes]:
    certificates = ensure_certificates(hub.directory, ["127.0.0.1"], datetime.now(UTC))
    return issue_client_certificate(certificates, name, ["system:masters"], datetime.now(UTC))


async def test_a_client_certificate_identifies_the_user_from_files_data_and_programs(
    hub: HubProcess, tmp_path: Path
) -> None:
    certificate, key = certificate_of(hub, "the-certified")
    (tmp_path / "me.crt").write_bytes(certificate)
    (tmp_path / "me.key").write_bytes(key)
    where = hub.config["clusters"][0]["cluster"]
    of_files = {"client-certificate": "me.crt", "client-key": "me.key"}
    of_data = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
    of_program = {"exec": {"command": str(program(tmp_path, f"print({orjson.dumps({'status': status}).decode()!r})"))}}
    for user in (of_files, of_data, of_program):
        assert await user_name(load(written(tmp_path, config(where, user)))) == "the-certified"


async def test_a_key_with_a_password_is_refused_instead_of_prompting(tmp_path: Path) -> None:
    hidden = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    certificates = ensure_certificates(tmp_path / "hub", ["127.0.0.1"], datetime.now(UTC))
    certificate, _ = issue_client_certificate(certificates, "me", [], datetime.now(UTC))
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(hidden).decode(),
    }
    with pytest.raises(KubeconfigError, match="cannot be used: the key needs a password"):
        load(written(tmp_path, config(user=user)))


async def test_a_token_that_was_renewed_counts_after_the_first_refusal(hub: HubProcess, tmp_path: Path) -> None:
    where = hub.config["clusters"][0]["cluster"]
    written(tmp_path, "a-wrong-token", "token")
    access = load(written(tmp_path, config(where, {"tokenFile": "token"})))
    async with access.transport() as transport:
        client = Client(transport)
        with pytest.raises(Unauthorized):
            await client.list(NAMESPACES)
        written(tmp_path, hub.token, "token")
        assert await client.list(NAMESPACES)


async def test_a_pod_finds_its_server_and_its_credentials(hub: HubProcess, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes((hub.directory / "ca.crt").read_bytes())
    (tmp_path / "token").write_text(hub.token)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(hub.port)}
    access = in_cluster_config(environment, tmp_path)
    assert access.namespace == "default"
    assert await user_name(access) == "farflung-admin"
    (tmp_path / "namespace").write_text("mine\n")
    assert in_cluster_config(environment, tmp_path).namespace == "mine"
    assert in_cluster_config({"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path).server == "https://[fd00::1]:443"
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster_config({}, tmp_path)


def test_a_pod_without_a_kubeconfig_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(kubeconfig, "ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("t")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST is not set"):
        load()


async def test_an_insecure_server_is_still_spoken_to_by_tls(tmp_path: Path) -> None:
    context = load(written(tmp_path, config({"insecure-skip-tls-verify": True}))).tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    strict = load(written(tmp_path, config({"insecure-skip-tls-verify": "yes"}))).tls
    assert strict is not None
    assert strict.verify_mode == ssl.CERT_REQUIRED


def test_a_machine_without_room_for_files_is_a_trouble_like_any_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(KubeconfigError, match=r"cannot be used: .*No such file"):
        dialer.load_client_certificate(ssl.create_default_context(), b"certificate", b"key")


# --- another server than the file says ------------------------------------------------------------

AUTHORITY = {"insecure-skip-tls-verify": True}


@pytest.mark.parametrize(
    ("cluster", "said", "server", "prefix"),
    [
        (AUTHORITY, "127.0.0.1:8080", "https://127.0.0.1:8080", "/clusters/root"),
        ({}, "127.0.0.1:8080", "http://127.0.0.1:8080", "/clusters/root"),
        ({}, "localhost", "http://localhost", "/clusters/root"),
        ({}, "[::1]:8080", "http://[::1]:8080", "/clusters/root"),
        ({}, "https://other/", "https://other", "/clusters/root"),
        (AUTHORITY, "http://other/api", "http://other", "/api"),
    ],
)
def test_a_server_as_host_and_port_uses_tls_if_the_kubeconfig_has_tls_settings(
    tmp_path: Path, cluster: dict[str, Any], said: str, server: str, prefix: str
) -> None:
    path = written(tmp_path, config({"server": "https://hub.example/clusters/root", **cluster}))
    found = load(path, server=said)
    assert (found.server, found.prefix) == (server, prefix)
    assert (found.tls is not None) == server.startswith("https")


@pytest.mark.parametrize("said", ["a b:1", "hub:port", "hub:0", "hub:6443/path", "ftp://hub", "me:secret@hub"])
def test_an_invalid_server_is_reported_in_one_sentence(tmp_path: Path, said: str) -> None:
    with pytest.raises(KubeconfigError, match="the URL of a server") as raised:
        load(written(tmp_path, config()), server=said)
    assert "secret" not in str(raised.value)
