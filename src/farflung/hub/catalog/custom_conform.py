"""What decoding makes of a custom resource: metadata as every object has it, and the rest as its schema says."""

from __future__ import annotations

from typing import Final

from farflung.apis.metadata import OBJECT_META
from farflung.machinery.codec.json import NAMES
from farflung.machinery.errors import Malformed, Obj
from farflung.machinery.schema.conform import Conformed
from farflung.machinery.schema.structural.structural import Structural

UNKNOWN: Final = 'unknown field "'


class CustomConformer:
    def __init__(self, structural: Structural) -> None:
        self._structural = structural

    def conform(self, obj: Obj) -> Conformed:
        """Raises Malformed if metadata do not fit their type.  What else does not fit is for validation to say."""
        metadata = obj.get("metadata")
        if metadata is not None and type(metadata) is not dict:
            raise Malformed(f"json: cannot unmarshal {NAMES[type(metadata)]} into Go value of type v1.ObjectMeta")
        conformed, unknown = OBJECT_META.conform(metadata or {})
        result = {**obj, "metadata": conformed}
        problems = [f"{UNKNOWN}metadata.{one.removeprefix(UNKNOWN)}" for one in unknown]
        return Conformed(result, problems + self._structural.conform(result))
