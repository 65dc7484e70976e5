"""Volumes of pods: defaults, and validation by type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from farflung.apis.core.claims import CLAIM_SPEC, DEFAULT_CLAIM_SPEC
from farflung.apis.rows import (
    ITSELF,
    Always,
    Check,
    CheckFunction,
    Default,
    Defaults,
    Each,
    Enum,
    FirstError,
    Format,
    IfPresent,
    InvalidIf,
    Maximum,
    Minimum,
    Optional,
    Pointer,
    Range,
    Required,
    RequiredPointer,
    Row,
    Struct,
    Table,
    Unless,
    Where,
)
from farflung.apis.validation import (
    Errors,
    check_descending,
    check_name,
    check_no_backsteps,
    check_selector,
    check_unreserved,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.quantity import parse

TOKEN_SECONDS: Final = 3600
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
ONLY_ONE: Final = "may not specify more than 1 volume type"
HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
VOLUME_FIELDS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
)  # fmt: skip
#: what a container's resources offer to files and variables
RESOURCE_FIELDS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
HUGE_PAGE_FIELDS: Final = ("limits.hugepages-", "requests.hugepages-")
CPU_DIVISORS: Final = ("1m", "1")
BYTE_DIVISORS: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
POD_FIELDS: Final = frozenset(
    {
        "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
        "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
        "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
    }
)  # fmt: skip
_SUBSCRIPT: Final = re.compile(r"(?P<path>[^\[\]']+)\['(?P<key>.*)'\]", re.DOTALL)
_ISCSI: Final = re.compile(
    r"iqn\.\d{4}-\d{2}\.(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::[^,:]+)?|eui\.[0-9a-fA-F]{16}|naa\.[0-9a-fA-F]{32}|naa\.[0-9a-fA-F]{16}"
)


# --- defaults -------------------------------------------------------------------------------------


def default_volume(volume: Obj) -> None:
    found = [type_ for type_ in volume if type_ in SOURCES]
    for type_ in found:
        if type_ in DEFAULTS:
            DEFAULTS[type_](volume[type_])
    if not found:
        volume["emptyDir"] = {}


def default_image(source: Obj) -> None:
    source.setdefault("pullPolicy", pull_policy(source.get("reference", "")))


#: of a file or a variable
DEFAULT_REFERENCES: Final[tuple[Row, ...]] = (
    Struct("fieldRef", Default("apiVersion", "v1")),
    Struct("resourceFieldRef", Default("divisor", "0")),
)
DEFAULT_FILES: Final = Each("items", *DEFAULT_REFERENCES)
DEFAULT_MODE: Final = Default("defaultMode", 0o644)

DEFAULTS: Final[Mapping[str, Callable[[Obj], None]]] = {
    "configMap": Defaults(DEFAULT_MODE),
    "secret": Defaults(DEFAULT_MODE),
    "projected": Defaults(
        DEFAULT_MODE,
        Each(
            "sources",
            Struct("serviceAccountToken", Default("expirationSeconds", 3600)),
            Struct("downwardAPI", DEFAULT_FILES),
        ),
    ),
    "downwardAPI": Defaults(DEFAULT_MODE, DEFAULT_FILES),
    "hostPath": Defaults(Default("type", "")),
    "ephemeral": Defaults(
        Struct("volumeClaimTemplate", Default("metadata", {}), Default("spec", {}), Struct("spec", DEFAULT_CLAIM_SPEC))
    ),
    "image": default_image,
    "iscsi": Defaults(Default("iscsiInterface", "default")),
    "rbd": Defaults(Default("pool", "rbd"), Default("user", "admin"), Default("keyring", "/etc/ceph/keyring")),
    "azureDisk": Defaults(
        Default("cachingMode", "ReadWrite"),
        Default("kind", "Shared"),
        Default("fsType", "ext4"),
        Default("readOnly", False),
    ),
    "scaleIO": Defaults(Default("storageMode", "ThinProvisioned"), Default("fsType", "xfs")),
}


# --- checks ---------------------------------------------------------------------------------------


def check_volumes(volumes: Iterable[Obj], pod_name: str, path: str, errors: Errors) -> Mapping[str, Obj]:
    """`pod_name` is empty in a template.  Returns the volumes that containers can mount."""
    good: dict[str, Obj] = {}
    created = _created_claims(volumes, pod_name)
    for at, volume in enumerate(volumes):
        where, before, name = f"{path}[{at}]", len(errors), volume.get("name", "")
        check_source(volume, where, errors)
        if 0 < len(pod_name) <= names.DNS_SUBDOMAIN_LENGTH and volume.get("ephemeral") is not None and name:
            _check_created_name(f"{pod_name}-{name}", name, where, errors)
        if not name:
            errors.append(required(f"{where}.name"))
        elif wrong := names.dns_label(name):
            errors.extend(invalid_value(f"{where}.name", name, message) for message in wrong)
        if name in good:
            errors.append(duplicate(f"{where}.name", name))
        if len(errors) == before:
            good[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in created:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid_value(f"{where}.persistentVolumeClaim.claimName", claim, why))
    return good


def _created_claims(volumes: Iterable[Obj], pod_name: str) -> frozenset[str]:
    if not pod_name:
        return frozenset()
    return frozenset(f"{pod_name}-{v.get('name', '')}" for v in volumes if v.get("ephemeral") is not None)


def _check_created_name(claim: str, name: str, path: str, errors: Errors) -> None:
    for message in names.dns_subdomain(claim):
        errors.append(invalid_value(f"{path}.name", name, f'PVC name "{claim}": {message}'))


def exactly_one(types: Mapping[str, CheckFunction]) -> CheckFunction:
    """A check that an object has one of the types, and that this one is right."""

    def check(volume: Obj, path: str, errors: Errors) -> None:
        found = [type_ for type_ in volume if type_ in types and volume[type_] is not None]
        if len(found) > 1:
            found = [type_ for type_ in types if type_ in found]
        if not found:
            errors.append(required(path, "must specify a volume type"))
            return
        first, *others = found
        types[first](volume[first], f"{path}.{CHECKED_AS.get(first, first)}", errors)
        for type_ in others:
            errors.append(field_forbidden(f"{path}.{FORBIDDEN_AS.get(type_, type_)}", ONLY_ONE))

    return check


CHECKED_AS: Final = {"gcePersistentDisk": "persistentDisk"}  #: how errors in a type spell its name
FORBIDDEN_AS: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}  #: how the error of a second type spells it


def requiring(*members: str) -> Table:
    return Table(*map(Required, members))


# --- files ----------------------------------------------------------------------------------------


def check_field_reference(selector: Obj, offered: Iterable[str], path: str, errors: Errors) -> None:
    """A field of the pod that becomes a file or a variable; `offered` are sorted."""
    if not selector.get("apiVersion"):
        errors.append(required(f"{path}.apiVersion"))
        return
    field = selector.get("fieldPath", "")
    if not field:
        errors.append(required(f"{path}.fieldPath"))
        return
    subscript = _SUBSCRIPT.fullmatch(field)
    base = subscript["path"] if subscript else field
    if selector["apiVersion"] != "v1":
        why = f"error converting fieldPath: unsupported pod version: {selector['apiVersion']}"
        errors.append(invalid_value(f"{path}.fieldPath", field, why))
    elif base not in POD_FIELDS or (subscript and base not in ("metadata.annotations", "metadata.labels")):
        why = f"error converting fieldPath: field label not supported: {field}"
        if subscript:
            why = "error converting fieldPath: field label does not support subscript"
        errors.append(invalid_value(f"{path}.fieldPath", field, why))
    elif subscript:
        key = subscript["key"].lower() if base == "metadata.annotations" else subscript["key"]
        check_name(names.qualified_name, key, path, errors)
    elif base not in offered:
        errors.append(not_supported(f"{path}.fieldPath", base, offered))


def check_resource_reference(selector: Obj, path: str, errors: Errors, *, in_volume: bool) -> None:
    resource = selector.get("resource", "")
    if in_volume and not selector.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in RESOURCE_FIELDS and not resource.startswith(HUGE_PAGE_FIELDS):
        errors.append(not_supported(f"{path}.resource", resource, RESOURCE_FIELDS))
    divisor = selector.get("divisor", "0")
    if parse(divisor).nanos:
        _check_divisor(resource, divisor, f"{path}.divisor", errors)


def _check_divisor(resource: str, divisor: str, field: str, errors: Errors) -> None:
    kind = resource.partition(".")[2]
    if kind == "cpu":
        if divisor not in CPU_DIVISORS:
            why = "only divisor's values 1m and 1 are supported with the cpu resource"
            errors.append(invalid_value(field, resource, why))
    elif divisor not in BYTE_DIVISORS:
        noun = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind, "hugepages")
        if noun != "hugepages" or kind.startswith("hugepages-"):
            why = f"only divisor's values {', '.join(BYTE_DIVISORS)} are supported with the {noun} resource"
            errors.append(invalid_value(field, resource, why))


def check_file_source(file: Obj, path: str, errors: Errors) -> None:
    field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if field is not None:
        check_field_reference(field, VOLUME_FIELDS, f"{path}.fieldRef", errors)
        if resource is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid_value(path, "resource", why))
    elif resource is not None:
        check_resource_reference(resource, f"{path}.resourceFieldRef", errors, in_volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))


MODE: Final = Range(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
KEYS: Final = Each("items", Required("key"), Required("path", check_unreserved), Pointer("mode", MODE))
#: errors do not name the file
FILES: Final = Each(
    "items",
    Required("path", check_unreserved),
    Check(check_file_source),
    Pointer("mode", MODE),
    named=ITSELF,
    indexed=False,
)


def check_token_path(projection: Obj, path: str, errors: Errors) -> None:
    TOKEN_PATH(projection, path.partition(".sources[")[0], errors)


def check_one_trust_bundle(projection: Obj, path: str, errors: Errors) -> None:
    name, signer = projection.get("name"), projection.get("signerName")
    if name is not None and signer is not None:
        errors.append(invalid_value(path, projection, "only one of name and signerName may be used"))
    elif name is None and signer is None:
        errors.append(required(path, "either name or signerName must be specified"))


TOKEN_PATH: Final = Table(Required("path", check_unreserved))
PROJECTIONS: Final[Mapping[str, CheckFunction]] = {
    "secret": Table(Required("name"), KEYS),
    "configMap": Table(Required("name"), KEYS),
    "downwardAPI": Table(FILES),
    "serviceAccountToken": Table(
        Pointer(
            "expirationSeconds",
            Minimum(600, "may not specify a duration less than 10 minutes"),
            Maximum(1 << 32, "may not specify a duration larger than 2^32 seconds"),
        ),
        Check(check_token_path),
    ),
    "clusterTrustBundle": Table(
        Check(check_one_trust_bundle),
        Optional("labelSelector", check_selector),
        Required("path", check_unreserved),
    ),
}


def check_projections(source: Obj, path: str, errors: Errors) -> None:
    paths: set[str] = set()
    for at, projection in enumerate(source.get("sources") or ()):
        where, found = f"{path}.sources[{at}]", [type_ for type_ in PROJECTIONS if projection.get(type_) is not None]
        for type_ in found:
            inner = projection[type_]
            PROJECTIONS[type_](inner, f"{where}.{type_}", errors)
            # two sources may not write the same file
            repeated = ""
            for item in inner.get("items") or ():
                file = item.get("path", "")
                if file in paths:
                    repeated = repeated or file
                paths.add(file)
            if repeated:
                shown = repeated if type_ == "downwardAPI" else inner.get("name", "")
                errors.append(invalid_value(path, shown, "conflicting duplicate paths"))
        if len(found) > 1:
            errors.append(field_forbidden(where, ONLY_ONE))


# --- disks ----------------------------------------------------------------------------------------


def check_size_limit(limit: str, field: str, errors: Errors) -> None:
    if parse(limit).nanos < 0:
        errors.append(field_forbidden(field, "SizeLimit field must be a valid resource quantity"))


def authenticates(disk: Obj) -> bool:
    return bool(disk.get("chapAuthDiscovery") or disk.get("chapAuthSession"))


def check_one_identity(channel: Obj, path: str, errors: Errors) -> None:
    targets, identifiers = channel.get("targetWWNs"), channel.get("wwids")
    if not targets and not identifiers:
        errors.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and identifiers:
        why = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid_value(f"{path}.targetWWNs", targets, why))


def check_flocker(source: Obj, path: str, errors: Errors) -> None:
    name, identifier = source.get("datasetName"), source.get("datasetUUID")
    if not name and not identifier:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and identifier:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid_value(path, "resource", why))
    if name and "/" in name:
        errors.append(invalid_value(f"{path}.datasetName", name, "must not contain '/'"))


PARTITION: Final = Pointer("partition", Range(0, 255, names.between(1, 255)))
DRIVER_NAME: Final = Format(lambda name: names.dns_subdomain(name.lower()))
DRIVER: Final = Required("driver", FirstError(InvalidIf("len({v}) > 63", names.at_most(63)), DRIVER_NAME))
NO_LUN: Final = "lun is required if targetWWNs is specified"

#: in the order of validation
SOURCES: Final[Mapping[str, CheckFunction]] = {
    "emptyDir": Table(Pointer("sizeLimit", check_size_limit)),
    "hostPath": Table(
        Required("path", check_no_backsteps), Unless("path", "", Pointer("type", Enum(*HOST_PATH_TYPES)))
    ),
    "gitRepo": Table(Required("repository"), Optional("directory", check_descending)),
    "gcePersistentDisk": Table(Required("pdName"), PARTITION),
    "awsElasticBlockStore": Table(Required("volumeID"), PARTITION),
    "secret": Table(Required("secretName"), Pointer("defaultMode", MODE), KEYS),
    "nfs": Table(
        Required("server"),
        Required("path"),
        Always("path", InvalidIf("not {v}.startswith('/')", "must be an absolute path")),
    ),
    "iscsi": Table(
        Required("targetPortal"),
        Required(
            "iqn",
            FirstError(
                InvalidIf(
                    "{v}[:3] not in ('iqn', 'eui', 'naa')", "must be valid format starting with iqn, eui, or naa"
                ),
                InvalidIf(lambda name: not _ISCSI.fullmatch(name), "must be valid format"),
            ),
        ),
        Always("lun", Range(0, 255), zero=0),
        Where(authenticates, RequiredPointer("secretRef")),
    ),
    "glusterfs": requiring("endpoints", "path"),
    "flocker": check_flocker,
    "persistentVolumeClaim": requiring("claimName"),
    "rbd": requiring("monitors", "image"),
    "cinder": requiring("volumeID"),
    "cephfs": requiring("monitors"),
    "quobyte": requiring("registry", "volume"),
    "downwardAPI": Table(Pointer("defaultMode", MODE), FILES),
    "fc": Table(
        Check(check_one_identity),
        IfPresent("targetWWNs", RequiredPointer("lun", Range(0, 255), detail=NO_LUN)),
    ),
    "flexVolume": requiring("driver"),
    "configMap": Table(Required("name"), Pointer("defaultMode", MODE), KEYS),
    "azureFile": requiring("secretName", "shareName"),
    "vsphereVolume": requiring("volumePath"),
    "photonPersistentDisk": requiring("pdID"),
    "portworxVolume": requiring("volumeID"),
    "azureDisk": Table(
        Required("diskName"),
        Required("diskURI"),
        Pointer("cachingMode", Enum("None", "ReadOnly", "ReadWrite")),
        Pointer("kind", Enum("Dedicated", "Managed", "Shared")),
    ),
    "storageos": requiring("volumeName"),
    "projected": Table(Pointer("defaultMode", MODE), Check(check_projections)),
    "scaleIO": requiring("gateway", "system", "volumeName"),
    "csi": Table(DRIVER),
    "ephemeral": Table(RequiredPointer("volumeClaimTemplate", Always("spec", CLAIM_SPEC, zero={}))),
    "image": Table(Required("pullPolicy", Enum(*PULL_POLICIES))),
}
check_source: Final = exactly_one(SOURCES)


# --- Images ---------------------------------------------------------------------------------------


MAX_REFERENCE: Final = 1024  #: no longer reference is valid: a name has at most 255 characters, a tag 128

_COMPONENT: Final = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*+"
_DOMAIN_PART: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN: Final = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE: Final = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*+)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER: Final = re.compile("[a-f0-9]{64}")


def pull_policy(image: str) -> str:
    """The default policy: what may move under its tag is pulled always.

    >>> pull_policy("nginx"), pull_policy("nginx:latest"), pull_policy("nginx:1.27")
    ('Always', 'Always', 'IfNotPresent')
    """
    return "IfNotPresent" if len(image) > MAX_REFERENCE else _policy(image)


@lru_cache(maxsize=4096)
def _policy(image: str) -> str:
    match = None if _IDENTIFIER.fullmatch(image) else _REFERENCE.fullmatch(image)
    if match is None or len(match["name"]) > 255:
        return "IfNotPresent"
    tag, digest = match["tag"], match["digest"]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
