"""Validation of security contexts of pods and containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from farflung.apis.core.resources import PodContext
from farflung.apis.rows import (
    ITSELF,
    Check,
    ContextCheck,
    Each,
    Enum,
    FirstError,
    ForbiddenField,
    Format,
    InvalidIf,
    Optional,
    Pointer,
    Range,
    Refused,
    Required,
    RequiredPointer,
    Row,
    Struct,
    Table,
    When,
    Where,
)
from farflung.apis.validation import LARGEST_INT32, Errors, check_descending
from farflung.machinery import names
from farflung.machinery.errors import Obj, duplicate, invalid_value, required, too_long

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
LONGEST_PROFILE: Final = 4095
LARGEST_CREDENTIALS: Final = 64 * 1024
_SYSCTL_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}"
_matches_sysctl: Final = re.compile(
    r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?(?:[./][a-z0-9](?:[-_a-z0-9]*[a-z0-9])?)*"
).fullmatch
NETWORK_SYSCTLS: Final = ("net.", "net/")
IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "kernel/shm", "kernel/msg", "kernel/sem")
POD_FIELDS_NOT_ON_WINDOWS: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
CONTAINER_FIELDS_NOT_ON_WINDOWS: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def containers_of(spec: Obj, path: str) -> Iterator[tuple[Obj, str]]:
    """Every container of a pod with its path."""
    for member in CONTAINER_LISTS:
        for at, container in enumerate(spec.get(member) or ()):
            yield container, f"{path}.{member}[{at}]"


# --- What pods and containers have in common ------------------------------------------------------


def check_seccomp_file(profile: Obj, path: str, errors: Errors) -> None:
    type_, local = profile.get("type", ""), profile.get("localhostProfile")
    if type_ != "Localhost" and local is not None:
        why = "can only be set when seccomp type is Localhost"
        errors.append(invalid_value(f"{path}.localhostProfile", {"Type": type_, "LocalhostProfile": local}, why))


def has_control_character(text: str) -> bool:
    return any(ord(char) < 32 or ord(char) == 127 for char in text)


def check_app_armor_file(file: str, field: str, errors: Errors) -> None:
    if file != file.strip():
        errors.append(invalid_value(field, file, "must not be padded with whitespace"))
    if names.size(file) > LONGEST_PROFILE:
        errors.append(too_long(field, LONGEST_PROFILE))


ID: Final = Range(0, LARGEST_INT32)
NO_SECCOMP_FILE: Final = "must be set when seccomp type is Localhost"
NO_APP_ARMOR_FILE: Final = "must be set when AppArmor type is Localhost"
NEEDLESS_FILE: Final = Refused("can only be set when AppArmor type is Localhost")

SECCOMP: Final = Table(
    Required("type", Enum(*PROFILE_TYPES), detail="type is required when seccompProfile is set"),
    When("type", "Localhost", RequiredPointer("localhostProfile", check_descending, detail=NO_SECCOMP_FILE)),
    Check(check_seccomp_file),
)
APP_ARMOR: Final = Table(
    When("type", "Localhost", Required("localhostProfile", check_app_armor_file, detail=NO_APP_ARMOR_FILE)),
    When("type", ("RuntimeDefault", "Unconfined"), Pointer("localhostProfile", NEEDLESS_FILE)),
    Required("type", Enum(*PROFILE_TYPES), detail="type is required when appArmorProfile is set"),
)
WINDOWS_OPTIONS: Final = Table(
    Pointer("gmsaCredentialSpecName", Format(names.dns_subdomain)),
    Pointer(
        "gmsaCredentialSpec",
        InvalidIf("not {v}", "gmsaCredentialSpec cannot be an empty string"),
        InvalidIf(lambda text: names.size(text) > LARGEST_CREDENTIALS, "gmsaCredentialSpec size must be under 64 KiB"),
    ),
    Pointer(
        "runAsUserName",
        FirstError(
            InvalidIf("not {v}", "runAsUserName cannot be an empty string"),
            InvalidIf(has_control_character, "runAsUserName cannot contain control characters"),
            InvalidIf(lambda user: user.count("\\") > 1, "runAsUserName cannot contain more than one backslash"),
            InvalidIf(lambda user: user.endswith("\\"), "runAsUserName's User cannot be empty"),
        ),
    ),
)


# --- containers -----------------------------------------------------------------------------------


def check_mask(mount: str, field: str, errors: Errors, pod: PodContext) -> None:
    if mount == "Unmasked" and pod.host_users:
        errors.append(invalid_value(field, mount, "`hostUsers` must be false to use `Unmasked`"))


def check_escalation(context: Obj, path: str, errors: Errors) -> None:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    forbidding = "cannot set `allowPrivilegeEscalation` to false and"
    if context.get("privileged"):
        errors.append(invalid_value(path, context, f"{forbidding} `privileged` to true"))
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        errors.append(invalid_value(path, context, f"{forbidding} `capabilities.Add` CAP_SYS_ADMIN"))


CONTAINER_SECURITY: Final = Table(
    Pointer("runAsUser", ID),
    Pointer("runAsGroup", ID),
    Pointer("procMount", Enum("Default", "Unmasked"), ContextCheck(check_mask)),
    Struct("seccompProfile", SECCOMP),
    Check(check_escalation),
    Struct("windowsOptions", WINDOWS_OPTIONS),
    Struct("appArmorProfile", APP_ARMOR),
)


# --- pods -----------------------------------------------------------------------------------------


def check_sysctls(spec: Obj, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, sysctl in enumerate((spec.get("securityContext") or {}).get("sysctls") or ()):
        name, field = sysctl.get("name", ""), f"{path}.securityContext.sysctls[{at}].name"
        if not name:
            errors.append(required(field))
        elif len(name) > 253 or not _matches_sysctl(name):
            errors.append(invalid_value(field, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$"))
        elif name in seen:
            errors.append(duplicate(field, name))
        seen.add(name)
        if spec.get("hostNetwork") and name.startswith(NETWORK_SYSCTLS):
            errors.append(invalid_value(field, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and name.startswith(IPC_SYSCTLS):
            errors.append(invalid_value(field, name, "may not be specified when 'hostIPC' is true"))


def shares_processes_twice(spec: Obj) -> bool:
    return bool(spec.get("shareProcessNamespace") and spec.get("hostPID"))


SHARED_TWICE: Final = Refused("ShareProcessNamespace and HostPID cannot both be enabled")

#: of a pod's spec
POD_SECURITY: Final = Table(
    Pointer("securityContext.fsGroup", ID),
    Pointer("securityContext.runAsUser", ID),
    Pointer("securityContext.runAsGroup", ID),
    Each("securityContext.supplementalGroups", ID),
    Where(
        shares_processes_twice,
        Pointer("shareProcessNamespace", SHARED_TWICE, named="securityContext.shareProcessNamespace"),
    ),
    Check(check_sysctls),
    Pointer("securityContext.fsGroupChangePolicy", Enum("Always", "OnRootMismatch")),
    Struct("securityContext.seccompProfile", SECCOMP),
    Struct("securityContext.windowsOptions", WINDOWS_OPTIONS),
    Struct("securityContext.appArmorProfile", APP_ARMOR),
    Pointer("securityContext.supplementalGroupsPolicy", Enum("Merge", "Strict")),
    Pointer("securityContext.seLinuxChangePolicy", Enum("MountOption", "Recursive")),
)


def every_container(*rows: Row) -> tuple[Row, ...]:
    return tuple(Each(member, *rows) for member in CONTAINER_LISTS)


def forbidden(detail: str, *paths: str) -> tuple[Row, ...]:
    return tuple(Pointer(path, ForbiddenField(detail)) for path in paths)


NOT_ON_LINUX: Final = forbidden("windows options cannot be set for a linux pod", "securityContext.windowsOptions")
NOT_ON_WINDOWS: Final = "cannot be set for a windows pod"

#: of a pod's spec: Windows has no equivalent of most Linux settings, and the other way round
OPERATING_SYSTEM: Final = Table(
    Struct("os", Required("name", detail="cannot be empty"), Optional("name", Enum("linux", "windows"), named=ITSELF)),
    When("os.name", "linux", *NOT_ON_LINUX, *every_container(*NOT_ON_LINUX)),
    When(
        "os.name",
        "windows",
        *forbidden(NOT_ON_WINDOWS, *(f"securityContext.{member}" for member in POD_FIELDS_NOT_ON_WINDOWS)),
        *forbidden(NOT_ON_WINDOWS, "hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"),
        *every_container(
            *forbidden(NOT_ON_WINDOWS, *(f"securityContext.{member}" for member in CONTAINER_FIELDS_NOT_ON_WINDOWS))
        ),
    ),
)


def check_host_processes(spec: Obj, path: str, errors: Errors) -> None:
    """In a Windows pod, either all containers are host processes or none is."""
    own = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    total = hosted = 0
    for container, where in containers_of(spec, path):
        total += 1
        context = container.get("securityContext")
        asked = ((context.get("windowsOptions") or {}).get("hostProcess")) if context else None
        if None not in (own, asked) and own != asked:
            why = f"pod hostProcess value must be identical if both are specified, was {str(own).lower()}"
            errors.append(invalid_value(f"{where}.securityContext.windowsOptions.hostProcess", asked, why))
        hosted += bool(own if asked is None else asked)
    if not hosted:
        return
    if hosted != total:
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.append(invalid_value(path, "", why))
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.append(invalid_value(f"{path}.hostNetwork", False, why))
