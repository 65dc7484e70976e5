"""What summaries are called, and of which objects there are any.  Pure."""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from functools import lru_cache
from typing import Final

from farflung.controllers.placement_translator.kinds import SUMMARIES, Category, category
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.machinery.names import DNS_SUBDOMAIN_LENGTH, LABEL_VALUE_LENGTH, dns_label, dns_subdomain, label_value

NAMESPACE: Final = SUMMARIES  #: of summaries of objects that are in none
ANNOTATION: Final = "edge.kcp.io/summarize"  #: of EdgePlacements
PLACEMENT_LABEL: Final = "edge.kcp.io/summary-placement"
GROUP_LABEL: Final = "edge.kcp.io/summary-group"
RESOURCE_LABEL: Final = "edge.kcp.io/summary-resource"
NAME_LABEL: Final = "edge.kcp.io/summary-name"

DIGITS: Final = 10  #: of the hash that makes a name that was changed unique again

_UNFIT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_UNFIT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AROUND_DOTS: Final = re.compile(r"[.-]*\.[.-]*")


def summary_name(placement: str, part: Part) -> str:
    """`<placement>.<resource>[.<group>].<object>`.

    Other objects have other names: where dots leave open what is what, where the name is longer than a name may be, or
    where it holds what no name of a summary may (`system:node` is the name of a role), a hash is appended.
    """
    words = [placement, part.kind.resource, part.kind.group, part.name]
    plain = ".".join(word for word in words if word)
    if "." in placement or "." in part.name:
        return _fitting_name(plain, "\0".join(words))
    return plain if not dns_subdomain(plain) else _fitting_name(plain, plain)


def summary_namespace(part: Part) -> str:
    return part.namespace or NAMESPACE


def summary_labels(placement: str, part: Part) -> dict[str, str]:
    """What summaries are selected by.  Of what is no value of a label there is the beginning, and a hash; the summary's
    `subject` has all of it."""
    return {
        PLACEMENT_LABEL: _fitting_value(placement),
        GROUP_LABEL: _fitting_value(part.kind.group),
        RESOURCE_LABEL: _fitting_value(part.kind.resource),
        NAME_LABEL: _fitting_value(part.name),
    }


def _fitting_name(plain: str, unique: str) -> str:
    clean = _AROUND_DOTS.sub(".", _UNFIT_IN_NAMES.sub("-", plain.lower()))
    return _hashed(clean, unique, DNS_SUBDOMAIN_LENGTH)


def _fitting_value(plain: str) -> str:
    return _hashed(_UNFIT_IN_LABELS.sub("-", plain), plain, LABEL_VALUE_LENGTH) if label_value(plain) else plain


def _hashed(clean: str, unique: str, limit: int) -> str:
    """As much of the beginning as there is room for, and the hash."""
    digits = hashlib.sha256(unique.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
    beginning = clean.strip("._-")[: limit - DIGITS - 1].rstrip("._-")
    return f"{beginning}-{digits}" if beginning else digits


# --- which objects --------------------------------------------------------------------------------


class Summarized(Enum):
    """Whether there are summaries of the objects of a kind."""

    NEVER = "never"
    ALWAYS = "always"
    IF_REPORTING = "if reporting"  #: once one of the copies has a status


_BY_DEFAULT: Final = frozenset(
    {
        Kind("", "persistentvolumeclaims"),
        Kind("", "pods"),
        Kind("", "replicationcontrollers"),
        Kind("", "services"),
        Kind("apps", "daemonsets"),
        Kind("apps", "deployments"),
        Kind("apps", "replicasets"),
        Kind("apps", "statefulsets"),
        Kind("batch", "cronjobs"),
        Kind("batch", "jobs"),
    }
)
_CORE_ON_REQUEST: Final = frozenset({"persistentvolumes", "resourcequotas"})
_CORE: Final = _CORE_ON_REQUEST | {kind.resource for kind in _BY_DEFAULT if not kind.group}
_GROUPS_WITHOUT: Final = frozenset({"rbac.authorization.k8s.io"})
_KINDS_WITHOUT: Final = frozenset(
    {
        Kind("", "configmaps"),
        Kind("", "namespaces"),
        Kind("", "secrets"),
        Kind("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)  #: whose status says nothing of a workload


def is_summarized(kind: Kind, annotation: str | None, *, builtin: bool) -> Summarized:
    """As the EdgePlacement's annotation says.

    `false`: nothing is.  A list such as `deployments.apps,ingresses.networking.k8s.io,pods`: these kinds are, as far
    as they may be.  Anything else: workloads, Services and claims of volumes are, and custom resources that have
    a status.  In a list counts what names a group, or a kind of the core group that has a status.
    """
    if kind in _KINDS_WITHOUT or kind.group in _GROUPS_WITHOUT or category(kind) is not Category.EDGE:
        return Summarized.NEVER
    asked = _asked_for(annotation) if annotation else None
    if asked is not None:
        return Summarized.ALWAYS if kind in asked else Summarized.NEVER
    if kind in _BY_DEFAULT:
        return Summarized.ALWAYS
    return Summarized.NEVER if builtin else Summarized.IF_REPORTING


@lru_cache(maxsize=256)
def _asked_for(annotation: str) -> frozenset[Kind] | None:
    """The kinds that are listed; None: the default."""
    if annotation.strip().lower() == "false":
        return frozenset()
    named = [word.strip().partition(".") for word in annotation.split(",")]
    kinds = {Kind(group, resource) for resource, _, group in named if _is_kind(resource, group)}
    return frozenset(kinds) or None


def _is_kind(resource: str, group: str) -> bool:
    return not dns_label(resource) and not dns_subdomain(group) if group else resource in _CORE
