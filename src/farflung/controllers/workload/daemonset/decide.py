"""What has to be done next about one DaemonSet.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from farflung.controllers.workload.node_fitness import NO_EXECUTE, NO_SCHEDULE, is_chosen, untolerated
from farflung.controllers.workload.objects import DAEMON_SETS, is_terminating, labels, notes, oldest_first, portion
from farflung.controllers.workload.pods import (
    creation,
    is_available,
    is_finished,
    is_ready,
    next_available,
    next_renewal,
    pod_of,
    random_name,
    removal,
)
from farflung.controllers.workload.steps import Plan, Step, sooner, update_status
from farflung.machinery.errors import Obj

REVISION: Final = "controller-revision-hash"
GENERATION: Final = "pod-template-generation"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
ALWAYS_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
NO_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_NAME: Final = "metadata.name"


def node_of(pod: Obj) -> str:
    """The node it is on, or is for."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == NODE_NAME and field.get("operator") == "In" and field.get("values"):
                return str(field["values"][0])
    return ""


def may_start(daemon_set: Obj, node: Obj) -> bool:
    return _is_meant(daemon_set, node) and _bothering(daemon_set, node, (NO_SCHEDULE, NO_EXECUTE)) is None


def may_stay(daemon_set: Obj, node: Obj) -> bool:
    """Once it runs, only a taint that ends pods ends it."""
    return _is_meant(daemon_set, node) and _bothering(daemon_set, node, (NO_EXECUTE,)) is None


def _is_meant(daemon_set: Obj, node: Obj) -> bool:
    spec = daemon_set["spec"]["template"].get("spec") or {}
    return spec.get("nodeName") in (None, "", node["metadata"]["name"]) and is_chosen(spec, node)


def _bothering(daemon_set: Obj, node: Obj, effects: tuple[str, ...]) -> Obj | None:
    """A taint that its pods do not tolerate.  They may be there before the node is ready."""
    return untolerated(node, _tolerations(daemon_set["spec"]["template"].get("spec") or {}), effects, states=False)


def _tolerations(spec: Obj) -> list[Obj]:
    given = list(spec.get("tolerations") or ())
    always = (*ALWAYS_TOLERATED, NO_NETWORK) if spec.get("hostNetwork") else ALWAYS_TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in always]
    return [*given, *(one for one in added if one not in given)]


def made(daemon_set: Obj, node: str, hashed: str, suffix: str) -> Obj:
    name = random_name(f"{daemon_set['metadata']['name']}-", suffix)
    pod = pod_of(daemon_set, DAEMON_SETS, daemon_set["spec"]["template"], name)
    marks = {REVISION: hashed}
    if generation := notes(daemon_set).get(TEMPLATE_GENERATION):
        marks[GENERATION] = generation
    pod["metadata"]["labels"] = {**labels(pod), **marks}
    spec = pod["spec"]
    spec["tolerations"] = _tolerations(spec)
    affinity = dict(spec.get("affinity") or {})
    bound = {"nodeSelectorTerms": [{"matchFields": [{"key": NODE_NAME, "operator": "In", "values": [node]}]}]}
    affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), REQUIRED: bound}
    spec["affinity"] = affinity
    return pod


def is_of(pod: Obj, hashed: str) -> bool:
    """Of this revision."""
    return labels(pod).get(REVISION) == hashed


@dataclass(frozen=True, slots=True)
class Post:
    """A node, and the set's pods on it, oldest first."""

    node: Obj
    pods: tuple[Obj, ...]
    starts: bool  #: a pod may start here
    stays: bool  #: a pod that runs may stay

    @property
    def running(self) -> tuple[Obj, ...]:
        return tuple(pod for pod in self.pods if not is_finished(pod) and not is_terminating(pod))


@dataclass(frozen=True, slots=True)
class Whole:
    owner: Obj
    posts: tuple[Post, ...]
    elsewhere: tuple[Obj, ...]  #: pods on nodes that are not there
    hashed: str  #: of the present template
    now: datetime

    @property
    def wait(self) -> int:
        return int(self.owner["spec"].get("minReadySeconds") or 0)

    @property
    def desired(self) -> int:
        return sum(post.starts for post in self.posts)

    def is_available(self, pod: Obj) -> bool:
        return is_available(pod, self.wait, self.now)

    def allowed(self, what: str) -> int:
        """`maxSurge` or `maxUnavailable`."""
        rolling = (self.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        return portion(rolling.get(what), self.desired, round_up=True)

    @property
    def rolls(self) -> bool:
        return bool((self.owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def whole(owner: Obj, pods: Iterable[Obj], nodes: Iterable[Obj], hashed: str, now: datetime) -> Whole:
    by_node: dict[str, list[Obj]] = {}
    for pod in oldest_first(pods):
        by_node.setdefault(node_of(pod), []).append(pod)
    posts = tuple(
        Post(node, tuple(by_node.pop(node["metadata"]["name"], ())), may_start(owner, node), may_stay(owner, node))
        for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    )
    return Whole(owner, posts, tuple(pod for left in by_node.values() for pod in left), hashed, now)


# --- pods -----------------------------------------------------------------------------------------


def about_pods(one: Whole, suffix: Callable[[], str]) -> tuple[Step, ...]:
    """First each node as such; when all have what they should, those that have an old pod."""
    gone = [pod for pod in one.elsewhere if not is_terminating(pod) and pod["spec"].get("nodeName")]
    steps = [removal(pod) for pod in gone]
    for post in one.posts:
        steps += _about_post(one, post, suffix)
    if steps or not one.rolls:
        return tuple(steps)
    return tuple(_surged(one, suffix) if one.allowed("maxSurge") else _replaced(one))


def _about_post(one: Whole, post: Post, suffix: Callable[[], str]) -> list[Step]:
    staying = [pod for pod in post.pods if not is_terminating(pod)]
    if not post.stays:
        return [removal(pod) for pod in staying]
    if post.starts and not post.pods:
        return [_start(one, post, suffix)]
    ended = [pod for pod in staying if is_finished(pod) and next_renewal(pod, one.now) <= 0]
    return [removal(pod) for pod in (*ended, *_excess(one, post))]


def _start(one: Whole, post: Post, suffix: Callable[[], str]) -> Step:
    return creation(made(one.owner, post.node["metadata"]["name"], one.hashed, suffix()))


def _excess(one: Whole, post: Post) -> Sequence[Obj]:
    """All but the oldest; or, while a new one may start beside an old one, all but the oldest of each."""
    running = post.running
    if not one.allowed("maxSurge"):
        return running[1:]
    new = [pod for pod in running if is_of(pod, one.hashed)]
    old = [pod for pod in running if not is_of(pod, one.hashed)]
    replaced = bool(new) and (one.is_available(new[0]) or not (old and one.is_available(old[0])))
    return (*new[1:], *(old if replaced else old[1:]))


def _replaced(one: Whole) -> list[Step]:
    """Old pods that are not available go at once; others as far as enough stay."""
    left = one.allowed("maxUnavailable")
    broken: list[Obj] = []
    candidates: list[Obj] = []
    for post in one.posts:
        if not post.starts:
            continue
        running = post.running
        if not running or not one.is_available(running[0]):
            left -= 1
        if running and not is_of(running[0], one.hashed):
            (candidates if one.is_available(running[0]) else broken).append(running[0])
    return [removal(pod) for pod in (*broken, *candidates[: max(0, left)])]


def _surged(one: Whole, suffix: Callable[[], str]) -> list[Step]:
    """New pods beside old ones, as many as may be on their way."""
    left = one.allowed("maxSurge")
    broken: list[Post] = []
    candidates: list[Post] = []
    for post in one.posts:
        running = post.running
        if not post.starts or not running:
            continue
        fresh = [pod for pod in running if is_of(pod, one.hashed)]
        if fresh and len(running) > 1:
            left -= 1
        if not fresh:
            (candidates if one.is_available(running[0]) else broken).append(post)
    return [_start(one, post, suffix) for post in (*broken, *candidates[: max(0, left)])]


# --- status ---------------------------------------------------------------------------------------


def about_status(one: Whole) -> Plan:
    owner = one.owner
    meant = [post for post in one.posts if post.starts]
    first = [post.pods[0] for post in meant if post.pods]
    ready = [pod for pod in first if is_ready(pod)]
    available = sum(one.is_available(pod) for pod in ready)
    counts = {
        "observedGeneration": owner["metadata"].get("generation", 0),
        "updatedNumberScheduled": sum(is_of(pod, one.hashed) for pod in first),
        "numberAvailable": available,
        "numberUnavailable": len(meant) - available,
        "collisionCount": (owner.get("status") or {}).get("collisionCount") or 0,
    }
    status: Obj = {
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(bool(post.pods) for post in one.posts if not post.starts),
        "desiredNumberScheduled": len(meant),
        "numberReady": len(ready),
    } | {name: count for name, count in counts.items() if count}
    ended = [pod for post in one.posts for pod in post.pods if is_finished(pod) and not is_terminating(pod)]
    again = sooner(next_available(ready, one.wait, one.now), *(max(0, next_renewal(pod, one.now)) for pod in ended))
    if status == owner.get("status"):
        return Plan((), again)
    return Plan((Step(update_status(DAEMON_SETS, owner, status)),), again)


def used(one: Whole, revisions: Iterable[Obj], hash_label: str) -> frozenset[str]:
    """The names of revisions that must stay."""
    hashes = {one.hashed, *(labels(pod).get(hash_label, "") for post in one.posts for pod in post.pods)}
    return frozenset(each["metadata"]["name"] for each in revisions if labels(each).get(hash_label) in hashes)
