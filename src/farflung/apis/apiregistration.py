"""APIServices: the resource and its printer columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.printers import AGE, NAME, column, part, printer
from farflung.apis.resource import Group, status
from farflung.apis.validation import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj


def hosting_service(obj: Obj) -> str:
    service = part(obj, "spec").get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def availability(obj: Obj) -> str:
    conditions = part(obj, "status").get("conditions") or ()
    available: Obj = next((one for one in conditions if one.get("type") == "Available"), {})
    word: str = available.get("status", "Unknown")
    reason = available.get("reason")
    return f"{word} ({reason})" if reason and word != "True" else word


API_SERVICES: Final = printer(
    "",
    NAME,
    column("Service", "The reference to the service that hosts this API endpoint.", hosting_service),
    column("Available", "Whether this service is available.", availability),
    AGE,
)


# --- Where group versions are served from ---------------------------------------------------------

REGISTRATION: Final = Group("apiregistration.k8s.io", "v1", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.")

RESOURCES: Final = (
    REGISTRATION.stored(
        "apiservices",
        "APIService",
        printer=API_SERVICES,
        namespaced=False,
        categories=("api-extensions",),
        subresources=(status("APIService"),),
    ),
)

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (REGISTRATION.name, "APIService"): Rules(
        name=names.dns_subdomain,
        unconditional_update=False,
        warnings=lambda new, old: ["APIServices are stored, but this server serves its own kinds only"],
    ),
}
