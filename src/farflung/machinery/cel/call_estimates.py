"""Cost estimates of calls to functions of Kubernetes and of cel-go's extensions, by the sizes of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from farflung.machinery.cel.language import ast
from farflung.machinery.cel.language.types import CIDR, IP, NAMED_FORMAT, QUANTITY, SEMVER, URL, Type, TypeKind

INFINITE: Final = 2**64 - 1

TRAVERSAL: Final = 0.1  #: the cost of one character
REGEX: Final = 0.25  #: factor of one character of a regular expression


class Bounds(NamedTuple):
    low: int
    high: int

    def plus(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low + other.low, INFINITE), min(self.high + other.high, INFINITE))

    def times(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low * other.low, INFINITE), min(self.high * other.high, INFINITE))

    def scaled(self, factor: float) -> Bounds:
        """Rounded up."""
        return Bounds(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: Bounds) -> Bounds:
        return Bounds(min(self.low, other.low), max(self.high, other.high))


def _scaled(number: int, factor: float) -> int:
    product = math.ceil(float(number) * factor)
    return INFINITE if product >= 2**64 else product


def exactly(number: int) -> Bounds:
    return Bounds(number, number)


UNKNOWN: Final = Bounds(0, INFINITE)
NOTHING: Final = Bounds(0, 0)
ONE: Final = Bounds(1, 1)
IMPOSSIBLE: Final = Bounds(INFINITE, 0)  #: the start of a union


LONGEST_NAME_PATTERN: Final = 128  #: characters of the longest pattern of a named format
LONGEST_FORMAT: Final = 64
ADDRESS: Final = Bounds(4, 16)  #: bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a call.  `size` may be UNKNOWN; `elements` is the size of its elements."""

    type: Type
    size: Bounds = UNKNOWN
    elements: Bounds = UNKNOWN
    literal: ast.LiteralValue = field(default=None)


class CallEstimate(NamedTuple):
    cost: Bounds
    size: Bounds | None = None  #: of the result


Estimate = Callable[[str, Operand | None, Sequence[Operand]], CallEstimate | None]


def estimate(function: str, overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    """The cost of a call without its arguments, for functions of Kubernetes and of cel-go's extensions."""
    if overload in _SETS:
        comparisons = arguments[0].size.times(arguments[1].size)
        return CallEstimate(comparisons.scaled(_SETS[overload]).plus(ONE))
    known = _FUNCTIONS.get(function)
    return known(overload, target, arguments) if known else None


_SETS: Final = {"list_sets_contains_list": 1.0, "list_sets_intersects_list": 1.0, "list_sets_equivalent_list": 2.0}


def _nominal(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(ONE)


def _authorization(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(Bounds(350_000, 350_000))


def _over_elements(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    if not target.type.parameters:
        return CallEstimate(target.size.scaled(TRAVERSAL))
    each = ONE
    if target.type.parameters[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        each = each.plus(target.elements.scaled(TRAVERSAL))
    return CallEstimate(target.size.times(each))


def _of_one_argument(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if len(arguments) != 1:
        return None
    return CallEstimate(arguments[0].size.scaled(TRAVERSAL), arguments[0].size)


def _same_size(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(target.size.scaled(TRAVERSAL), target.size) if target else None


def _replace(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None or len(arguments) < 2:
        return None
    old, new = arguments[0].size, arguments[1].size
    longest = _replaced(target.size.high, old.low, new.high, longer=new.high > old.low)
    shortest = _replaced(target.size.low, old.high, new.low, longer=new.low < old.high)
    return CallEstimate(target.size.scaled(2 * TRAVERSAL), Bounds(shortest, longest))


def _replaced(size: int, old: int, new: int, *, longer: bool) -> int:
    """The length of a text after replacing texts of `old` characters by `new` ones; an empty text matches between all
    characters."""
    if old == 0:
        return min(min(size + 1, INFINITE) * new + size, INFINITE)
    if not longer:
        return size
    return min(math.ceil(float(size) / float(old)) * new, INFINITE)


def _split(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    most = target.size.high
    if len(arguments) > 1 and type(arguments[1].literal) is int:
        most = arguments[1].literal % 2**64
    return CallEstimate(target.size.scaled(2 * TRAVERSAL), Bounds(0, most))


def _join(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    size = target.size.times(target.elements)
    if arguments:
        separators = Bounds(max(target.size.low - 1, 0), max(target.size.high - 1, 0))
        size = size.plus(arguments[0].size.times(separators))
    return CallEstimate(size.scaled(TRAVERSAL), size)


def _find(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None or not arguments:
        return None
    return CallEstimate(matching(target.size, arguments[0].size), Bounds(0, target.size.high))


def matching(text: Bounds, pattern: Bounds) -> Bounds:
    """The cost of matching a regular expression."""
    return text.plus(ONE).scaled(TRAVERSAL).times(pattern.scaled(REGEX))


def _address(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(ONE) if target else None


def _contains_address(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None or not arguments:
        return None
    cost = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL)
    if overload == "cidr_contains_ip_string":
        cost = cost.plus(arguments[0].size.scaled(TRAVERSAL))
    return CallEstimate(cost)


def _contains_network(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None or not arguments:
        return None
    cost = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL).plus(ADDRESS.scaled(TRAVERSAL)).plus(ONE)
    if overload == "cidr_contains_cidr_string":
        cost = cost.plus(arguments[0].size.scaled(TRAVERSAL))
    return CallEstimate(cost)


def _validate(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(arguments[0].size.scaled(TRAVERSAL).scaled(LONGEST_NAME_PATTERN * REGEX))


def _equal(overload: str, target: Operand | None, arguments: Sequence[Operand]) -> CallEstimate | None:
    """Values of Kubernetes' own types have no size."""
    if len(arguments) != 2 or arguments[0].type != arguments[1].type:
        return None
    of = arguments[0].type
    if of in (IP, CIDR, QUANTITY, SEMVER):
        return CallEstimate(ONE)
    if of == NAMED_FORMAT:
        return CallEstimate(Bounds(1, LONGEST_FORMAT).scaled(TRAVERSAL))
    if of == URL:
        size = ONE if arguments[1].size is UNKNOWN else arguments[1].size
        return CallEstimate(Bounds(1, size.high).scaled(TRAVERSAL))
    return None


_FUNCTIONS: Final[dict[str, Estimate]] = {
    "check": _authorization,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_elements),
    "url": _of_one_argument,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    "ip": _address,
    "containsIP": _contains_address,
    "containsCIDR": _contains_network,
    "validate": _validate,
    ast.EQUAL: _equal,
    **dict.fromkeys(
        (
            *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason"),
            *("error", "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback"),
            *("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger"),
            *("isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major"),
            *("minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
        ),
        _nominal,
    ),
}
