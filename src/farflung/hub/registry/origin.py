"""The annotation that says which cluster an object is in.  The server alone sets it, and nobody owns it."""

from __future__ import annotations

from typing import Final

from farflung.hub.registry.call import Call
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


def without_origin(call: Call, obj: Obj) -> Obj:
    """An object as its writers know it: the same one, or one that shares all but its annotations."""
    if not call.tools.annotates or CLUSTER not in (obj["metadata"].get("annotations") or ()):
        return obj
    metadata = dict(obj["metadata"])
    forget_origin(call, metadata)
    return {**obj, "metadata": metadata}


def set_origin(call: Call, metadata: Obj) -> None:
    if call.tools.annotates:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CLUSTER: call.target.cluster}
