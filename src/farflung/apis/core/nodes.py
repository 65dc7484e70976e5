"""Nodes."""

from __future__ import annotations

from typing import Final

from farflung.apis.checks import Errors, check_network, keep_spec, keep_status, parse_network, spec_of
from farflung.apis.core.affinity import check_taints
from farflung.apis.core.resources import check_quantity
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, invalid_value

INFORMATION: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def _default(node: Obj) -> None:
    spec = node.setdefault("spec", {})
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {}).setdefault("Port", 0)
    information = status.setdefault("nodeInfo", {})
    for member in INFORMATION:
        information.setdefault(member, "")


def _validate(node: Obj) -> Errors:
    errors: Errors = []
    spec, status = spec_of(node), node.get("status") or {}
    if taints := spec.get("taints"):
        check_taints(taints, "metadata.taints", errors)
    for member in ("capacity", "allocatable"):
        for resource, amount in (status.get(member) or {}).items():
            check_quantity(resource, amount, f"status.{member}.{resource}", errors)
    _check_networks(spec.get("podCIDRs") or [], "spec.podCIDRs", errors)
    return errors


def _check_networks(networks: list[str], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, text in enumerate(networks):
        check_network(text, f"{path}[{at}]", errors)
    versions = {network.version for network in map(parse_network, networks) if network is not None}
    if len(networks) > 1 and (len(versions) < 2 or len(networks) > 2):
        errors.append(invalid_value(path, networks, "may specify no more than one CIDR for each IP family"))
    for at, text in enumerate(networks):
        if text in seen:
            errors.append(duplicate(f"{path}[{at}]", text))
        seen.add(text)


def _validate_update(new: Obj, old: Obj) -> Errors:
    errors: Errors = []
    fresh, former = spec_of(new), spec_of(old)
    addresses = (new.get("status") or {}).get("addresses") or ()
    seen: set[tuple[str, str]] = set()
    for at, address in enumerate(addresses):
        key = address.get("type", ""), address.get("address", "")
        if key in seen:
            errors.append(duplicate(f"status.addresses[{at}]", address))
        seen.add(key)
    if former.get("podCIDRs") and former["podCIDRs"] != fresh.get("podCIDRs"):
        why = 'node updates may not change podCIDR except from "" to valid'
        errors.append(field_forbidden("spec.podCIDRs", why))
    if former.get("providerID") and former["providerID"] != fresh.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        errors.append(field_forbidden("spec.providerID", why))
    if fresh.get("externalID") != former.get("externalID"):
        errors.append(field_forbidden("spec.externalID", "may not be updated"))
    return errors


def _validate_status(new: Obj, old: Obj) -> Errors:
    return [*_validate(new), *_validate_update(new, old)]


NODE_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=_default,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
)
