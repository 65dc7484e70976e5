"""What `kubectl get` shows of leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from farflung.apis.printing import age_of, described, name_of, part
from farflung.machinery.errors import Obj
from farflung.machinery.table import AGE, NAME, Printer


def lease_cells(obj: Obj, now: datetime) -> list[Any]:
    return [name_of(obj), part(obj, "spec").get("holderIdentity", ""), age_of(obj, now)]


LEASES: Final = Printer((NAME, described("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), lease_cells)
