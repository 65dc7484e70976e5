"""Requests and bindings of virtual machines, for `explain` and `plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias

from farflung.cli.output import NONE, named, printer, remark_lines, table
from farflung.inspect import fields
from farflung.inspect.explain_machines import ClusterVerdict, MachineExplanation, MachineState
from farflung.inspect.scheduler_model import (
    BoundReplica,
    How,
    MachineDecision,
    RegionWish,
    RequestedItem,
    RequestSelectors,
    RequestSummary,
    UnwellCluster,
)
from farflung.lib.words import count

BEHIND: Final = "the global scheduler is behind or not running"
NAMED: Final = 10  #: Clusters in one line
GONE: Final = "that Cluster was deleted, so it will be evicted"
UNKNOWN: Final = "that site is unknown; --conf selects the global scheduler's files"
UNSIZED: Final = "so it counts without vcpus and memory; --conf selects files with its size"
STAYS: Final = "a bound machine stays while its Cluster is healthy"


class NamedCluster(Protocol):
    @property
    def workspace(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


Names: TypeAlias = Mapping[tuple[str, str, str], str]


@printer
def printed(answer: MachineExplanation, *, limit: int) -> Iterator[str]:
    """`limit`: most Clusters to list; 0: all."""
    head = answer.object
    title = f"{head.kind} {head.namespace}/{head.name} in {head.workspace}"
    if not answer.asks:
        yield from (f"{title} is invalid: {answer.problem}", _now(answer, {}), *remark_lines(answer.remarks))
        return
    names = names_of([*answer.clusters, *answer.now.bound])
    asked = table([f"  {name}:", text] for name, text in _request_rows(answer.asks))
    yield f"{title} requests\n{asked}\n"
    shown, left = answer.clusters[: limit or None], answer.clusters[limit:] if limit else []
    if shown:
        yield from (table(_rows(shown, names)), *_from_files(shown), "")
    if left:
        reasons = Counter(one.reason or "fit" for one in left).most_common()
        counted = ", ".join(f"{number} {reason}" for reason, number in reasons)
        yield f"{count(len(left), 'Cluster')} more: {counted}. `--limit 0` lists all.\n"
    if fitting := [one for one in shown if one.fits]:
        indifferent = answer.indifferent or {}
        weights = {name: weight for name, weight in (answer.weights or {}).items() if name not in indifferent}
        yield table(_scores(fitting, weights, names))
        for name, score in indifferent.items():
            yield f"{name} gives {score:g} to each: the request has no input for it"
        yield ""
    if answer.unknown_sizes:
        yield f"{' and '.join(answer.unknown_sizes)} is not in the catalogue, {UNSIZED}"
    yield from decision_lines(answer.decision or MachineDecision(), names)
    yield from (_now(answer, names), *remark_lines(answer.remarks))


# --- names ----------------------------------------------------------------------------------------


def names_of(clusters: Iterable[NamedCluster]) -> Names:
    """The shortest unambiguous name of each Cluster."""
    keys = {_key(one): None for one in clusters}
    by_name, within = Counter(key[2] for key in keys), Counter(key[1:] for key in keys)
    return {
        key: key[2] if by_name[key[2]] == 1 else _within(key) if within[key[1:]] == 1 else f"{key[0]}|{_within(key)}"
        for key in keys
    }


def _key(one: NamedCluster) -> tuple[str, str, str]:
    return one.workspace, one.namespace, one.name


def _within(key: tuple[str, str, str]) -> str:
    return "/".join(filter(None, key[1:]))


def _name(one: NamedCluster, names: Names) -> str:
    return names.get(_key(one)) or _within(_key(one))


# --- requests -------------------------------------------------------------------------------------


def _request_rows(asks: RequestSummary) -> Iterator[tuple[str, str]]:
    for item in asks.items:
        yield "machines", _item(item)
    if asks.replicas > 1:
        yield "replicas", str(asks.replicas)
    overlooked = asks.overlooked or {}
    wishes = dict(_where(asks.where))
    yield "where", "; ".join(text for name, text in wishes.items() if name not in overlooked) or "anywhere"
    for name, plugin in overlooked.items():
        yield "overlooked", f"{wishes[name]}, because the policy has no {plugin}"
    yield "how", ", ".join(_how(asks.how))
    if asks.priority:
        yield "priority", str(asks.priority)


def _item(item: RequestedItem) -> str:
    parts = [f"{item.number} of {' or '.join(item.flavors)}"]
    if item.spot:
        parts.append(f"{' and '.join(item.spot)} as spot")
    parts += [f"{size} GiB of {kind}" for kind, size in (item.storage or {}).items()]
    if item.public_address:
        parts.append("a public address")
    return ", ".join(parts)


def _where(where: RequestSelectors) -> Iterator[tuple[str, str]]:
    """Selectors as text, by name."""
    if where.regions:
        yield "regions", "region " + " or ".join(map(_region, where.regions))
    if where.geo:
        yield "geo", "; ".join(f"{name} {value}" for name, value in where.geo.items())
    if where.operator:
        yield "operator", f"operator {where.operator}"
    if where.site:
        yield "site", f"site {where.site}"
    if where.cluster_affinity:
        yield "clusterAffinity", f"labels {', '.join(where.cluster_affinity)}"
    if where.stack_affinity:
        yield "stackAffinity", f"preferably with {', '.join(where.stack_affinity)}"
    if where.stack_anti_affinity:
        yield "stackAntiAffinity", f"preferably not with {', '.join(where.stack_anti_affinity)}"
    if where.near:
        yield "near", f"near {where.near.latitude:g},{where.near.longitude:g}"
    if where.preferences:
        yield "preferences", f"{count(where.preferences, 'preference')} of labels"


def _region(one: RegionWish) -> str:
    zones = f" ({' or '.join(one.zones)})" if one.zones else ""
    return f"{one.region or 'any'}{zones}"


def _how(how: How) -> Iterator[str]:
    yield how.strategy
    if how.one_region:
        yield "in one region"
    if how.min_clusters:
        yield f"at least {count(how.min_clusters, 'Cluster')}"
    if how.max_clusters:
        yield f"at most {count(how.max_clusters, 'Cluster')}"


# --- Clusters -------------------------------------------------------------------------------------


def _rows(clusters: Iterable[ClusterVerdict], names: Names) -> Iterator[list[str]]:
    yield ["CLUSTER", "REGION", "ZONE", "ROOM", "SCORE", "CHOSEN", "REASON"]
    for one in clusters:
        head = [_name(one, names), one.region or NONE, one.zone or NONE]
        if one.fits:
            replicas = one.replicas or 0
            times = {0: "no", 1: "yes"}.get(replicas, f"{replicas} times")
            yield [*head, str(one.room), f"{one.score:.2f}", times, ""]
        else:
            short = one.shortage
            more = f" (needs {short.needed}, has {short.left} left)" if short else ""
            yield [*head, "0", "-", "no", f"{one.reason}{more}"]


def _from_files(clusters: Iterable[ClusterVerdict]) -> Iterator[str]:
    if names := [one.name for one in clusters if not one.workspace]:
        yield f"from files: {named(names, NAMED)}"


def _scores(clusters: Iterable[ClusterVerdict], weights: Mapping[str, int], names: Names) -> Iterator[list[str]]:
    yield ["SCORES", *(f"{name} *{weight}" for name, weight in weights.items()), "FLAVORS"]
    for one in clusters:
        scores = one.scores or {}
        yield [_name(one, names), *(f"{scores[name]:.1f}" for name in weights), ",".join(one.flavors or ())]


# --- decisions ------------------------------------------------------------------------------------


def decision_lines(decision: MachineDecision, names: Names) -> Iterator[str]:
    """Equal replicas in one line."""
    if not decision.placed:
        yield f"not placed: {decision.message}"
    texts = (
        f"{_name(one, names)} with {', '.join(one.flavors) or NONE}, score {one.score:.2f}"
        for one in decision.chosen or ()
    )
    for text, number in Counter(texts).items():
        yield f"placed on {text}" if number == 1 else f"{number} replicas placed on {text}"


def bound_to(placements: Iterable[BoundReplica], names: Names) -> str:
    numbers = Counter(_name(one, names) for one in placements).items()
    clusters = [name if number == 1 else f"{name} ({number} replicas)" for name, number in numbers]
    return f"bound to {named(clusters, NAMED)}"


def _now(answer: MachineExplanation, names: Names) -> str:
    now, condition = answer.now, answer.now.condition
    since = f" since {condition['lastTransitionTime']}" if condition.get("lastTransitionTime") else ""
    if now.bound:
        undelivered = fields.line(fields.text(now.undelivered, "message"), 1000)
        wrong = f"; not delivered: {undelivered}" if undelivered else ""
        return f"now: {bound_to(now.bound, names)}{since}; {_agrees(now, answer, names)}{wrong}"
    text = f": {condition['message']}" if condition.get("message") else ""
    state = f"now: not bound{since if text else ''}{text}"
    if now.ignored_because:
        return f"{state}; the global scheduler ignores it: {now.ignored_because}"
    return f"{state}; {'up to date' if now.agrees else BEHIND}"


def _agrees(now: MachineState, answer: MachineExplanation, names: Names) -> str:
    if now.ignored_because:
        return now.ignored_because
    if now.unwell:
        return "; ".join(_unwell(one, names) for one in now.unwell)
    if not now.waits:
        return "up to date" if now.agrees else _explain_stay(now.bound, answer.clusters)
    is_placed = bool(answer.decision and answer.decision.placed)
    return f"its spec has changed, and {BEHIND if is_placed else 'it stays there'}"


def _unwell(one: UnwellCluster, names: Names) -> str:
    since = f" since {one.since}" if one.since else ""
    state = f"is {one.phase}{since}" if one.is_unhealthy else "has a taint with the effect NoExecute"
    fate = f"machines are evicted at {one.evicted_at} if they fit elsewhere" if one.evicted_at else "that is tolerated"
    if one.evicted_at and one.is_suspended:
        fate = "evictions stop while more than half of all Clusters are unhealthy"
    return f"{_name(one, names)} {state}, and {fate}"


def _explain_stay(bound: Iterable[BoundReplica], clusters: Iterable[ClusterVerdict]) -> str:
    known = {_key(one) for one in clusters}
    missing = [one for one in bound if _key(one) not in known]
    if not missing:
        return STAYS
    return GONE if any(one.workspace for one in missing) else UNKNOWN
