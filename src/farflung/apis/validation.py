"""The rules of a kind: defaults, preparation and validation of one object, between decoding and storing.

The functions are pure.  They get plain dicts that already conform to the schema.  `default` and `prepare_*` change the
new object in place; `validate*` return errors.  `metadata.py` validates the metadata that all kinds share.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj, field_forbidden, invalid_value, not_supported, required, too_long
from farflung.machinery.selectors import selector_of


def no_change(obj: Obj) -> None: ...
def no_changes(new: Obj, old: Obj) -> None: ...
def _fine(obj: Obj) -> list[FieldError]:
    return []


def _fine_of(new: Obj, old: Obj) -> list[FieldError]:
    return []


def no_warnings(new: Obj, old: Obj | None) -> list[str]:
    return []


class Deletion(Enum):
    """The first request to delete an object sets its deletionTimestamp …"""

    GRACEFUL = auto()  #: … and its grace period, and removes an object without finalizers and grace period
    MARKED = auto()  #: … without a grace period, and removes an object without finalizers
    TWO_PHASE = auto()  #: … and never removes it; `spec.finalizers` keep it as metadata.finalizers do (Namespaces)


LARGEST: Final = 3 * 1024 * 1024  #: bytes of an object
#: … of kinds of which the hub reads every change at once: it takes some milliseconds
LARGEST_FOLLOWED: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    name: Callable[[str], Sequence[str]]  #: what is wrong with a name, in Kubernetes' words; () if nothing
    default: Callable[[Obj], None] = no_change  #: fill in defaults, on every write
    prepare_create: Callable[[Obj], None] = no_change  #: after defaulting: drop status, set what a client may not
    prepare_update: Callable[[Obj, Obj], None] = no_changes  #: (new, old)
    prepare_status: Callable[[Obj, Obj], None] = no_changes  #: (new, old) for /status: keep all but the status
    prepare_delete: Callable[[Obj], None] = no_change  #: when it is marked for deletion (a Namespace's phase)
    validate: Callable[[Obj], list[FieldError]] = _fine
    validate_create: Callable[[Obj], list[FieldError]] = _fine  #: on create only; beside `validate`
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _fine_of  #: (new, old); beside `validate(new)`
    validate_status: Callable[[Obj, Obj], list[FieldError]] = _fine_of  #: (new, old); instead of the two above
    warnings: Callable[[Obj, Obj | None], list[str]] = no_warnings  #: (new, old) → texts of Warning headers
    unconditional_update: bool = True  #: PUT without a resourceVersion overwrites
    create_on_update: bool = False  #: PUT of an absent object creates it
    generation: bool = False  #: the kind counts generations
    another_generation: Callable[[Obj, Obj], bool] | None = None  #: (new, old); None: any but metadata and status
    graceful_seconds: Callable[[Obj], int] | None = None  #: default grace period (Pods)
    deletion: Deletion = Deletion.GRACEFUL
    undeletable: frozenset[str] = frozenset()  #: names of objects that cannot be deleted
    returns_deleted: bool = False  #: a deletion is answered with the object, not with a Status
    short_finalizers: bool = False  #: a finalizer needs no slash (custom resources)
    largest: int = LARGEST  #: bytes of an object


# --- Checks of single fields that many kinds share ------------------------------------------------

Errors = list[FieldError]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
POSITIVE: Final = "must be greater than 0"
IMMUTABLE: Final = "field is immutable"
NO_ADDRESS: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NO_NETWORK: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
LARGEST_INT32: Final = 2**31 - 1
LARGEST_ANNOTATIONS: Final = 256 * 1024
LONGEST_ADDRESS: Final = 64
HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def check_name(check: names.Check, text: str, field: str, errors: Errors) -> None:
    """Add what a check of names says of a text."""
    for message in check(text):
        errors.append(invalid_value(field, text, message))


def check_required_name(check: names.Check, text: str, field: str, errors: Errors) -> None:
    if text:
        check_name(check, text, field, errors)
    else:
        errors.append(required(field))


def check_choice(value: str, choices: Collection[str], field: str, errors: Errors) -> None:
    """One of the choices, and not empty."""
    if value in choices:
        return
    errors.append(not_supported(field, value, choices) if value else required(field))


def check_supported(value: str, choices: Collection[str], field: str, errors: Errors) -> None:
    """One of the choices; an empty value is as unsupported as any other."""
    if value not in choices:
        errors.append(not_supported(field, value, choices))


def check_port(port: Any, field: str, errors: Errors) -> None:
    """The number or the name of a port."""
    messages = names.port_name(port) if isinstance(port, str) else names.port_number(port)
    for message in messages:
        errors.append(invalid_value(field, port, message))


def check_immutable(new: Any, old: Any, field: str, errors: Errors) -> None:
    if new != old:
        errors.append(invalid_value(field, new, IMMUTABLE))


def spec_of(obj: Obj) -> Obj:
    spec: Obj = obj.get("spec") or {}
    return spec


# --- paths in a volume ----------------------------------------------------------------------------


def check_no_backsteps(path: str, field: str, errors: Errors) -> None:
    if ".." in path.split("/"):
        errors.append(invalid_value(field, path, "must not contain '..'"))


def check_descending(path: str, field: str, errors: Errors) -> None:
    """A relative path that does not leave its folder."""
    if path.startswith("/"):
        errors.append(invalid_value(field, path, "must be a relative path"))
    check_no_backsteps(path, field, errors)


def check_unreserved(path: str, field: str, errors: Errors) -> None:
    """Names that start with two dots belong to the kubelet."""
    check_descending(path, field, errors)
    if path.startswith("..") and not path.startswith("../"):
        errors.append(invalid_value(field, path, "must not start with '..'"))


_matches_path: Final = re.compile(HTTP_PATH).fullmatch


def check_domain_path(text: str, field: str, errors: Errors, *, longest: int) -> None:
    """`example.com/name`, as controllers are called."""
    if names.size(text) > longest:
        errors.append(too_long(field, longest))
    domain, _, path = text.partition("/")
    if not text:
        errors.append(required(field))
    elif not domain or not path:
        errors.append(invalid_value(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        check_name(names.dns_subdomain, domain, field, errors)
        if not _matches_path(path):
            errors.append(invalid_value(field, path, f"Invalid path (regex used for validation is '{HTTP_PATH}')"))


# --- addresses ------------------------------------------------------------------------------------


def parse_address(text: str) -> Address | None:
    """An address as Kubernetes reads it: leading zeros are decimal, zones are not allowed."""
    return None if len(text) > LONGEST_ADDRESS or "%" in text else _parse_address(text)


@lru_cache(maxsize=1024)
def _parse_address(text: str) -> Address | None:
    if ":" not in text:
        text = ".".join(part.lstrip("0") or part[:1] for part in text.split("."))
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_ipv6(text: str) -> bool:
    address = parse_address(text)
    return address is not None and address.version == 6 and address.ipv4_mapped is None


def check_address(text: str, field: str, errors: Errors) -> bool:
    """Adds to the errors, and says whether it is an address."""
    if parse_address(text) is None:
        errors.append(invalid_value(field, text, NO_ADDRESS))
        return False
    return True


def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    host, slash, length = text.partition("/")
    address = parse_address(host)
    if address is None or not slash or not (length.isascii() and length.isdigit()):
        return None
    try:
        return ipaddress.ip_network((address, int(length[:4])), strict=False)
    except ValueError:
        return None


def check_network(text: str, field: str, errors: Errors) -> None:
    if parse_network(text) is None:
        errors.append(invalid_value(field, text, NO_NETWORK))


def is_dual_stack(addresses: Sequence[str]) -> bool:
    return any(map(is_ipv6, addresses)) and not all(map(is_ipv6, addresses))


def check_not_special(text: str, field: str, errors: Errors) -> None:
    """An address of an endpoint: nothing that means another thing on each node."""
    address = parse_address(text)
    if address is None:
        errors.append(invalid_value(field, text, "must be a valid IP address"))
    elif address.is_unspecified:
        errors.append(invalid_value(field, text, f"may not be unspecified ({text})"))
    elif address.is_loopback:
        errors.append(invalid_value(field, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    elif address.is_multicast:
        if address in LINK_LOCAL_MULTICAST[address.version]:
            range_ = "link-local multicast range (224.0.0.0/24, ff02::/10)"
            errors.append(invalid_value(field, text, f"may not be in the {range_}"))
    elif address.is_link_local:
        errors.append(invalid_value(field, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))


LINK_LOCAL_MULTICAST: Final[Mapping[int, Any]] = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}


# --- labels ---------------------------------------------------------------------------------------


def check_labels(labels: Mapping[str, str] | None, field: str, errors: Errors) -> None:
    for key, value in (labels or {}).items():
        if wrong := names.qualified_name(key):
            errors.extend(invalid_value(field, key, message) for message in wrong)
        if wrong := names.label_value(value):
            errors.extend(invalid_value(field, value, message) for message in wrong)


def check_annotations(annotations: Mapping[str, str] | None, field: str, errors: Errors) -> None:
    size = 0
    for key, value in (annotations or {}).items():
        for message in names.qualified_name(key.lower()):
            errors.append(invalid_value(field, key, message))
        size += names.size(key) + names.size(value)
    if size > LARGEST_ANNOTATIONS:
        errors.append(too_long(field, LARGEST_ANNOTATIONS))


def check_selector(selector: Obj | None, path: str, errors: Errors) -> None:
    """A label selector in an object (`matchLabels`, `matchExpressions`)."""
    if not selector:
        return
    check_labels(selector.get("matchLabels"), f"{path}.matchLabels", errors)
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        _check_expression(expression, f"{path}.matchExpressions[{at}]", errors)


def _check_expression(expression: Obj, path: str, errors: Errors) -> None:
    values = expression.get("values") or ()
    match expression.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(field_forbidden(f"{path}.values", why))
        case operator:
            errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    check_name(names.qualified_name, expression.get("key", ""), f"{path}.key", errors)
    for at, value in enumerate(values):
        check_name(names.label_value, value, f"{path}.values[{at}]", errors)


def is_empty_selector(selector: Obj | None) -> bool:
    """It selects everything."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def selects(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches; no selector and an invalid one match nothing."""
    try:
        return selector is not None and selector_of(selector).matches(labels)
    except KeyError:
        return False


# --- numbers or percentages -----------------------------------------------------------------------


def check_count_or_percent(value: Any, field: str, errors: Errors) -> None:
    if isinstance(value, str):
        check_name(names.percent, value, field, errors)
    elif value < 0:
        errors.append(invalid_value(field, value, NOT_NEGATIVE))


def check_at_most_everything(value: Any, field: str, errors: Errors) -> None:
    if isinstance(value, str) and not names.percent(value) and percentage(value) > 100:
        errors.append(invalid_value(field, value, "must not be greater than 100%"))


def percentage(text: str) -> int:
    """`25%` → 25; beyond nine digits it is just large."""
    digits = text[:-1].lstrip("0")[:10]
    return int(digits) if digits else 0


def is_zero_count(value: Any) -> bool:
    if isinstance(value, str):
        return not names.percent(value) and percentage(value) == 0
    return value in (0, None)


# --- what the rules of many kinds do ---------------------------------------------------------------


def keeps(*members: str) -> Callable[[Obj, Obj], None]:
    """A preparation that gives the new object these members of the old one."""

    def keep(new: Obj, old: Obj) -> None:
        for member in members:
            if member in old:
                new[member] = old[member]
            else:
                new.pop(member, None)

    return keep


keep_spec: Final = keeps("spec")
keep_status: Final = keeps("status")
