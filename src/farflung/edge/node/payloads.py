"""Which files are in the volumes that are made of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.edge.node.environment import CONFIG_MAP, SECRET, Downward, Find, Unavailable, bytes_of
from farflung.machinery.errors import Obj

MODE: Final = 0o644
LIFETIME: Final = 3600  #: seconds of a token, where nothing is said


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    mode: int


Payload = Mapping[str, File]  #: by path within the volume


@dataclass(frozen=True, slots=True)
class TokenWanted:
    """A token of the pod's ServiceAccount."""

    audience: str
    seconds: int


def is_made_of_objects(volume: Obj) -> bool:
    return any(member in volume for member in ("configMap", "secret", "downwardAPI", "projected"))


def tokens_wanted(volumes: Iterable[Obj]) -> frozenset[TokenWanted]:
    sources = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
    return frozenset(_wanted(source["serviceAccountToken"]) for source in sources if "serviceAccountToken" in source)


def payload(volume: Obj, find: Find, downward: Downward, token: Callable[[TokenWanted], str]) -> Payload:
    """Raises Unavailable."""
    if "projected" in volume:
        projected = volume["projected"]
        default = projected.get("defaultMode", MODE)
        sources = projected.get("sources") or ()
    else:
        default, sources = None, (volume,)
    files: dict[str, File] = {}
    for source in sources:
        files |= _files(source, default, find, downward, token)
    for path in files:
        _check_path(path)
    return files


def _files(
    source: Obj, default: int | None, find: Find, downward: Downward, token: Callable[[TokenWanted], str]
) -> dict[str, File]:
    if "configMap" in source:
        return _of_object(CONFIG_MAP, source["configMap"], default, find)
    if "secret" in source:
        return _of_object(SECRET, source["secret"], default, find)
    if "downwardAPI" in source:
        return _of_downward(source["downwardAPI"], default, downward)
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        return {wanted["path"]: File(token(_wanted(wanted)).encode(), MODE if default is None else default)}
    raise Unavailable(f"this node does not know {', '.join(sorted(source))}")


def _of_object(kind: str, reference: Obj, default: int | None, find: Find) -> dict[str, File]:
    name = reference.get("secretName") or reference.get("name", "")
    optional = bool(reference.get("optional"))
    found = find(kind, name)
    if found is None:
        if optional:
            return {}
        raise Unavailable(f'{kind.lower()} "{name}" not found')
    mode = reference.get("defaultMode", MODE) if default is None else default
    data = bytes_of(found)
    if not reference.get("items"):
        return {key: File(value, mode) for key, value in sorted(data.items())}
    files = {}
    for item in reference["items"]:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], item.get("mode", mode))
        elif not optional:
            what = "configmap references non-existent config key" if kind == CONFIG_MAP else None
            raise Unavailable(f"{what or 'references non-existent secret key'}: {item['key']}")
    return files


def _of_downward(reference: Obj, default: int | None, downward: Downward) -> dict[str, File]:
    mode = reference.get("defaultMode", MODE) if default is None else default
    files = {}
    for item in reference.get("items") or ():
        if "fieldRef" in item:
            value = downward.field(item["fieldRef"].get("fieldPath", ""))
        else:
            value = downward.resource(item.get("resourceFieldRef") or {})
        files[item["path"]] = File(value.encode(), item.get("mode", mode))
    return files


def _wanted(source: Obj) -> TokenWanted:
    return TokenWanted(source.get("audience") or "", source.get("expirationSeconds") or LIFETIME)


def _check_path(path: str) -> None:
    """Nothing leaves the volume, and nothing is called as what the volume is held together by."""
    parts = path.split("/")
    if not path or path.startswith("/") or parts[0].startswith("..") or ".." in parts or "" in parts or "\0" in path:
        raise Unavailable(f"{path[:200]!r} is not a path within a volume")
