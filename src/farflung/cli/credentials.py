"""The administrator's token and kubeconfig: made at the first start, kept ever after."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from farflung.hub.auth.authenticate import token_hash
from farflung.hub.auth.user import ADMINISTRATORS, AUTHENTICATED, User
from farflung.lib.files import write_private
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
