"""Which kind of objects somebody means: by the words that kubectl takes, too.  Pure."""

from __future__ import annotations

from farflung.client.discovery import Resource, Served


def find(served: Served, word: str) -> Resource | None:
    """`nines`, `nine`, `Nine` or a short name, also with the group (`nines.group9.test`) or the version and the group
    (`nines.v1.group9.test`).  None if there is none.  Of several, the first that is served counts, and those whose
    plural it is before others."""
    name, _, rest = word.lower().partition(".")
    version, _, group = rest.partition(".")
    found = [one for one in _candidates(served, rest) if name in _names(one)]
    found = found or [one for one in _every(served) if one.collection.version == version and _is_of(one, name, group)]
    return min(found, key=lambda one: one.collection.plural != name, default=None)


def _candidates(served: Served, group: str) -> list[Resource]:
    return [one for one in served.resources() if group in ("", one.collection.group)]


def _every(served: Served) -> list[Resource]:
    return [one for group in served.groups for version in group.versions for one in version.resources]


def _is_of(one: Resource, name: str, group: str) -> bool:
    return one.collection.group == group and name in _names(one)


def _names(one: Resource) -> set[str]:
    return {one.collection.plural, one.singular, one.collection.kind.lower(), *one.short_names} - {""}
