"""Credentials of a kubeconfig: tokens, passwords, client certificates and exec plugins."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext, SSLError, VerifyMode
from typing import Any

from farflung.cli.plugins.access import PluginAccess
from farflung.cli.plugins.errors import CommandError

PARTIAL_CHAIN = 0x80000  #: OpenSSL: trust every certificate in the kubeconfig, also intermediate ones


def headers(user: dict[str, Any]) -> list[tuple[str, str]]:
    """Authentication headers.  A token takes precedence over a password, as in kubectl."""
    found = []
    token = _token(user)
    if token:
        found.append(("Authorization", f"Bearer {token}"))
    elif user.get("username"):
        import base64

        secret = f"{user['username']}:{user.get('password', '')}".encode()
        found.append(("Authorization", f"Basic {base64.b64encode(secret).decode()}"))
    impersonated = (("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid")))
    found += [(header, str(value)) for header, value in impersonated if value]
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    return found


def with_handed_out(access: PluginAccess) -> dict[str, Any]:
    """The user, with the credentials of its exec plugin, if any."""
    user = access.user
    return user | _executed(user["exec"], access) if isinstance(user.get("exec"), dict) else user


def tls_context(cluster: dict[str, Any], user: dict[str, Any]) -> SSLContext:
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    try:
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = VerifyMode.CERT_NONE
        elif cluster.get("certificate-authority-data"):
            context.load_verify_locations(cadata=_decoded(cluster["certificate-authority-data"]).decode("ascii"))
        elif cluster.get("certificate-authority"):
            context.load_verify_locations(cafile=cluster["certificate-authority"])
        else:
            context.load_default_certs()
        context.verify_flags |= PARTIAL_CHAIN
        _load_client_certificate(context, user)
    except (OSError, SSLError, ValueError) as error:
        raise CommandError(f"unable to use the certificates of the kubeconfig: {error}") from None
    return context


def _token(user: dict[str, Any]) -> str:
    if not user.get("tokenFile"):
        return str(user.get("token") or "")
    try:
        return Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
    except OSError as error:
        if user.get("token"):
            return str(user["token"])
        raise CommandError(f"open {user['tokenFile']}: {(error.strerror or '').lower()}") from None


def _load_client_certificate(context: SSLContext, user: dict[str, Any]) -> None:
    with ExitStack() as files:
        certificate = files.enter_context(_file(user, "client-certificate"))
        key = files.enter_context(_file(user, "client-key"))
        if certificate and key:
            context.load_cert_chain(certificate, key)


@contextmanager
def _file(user: dict[str, Any], field: str) -> Iterator[str | None]:
    """A path from which OpenSSL can read the data, without writing a key to disk."""
    if not user.get(f"{field}-data"):
        yield user.get(field)
        return
    content = _decoded(user[f"{field}-data"])
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create(field), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _decoded(data: str) -> bytes:
    import binascii

    return binascii.a2b_base64(data)


def _executed(execution: dict[str, Any], access: PluginAccess) -> dict[str, Any]:
    """The output of an exec plugin, as fields of a kubeconfig user."""
    import subprocess

    environment = dict(os.environ)
    environment.update({item["name"]: str(item.get("value", "")) for item in execution.get("env") or []})
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(_exec_info(execution, access))
    command = [str(execution.get("command", "")), *map(str, execution.get("args") or [])]
    try:
        # The person who owns the kubeconfig named the program there, for this purpose.
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603
        status = json.loads(answer)["status"]
    except OSError as error:
        hint = execution.get("installHint")
        raise CommandError(
            f"getting credentials: exec: executable {command[0]} failed: {error.strerror}"
            + (f"\n\n{hint}" if hint else "")
        ) from None
    except subprocess.CalledProcessError as error:
        message = f"getting credentials: exec: executable {command[0]} failed with exit code {error.returncode}"
        raise CommandError(message) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"getting credentials: exec: {command[0]} printed no ExecCredential") from None
    return _as_user(status)


def _exec_info(execution: dict[str, Any], access: PluginAccess) -> dict[str, Any]:
    interactive = os.isatty(0) and execution.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if execution.get("provideClusterInfo"):
        given = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {field: access.cluster[field] for field in given if field in access.cluster}
    return {"apiVersion": execution.get("apiVersion", ""), "kind": "ExecCredential", "spec": spec}


def _as_user(status: dict[str, Any]) -> dict[str, Any]:
    import base64

    user = {"token": status["token"]} if status.get("token") else {}
    for given, field in (("clientCertificateData", "client-certificate-data"), ("clientKeyData", "client-key-data")):
        if status.get(given):
            user[field] = base64.b64encode(str(status[given]).encode()).decode()
    return user
