"""The annotation that says which cluster an object is in.  The server alone sets it, and nobody owns it."""

from __future__ import annotations

from typing import Final

from farflung.hub.verbs.call import Call
from farflung.machinery.errors import Obj

CLUSTER: Final = "kcp.io/cluster"


def forget_origin(call: Call, metadata: Obj) -> None:
    """What a client says of it counts for nothing."""
    annotations = metadata.get("annotations")
    if call.tools.annotates and isinstance(annotations, dict) and CLUSTER in annotations:
        kept = {name: value for name, value in annotations.items() if name != CLUSTER}
        if kept:
            metadata["annotations"] = kept
        else:
            del metadata["annotations"]


def set_origin(call: Call, metadata: Obj) -> None:
    if call.tools.annotates:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CLUSTER: call.target.cluster}
