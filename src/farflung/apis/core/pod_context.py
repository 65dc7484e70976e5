"""Facts about a pod for the validation of its containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farflung.machinery.errors import Obj


@dataclass(frozen=True, slots=True)
class PodContext:
    volumes: Mapping[str, Obj]  #: name → volume, of those that are valid
    claims: frozenset[str]  #: names of resource claims
    grace: int | None  #: terminationGracePeriodSeconds
    restart: str
    host_users: bool
    template: bool  #: it is not a pod, but the template of one
