"""The administrators' tokens and kubeconfig, created at the first start."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from farflung.cli.plugins.commands import CommandError
from farflung.cli.plugins.contexts import CURRENT, PREVIOUS
from farflung.cli.plugins.kubeconfig import BODY, CLUSTERS, CONTEXTS, USERS, load
from farflung.hub.auth.static_tokens import TokenRecord, read_tokens, token_hash, write_tokens
from farflung.hub.request.user import ADMINISTRATORS, AUTHENTICATED
from farflung.lib.files import locked, write_private
from farflung.lib.ids import Uids, new_token

TOKENS = "tokens.json"  #: sha256 of a token → its user
KUBECONFIG = "admin.kubeconfig"
CONTROLLERS_KUBECONFIG = "controllers.kubeconfig"  #: has a context for each controller of a hub with workspaces
ADMIN = "farflung-admin"


class KubeconfigUser(NamedTuple):
    """A user with a token in a kubeconfig of the hub."""

    name: str
    groups: tuple[str, ...]
    has_uid: bool = False


class KubeconfigContext(NamedTuple):
    name: str
    cluster: str
    user: str


PLAIN = KubeconfigUser(ADMIN, (ADMINISTRATORS, AUTHENTICATED))


def ensure_tokens(directory: Path, users: Sequence[KubeconfigUser], now: datetime) -> dict[str, str]:
    """Tokens by user.  Valid tokens of the hub's kubeconfigs are kept, so that copies of them stay valid; otherwise new
    tokens replace them."""
    path = directory / TOKENS
    with locked(directory):
        tokens = read_tokens(path)
        kept = {
            name: token
            for kubeconfig in (CONTROLLERS_KUBECONFIG, KUBECONFIG)
            for name, token in _kept_tokens(directory / kubeconfig, users).items()
        }
        good = {one.name: kept[one.name] for one in users if is_theirs(kept.get(one.name), one, tokens)}
        for one in users:
            if one.name not in good:
                token = good[one.name] = new_token()
                tokens = {hashed: other for hashed, other in tokens.items() if other.name != one.name}
                uid = Uids()() if one.has_uid else ""
                tokens[token_hash(token)] = TokenRecord(one.name, one.groups, created=now, uid=uid)
                write_tokens(path, tokens)
    return good


def is_theirs(token: str | None, user: KubeconfigUser, tokens: Mapping[str, TokenRecord]) -> bool:
    found = tokens.get(token_hash(token)) if token is not None else None
    return found is not None and found.name == user.name


def _kept_tokens(kubeconfig: Path, users: Sequence[KubeconfigUser]) -> dict[str, str]:
    """Tokens by user in a kubeconfig; empty if it cannot be read."""
    try:
        found = {one.name: load([kubeconfig]).find(USERS, one.name) for one in users}
    except CommandError:
        return {}
    tokens = {name: entry.body.get("token") for name, entry in found.items() if entry is not None}
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def url_of(host: str, port: int) -> str:
    """The URL for clients on this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    address = f"[{reachable}]" if ":" in reachable else reachable
    return f"https://{address}:{port}"


def write_kubeconfig(directory: Path, url: str, ca_pem: bytes, token: str) -> None:
    """Contexts of other servers are kept."""
    path, clusters = directory / KUBECONFIG, {"root": cluster_at(url, ca_pem)}
    context = KubeconfigContext("root", "root", ADMIN)
    write_private(path, whole_kubeconfig(clusters, {ADMIN: token}, [context], "root", before=path).encode())


def cluster_at(url: str, ca_pem: bytes) -> dict[str, Any]:
    return {"server": url, "certificate-authority-data": base64.b64encode(ca_pem).decode()}


def kubeconfig(cluster: dict[str, Any], user: str, token: str) -> str:
    """`cluster`: URL and CA of the hub."""
    return whole_kubeconfig({"root": cluster}, {user: token}, [KubeconfigContext("root", "root", user)], "root")


def whole_kubeconfig(
    clusters: Mapping[str, Any],
    tokens: Mapping[str, str],
    contexts: Sequence[KubeconfigContext],
    current: str,
    *,
    before: Path | None = None,
) -> str:
    """`before`: a kubeconfig whose contexts of other servers, such as edges, are kept."""
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
        "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
        "contexts": [{"name": one.name, "context": {"cluster": one.cluster, "user": one.user}} for one in contexts],
        "current-context": current,
    }
    for entries in _contexts_of_others(before, config) if before is not None else ():
        for section, entry in entries.items():
            config[section] += [entry] if entry not in config[section] else []
    return yaml.safe_dump(config, sort_keys=False)


def _contexts_of_others(path: Path, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries, by section, of each context whose entries all exist and have no name of `config` or the plugins."""
    try:
        found = load([path])
    except CommandError:
        return
    ours = {(section, one["name"]) for section in BODY for one in config[section]}
    for item in found.documents.get(path, {}).get(CONTEXTS) or ():
        context = item.get("context") if isinstance(item, dict) else None
        if not isinstance(context, dict):
            continue
        names = {CONTEXTS: item.get("name"), CLUSTERS: context.get("cluster"), USERS: context.get("user")}
        texts = {section: name for section, name in names.items() if isinstance(name, str)}
        bodies = {section: entry.body for section, name in texts.items() if (entry := found.find(section, name))}
        if len(bodies) == len(BODY) and ours.isdisjoint(texts.items()) and texts[CONTEXTS] not in (CURRENT, PREVIOUS):
            yield {section: {"name": texts[section], BODY[section]: body} for section, body in bodies.items()}
