"""Defaults and validation of Namespaces, ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from farflung.apis.core.affinity import TAINT
from farflung.apis.core.claims import CLAIM_RULES
from farflung.apis.core.persistent_volumes import VOLUME_RULES
from farflung.apis.core.pods import POD_RULES, POD_TEMPLATE_RULES
from farflung.apis.core.resources import check_quantity
from farflung.apis.core.services import ENDPOINTS_RULES, SERVICE_RULES
from farflung.apis.names import NAME_LABEL, SERVICE_ACCOUNT_NAME
from farflung.apis.rows import ChangeCheck, Default, Defaults, Each, Format, Optional, Table, Unique, Validation
from farflung.apis.validation import (
    Deletion,
    Errors,
    Rules,
    check_immutable,
    check_network,
    keep_spec,
    keep_status,
    keeps,
    parse_network,
    spec_of,
)
from farflung.machinery import names
from farflung.machinery.codec.json import parse_object
from farflung.machinery.errors import FieldError, Malformed, Obj, field_forbidden, invalid_value, required, too_long

NAMESPACE_FINALIZER: Final = "kubernetes"
LARGEST_DATA: Final = 1024 * 1024  #: bytes of all values of a ConfigMap or Secret
SEALED: Final = "field is immutable when `immutable` is set"

# --- Namespace ------------------------------------------------------------------------------------


def default_namespace(obj: Obj) -> None:
    metadata = obj["metadata"]
    name = metadata.get("name")
    if name:
        labels = metadata.get("labels")
        if labels is None:
            metadata["labels"] = {NAME_LABEL: name}
        else:
            labels[NAME_LABEL] = name
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Active"


def prepare_namespace(obj: Obj) -> None:
    obj["status"] = {"phase": "Active"}
    finalizers = obj.setdefault("spec", {}).setdefault("finalizers", [])
    if NAMESPACE_FINALIZER not in finalizers:
        finalizers.append(NAMESPACE_FINALIZER)


def terminate_namespace(obj: Obj) -> None:
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}


FINALIZER: Final = (Format(names.qualified_name), Format(names.finalizer))
validate_new_namespace: Final = Validation(Each("spec.finalizers", *FINALIZER, indexed=False))
#: for the subresource `finalize`, the only way to change `spec.finalizers`
validate_finalize: Final = Validation(Each("spec.finalizers", *FINALIZER))


def validate_namespace_status(new: Obj, old: Obj) -> list[FieldError]:
    phase = (new.get("status") or {}).get("phase", "")
    if new["metadata"].get("deletionTimestamp") is None:
        wanted, detail = "Active", "may only be 'Active' if `deletionTimestamp` is empty"
    else:
        wanted, detail = "Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"
    return [] if phase == wanted else [invalid_value("status.Phase", phase, detail)]


# --- ConfigMap ------------------------------------------------------------------------------------


def validate_config_map(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    data: Mapping[str, str] = obj.get("data") or {}
    binary: Mapping[str, str] = obj.get("binaryData") or {}
    _check_keys(data, "data", errors)
    if binary:
        for key in data:
            if key in binary:
                errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        _check_keys(binary, "binaryData", errors)
    room = LARGEST_DATA - _decoded_size(binary.values()) if binary else LARGEST_DATA
    if _is_larger(data.values(), room):
        errors.append(too_long("[]", LARGEST_DATA))
    return errors


def _check_keys(keys: Iterable[str], member: str, errors: Errors) -> None:
    for key in keys:
        for message in names.config_key(key):
            errors.append(invalid_value(f"{member}[{key}]", key, message))


def validate_config_map_update(new: Obj, old: Obj) -> list[FieldError]:
    return _sealed(new, old, ("data", "binaryData"))


def _sealed(new: Obj, old: Obj, members: Iterable[str]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [field_forbidden("immutable", SEALED)]
    for member in members:
        if (new.get(member) or {}) != (old.get(member) or {}):
            errors.append(field_forbidden(member, SEALED))
    return errors


def _is_larger(texts: Collection[str], limit: int) -> bool:
    """Whether texts are larger together, in bytes.  Encodes none of them when that is plain from their lengths."""
    characters = sum(map(len, texts))
    if characters * 4 <= limit:  # UTF-8 needs at most four bytes for one
        return False
    return characters > limit or sum(map(names.size, texts)) > limit


def _decoded_size(values: Iterable[str]) -> int:
    """Bytes in base64 texts."""
    return sum(len(text) * 3 // 4 - text.count("=", -2) for text in values)


# --- Secret ---------------------------------------------------------------------------------------

#: type → the key that holds a JSON object
DOCKER_KEYS: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}


def default_secret(obj: Obj) -> None:
    """`stringData` is a way of writing `data`, and is not kept."""
    plain = obj.pop("stringData", None)
    if plain:
        data = obj["data"] = obj.get("data") or {}
        for key, text in plain.items():
            data[key] = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    if not obj.get("type"):
        obj["type"] = "Opaque"


def validate_secret(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    data: Mapping[str, str] = obj.get("data") or {}
    _check_keys(data, "data", errors)
    if _decoded_size(data.values()) > LARGEST_DATA:
        errors.append(too_long("data", LARGEST_DATA))
    _check_type(obj, data, errors)
    return errors


def _check_type(obj: Obj, data: Mapping[str, str], errors: Errors) -> None:
    """Required contents of the well-known Secret types."""
    match obj.get("type", ""):
        case "kubernetes.io/service-account-token":
            if not (obj["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT_NAME):
                errors.append(required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]"))
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson" as docker:
            _check_docker(data, DOCKER_KEYS[docker], errors)
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                errors += [required("data[username]"), required("data[password]")]
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                errors.append(required("data[ssh-privatekey]"))
        case "kubernetes.io/tls":
            errors += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]


def _check_docker(data: Mapping[str, str], key: str, errors: Errors) -> None:
    if key not in data:
        errors.append(required(f"data[{key}]"))
    elif wrong := _not_a_json_object(data[key]):
        errors.append(invalid_value(f"data[{key}]", "<secret contents redacted>", wrong))


def _not_a_json_object(encoded: str) -> str:
    """Go's error message."""
    try:
        parse_object(base64.b64decode(encoded))
    except binascii.Error as error:
        return str(error)
    except Malformed as error:
        return error.why
    return ""


def validate_secret_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_immutable(new.get("type"), old.get("type"), "type", errors)
    return errors + _sealed(new, old, ("data",))


# --- ServiceAccount -------------------------------------------------------------------------------


def prepare_service_account(obj: Obj, old: Obj | None = None) -> None:
    """Keeps only the name of references to Secrets."""
    if secrets := obj.get("secrets"):
        obj["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in secrets]


# --- Nodes ----------------------------------------------------------------------------------------

INFORMATION: Final = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def default_networks(node: Obj) -> None:
    spec = node["spec"]
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]


def default_allocatable(node: Obj) -> None:
    status = node["status"]
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def check_node_amounts(amounts: Obj, path: str, errors: Errors) -> None:
    for resource, amount in amounts.items():
        check_quantity(resource, amount, f"{path}.{resource}", errors)


def check_families(networks: list[str], path: str, errors: Errors) -> None:
    versions = {network.version for network in map(parse_network, networks) if network is not None}
    if len(networks) > 1 and (len(versions) < 2 or len(networks) > 2):
        errors.append(invalid_value(path, networks, "may specify no more than one CIDR for each IP family"))


def check_node_changes(new: Obj, old: Obj, errors: Errors) -> None:
    fresh, former = spec_of(new), spec_of(old)
    for member, shown in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        if former.get(member) and former[member] != fresh.get(member):
            why = f'node updates may not change {shown} except from "" to valid'
            errors.append(field_forbidden(f"spec.{member}", why))
    if fresh.get("externalID") != former.get("externalID"):
        errors.append(field_forbidden("spec.externalID", "may not be updated"))


NODE: Final = Table(
    Each(
        "spec.taints",
        TAINT,
        Unique("key", "effect", detail="taints must be unique by key and effect pair"),
        named="metadata.taints",
    ),
    Optional("status.capacity", check_node_amounts),
    Optional("status.allocatable", check_node_amounts),
    Each("spec.podCIDRs", check_network),
    Optional("spec.podCIDRs", check_families),
    Each("spec.podCIDRs", Unique()),
)
NODE_UPDATE: Final = Table(Each("status.addresses", Unique("type", "address")), ChangeCheck(check_node_changes))

NODE_RULES: Final = Rules(
    name=names.dns_subdomain,
    default=Defaults(
        Default("spec", {}),
        default_networks,
        Default("status", {}),
        default_allocatable,
        Default("status.daemonEndpoints.kubeletEndpoint.Port", 0),
        *(Default(f"status.nodeInfo.{member}", "") for member in INFORMATION),
    ),
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=Validation(NODE),
    validate_update=Validation(NODE_UPDATE),
    validate_status=Validation(NODE, NODE_UPDATE),
)


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    ("", "Namespace"): Rules(
        name=names.dns_label,
        default=default_namespace,
        prepare_create=prepare_namespace,
        prepare_update=keeps("spec", "status"),
        prepare_status=keep_spec,
        prepare_delete=terminate_namespace,
        deletion=Deletion.TWO_PHASE,
        undeletable=frozenset({"default", "kube-system", "kube-public"}),
        returns_deleted=True,
        validate_create=validate_new_namespace,
        validate_status=validate_namespace_status,
    ),
    ("", "ConfigMap"): Rules(
        name=names.dns_subdomain,
        validate=validate_config_map,
        validate_update=validate_config_map_update,
    ),
    ("", "Secret"): Rules(
        name=names.dns_subdomain,
        default=default_secret,
        validate=validate_secret,
        validate_update=validate_secret_update,
    ),
    ("", "ServiceAccount"): Rules(
        name=names.dns_subdomain,
        prepare_create=prepare_service_account,
        prepare_update=prepare_service_account,
        returns_deleted=True,
    ),
    ("", "Pod"): POD_RULES,
    ("", "PodTemplate"): POD_TEMPLATE_RULES,
    ("", "Service"): SERVICE_RULES,
    ("", "Endpoints"): ENDPOINTS_RULES,
    ("", "PersistentVolume"): VOLUME_RULES,
    ("", "PersistentVolumeClaim"): CLAIM_RULES,
    ("", "Node"): NODE_RULES,
}
