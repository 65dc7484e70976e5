"""Volumes of pods: defaults, and validation by type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from farflung.apis.core.claims import check_claim_spec, default_claim_spec
from farflung.apis.core.images import pull_policy
from farflung.apis.validation import (
    Errors,
    check_choice,
    check_descending,
    check_file_mode,
    check_name,
    check_no_backsteps,
    check_present,
    check_range,
    check_selector,
    check_supported,
    check_unreserved,
)
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, field_forbidden, invalid_value, not_supported, required
from farflung.machinery.quantity import parse

Volumes = Mapping[str, Obj]  #: name → volume, of those that are valid
CheckSource = Callable[[Obj, str, Errors], None]

DEFAULT_MODE: Final = 0o644
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


def _default_mode(source: Obj) -> None:
    source.setdefault("defaultMode", DEFAULT_MODE)


def _default_downward(source: Obj) -> None:
    _default_mode(source)
    _default_files(source)


def _default_files(source: Obj) -> None:
    for file in source.get("items") or ():
        if (selector := file.get("fieldRef")) is not None:
            selector.setdefault("apiVersion", "v1")
        if (selector := file.get("resourceFieldRef")) is not None:
            selector.setdefault("divisor", "0")


def _default_projected(source: Obj) -> None:
    _default_mode(source)
    for projection in source.get("sources") or ():
        if (token := projection.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", TOKEN_SECONDS)
        if (downward := projection.get("downwardAPI")) is not None:
            _default_files(downward)


def _default_image(source: Obj) -> None:
    source.setdefault("pullPolicy", pull_policy(source.get("reference", "")))


def _default_ephemeral(source: Obj) -> None:
    if (template := source.get("volumeClaimTemplate")) is not None:
        template.setdefault("metadata", {})
        default_claim_spec(template.setdefault("spec", {}))


def defaulting(**values: object) -> Callable[[Obj], None]:
    def default(source: Obj) -> None:
        for member, value in values.items():
            source.setdefault(member, value)

    return default


DEFAULTS: Final[Mapping[str, Callable[[Obj], None]]] = {
    "configMap": _default_mode,
    "secret": _default_mode,
    "projected": _default_projected,
    "downwardAPI": _default_downward,
    "hostPath": defaulting(type=""),
    "ephemeral": _default_ephemeral,
    "image": _default_image,
    "iscsi": defaulting(iscsiInterface="default"),
    "rbd": defaulting(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "azureDisk": defaulting(cachingMode="ReadWrite", kind="Shared", fsType="ext4", readOnly=False),
    "scaleIO": defaulting(storageMode="ThinProvisioned", fsType="xfs"),
}


# --- checks ---------------------------------------------------------------------------------------


def check_volumes(volumes: Iterable[Obj], pod_name: str, path: str, errors: Errors) -> Volumes:
    """`pod_name` is empty in a template.  Returns the volumes that containers can mount."""
    good: dict[str, Obj] = {}
    created = _created_claims(volumes, pod_name)
    for at, volume in enumerate(volumes):
        where, before, name = f"{path}[{at}]", len(errors), volume.get("name", "")
        check_source(volume, where, SOURCES, errors)
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


def check_source(volume: Obj, path: str, types: Mapping[str, CheckSource], errors: Errors) -> None:
    """Exactly one of the types, and that one right."""
    found = [type_ for type_ in volume if type_ in types and volume[type_] is not None]
    if len(found) > 1:
        found = [type_ for type_ in types if type_ in found]
    if not found:
        errors.append(required(path, "must specify a volume type"))
        return
    first, *others = found
    types[first](volume[first], f"{path}.{first}", errors)
    for type_ in others:
        errors.append(field_forbidden(f"{path}.{SAID_AS.get(type_, type_)}", ONLY_ONE))


SAID_AS: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}  #: how the message about a second type spells it


def requiring(*members: str) -> CheckSource:
    def check(source: Obj, path: str, errors: Errors) -> None:
        for member in members:
            check_present(source, member, path, errors)

    return check


def _check_empty_directory(source: Obj, path: str, errors: Errors) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and parse(limit).nanos < 0:
        errors.append(field_forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))


def check_host_path(source: Obj, path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(f"{path}.path"))
        return
    check_no_backsteps(source["path"], f"{path}.path", errors)
    if (type_ := source.get("type")) is not None:
        check_supported(type_, HOST_PATH_TYPES, f"{path}.type", errors)


def _check_git_repository(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "repository", path, errors)
    check_descending(source.get("directory", ""), f"{path}.directory", errors)


def _check_google_disk(source: Obj, path: str, errors: Errors) -> None:
    disk = path.removesuffix("gcePersistentDisk") + "persistentDisk"
    check_present(source, "pdName", disk, errors)
    _check_partition(source, disk, errors)


def _check_amazon_disk(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "volumeID", path, errors)
    _check_partition(source, path, errors)


def _check_partition(source: Obj, path: str, errors: Errors) -> None:
    partition = source.get("partition", 0)
    if not 0 <= partition <= 255:
        errors.append(invalid_value(f"{path}.partition", partition, names.between(1, 255)))


def _check_secret(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "secretName", path, errors)
    check_file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    _check_keys(source, path, errors)


def _check_config_map(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "name", path, errors)
    check_file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    _check_keys(source, path, errors)


def _check_keys(source: Obj, path: str, errors: Errors) -> None:
    for at, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{at}]"
        check_present(item, "key", where, errors)
        check_present(item, "path", where, errors)
        check_unreserved(item.get("path", ""), f"{where}.path", errors)
        check_file_mode(item.get("mode"), f"{where}.mode", errors)


def check_nfs(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "server", path, errors)
    check_present(source, "path", path, errors)
    if not source.get("path", "").startswith("/"):
        errors.append(invalid_value(f"{path}.path", source.get("path", ""), "must be an absolute path"))


def check_iscsi(source: Obj, path: str, errors: Errors) -> None:
    check_present(source, "targetPortal", path, errors)
    name = source.get("iqn", "")
    if not name:
        errors.append(required(f"{path}.iqn"))
    elif not name.startswith(("iqn", "eui", "naa")):
        errors.append(invalid_value(f"{path}.iqn", name, "must be valid format starting with iqn, eui, or naa"))
    elif not _ISCSI.fullmatch(name):
        errors.append(invalid_value(f"{path}.iqn", name, "must be valid format"))
    check_range(source.get("lun", 0), 0, 255, f"{path}.lun", errors)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))


def check_fibre_channel(source: Obj, path: str, errors: Errors) -> None:
    targets, identifiers = source.get("targetWWNs"), source.get("wwids")
    if not targets and not identifiers:
        errors.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and identifiers:
        why = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid_value(f"{path}.targetWWNs", targets, why))
    if targets:
        if source.get("lun") is None:
            errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
        else:
            check_range(source["lun"], 0, 255, f"{path}.lun", errors)


def _check_flocker(source: Obj, path: str, errors: Errors) -> None:
    name, identifier = source.get("datasetName"), source.get("datasetUUID")
    if not name and not identifier:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and identifier:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid_value(path, "resource", why))
    if name and "/" in name:
        errors.append(invalid_value(f"{path}.datasetName", name, "must not contain '/'"))


def _check_downward(source: Obj, path: str, errors: Errors) -> None:
    check_file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    for file in source.get("items") or ():
        _check_file(file, path, errors)


def _check_file(file: Obj, path: str, errors: Errors) -> None:
    check_present(file, "path", path, errors)
    check_unreserved(file.get("path", ""), f"{path}.path", errors)
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
    check_file_mode(file.get("mode"), f"{path}.mode", errors)


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
        said = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind, "hugepages")
        if said != "hugepages" or kind.startswith("hugepages-"):
            why = f"only divisor's values {', '.join(BYTE_DIVISORS)} are supported with the {said} resource"
            errors.append(invalid_value(field, resource, why))


def _check_projected(source: Obj, path: str, errors: Errors) -> None:
    check_file_mode(source.get("defaultMode"), f"{path}.defaultMode", errors)
    paths: set[str] = set()
    for at, projection in enumerate(source.get("sources") or ()):
        where, found = f"{path}.sources[{at}]", 0
        for type_, check in PROJECTIONS.items():
            inner = projection.get(type_)
            if inner is not None:
                check(inner, f"{where}.{type_}", errors)
                # two sources may not write the same file
                repeated = ""
                for item in inner.get("items") or ():
                    file = item.get("path", "")
                    if file in paths:
                        repeated = repeated or file
                    paths.add(file)
                if repeated:
                    said = repeated if type_ == "downwardAPI" else inner.get("name", "")
                    errors.append(invalid_value(path, said, "conflicting duplicate paths"))
                found += 1
        if found > 1:
            errors.append(field_forbidden(where, ONLY_ONE))


def _check_projected_keys(projection: Obj, path: str, errors: Errors) -> None:
    check_present(projection, "name", path, errors)
    _check_keys(projection, path, errors)


def _check_projected_files(projection: Obj, path: str, errors: Errors) -> None:
    for file in projection.get("items") or ():
        _check_file(file, path, errors)


def _check_token(projection: Obj, path: str, errors: Errors) -> None:
    seconds, field = projection.get("expirationSeconds", TOKEN_SECONDS), f"{path}.expirationSeconds"
    if seconds < 600:
        errors.append(invalid_value(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        errors.append(invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    volume = path.partition(".sources[")[0]
    if not projection.get("path"):
        errors.append(required(f"{volume}.path"))
    else:
        check_unreserved(projection["path"], f"{volume}.path", errors)


def _check_trust_bundle(projection: Obj, path: str, errors: Errors) -> None:
    name, signer = projection.get("name"), projection.get("signerName")
    if name is not None and signer is not None:
        errors.append(invalid_value(path, projection, "only one of name and signerName may be used"))
    elif name is None and signer is None:
        errors.append(required(path, "either name or signerName must be specified"))
    check_selector(projection.get("labelSelector"), f"{path}.labelSelector", errors)
    check_present(projection, "path", path, errors)
    check_unreserved(projection.get("path", ""), f"{path}.path", errors)


PROJECTIONS: Final[Mapping[str, CheckSource]] = {
    "secret": _check_projected_keys,
    "configMap": _check_projected_keys,
    "downwardAPI": _check_projected_files,
    "serviceAccountToken": _check_token,
    "clusterTrustBundle": _check_trust_bundle,
}


def check_azure_disk(source: Obj, path: str, errors: Errors) -> None:
    for member in ("diskName", "diskURI"):
        check_present(source, member, path, errors)
    if (mode := source.get("cachingMode")) is not None:
        check_supported(mode, ("None", "ReadOnly", "ReadWrite"), f"{path}.cachingMode", errors)
    if (kind := source.get("kind")) is not None:
        check_supported(kind, ("Dedicated", "Managed", "Shared"), f"{path}.kind", errors)


def check_driver(source: Obj, path: str, errors: Errors) -> None:
    """The name of a CSI driver."""
    driver, field = source.get("driver", ""), f"{path}.driver"
    if not driver:
        errors.append(required(field))
    elif len(driver) > 63:
        errors.append(invalid_value(field, driver, names.at_most(63)))
    else:
        check_name(names.dns_subdomain, driver.lower(), field, errors)


def _check_ephemeral(source: Obj, path: str, errors: Errors) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        errors.append(required(f"{path}.volumeClaimTemplate"))
        return
    check_claim_spec(template.get("spec") or {}, f"{path}.volumeClaimTemplate.spec", errors)


def _check_image(source: Obj, path: str, errors: Errors) -> None:
    check_choice(source.get("pullPolicy", ""), PULL_POLICIES, f"{path}.pullPolicy", errors)


#: in the order of validation
SOURCES: Final[Mapping[str, CheckSource]] = {
    "emptyDir": _check_empty_directory,
    "hostPath": check_host_path,
    "gitRepo": _check_git_repository,
    "gcePersistentDisk": _check_google_disk,
    "awsElasticBlockStore": _check_amazon_disk,
    "secret": _check_secret,
    "nfs": check_nfs,
    "iscsi": check_iscsi,
    "glusterfs": requiring("endpoints", "path"),
    "flocker": _check_flocker,
    "persistentVolumeClaim": requiring("claimName"),
    "rbd": requiring("monitors", "image"),
    "cinder": requiring("volumeID"),
    "cephfs": requiring("monitors"),
    "quobyte": requiring("registry", "volume"),
    "downwardAPI": _check_downward,
    "fc": check_fibre_channel,
    "flexVolume": requiring("driver"),
    "configMap": _check_config_map,
    "azureFile": requiring("secretName", "shareName"),
    "vsphereVolume": requiring("volumePath"),
    "photonPersistentDisk": requiring("pdID"),
    "portworxVolume": requiring("volumeID"),
    "azureDisk": check_azure_disk,
    "storageos": requiring("volumeName"),
    "projected": _check_projected,
    "scaleIO": requiring("gateway", "system", "volumeName"),
    "csi": check_driver,
    "ephemeral": _check_ephemeral,
    "image": _check_image,
}
