"""Where group versions are served from."""

from __future__ import annotations

from typing import Final

from farflung.apis.apiregistration import printers
from farflung.apis.group import Group, status

REGISTRATION: Final = Group("apiregistration.k8s.io", "v1", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.")

RESOURCES: Final = (
    REGISTRATION.stored(
        "apiservices",
        "APIService",
        printer=printers.API_SERVICES,
        namespaced=False,
        categories=("api-extensions",),
        subresources=(status("APIService"),),
    ),
)
