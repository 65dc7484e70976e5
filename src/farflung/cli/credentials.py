"""The administrator's token and kubeconfig: made at the first start, kept ever after."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from farflung.hub.auth.authenticate import token_hash
from farflung.hub.auth.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.lib.ids import new_token
from farflung.store.base import Unusable

TOKENS = "tokens.json"  #: sha256 of a token → who it is
KUBECONFIG = "admin.kubeconfig"
ADMIN = "farflung-admin"


@dataclass(frozen=True, slots=True)
class Credentials:
    token: str
    users: Mapping[str, User]


class KnownUser(msgspec.Struct):
    name: str
    groups: tuple[str, ...]


def admin_credentials(directory: Path) -> Credentials:
    """The token in admin.kubeconfig if it is still good, so that copies of that file stay good; else a new one."""
    path = directory / TOKENS
    users = _kept_users(path)
    token = _kept_token(directory / KUBECONFIG)
    if token is None or token_hash(token) not in users:
        token = new_token()
        users = {hashed: user for hashed, user in users.items() if user.name != ADMIN}
        users[token_hash(token)] = KnownUser(ADMIN, (ADMINISTRATORS, AUTHENTICATED))
        write_private(path, msgspec.json.format(msgspec.json.encode(users), indent=2))
    return Credentials(token, {hashed: User(user.name, user.groups) for hashed, user in users.items()})


def _kept_users(path: Path) -> dict[str, KnownUser]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, KnownUser])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Unusable(f"{path} is damaged ({error}): restore it, or move it away to get new tokens") from None


def _kept_token(kubeconfig: Path) -> str | None:
    try:
        users = yaml.safe_load(kubeconfig.read_text())["users"]
        token = next(user["user"]["token"] for user in users if user["name"] == ADMIN)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, StopIteration):
        return None
    return token if isinstance(token, str) else None


def write_kubeconfig(directory: Path, host: str, port: int, ca_pem: bytes, token: str) -> None:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    address = f"[{reachable}]" if ":" in reachable else reachable
    authority = base64.b64encode(ca_pem).decode()
    cluster = {"server": f"https://{address}:{port}", "certificate-authority-data": authority}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "root", "cluster": cluster}],
        "users": [{"name": ADMIN, "user": {"token": token}}],
        "contexts": [{"name": "root", "context": {"cluster": "root", "user": ADMIN}}],
        "current-context": "root",
    }
    write_private(directory / KUBECONFIG, yaml.safe_dump(config, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others."""
    if path.exists() and path.read_bytes() == content:
        return
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
