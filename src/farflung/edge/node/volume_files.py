"""Files of configMap, secret, downwardAPI and projected volumes.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.edge.node.environment import CONFIG_MAP, SECRET, DownwardAPI, Find, PodConfigError, binary_data
from farflung.machinery.errors import Obj

MODE: Final = 0o644
LIFETIME: Final = 3600  #: seconds, by default


@dataclass(frozen=True, slots=True)
class VolumeFile:
    content: bytes
    mode: int


VolumeFiles = Mapping[str, VolumeFile]  #: by path within the volume


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """A token of the pod's ServiceAccount."""

    audience: str
    seconds: int


def has_generated_files(volume: Obj) -> bool:
    return any(member in volume for member in ("configMap", "secret", "downwardAPI", "projected"))


def requested_tokens(volumes: Iterable[Obj]) -> frozenset[TokenSpec]:
    sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
    return frozenset(
        _token_spec(source["serviceAccountToken"]) for source in sources if "serviceAccountToken" in source
    )


def volume_files(volume: Obj, find: Find, downward: DownwardAPI, token: Callable[[TokenSpec], str]) -> VolumeFiles:
    """Raises PodConfigError."""
    if "projected" in volume:
        projected = volume["projected"]
        default = projected.get("defaultMode", MODE)
        sources = projected.get("sources") or ()
    else:
        default, sources = None, (volume,)
    files: dict[str, VolumeFile] = {}
    for source in sources:
        files |= _files(source, default, find, downward, token)
    for path in files:
        _check_path(path)
    return files


def _files(
    source: Obj, default: int | None, find: Find, downward: DownwardAPI, token: Callable[[TokenSpec], str]
) -> dict[str, VolumeFile]:
    if "configMap" in source:
        return _object_files(CONFIG_MAP, source["configMap"], default, find)
    if "secret" in source:
        return _object_files(SECRET, source["secret"], default, find)
    if "downwardAPI" in source:
        return _downward_files(source["downwardAPI"], default, downward)
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        return {wanted["path"]: VolumeFile(token(_token_spec(wanted)).encode(), MODE if default is None else default)}
    raise PodConfigError(f"this node does not support {', '.join(sorted(source))}")


def _object_files(kind: str, reference: Obj, default: int | None, find: Find) -> dict[str, VolumeFile]:
    name = reference.get("secretName") or reference.get("name", "")
    optional = bool(reference.get("optional"))
    found = find(kind, name)
    if found is None:
        if optional:
            return {}
        raise PodConfigError(f'{kind.lower()} "{name}" not found')
    mode = reference.get("defaultMode", MODE) if default is None else default
    data = binary_data(found)
    if not reference.get("items"):
        return {key: VolumeFile(value, mode) for key, value in sorted(data.items())}
    files = {}
    for item in reference["items"]:
        if item["key"] in data:
            files[item["path"]] = VolumeFile(data[item["key"]], item.get("mode", mode))
        elif not optional:
            what = "configmap references non-existent config key" if kind == CONFIG_MAP else None
            raise PodConfigError(f"{what or 'references non-existent secret key'}: {item['key']}")
    return files


def _downward_files(reference: Obj, default: int | None, downward: DownwardAPI) -> dict[str, VolumeFile]:
    mode = reference.get("defaultMode", MODE) if default is None else default
    files = {}
    for item in reference.get("items") or ():
        if "fieldRef" in item:
            value = downward.field(item["fieldRef"].get("fieldPath", ""))
        else:
            value = downward.resource(item.get("resourceFieldRef") or {})
        files[item["path"]] = VolumeFile(value.encode(), item.get("mode", mode))
    return files


def _token_spec(source: Obj) -> TokenSpec:
    return TokenSpec(source.get("audience") or "", source.get("expirationSeconds") or LIFETIME)


def _check_path(path: str) -> None:
    """A path must stay in the volume and must not begin with `..`, which `write_files` uses."""
    parts = path.split("/")
    if not path or path.startswith("/") or parts[0].startswith("..") or ".." in parts or "" in parts or "\0" in path:
        raise PodConfigError(f"{path[:200]!r} is not a path within a volume")
