"""Values from Pods, Allocations and Clusters, and back from what was written when they were bound.

Whatever JSON the wire brings is read: what nobody can understand of a request is said with its paths, and a Cluster
that makes no sense takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from farflung.apis.globalscheduler.selection import MOST_COPIES, MOST_RESOURCES
from farflung.controllers.global_scheduler.parts import Part, Problems
from farflung.controllers.global_scheduler.wishes import (
    EFFECTS,
    LARGEST,
    MOST_TOLERATIONS,
    geo,
    machine,
    point,
    resources,
    selector,
)
from farflung.machinery.errors import Obj
from farflung.scheduling.claims import compute_claim
from farflung.scheduling.values import (
    UNSCHEDULABLE,
    Capacity,
    Flavor,
    Health,
    Item,
    MachineRequest,
    Reservation,
    ResourceClaim,
    Site,
    SiteKey,
    Taint,
)

GROUP: Final = "globalscheduler.com"
CLUSTER: Final = f"{GROUP}/cluster"  #: the annotation `<logical cluster>|<namespace>/<name>`
FLAVOR: Final = f"{GROUP}/flavor-id"
REFUSED_BY: Final = f"{GROUP}/refused-by"  #: the annotation with `<logical cluster>|<namespace>/<name>=<times>,…`
LAST_REFUSAL: Final = f"{GROUP}/last-refusal"  #: the annotation that says in words why one of them did not take it
ENDED: Final = ("Failed", "Succeeded")  #: phases of what holds nothing any more

MOST_OFFERED: Final = 1024
MOST_LABELS: Final = 1024
HIGHEST: Final = 2**31 - 1


class InvalidRequestError(ValueError):
    """Nobody can understand what is asked for.  `errors`: each begins with the path of what is wrong."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(self.errors))


# --- what is asked for ----------------------------------------------------------------------------


def pod_request(obj: Obj, cluster: str) -> MachineRequest:
    """`cluster`: the logical cluster of its workspace.  Raises InvalidRequestError."""
    problems = Problems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    described = spec.part("virtualmachine")
    common = described.part("resourcecommoninfo")
    request = MachineRequest(
        metadata.text("uid"),
        (machine(metadata.text("name"), described, common.whole("count", 1, 1, MOST_COPIES)),),
        selector(common.part("selector"), spec),
        tenant=cluster,
        labels=metadata.texts_by_name("labels", MOST_LABELS),
        priority=spec.whole("priority", 0, -HIGHEST - 1, HIGHEST),
    )
    return _checked(request, problems)


def allocation_request(obj: Obj, cluster: str) -> MachineRequest:
    """`cluster`: the logical cluster of its workspace.  Raises InvalidRequestError."""
    problems = Problems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    group = spec.part("resourcegroup")
    labels = metadata.texts_by_name("labels", MOST_LABELS) | group.texts_by_name("labels", MOST_LABELS)
    request = MachineRequest(
        metadata.text("uid"),
        resources(group),
        selector(spec.part("selector"), spec),
        replicas=spec.whole("replicas", 1, 1, MOST_COPIES),
        tenant=cluster,
        labels=labels,
        priority=spec.whole("priority", 0, -HIGHEST - 1, HIGHEST),
        current=tuple(site for _, site, _ in _placements(obj)),
        numbered=True,
    )
    return _checked(request, problems)


def _checked(request: MachineRequest, problems: Problems) -> MachineRequest:
    if not request.uid:
        problems.note("metadata.uid", "is missing")
    if problems.found:
        raise InvalidRequestError(problems.found)
    return request


def _part(obj: Any, name: str, problems: Problems) -> Part:
    return Part(obj.get(name) if isinstance(obj, dict) else None, name, problems)


def _metadata(obj: Any, problems: Problems) -> Part:
    return _part(obj, "metadata", problems)


# --- what there is --------------------------------------------------------------------------------


def site_of(obj: Obj, cluster: str) -> Site:
    """A Cluster in a logical cluster.  What makes no sense in it is left out; one without a spec takes nothing new."""
    problems = Problems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    key = SiteKey(cluster, metadata.text("namespace"), metadata.text("name"))
    region = spec.part("region")
    makes_sense = isinstance(obj.get("spec"), dict)
    taints = tuple(_taints(spec))
    return Site(
        key,
        metadata.text("uid"),
        geo(spec.part("geolocation")),
        region.text("region"),
        region.text("availabilityzone"),
        spec.part("operator").text("operator"),
        _health(obj.get("status")),
        metadata.texts_by_name("labels", MOST_LABELS),
        (UNSCHEDULABLE, *taints) if spec.flag("unschedulable") or not makes_sense else taints,
        frozenset(filter(None, spec.texts("exclusivetenants", MOST_OFFERED))),
        _capacity(spec),
        price=spec.number("serverprice", 0, LARGEST),
        point=point(spec.part("coordinates")) if spec.has("coordinates") else None,
        leaving=metadata.has("deletiontimestamp"),
    )


def _health(status: Any) -> Health:
    """The original's status is the phase itself.  A Cluster of which nobody says anything is used, so it is ready."""
    phase = status.get("phase") if isinstance(status, dict) else status
    if not phase:
        return Health.READY
    return Health(phase) if isinstance(phase, str) and phase in Health._value2member_map_ else Health.UNKNOWN


def _capacity(spec: Part) -> Capacity:
    """Of what is named twice there is the sum.  Without a processor there would be no cluster: 0 is what clients send
    that know nothing, of processors and memory; of addresses it is none."""
    return Capacity(
        _summed(spec, "flavors", "flavorid", "totalcapacity"),
        spec.whole("cpucapacity", 0, 0, LARGEST) or None,
        spec.whole("memcapacity", 0, 0, LARGEST) or None,
        _summed(spec, "storage", "typeid", "storagecapacity"),
        spec.whole("eipcapacity", 0, 0, LARGEST) if spec.has("eipcapacity") else None,
    )


def _summed(spec: Part, name: str, key: str, amount: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in spec.parts(name, MOST_OFFERED):
        if kind := one.text(key):
            found[kind] = found.get(kind, 0) + one.whole(amount, 0, 0, LARGEST)
    return found


def _taints(spec: Part) -> Iterator[Taint]:
    """Those whose effect is known."""
    for one in spec.parts("taints", MOST_TOLERATIONS):
        if (key := one.text("key")) and (effect := one.text("effect")) in EFFECTS:
            yield Taint(key, one.text("value"), effect, one.text("timeadded"))


# --- what is bound --------------------------------------------------------------------------------


def reservation_of_pod(obj: Obj, cluster: str, catalogue: Mapping[str, Flavor]) -> Reservation | None:
    """What a Pod holds, by what its binding wrote; None if it is not bound, or has ended.

    One that was bound without annotations is where its spec says, in nobody's workspace, and has its first flavor.
    """
    problems = Problems()
    metadata, spec = _metadata(obj, problems), _part(obj, "spec", problems)
    name = spec.text("nodename") or spec.text("clustername")
    if not name or _part(obj, "status", problems).text("phase") in ENDED:
        return None
    noted = metadata.texts_by_name("annotations", LARGEST)
    site = noted_site(noted.get(CLUSTER, ""))
    described = spec.part("virtualmachine")
    item = machine(name, described, described.part("resourcecommoninfo").whole("count", 1, 1, MOST_COPIES))
    flavor = noted.get(FLAVOR) or (item.flavors[0].id if item.flavors else "")
    return Reservation(
        metadata.text("uid"),
        site if site is not None and site.name == name else SiteKey("", "", name),
        compute_claim((item,) if flavor else (), (flavor,), catalogue),
        cluster,
        _sorted_labels(metadata.texts_by_name("labels", MOST_LABELS)),
    )


def reservations_of_allocation(obj: Obj, cluster: str, catalogue: Mapping[str, Flavor]) -> list[Reservation]:
    """What the replicas of an Allocation hold, by its placements; nothing if it has failed.  What was placed counts,
    and not what is asked for since: otherwise one could take room, or give it back, by asking."""
    problems = Problems()
    metadata, spec, status = (_part(obj, name, problems) for name in ("metadata", "spec", "status"))
    if status.text("phase") in ENDED:
        return []
    group = spec.part("resourcegroup")
    items = (resources(status) if status.has("resources") else ()) or resources(group)
    labels = metadata.texts_by_name("labels", MOST_LABELS) | group.texts_by_name("labels", MOST_LABELS)
    uid, sorted_labels = metadata.text("uid"), _sorted_labels(labels)
    return [
        Reservation(f"{uid}/{replica}", site, _claimed(items, flavors, catalogue), cluster, sorted_labels)
        for replica, site, flavors in _placements(obj)
    ]


def _claimed(items: tuple[Item, ...], flavors: tuple[str, ...], catalogue: Mapping[str, Flavor]) -> ResourceClaim:
    """An item whose flavor was not written down has its first one."""
    chosen = [
        flavors[at] if at < len(flavors) and flavors[at] else (item.flavors[0].id if item.flavors else "")
        for at, item in enumerate(items)
    ]
    return compute_claim(items, chosen, catalogue)


def _placements(obj: Any) -> Iterator[tuple[int, SiteKey, tuple[str, ...]]]:
    """The number of a replica, where it is, and the flavors of its items.  The first word about a replica counts."""
    known: set[int] = set()
    for one in _part(obj, "status", Problems()).parts("placements", MOST_COPIES):
        replica, cluster = one.whole("replica", -1, 0, MOST_COPIES), one.part("cluster")
        if replica < 0 or replica in known or not cluster.text("name"):
            continue
        known.add(replica)
        site = SiteKey(cluster.text("workspace"), cluster.text("namespace"), cluster.text("name"))
        yield replica, site, tuple(one.texts("flavors", MOST_RESOURCES))


def noted_site(noted: str) -> SiteKey | None:
    """What the annotation of a Pod that is bound says."""
    cluster, bar, rest = noted.partition("|")
    namespace, _, name = rest.rpartition("/")
    return SiteKey(cluster, namespace, name) if bar and name else None


def _sorted_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
