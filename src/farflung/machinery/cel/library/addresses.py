"""`ip(…)` and `cidr(…)`, as Go's net/netip reads them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final

from farflung.machinery.cel.language.declarations import Function, overload
from farflung.machinery.cel.language.types import CIDR as CIDR_TYPE
from farflung.machinery.cel.language.types import IP as IP_TYPE
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import costs
from farflung.machinery.errors import go_quote

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_TEXT: Final = 100
_BITS: Final = re.compile("0|[1-9][0-9]{0,2}", re.ASCII)
_LOCAL_MULTICAST: Final = ipaddress.IPv4Network("224.0.0.0/24")
_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")


class IP:
    """An address; `size` is its length in bytes, which some costs depend on."""

    __slots__ = ("address",)
    TYPE_NAME: Final = IP_TYPE.name

    def __init__(self, address: Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return type(other) is IP and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    @property
    def size(self) -> int:
        return self.address.max_prefixlen // 8

    def is_local_multicast(self) -> bool:
        if isinstance(self.address, ipaddress.IPv4Address):
            return self.address in _LOCAL_MULTICAST
        return int(self.address) >> 112 & 0xFF0F == 0xFF02

    def is_global_unicast(self) -> bool:
        address = self.address
        special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
        return not special and address != _BROADCAST


class CIDR:
    """An address and the number of its network bits; the others need not be zero."""

    __slots__ = ("address", "bits")
    TYPE_NAME: Final = CIDR_TYPE.name

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return type(other) is CIDR and self.address == other.address and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    @property
    def size(self) -> int:
        return -(-self.bits // 8)

    def network_of(self, address: Address) -> int:
        return int(address) >> (address.max_prefixlen - self.bits)

    def contains(self, address: Address) -> bool:
        return address.version == self.address.version and self.network_of(address) == self.network_of(self.address)

    def masked(self) -> CIDR:
        spare = self.address.max_prefixlen - self.bits
        return CIDR(type(self.address)(self.network_of(self.address) << spare), self.bits)


# --- reading --------------------------------------------------------------------------------------


def parse_ip(text: str) -> IP:
    """Raises EvaluationError."""
    shown = go_quote(text[:_MAX_TEXT])
    address = _parse(text)
    if address is None:
        why = f"ParseAddr({shown}): {_why(text)}"
        raise EvaluationError(f"IP Address {shown} parse error during conversion from string: {why}")
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f"IP address {shown} with zone value is not allowed")
        if address.ipv4_mapped:
            raise EvaluationError(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return IP(address)


def _parse(text: str) -> Address | None:
    if len(text) > _MAX_TEXT:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _why(text: str) -> str:
    """The error of Go's parser, for common mistakes."""
    if ":" in text[:_MAX_TEXT] and "." not in text[:_MAX_TEXT].partition(":")[0]:
        return _why_not_6(text[:_MAX_TEXT])
    if "." not in text:
        return "unable to parse IP"
    fields = text[:_MAX_TEXT].split(".")
    for index, field in enumerate(fields):
        if not field:
            rest = ".".join(fields[index:]) or "."
            return f"IPv4 field must have at least one digit (at {go_quote(rest)})"
        if not (field.isascii() and field.isdigit()):
            return "unexpected character (at " + go_quote(text[text.index(field) :][:_MAX_TEXT]) + ")"
        if int(field) > 255:
            return "IPv4 field has value >255"
        if len(field) > 1 and field[0] == "0":
            return "IPv4 field has octet with leading zero"
    return "IPv4 address too short" if len(fields) < 4 else "IPv4 address too long"


def _why_not_6(text: str) -> str:
    if text.count("::") > 1:
        return f"multiple :: in address (at {go_quote(text[text.rindex('::') + 1 :])})"
    groups = text.split(":")
    for index, group in enumerate(groups):
        if len(group) > 4 and "." not in group:
            return f"each group must have 4 or less digits (at {go_quote(':'.join(groups[index:]))})"
    return "address string too short" if "::" not in text and len(groups) < 8 else "unable to parse IP"


def parse_cidr(text: str) -> CIDR:
    """Raises EvaluationError."""
    shown = go_quote(text[:_MAX_TEXT])
    wrong = f"network address parse error during conversion from string: netip.ParsePrefix({shown}): "
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        raise EvaluationError(wrong + "no '/'")
    address = _parse(address_text)
    if address is None:
        raise EvaluationError(f"{wrong}ParseAddr({go_quote(address_text[:_MAX_TEXT])}): {_why(address_text)}")
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise EvaluationError(wrong + "IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits):
        raise EvaluationError(f"{wrong}bad bits after slash: {go_quote(bits[:_MAX_TEXT])}")
    if int(bits) > address.max_prefixlen:
        raise EvaluationError(wrong + "prefix length out of range")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        raise EvaluationError(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return CIDR(address, int(bits))


# --- functions ------------------------------------------------------------------------------------


def to_cidr(text: str) -> CIDR:
    try:
        return parse_cidr(text)
    except EvaluationError as error:
        raise EvaluationError(f"network address parse error during conversion from string: {error}") from None


def is_ip(text: str) -> bool:
    address = _parse(text)
    if isinstance(address, ipaddress.IPv6Address):
        return address.scope_id is None and not address.ipv4_mapped
    return address is not None


def is_canonical(text: str) -> bool:
    return str(parse_ip(text).address) == text


def is_cidr(text: str) -> bool:
    try:
        parse_cidr(text)
    except EvaluationError:
        return False
    return True


def contains_cidr(cidr: CIDR, other: CIDR) -> bool:
    return cidr.bits <= other.bits and cidr.contains(other.address)


def _cost_of_containing(arguments: tuple[Any, ...], _: Any) -> int:
    cost = costs.traversal(arguments[0], 2)
    return cost + costs.traversal(arguments[1]) if type(arguments[1]) is str else cost


def _cost_of_containing_cidr(arguments: tuple[Any, ...], result: Any) -> int:
    return _cost_of_containing(arguments, result) + costs.traversal(arguments[0]) + 1


LIBRARY: Final[tuple[Function, ...]] = (
    overload("ip", "string_to_ip", "string -> net.IP", parse_ip, costs.of_text),
    overload(".ip", "cidr_ip", "net.CIDR -> net.IP", lambda cidr: IP(cidr.address)),
    overload("isIP", "is_ip", "string -> bool", is_ip, costs.of_text),
    overload("ip.isCanonical", "ip_is_canonical", "string -> bool", is_canonical, costs.of_text_twice),
    overload(".family", "ip_family", "net.IP -> int", lambda ip: ip.address.version),
    overload(".isUnspecified", "ip_is_unspecified", "net.IP -> bool", lambda ip: ip.address.is_unspecified),
    overload(".isLoopback", "ip_is_loopback", "net.IP -> bool", lambda ip: ip.address.is_loopback),
    overload(".isLinkLocalMulticast", "ip_is_link_local_multicast", "net.IP -> bool", IP.is_local_multicast),
    overload(".isLinkLocalUnicast", "ip_is_link_local_unicast", "net.IP -> bool", lambda ip: ip.address.is_link_local),
    overload(".isGlobalUnicast", "ip_is_global_unicast", "net.IP -> bool", IP.is_global_unicast),
    overload("cidr", "string_to_cidr", "string -> net.CIDR", to_cidr, costs.of_text),
    overload("isCIDR", "is_cidr", "string -> bool", is_cidr, costs.of_text),
    overload(
        ".containsIP",
        "cidr_contains_ip_string",
        "net.CIDR, string -> bool",
        lambda cidr, text: cidr.contains(parse_ip(text).address),
        _cost_of_containing,
    ),
    overload(
        ".containsIP",
        "cidr_contains_ip_ip",
        "net.CIDR, net.IP -> bool",
        lambda cidr, ip: cidr.contains(ip.address),
        _cost_of_containing,
    ),
    overload(
        ".containsCIDR",
        "cidr_contains_cidr_string",
        "net.CIDR, string -> bool",
        lambda cidr, text: contains_cidr(cidr, to_cidr(text)),
        _cost_of_containing_cidr,
    ),
    overload(
        ".containsCIDR", "cidr_contains_cidr", "net.CIDR, net.CIDR -> bool", contains_cidr, _cost_of_containing_cidr
    ),
    overload(".masked", "cidr_masked", "net.CIDR -> net.CIDR", CIDR.masked),
    overload(".prefixLength", "cidr_prefix_length", "net.CIDR -> int", lambda cidr: cidr.bits),
    overload("string", "ip_to_string", "net.IP -> string", lambda ip: str(ip.address)),
    overload("string", "cidr_to_string", "net.CIDR -> string", str),
)
