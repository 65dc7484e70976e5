"""`farflung start`: the hub with workspaces.  What differs from `farflung hub`; the rest is composed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from farflung.cli.credentials import KUBECONFIG, Administrator, Context, cluster_at, whole_kubeconfig
from farflung.hub.auth.user import ADMINISTRATORS, AUTHENTICATED
from farflung.hub.workspaces.access import OPERATORS
from farflung.lib.files import write_private

OPERATOR: Final = Administrator("kcp-admin", (OPERATORS, AUTHENTICATED), has_uid=True)
SHARD_ADMINISTRATOR: Final = Administrator("shard-admin", (ADMINISTRATORS, AUTHENTICATED))
ADMINISTRATORS_OF_ALL: Final = (OPERATOR, SHARD_ADMINISTRATOR)

#: controllers ask for these very names
CONTEXTS: Final = (
    Context("base", "base", OPERATOR.name),
    Context("root", "root", OPERATOR.name),
    Context("system:admin", "base", SHARD_ADMINISTRATOR.name),
)


def write_kubeconfig(directory: Path, url: str, ca_pem: bytes, tokens: Mapping[str, str]) -> None:
    """`url`: where the hub is, without a workspace; `tokens`: by the administrators' names."""
    clusters = {"base": cluster_at(url, ca_pem), "root": cluster_at(f"{url}/clusters/root", ca_pem)}
    write_private(directory / KUBECONFIG, whole_kubeconfig(clusters, tokens, CONTEXTS, "root").encode())
