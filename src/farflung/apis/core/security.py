"""Validation of security contexts of pods and containers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from farflung.apis.validation import LARGEST_ID, Errors, check_descending, check_name, check_range, check_supported
from farflung.machinery import names
from farflung.machinery.errors import (
    Obj,
    duplicate,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
LONGEST_PROFILE: Final = 4095
_SYSCTL_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}"
_matches_sysctl: Final = re.compile(
    r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?(?:[./][a-z0-9](?:[-_a-z0-9]*[a-z0-9])?)*"
).fullmatch
NETWORK_SYSCTLS: Final = ("net.", "net/")
IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "kernel/shm", "kernel/msg", "kernel/sem")
NOT_ON_WINDOWS: Final = "cannot be set for a windows pod"
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


def check_container_security(context: Obj, path: str, *, host_users: bool, errors: Errors) -> None:
    _check_ids(context, ("runAsUser", "runAsGroup"), path, errors)
    mount = context.get("procMount")
    if mount is not None:
        check_supported(mount, ("Default", "Unmasked"), f"{path}.procMount", errors)
        if mount == "Unmasked" and host_users:
            errors.append(invalid_value(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    _check_seccomp(context.get("seccompProfile"), f"{path}.seccompProfile", errors)
    if context.get("allowPrivilegeEscalation") is False:
        forbidding = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            errors.append(invalid_value(path, context, f"{forbidding} `privileged` to true"))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            errors.append(invalid_value(path, context, f"{forbidding} `capabilities.Add` CAP_SYS_ADMIN"))
    _check_windows_options(context.get("windowsOptions"), f"{path}.windowsOptions", errors)
    _check_app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile", errors)


def check_pod_security(spec: Obj, path: str, errors: Errors) -> None:
    """The pod's own security context; `path` is that of the pod's spec."""
    context = spec.get("securityContext")
    if not context and not spec.get("shareProcessNamespace"):
        return
    context, field = context or {}, f"{path}.securityContext"
    _check_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), field, errors)
    for at, group in enumerate(context.get("supplementalGroups") or ()):
        check_range(group, 0, LARGEST_ID, f"{field}.supplementalGroups[{at}]", errors)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid_value(f"{field}.shareProcessNamespace", True, why))
    _check_sysctls(spec, context.get("sysctls") or (), f"{field}.sysctls", errors)
    _check_policy(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), field, errors)
    _check_seccomp(context.get("seccompProfile"), f"{field}.seccompProfile", errors)
    _check_windows_options(context.get("windowsOptions"), f"{field}.windowsOptions", errors)
    _check_app_armor(context.get("appArmorProfile"), f"{field}.appArmorProfile", errors)
    _check_policy(context, "supplementalGroupsPolicy", ("Merge", "Strict"), field, errors)
    _check_policy(context, "seLinuxChangePolicy", ("MountOption", "Recursive"), field, errors)


def _check_ids(context: Obj, members: tuple[str, ...], path: str, errors: Errors) -> None:
    for member in members:
        value = context.get(member)
        if value is not None:
            check_range(value, 0, LARGEST_ID, f"{path}.{member}", errors)


def _check_policy(context: Obj, member: str, choices: tuple[str, ...], path: str, errors: Errors) -> None:
    value = context.get(member)
    if value is not None:
        check_supported(value, choices, f"{path}.{member}", errors)


def _check_sysctls(spec: Obj, sysctls: Iterable[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for at, sysctl in enumerate(sysctls):
        name, field = sysctl.get("name", ""), f"{path}[{at}].name"
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


def _check_seccomp(profile: Obj | None, path: str, errors: Errors) -> None:
    if profile is None:
        return
    type_, local = profile.get("type", ""), profile.get("localhostProfile")
    if not type_:
        errors.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    else:
        check_supported(type_, PROFILE_TYPES, f"{path}.type", errors)
    if type_ == "Localhost":
        if local is None:
            errors.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            check_descending(local, f"{path}.localhostProfile", errors)
    elif local is not None:
        why = "can only be set when seccomp type is Localhost"
        errors.append(invalid_value(f"{path}.localhostProfile", {"Type": type_, "LocalhostProfile": local}, why))


def _check_app_armor(profile: Obj | None, path: str, errors: Errors) -> None:
    if profile is None:
        return
    local, field = profile.get("localhostProfile"), f"{path}.localhostProfile"
    match profile.get("type", ""):
        case "Localhost":
            _check_app_armor_file(local, field, errors)
        case "RuntimeDefault" | "Unconfined":
            if local is not None:
                errors.append(invalid_value(field, local, "can only be set when AppArmor type is Localhost"))
        case "":
            errors.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
        case other:
            errors.append(not_supported(f"{path}.type", other, PROFILE_TYPES))


def _check_app_armor_file(local: str | None, field: str, errors: Errors) -> None:
    if not local:
        errors.append(required(field, "must be set when AppArmor type is Localhost"))
        return
    if local != local.strip():
        errors.append(invalid_value(field, local, "must not be padded with whitespace"))
    if names.size(local) > LONGEST_PROFILE:
        errors.append(too_long(field, LONGEST_PROFILE))


def _check_windows_options(options: Obj | None, path: str, errors: Errors) -> None:
    if not options:
        return
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        check_name(names.dns_subdomain, name, f"{path}.gmsaCredentialSpecName", errors)
    if (content := options.get("gmsaCredentialSpec")) is not None:
        field = f"{path}.gmsaCredentialSpec"
        if not content:
            errors.append(invalid_value(field, content, "gmsaCredentialSpec cannot be an empty string"))
        elif names.size(content) > 64 * 1024:
            errors.append(invalid_value(field, content, "gmsaCredentialSpec size must be under 64 KiB"))
    if (user := options.get("runAsUserName")) is not None:
        _check_windows_user(user, f"{path}.runAsUserName", errors)


def _check_windows_user(user: str, field: str, errors: Errors) -> None:
    if not user:
        errors.append(invalid_value(field, user, "runAsUserName cannot be an empty string"))
    elif any(ord(char) < 32 or ord(char) == 127 for char in user):
        errors.append(invalid_value(field, user, "runAsUserName cannot contain control characters"))
    elif user.count("\\") > 1:
        errors.append(invalid_value(field, user, "runAsUserName cannot contain more than one backslash"))
    elif not user.rpartition("\\")[2]:
        errors.append(invalid_value(field, user, "runAsUserName's User cannot be empty"))


def check_operating_system(spec: Obj, path: str, errors: Errors) -> None:
    """Windows knows nothing of most Linux settings, and the other way round."""
    system = spec.get("os")
    if system is None:
        return
    match system.get("name", ""):
        case "":
            errors.append(required(f"{path}.os.name", "cannot be empty"))
        case "linux":
            why = "windows options cannot be set for a linux pod"
            for holder, where in ((spec, path), *containers_of(spec, path)):
                if (holder.get("securityContext") or {}).get("windowsOptions") is not None:
                    errors.append(field_forbidden(f"{where}.securityContext.windowsOptions", why))
        case "windows":
            _check_windows(spec, path, errors)
        case other:
            errors.append(not_supported(f"{path}.os", other, ("linux", "windows")))


def _check_windows(spec: Obj, path: str, errors: Errors) -> None:
    context = spec.get("securityContext") or {}
    for member in POD_FIELDS_NOT_ON_WINDOWS:
        if context.get(member) is not None:
            errors.append(field_forbidden(f"{path}.securityContext.{member}", NOT_ON_WINDOWS))
    for member in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(member) is not None:
            errors.append(field_forbidden(f"{path}.{member}", NOT_ON_WINDOWS))
    for container, where in containers_of(spec, path):
        own = container.get("securityContext") or {}
        for member in CONTAINER_FIELDS_NOT_ON_WINDOWS:
            if own.get(member) is not None:
                errors.append(field_forbidden(f"{where}.securityContext.{member}", NOT_ON_WINDOWS))


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
