"""The shape of keys: `/<group>/<resource>/<cluster>/<namespace>/<name>`, or without the namespace."""

from __future__ import annotations


def check_key(key: str) -> None:
    """Raise ValueError unless the key has four or five parts, none empty, and can be written to a disk."""
    parts = key.split("/")
    if not 5 <= len(parts) <= 6 or parts[0] or not all(parts[1:]):
        raise ValueError(f"not a key of the store: {key!r}")
    if not key.isascii():
        key.encode()  # a lone surrogate is no text


def check_prefix(prefix: str) -> None:
    """Raise ValueError unless the prefix is `/<group>/<resource>/`, or that and some parts more."""
    parts = prefix.split("/")
    if len(parts) < 4 or parts[0] or parts[-1] or not all(parts[1:-1]):
        raise ValueError(f"not a prefix of keys of the store: {prefix!r}")
    if not prefix.isascii():
        prefix.encode()


def resource_prefix(key: str) -> str:
    """`/<group>/<resource>/` of a key or prefix."""
    return key[: key.index("/", key.index("/", 1) + 1) + 1]


def prefixes_of(key: str) -> tuple[str, ...]:
    """Every prefix a key lies under, the widest first: by resource, by cluster and, if it has one, by namespace."""
    resource = key.index("/", key.index("/", 1) + 1) + 1
    cluster = key.index("/", resource) + 1
    namespace = key.find("/", cluster) + 1
    if namespace:
        return key[:resource], key[:cluster], key[:namespace]
    return key[:resource], key[:cluster]


def end_of(prefix: str) -> str:
    """The first string behind every key of a prefix."""
    return prefix[:-1] + chr(ord("/") + 1)
