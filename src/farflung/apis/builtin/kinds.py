"""The built-in resources: those served without a CustomResourceDefinition.

HUB        served in every workspace
WORKLOADS  served where enabled: only clusters that run pods need them
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Final

from farflung.apis import (
    apiregistration,
    autoscaling,
    certificates,
    coordination,
    devices,
    discovery,
    flowcontrol,
    networking,
    policy,
    rbac,
    reviews,
    scheduling,
    storage,
)
from farflung.apis.admissionregistration import kinds as admissionregistration
from farflung.apis.apiextensions import kinds as apiextensions
from farflung.apis.core import events, runtime_classes
from farflung.apis.core import kinds as core
from farflung.apis.names import AUTHENTICATION_GROUP, CERTIFICATES_GROUP, RBAC_GROUP
from farflung.apis.resource import Resource
from farflung.apis.workloads import apps, batch

#: modules with `RESOURCES`, and some with `RULES`; in the order in which discovery lists the groups
MODULES: Final[tuple[ModuleType, ...]] = (
    core,
    apiregistration,
    apps,
    events,
    reviews,
    autoscaling,
    batch,
    certificates,
    networking,
    policy,
    rbac,
    storage,
    admissionregistration,
    apiextensions,
    scheduling,
    coordination,
    runtime_classes,
    discovery,
    devices,
    flowcontrol,
)
EVERYTHING: Final[tuple[Resource, ...]] = tuple(resource for module in MODULES for resource in module.RESOURCES)

#: the order of the built-in groups in discovery: kubectl takes the first one that has a resource of a given name
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(resource.group for resource in EVERYTHING))

HUB_GROUPS: Final = frozenset(
    {
        "apiextensions.k8s.io",
        AUTHENTICATION_GROUP,
        "authorization.k8s.io",
        CERTIFICATES_GROUP,
        "coordination.k8s.io",
        "events.k8s.io",
        RBAC_GROUP,
    }
)
HUB_RESOURCES: Final = frozenset(
    {
        "configmaps",
        "events",
        "limitranges",
        "namespaces",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)


def in_every_workspace(resource: Resource) -> bool:
    return resource.group in HUB_GROUPS or resource.qualified in HUB_RESOURCES


EVERYWHERE: Final[tuple[Resource, ...]] = tuple(filter(in_every_workspace, EVERYTHING))
#: discovery lists the reviews of kcp 0.11: its programs try to list every other kind that they find there
HUB: Final[tuple[Resource, ...]] = tuple(
    replace(one, is_listed=one.plural != "selfsubjectreviews") for one in EVERYWHERE
)
WORKLOADS: Final[tuple[Resource, ...]] = tuple(one for one in EVERYTHING if not in_every_workspace(one))
BUILTIN: Final[tuple[Resource, ...]] = EVERYWHERE + WORKLOADS
