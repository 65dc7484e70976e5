"""The files of the first version of the original, which knew its sites from a directory and not from an API.

`conf.yaml` has settings, `site_infos.json` the sites, and the others what these have: hosts (`site_resources.json`),
flavors, public addresses (`eip_pools.json`) and volumes (`volume_types.json`, `volume_pools.json`).  `region.yaml` has
addresses of clouds, of which nothing is asked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from farflung.machinery.names import dns_subdomain
from farflung.scheduling.catalogue import (
    DEFAULT_KIND,
    FLAVOR_CONFIG,
    FLAVORS,
    CatalogueError,
    Entry,
    RegionFlavor,
    catalogue_of,
    read_document,
    read_flavor_config,
    read_flavors,
    shown,
)
from farflung.scheduling.values import Capacity, Flavor, Geo, Health, Site, SiteKey

CONF: Final = "conf.yaml"
SITE_INFOS: Final = "site_infos.json"
SITE_RESOURCES: Final = "site_resources.json"
EIP_POOLS: Final = "eip_pools.json"
VOLUME_TYPES: Final = "volume_types.json"
VOLUME_POOLS: Final = "volume_pools.json"

#: what `read_base` looks at
FILES: Final = (CONF, FLAVOR_CONFIG, FLAVORS, SITE_INFOS, SITE_RESOURCES, EIP_POOLS, VOLUME_TYPES, VOLUME_POOLS)

MOST_RATIO: Final = 10_000.0
EXCLUSIVE: Final = "exclusive_domains"  #: the attribute with the only tenants of a site

HEALTH: Final = {
    "active": Health.READY,
    **{health.value.lower(): health for health in Health},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Of conf.yaml; other keys mean nothing."""

    policy_file: str  #: below the directory of conf.yaml, unless it is absolute
    master: str = ""  #: the address of the API server
    kubeconfig: str = ""
    spot_fake: bool = False  #: every wish for spot machines can be met
    qos_weight: float = 0.5


@dataclass(frozen=True, slots=True)
class Base:
    """All that a directory says."""

    settings: Settings
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: by key


def read_base(files: Mapping[str, str]) -> Base:
    """From texts by name of file.  All but conf.yaml may be missing.  Raises CatalogueError."""
    if CONF not in files:
        raise CatalogueError(f"{CONF} is missing.")
    everywhere = read_flavor_config(files.get(FLAVOR_CONFIG, ""))
    regional = read_flavors(files.get(FLAVORS, "{}"))
    return Base(read_settings(files[CONF]), catalogue_of(everywhere, regional), read_sites(files, regional))


def read_settings(text: str) -> Settings:
    """conf.yaml.  Raises CatalogueError."""
    document = read_document(CONF, text)
    policy_file = document.text("scheduler_policy_file")
    if not policy_file:
        raise CatalogueError(
            f"{CONF}: scheduler_policy_file is missing; it names the file with predicates and priorities."
        )
    return Settings(
        policy_file,
        master=document.text("master"),
        kubeconfig=document.text("kubeconfig"),
        spot_fake=document.flag("spot_fake"),
        qos_weight=document.number("qos_weight", default=0.5),
    )


def read_sites(files: Mapping[str, str], flavors: Iterable[RegionFlavor]) -> tuple[Site, ...]:
    """Each is called like its availability zone, or `region--zone` if other regions have a zone of that name."""
    entries = _site_entries(files)
    names = _names(entries)
    hosts = _hosts(files, entries)
    addresses = _addresses(files, entries)
    storage = _storage(files)
    sold: dict[str, list[RegionFlavor]] = {}
    for one in flavors:
        sold.setdefault(one.region, []).append(one)
    sites = []
    for place, entry in entries.items():
        room = hosts.get(place, {})
        capacity = Capacity(
            flavors=_flavors(sold.get(place.region, ()), place.zone, room),
            vcpus=sum(one.vcpus for one in room.values()),
            memory=sum(one.memory for one in room.values()),
            storage=storage.get(place, {}),
            eips=addresses.get(place, 0) if EIP_POOLS in files else None,
        )
        sites.append(_site(entry, place, names[place], capacity, room.values()))
    return tuple(sorted(sites, key=lambda site: site.key))


class _Place(NamedTuple):
    region: str
    zone: str


# --- sites ----------------------------------------------------------------------------------------


def _site_entries(files: Mapping[str, str]) -> dict[_Place, Entry]:
    found: dict[_Place, Entry] = {}
    for entry in read_document(SITE_INFOS, files.get(SITE_INFOS, "{}")).entries("site_infos"):
        place = _Place(entry.text("region", required=True), entry.text("availability_zone", required=True))
        if place in found:
            raise entry.twice(f"the zone {shown(place.zone)} of the region {shown(place.region)}")
        found[place] = entry
    return found


def _names(entries: Mapping[_Place, Entry]) -> dict[_Place, str]:
    """In lower case, because objects and nodes are called like that."""
    regions = Counter(place.zone.lower() for place in entries)
    names: dict[str, _Place] = {}
    for place, entry in entries.items():
        name = place.zone.lower() if regions[place.zone.lower()] == 1 else f"{place.region}--{place.zone}".lower()
        if dns_subdomain(name):
            raise entry.wrong("availability_zone", "of letters, digits and hyphens, as is its region", place.zone)
        if name in names:
            raise entry.twice(f"a site that would be called {shown(name)}")
        names[name] = place
    return {place: name for name, place in names.items()}


def _site(entry: Entry, place: _Place, name: str, capacity: Capacity, room: Iterable[_Room]) -> Site:
    attributes = {one.text("site_attr"): one.text("site_attr_value") for one in entry.entries("site_attributes")}
    tenants = attributes.pop(EXCLUSIVE, "")
    return Site(
        SiteKey("", "", name),
        uid=entry.text("site_id"),
        geo=Geo(*(entry.text(key) for key in Geo._fields)),
        region=place.region,
        zone=place.zone,
        operator=_operator(entry),
        health=HEALTH.get(entry.text("status").lower(), Health.UNKNOWN),
        labels=attributes,
        tenants=frozenset(_listed(tenants)),
        capacity=capacity,
        used_elsewhere={
            "vcpus": sum(one.used_vcpus for one in room),
            "memory": sum(one.used_memory for one in room),
        },
    )


def _operator(entry: Entry) -> str:
    """Just a name, or an object that has one."""
    if isinstance(entry.fields.get("operator"), dict):
        operator = entry.entry("operator")
        return operator.text("name") or operator.text("id")
    return entry.text("operator")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# --- hosts and flavors ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Room:
    """Of all hosts of a site that have the same types of resources."""

    vcpus: int = 0
    memory: int = 0
    used_vcpus: int = 0
    used_memory: int = 0


def _hosts(files: Mapping[str, str], sites: Mapping[_Place, Entry]) -> dict[_Place, dict[str, _Room]]:
    """By the types of resources, as they are written: `vm||gpu` is both."""
    found: dict[_Place, dict[str, _Room]] = {}
    for entry in read_document(SITE_RESOURCES, files.get(SITE_RESOURCES, "{}")).entries("site_resources"):
        region, _, zone = entry.text("site_id").partition("|")
        place = _Place(entry.text("region") or region, entry.text("availability_zone") or zone)
        if place not in sites:
            raise CatalogueError(
                f"{SITE_RESOURCES}: {entry.path} is of {shown('--'.join(place))}, which {SITE_INFOS} does not have."
            )
        for host in entry.entries("hosts"):
            kinds = host.text("resource_type") or DEFAULT_KIND
            _add_host(found.setdefault(place, {}).setdefault(kinds, _Room()), host)
    return found


def _add_host(room: _Room, host: Entry) -> None:
    ratio = host.number("cpu_allocation_ratio", default=1.0, most=MOST_RATIO)
    room.vcpus += int(host.count("total_vcpus", default=0) * ratio)
    room.memory += host.count("total_mem", default=0)
    room.used_vcpus += host.count("used_vcpus", default=0)
    room.used_memory += host.count("used_mem", default=0)


def _flavors(sold: Iterable[RegionFlavor], zone: str, hosts: Mapping[str, _Room]) -> dict[str, int]:
    """How many of each there is room for beside what others use, if there were no other flavors."""
    found = {}
    for one in sold:
        fitting = [room for kinds, room in hosts.items() if one.flavor.kind in kinds.split("||")]
        if fitting and one.is_sold_in(zone):
            vcpus = sum(room.vcpus - room.used_vcpus for room in fitting)
            memory = sum(room.memory - room.used_memory for room in fitting)
            found[one.flavor.id] = max(0, min(vcpus // one.flavor.vcpus, memory // one.flavor.memory))
    return found


# --- public addresses and volumes -------------------------------------------------------------------


def _addresses(files: Mapping[str, str], sites: Mapping[_Place, Entry]) -> dict[_Place, int]:
    """How many are free.  A pool belongs to a region: its sites share it evenly, so that nobody is promised an address
    that another one has got."""
    places: dict[str, list[_Place]] = {}
    for place in sorted(sites):
        places.setdefault(place.region, []).append(place)
    found: Counter[_Place] = Counter()
    for entry in read_document(EIP_POOLS, files.get(EIP_POOLS, "{}")).entries("eip_pools"):
        pools = [pool for pool in entry.entries("common_pools") if pool.text("status").lower() in ("", "active")]
        wishes = {place: sites[place].text("eip_type_name") for place in places.get(entry.text("region"), ())}
        for pool, users in _users(pools, wishes):
            free = max(0, pool.count("size") - pool.count("used", default=0) - pool.count("cached", default=0))
            for number, place in enumerate(users):
                found[place] += free // len(users) + (number < free % len(users))
    return found


def _users(pools: Iterable[Entry], wishes: Mapping[_Place, str]) -> Iterator[tuple[Entry, list[_Place]]]:
    """A site may wish for a pool by its name or its type.  What no pool of the region is called restricts nothing."""
    called = [(pool, {pool.text("name"), pool.text("type")}) for pool in pools]
    known = {name for _, names in called for name in names if name}
    for pool, names in called:
        yield pool, [place for place, wish in wishes.items() if wish in names or wish not in known]


def _storage(files: Mapping[str, str]) -> dict[_Place, dict[str, int]]:
    """Free GiB by type, in lower case as requests have it."""
    withdrawn = _withdrawn_volumes(files)
    free: dict[_Place, dict[str, float]] = {}
    for entry in read_document(VOLUME_POOLS, files.get(VOLUME_POOLS, "{}")).entries("volume_pools"):
        region = entry.text("region", required=True)
        for pool in entry.entries("pools"):
            place = _Place(region, pool.text("availability_zone", required=True))
            capabilities = pool.entry("capabilities")
            kind = capabilities.text("volume_type", required=True).lower()
            if (place, kind) not in withdrawn:
                types = free.setdefault(place, {})
                types[kind] = types.get(kind, 0.0) + _free_volume(capabilities)
    return {place: {kind: max(0, int(size)) for kind, size in types.items()} for place, types in free.items()}


def _free_volume(capabilities: Entry) -> float:
    ratio = capabilities.number("max_over_subscription_ratio", default=0.0, most=MOST_RATIO) or 1.0
    total = capabilities.number("total_capacity_gb", default=0.0)
    return total * ratio - capabilities.number("provisioned_capacity_gb", default=0.0)


def _withdrawn_volumes(files: Mapping[str, str]) -> set[tuple[_Place, str]]:
    """Types that are sold out in a zone."""
    return {
        (_Place(entry.text("region"), zone), name.lower())
        for entry in read_document(VOLUME_TYPES, files.get(VOLUME_TYPES, "{}")).entries("volume_types")
        for zone in _listed(entry.text("os-vender-extended:sold_out_availability_zones"))
        for name in (entry.text("id"), entry.text("name"))
    }
