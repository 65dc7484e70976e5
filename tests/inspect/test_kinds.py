"""Which kind somebody means."""

from __future__ import annotations

import pytest

from farflung.apis.names import Collection
from farflung.client.discovery import DiscoveredGroup, DiscoveredResource, DiscoveredVersion, ServedResources
from farflung.inspect.hub import find_resource


def resource(group: str, version: str, plural: str, kind: str, *short: str, singular: str = "") -> DiscoveredResource:
    return DiscoveredResource(Collection(group, version, plural, kind), singular, True, frozenset({"list"}), short)


SERVED = ServedResources(
    (
        DiscoveredGroup("", (DiscoveredVersion("v1", (resource("", "v1", "pods", "Pod", "po", singular="pod"),)),)),
        DiscoveredGroup(
            "group9.test",
            (
                DiscoveredVersion("v2", (resource("group9.test", "v2", "nines", "Nine", "po"),)),
                DiscoveredVersion("v1", (resource("group9.test", "v1", "nines", "Nine"),)),
            ),
        ),
        DiscoveredGroup(
            "other.test", (DiscoveredVersion("v1", (resource("other.test", "v1", "po", "Nine", singular="nine"),)),)
        ),
    )
)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("pods", "v1 pods"),
        ("Pod", "v1 pods"),
        ("pods.v1", "v1 pods"),
        ("nines", "group9.test/v2 nines"),
        ("nine", "group9.test/v2 nines"),
        ("NINE", "group9.test/v2 nines"),
        ("nines.group9.test", "group9.test/v2 nines"),
        ("nine.other.test", "other.test/v1 po"),
        ("nines.v1.group9.test", "group9.test/v1 nines"),
        ("po", "other.test/v1 po"),
        ("po.group9.test", "group9.test/v2 nines"),
        ("nines.v3.group9.test", ""),
        ("nines.test", ""),
        ("tens", ""),
        ("", ""),
        (".group9.test", ""),
    ],
)
def test_a_kind_is_found_by_the_words_that_kubectl_takes(word: str, meant: str) -> None:
    found = find_resource(SERVED, word)
    assert ("" if found is None else f"{found.collection.api_version} {found.collection.plural}") == meant
