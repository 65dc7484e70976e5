"""Sites from a directory of files (v1) instead of Cluster objects.

`conf.yaml` has settings, `site_infos.json` the sites, and the others their capacity: hosts (`site_resources.json`),
flavors, public addresses (`eip_pools.json`) and volumes (`volume_types.json`, `volume_pools.json`).  `region.yaml` is
ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from farflung.machinery.names import dns_subdomain
from farflung.machines.engine.values import Capacity, Flavor, Geo, Health, Site, SiteKey
from farflung.machines.files.catalogue import (
    DEFAULT_KIND,
    FLAVOR_CONFIG,
    FLAVORS,
    CatalogueError,
    FileEntry,
    RegionFlavor,
    merge_flavors,
    quote_value,
    read_document,
    read_flavor_config,
    read_flavors,
)

CONF: Final = "conf.yaml"
SITE_INFOS: Final = "site_infos.json"
SITE_RESOURCES: Final = "site_resources.json"
EIP_POOLS: Final = "eip_pools.json"
VOLUME_TYPES: Final = "volume_types.json"
VOLUME_POOLS: Final = "volume_pools.json"

#: files that `read_site_files` reads
FILES: Final = (CONF, FLAVOR_CONFIG, FLAVORS, SITE_INFOS, SITE_RESOURCES, EIP_POOLS, VOLUME_TYPES, VOLUME_POOLS)

MAX_RATIO: Final = 10_000.0
EXCLUSIVE: Final = "exclusive_domains"  #: site attribute: the tenants that may use the site

HEALTH: Final = {
    "active": Health.READY,
    **{health.value.lower(): health for health in Health},
}


@dataclass(frozen=True, slots=True)
class SiteFileSettings:
    """Keys of conf.yaml; others are ignored."""

    policy_file: str  #: relative to the directory of conf.yaml
    master: str = ""  #: the address of the API server
    kubeconfig: str = ""
    spot_fake: bool = False  #: every spot request is satisfiable
    qos_weight: float = 0.5


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """The contents of a directory."""

    settings: SiteFileSettings
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()  #: by key


def read_site_files(files: Mapping[str, str]) -> SiteFiles:
    """`files`: file name → text.  All but conf.yaml are optional.  Raises CatalogueError."""
    if CONF not in files:
        raise CatalogueError(f"{CONF} is missing.")
    everywhere = read_flavor_config(files.get(FLAVOR_CONFIG, ""))
    regional = read_flavors(files.get(FLAVORS, "{}"))
    return SiteFiles(read_settings(files[CONF]), merge_flavors(everywhere, regional), read_sites(files, regional))


def read_settings(text: str) -> SiteFileSettings:
    """conf.yaml.  Raises CatalogueError."""
    document = read_document(CONF, text)
    policy_file = document.text("scheduler_policy_file")
    if not policy_file:
        raise CatalogueError(
            f"{CONF}: scheduler_policy_file is missing; it names the file with predicates and priorities."
        )
    return SiteFileSettings(
        policy_file,
        master=document.text("master"),
        kubeconfig=document.text("kubeconfig"),
        spot_fake=document.flag("spot_fake"),
        qos_weight=document.number("qos_weight", default=0.5),
    )


def read_sites(files: Mapping[str, str], flavors: Iterable[RegionFlavor]) -> tuple[Site, ...]:
    """A site is named after its zone, or `region--zone` if several regions have a zone of that name."""
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
        totals = hosts.get(place, {})
        capacity = Capacity(
            flavors=_flavors(sold.get(place.region, ()), place.zone, totals),
            vcpus=sum(one.vcpus for one in totals.values()),
            memory=sum(one.memory for one in totals.values()),
            storage=storage.get(place, {}),
            eips=addresses.get(place, 0) if EIP_POOLS in files else None,
        )
        sites.append(_site(entry, place, names[place], capacity, totals.values()))
    return tuple(sorted(sites, key=lambda site: site.key))


class _Zone(NamedTuple):
    region: str
    zone: str


# --- sites ----------------------------------------------------------------------------------------


def _site_entries(files: Mapping[str, str]) -> dict[_Zone, FileEntry]:
    found: dict[_Zone, FileEntry] = {}
    for entry in read_document(SITE_INFOS, files.get(SITE_INFOS, "{}")).entries("site_infos"):
        place = _Zone(entry.text("region", required=True), entry.text("availability_zone", required=True))
        if place in found:
            raise entry.twice(f"the zone {quote_value(place.zone)} of the region {quote_value(place.region)}")
        found[place] = entry
    return found


def _names(entries: Mapping[_Zone, FileEntry]) -> dict[_Zone, str]:
    """Site names in lower case, as object names must be."""
    regions = Counter(place.zone.lower() for place in entries)
    names: dict[str, _Zone] = {}
    for place, entry in entries.items():
        name = place.zone.lower() if regions[place.zone.lower()] == 1 else f"{place.region}--{place.zone}".lower()
        if dns_subdomain(name):
            raise entry.wrong("availability_zone", "of letters, digits and hyphens, as is its region", place.zone)
        if name in names:
            raise entry.twice(f"a site that would be called {quote_value(name)}")
        names[name] = place
    return {place: name for name, place in names.items()}


def _site(entry: FileEntry, place: _Zone, name: str, capacity: Capacity, totals: Iterable[_HostTotals]) -> Site:
    attributes = {one.text("site_attr"): one.text("site_attr_value") for one in entry.entries("site_attributes")}
    tenants = attributes.pop(EXCLUSIVE, "")
    return Site(
        SiteKey("", "", name),
        uid=entry.text("site_id"),
        geo=Geo(*(entry.text(key) for key in Geo.__struct_fields__)),
        region=place.region,
        zone=place.zone,
        operator=_operator(entry),
        health=HEALTH.get(entry.text("status").lower(), Health.UNKNOWN),
        labels=attributes,
        tenants=frozenset(_listed(tenants)),
        capacity=capacity,
        used_elsewhere={
            "vcpus": sum(one.used_vcpus for one in totals),
            "memory": sum(one.used_memory for one in totals),
        },
    )


def _operator(entry: FileEntry) -> str:
    """A name, or an object with a name."""
    if isinstance(entry.fields.get("operator"), dict):
        operator = entry.entry("operator")
        return operator.text("name") or operator.text("id")
    return entry.text("operator")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# --- hosts and flavors ------------------------------------------------------------------------------


@dataclass(slots=True)
class _HostTotals:
    """Sums over the hosts of a site with the same resource types."""

    vcpus: int = 0
    memory: int = 0
    used_vcpus: int = 0
    used_memory: int = 0


def _hosts(files: Mapping[str, str], sites: Mapping[_Zone, FileEntry]) -> dict[_Zone, dict[str, _HostTotals]]:
    """By resource types as written: `vm||gpu` means both."""
    found: dict[_Zone, dict[str, _HostTotals]] = {}
    for entry in read_document(SITE_RESOURCES, files.get(SITE_RESOURCES, "{}")).entries("site_resources"):
        region, _, zone = entry.text("site_id").partition("|")
        place = _Zone(entry.text("region") or region, entry.text("availability_zone") or zone)
        if place not in sites:
            raise CatalogueError(
                f"{SITE_RESOURCES}: {entry.path} is of {quote_value('--'.join(place))},"
                f" which {SITE_INFOS} does not have."
            )
        for host in entry.entries("hosts"):
            kinds = host.text("resource_type") or DEFAULT_KIND
            _add_host(found.setdefault(place, {}).setdefault(kinds, _HostTotals()), host)
    return found


def _add_host(totals: _HostTotals, host: FileEntry) -> None:
    ratio = host.number("cpu_allocation_ratio", default=1.0, most=MAX_RATIO)
    totals.vcpus += int(host.count("total_vcpus", default=0) * ratio)
    totals.memory += host.count("total_mem", default=0)
    totals.used_vcpus += host.count("used_vcpus", default=0)
    totals.used_memory += host.count("used_mem", default=0)


def _flavors(sold: Iterable[RegionFlavor], zone: str, hosts: Mapping[str, _HostTotals]) -> dict[str, int]:
    """How many of each fit beside what others use, if there were no other flavors."""
    found = {}
    for one in sold:
        fitting = [totals for kinds, totals in hosts.items() if one.flavor.kind in kinds.split("||")]
        if fitting and one.is_sold_in(zone):
            vcpus = sum(totals.vcpus - totals.used_vcpus for totals in fitting)
            memory = sum(totals.memory - totals.used_memory for totals in fitting)
            found[one.flavor.id] = max(0, min(vcpus // one.flavor.vcpus, memory // one.flavor.memory))
    return found


# --- public addresses and volumes -------------------------------------------------------------------


def _addresses(files: Mapping[str, str], sites: Mapping[_Zone, FileEntry]) -> dict[_Zone, int]:
    """Free addresses per zone.  The zones of a region share its pools evenly, so that none is promised twice."""
    places: dict[str, list[_Zone]] = {}
    for place in sorted(sites):
        places.setdefault(place.region, []).append(place)
    found: Counter[_Zone] = Counter()
    for entry in read_document(EIP_POOLS, files.get(EIP_POOLS, "{}")).entries("eip_pools"):
        pools = [pool for pool in entry.entries("common_pools") if pool.text("status").lower() in ("", "active")]
        choices = {place: sites[place].text("eip_type_name") for place in places.get(entry.text("region"), ())}
        for pool, users in _users(pools, choices):
            free = max(0, pool.count("size") - pool.count("used", default=0) - pool.count("cached", default=0))
            for number, place in enumerate(users):
                found[place] += free // len(users) + (number < free % len(users))
    return found


def _users(pools: Iterable[FileEntry], choices: Mapping[_Zone, str]) -> Iterator[tuple[FileEntry, list[_Zone]]]:
    """A site may name a pool by name or type; an unknown name restricts nothing."""
    called = [(pool, {pool.text("name"), pool.text("type")}) for pool in pools]
    known = {name for _, names in called for name in names if name}
    for pool, names in called:
        yield pool, [place for place, choice in choices.items() if choice in names or choice not in known]


def _storage(files: Mapping[str, str]) -> dict[_Zone, dict[str, int]]:
    """Free GiB by volume type, in lower case."""
    withdrawn = _withdrawn_volumes(files)
    free: dict[_Zone, dict[str, float]] = {}
    for entry in read_document(VOLUME_POOLS, files.get(VOLUME_POOLS, "{}")).entries("volume_pools"):
        region = entry.text("region", required=True)
        for pool in entry.entries("pools"):
            place = _Zone(region, pool.text("availability_zone", required=True))
            capabilities = pool.entry("capabilities")
            kind = capabilities.text("volume_type", required=True).lower()
            if (place, kind) not in withdrawn:
                types = free.setdefault(place, {})
                types[kind] = types.get(kind, 0.0) + _free_volume(capabilities)
    return {place: {kind: max(0, int(size)) for kind, size in types.items()} for place, types in free.items()}


def _free_volume(capabilities: FileEntry) -> float:
    ratio = capabilities.number("max_over_subscription_ratio", default=0.0, most=MAX_RATIO) or 1.0
    total = capabilities.number("total_capacity_gb", default=0.0)
    return total * ratio - capabilities.number("provisioned_capacity_gb", default=0.0)


def _withdrawn_volumes(files: Mapping[str, str]) -> set[tuple[_Zone, str]]:
    """Volume types that are sold out in a zone."""
    return {
        (_Zone(entry.text("region"), zone), name.lower())
        for entry in read_document(VOLUME_TYPES, files.get(VOLUME_TYPES, "{}")).entries("volume_types")
        for zone in _listed(entry.text("os-vender-extended:sold_out_availability_zones"))
        for name in (entry.text("id"), entry.text("name"))
    }
