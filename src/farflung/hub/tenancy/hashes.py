"""Names that are hashes, computed like kcp: of clusters, bindings and labels."""

from __future__ import annotations

import hashlib
from typing import Final

from farflung.apis.kcp.names import INITIALIZER_LABELS

DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
NAME_LENGTH: Final = 16  #: of the name of a workspace's cluster
RANDOM_BYTES: Final = 32  #: for such a name


def sha224(text: str | bytes) -> bytes:
    return hashlib.sha224(text.encode() if isinstance(text, str) else text).digest()


def in_base(number: int, base: int) -> str:
    """A number in a base up to 62, without padding."""
    digits: list[str] = []
    while number:
        number, digit = divmod(number, base)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def base36(data: bytes) -> str:
    """Bytes as one big-endian number, in lower case."""
    return in_base(int.from_bytes(data, "big"), 36)


def base62(data: bytes) -> str:
    """Bytes as one big-endian number, in digits, lower and upper case."""
    return in_base(int.from_bytes(data, "big"), 62)


def cluster_name(chance: bytes) -> str:
    """The name of a new workspace's cluster."""
    return base36(sha224(chance))[:NAME_LENGTH]


def home_cluster_name(user: str) -> str:
    return base36(sha224(user)[:8])


def shard_hash(shard: str) -> str:
    return base36(sha224(shard))[:8]


def default_binding_name(cluster: str, export_path: str, export: str) -> str:
    """The name of an APIBinding that a WorkspaceType adds."""
    return f"{export}-{base62(sha224(f'{cluster}|{export_path}|{export}'))[:5].lower()}"


def export_label(cluster: str, export: str) -> str:
    """The value of an APIBinding's export label."""
    return base62(sha224(f"{cluster}:{export}"))


def sync_target_key(cluster: str, sync_target: str) -> str:
    return base62(sha224(f"{cluster}:{sync_target}"))


def initializer_label(initializer: str) -> tuple[str, str]:
    """The label, with its value, of a LogicalCluster that waits for an initializer."""
    name = base62(sha224(initializer))
    return INITIALIZER_LABELS + name, name
