"""The default image pull policy, by the tag of the image."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LONGEST: Final = 1024  #: no longer reference is valid: a name has at most 255 characters, a tag 128

_COMPONENT: Final = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*+"
_DOMAIN_PART: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN: Final = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE: Final = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*+)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER: Final = re.compile("[a-f0-9]{64}")


def pull_policy(image: str) -> str:
    """The default policy: what may move under its tag is pulled always.

    >>> pull_policy("nginx"), pull_policy("nginx:latest"), pull_policy("nginx:1.27")
    ('Always', 'Always', 'IfNotPresent')
    """
    return "IfNotPresent" if len(image) > LONGEST else _policy(image)


@lru_cache(maxsize=4096)
def _policy(image: str) -> str:
    match = None if _IDENTIFIER.fullmatch(image) else _REFERENCE.fullmatch(image)
    if match is None or len(match["name"]) > 255:
        return "IfNotPresent"
    tag, digest = match["tag"], match["digest"]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
