"""What `kubectl get` shows of endpoint slices."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, described, name_of, shortened
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Printer


def slice_cells(obj: Obj, now: datetime) -> list[Any]:
    addresses = [one for endpoint in obj.get("endpoints") or () for one in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        shortened([port_text(port) for port in obj.get("ports") or ()]),
        shortened(addresses),
        age_of(obj, now),
    ]


def port_text(port: Obj) -> str:
    number = port.get("port")
    return port.get("name", "*") if number is None else str(number)


ENDPOINT_SLICES: Final = Printer(
    (
        NAME,
        described("AddressType", "discovery.v1.EndpointSlice.addressType"),
        described("Ports", "discovery.v1.EndpointSlice.ports"),
        described("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
        AGE,
    ),
    slice_cells,
)
