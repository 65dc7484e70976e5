"""What Clusters and Allocations have in common: their group, taints and tolerations, and what is observed of them."""

from __future__ import annotations

from typing import Final

from farflung.apis.fragments import keyed, moment, record, text, whole
from farflung.apis.globalscheduler.selection import LONGEST_TEXT, name
from farflung.machinery.errors import Obj

GROUP: Final = "globalscheduler.com"
EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
MOST_TAINTS: Final = 64
INT64: Final = {"format": "int64", "minimum": 0, "maximum": 2**53}


def conditions(description: str) -> Obj:
    condition = record(
        "One thing that was observed.",
        {
            "type": name("What was observed, in CamelCase."),
            "status": text("Whether it is so.", enum=["True", "False", "Unknown"]),
            "reason": text("Why it is so, as one CamelCase word for programs.", maxLength=LONGEST_TEXT),
            "message": text("Why it is so, for people.", maxLength=32_768),
            "lastTransitionTime": moment("When the status last became another."),
            "observedGeneration": whole("The generation of the object that this is about.", **INT64),
        },
        required=("type", "status"),
    )
    return keyed(description, condition, ["type"], maxItems=32)
