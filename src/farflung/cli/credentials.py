"""The administrator's token and kubeconfig: made at the first start, kept ever after."""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from farflung.hub.auth.tokens import HandedOut, read_tokens, token_hash, write_tokens
from farflung.hub.auth.user import ADMINISTRATORS, AUTHENTICATED
from farflung.hub.http.certificates import locked
from farflung.lib.files import write_private
from farflung.lib.ids import new_token

TOKENS = "tokens.json"  #: sha256 of a token → whose it is
SIGNING_KEYS = "service-account.key"  #: what signs the tokens of ServiceAccounts
KUBECONFIG = "admin.kubeconfig"
ADMIN = "farflung-admin"


def ensure_admin_token(directory: Path, now: datetime) -> str:
    """The token in admin.kubeconfig if it is still good, so that copies of that file stay good; else a new one, and
    what was the administrator's before is refused."""
    path = directory / TOKENS
    with locked(directory):
        tokens = read_tokens(path)
        token = _kept_token(directory / KUBECONFIG)
        if token is None or token_hash(token) not in tokens:
            token = new_token()
            tokens = {hashed: one for hashed, one in tokens.items() if one.name != ADMIN}
            tokens[token_hash(token)] = HandedOut(ADMIN, (ADMINISTRATORS, AUTHENTICATED), created=now)
            write_tokens(path, tokens)
    return token


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
    write_private(directory / KUBECONFIG, kubeconfig(cluster, ADMIN, token).encode())


def kubeconfig(cluster: dict[str, Any], user: str, token: str) -> str:
    """`cluster`: where the hub is, and whom to trust."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "root", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "root", "context": {"cluster": "root", "user": user}}],
        "current-context": "root",
    }
    return yaml.safe_dump(config, sort_keys=False)
