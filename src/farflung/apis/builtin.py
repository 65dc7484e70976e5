"""Everything that is served without a CustomResourceDefinition.

HUB        every workspace has these
WORKLOADS  served where enabled: what only clusters that run something need
"""

from __future__ import annotations

from typing import Final

from farflung.apis.admissionregistration import v1 as admissionregistration_v1
from farflung.apis.apiextensions import v1 as apiextensions_v1
from farflung.apis.apiregistration import v1 as apiregistration_v1
from farflung.apis.apps import v1 as apps_v1
from farflung.apis.authentication import v1 as authentication_v1
from farflung.apis.authorization import v1 as authorization_v1
from farflung.apis.autoscaling import v1 as autoscaling_v1
from farflung.apis.autoscaling import v2 as autoscaling_v2
from farflung.apis.batch import v1 as batch_v1
from farflung.apis.certificates import v1 as certificates_v1
from farflung.apis.coordination import v1 as coordination_v1
from farflung.apis.core import v1 as core_v1
from farflung.apis.devices import v1 as devices_v1
from farflung.apis.discovery import v1 as discovery_v1
from farflung.apis.events import v1 as events_v1
from farflung.apis.flowcontrol import v1 as flowcontrol_v1
from farflung.apis.networking import v1 as networking_v1
from farflung.apis.node import v1 as node_v1
from farflung.apis.policy import v1 as policy_v1
from farflung.apis.rbac import v1 as rbac_v1
from farflung.apis.resource import Resource
from farflung.apis.scheduling import v1 as scheduling_v1
from farflung.apis.storage import v1 as storage_v1

#: in the order in which discovery lists the groups
EVERYTHING: Final[tuple[Resource, ...]] = (
    *core_v1.RESOURCES,
    *apiregistration_v1.RESOURCES,
    *apps_v1.RESOURCES,
    *events_v1.RESOURCES,
    *authentication_v1.RESOURCES,
    *authorization_v1.RESOURCES,
    *autoscaling_v2.RESOURCES,
    *autoscaling_v1.RESOURCES,
    *batch_v1.RESOURCES,
    *certificates_v1.RESOURCES,
    *networking_v1.RESOURCES,
    *policy_v1.RESOURCES,
    *rbac_v1.RESOURCES,
    *storage_v1.RESOURCES,
    *admissionregistration_v1.RESOURCES,
    *apiextensions_v1.RESOURCES,
    *scheduling_v1.RESOURCES,
    *coordination_v1.RESOURCES,
    *node_v1.RESOURCES,
    *discovery_v1.RESOURCES,
    *devices_v1.RESOURCES,
    *flowcontrol_v1.RESOURCES,
)

#: the order of the built-in groups in discovery: kubectl takes the first one that has a resource of a given name
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(resource.group for resource in EVERYTHING))

HUB_GROUPS: Final = frozenset(
    {
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
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


HUB: Final[tuple[Resource, ...]] = tuple(filter(in_every_workspace, EVERYTHING))
WORKLOADS: Final[tuple[Resource, ...]] = tuple(one for one in EVERYTHING if not in_every_workspace(one))
BUILTIN: Final[tuple[Resource, ...]] = HUB + WORKLOADS
