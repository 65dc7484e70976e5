"""What decoding makes of a custom resource: metadata as every object has it, and the rest as its schema says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from farflung.hub.admission.embedded import OBJECT_META
from farflung.machinery.codec.json import NAMES
from farflung.machinery.codec.malformed import Malformed
from farflung.machinery.errors import Obj
from farflung.machinery.schema.conform import Conformed
from farflung.machinery.schema.structural.structural import Structural

UNKNOWN: Final = 'unknown field "'
LEAST, MOST = -(1 << 63), (1 << 63) - 1
MOST_WRITTEN: Final = (1 << 64) - 1  #: the largest integer that can be encoded


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
        settle_numbers(result)
        problems = [f"{UNKNOWN}metadata.{one.removeprefix(UNKNOWN)}" for one in unknown]
        return Conformed(result, problems + self._structural.conform(result))


def settle_numbers(obj: Obj) -> None:
    """In place, as Go reads JSON that has no types: what is whole and fits is an integer, what does not fit is not."""
    ahead: list[Any] = [obj]
    while ahead:
        container = ahead.pop()
        items = container.items() if type(container) is dict else enumerate(container)
        for place, value in items:
            kind = type(value)
            if kind is dict or kind is list:
                ahead.append(value)
            elif kind is float or (kind is int and not LEAST <= value <= MOST):
                container[place] = settled(value)


def settled(number: float) -> int | float:
    if type(number) is int:
        rounded = float(f"{number:.17g}")
        written = int(Decimal(repr(rounded)))  # the digits that tell it from its neighbours, and then zeros
        return written if written <= MOST_WRITTEN else rounded
    return int(number) if number.is_integer() and LEAST <= number <= MOST else number
