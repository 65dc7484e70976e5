"""Say at a machine that it is bound, if its server did not, and why it is not where it is bound to: syncers report what
a cluster does not take.  A condition and an Event tell of it, and what a cluster refuses for too long has to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

from farflung.client.errors import NotFound
from farflung.controllers.global_scheduler import statuses
from farflung.controllers.global_scheduler.binding import Binder
from farflung.controllers.global_scheduler.delivering import Target
from farflung.controllers.global_scheduler.inventory import condition_of
from farflung.controllers.global_scheduler.subjects import POD, Seen, Subject
from farflung.controllers.global_scheduler.telling import about
from farflung.controllers.global_scheduler.world import World
from farflung.controllers.mailbox.decide import CONFIG
from farflung.controllers.placement_translator.values import Kind, Part
from farflung.controllers.status_summarizer.freshness import ANY, told_by
from farflung.controllers.status_summarizer.values import Verdict
from farflung.lib.klog import Logger
from farflung.machinery import times
from farflung.runtime.cache import Key
from farflung.runtime.controller import Controller
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import Recorder
from farflung.runtime.reflector import Environment
from farflung.scheduling.values import SiteKey

NAME: Final = "global-scheduler-undelivered"
POD_KIND: Final = Kind("", "pods")
#: reasons of syncers that say nothing about whether the cluster takes a machine, or that it has it already
PASSING: Final = frozenset(
    {
        "Conflict",
        "Contested",
        "Garbled",
        "InternalError",
        "KubeconfigError",
        "Refused",
        "ServerTimeout",
        "ServiceUnavailable",
        "Timeout",
        "TooManyRequests",
        "Unauthorized",
        "Unreachable",
    }
)
UNDECLARED: Final = "field not declared in schema"  #: what clusters say that know no virtual machines
NO_EDGE_API: Final = Verdict(
    "NoEdgeAPI",
    "its workspace does not have the edge API, so it goes nowhere; "
    "`kubectl kcp bind apiexport root:espw:edge.kcp.io` binds it there",
)
NAME_TAKEN: Final = Verdict(
    "NameTaken", "a machine of another workspace has its namespace and name where it would be brought to"
)

Refusals = Mapping[Part, Verdict]


def refusals(document: bytes) -> Refusals:
    """What a SyncerConfig says about machines."""
    return {part: verdict for part, verdict in told_by(document).refused.items() if part.kind == POD_KIND}


class Trouble(NamedTuple):
    site: SiteKey
    verdict: Verdict


class Undelivered:
    def __init__(
        self,
        world: World,
        configs: Informer[Refusals],
        mailbox_of: Callable[[SiteKey], str],
        cluster_of: Callable[[str], str],
        binder: Binder,
        recorder: Recorder,
        target_of: Callable[[SiteKey], Target | None],
        unserved: Callable[[SiteKey], AbstractSet[str]],
        displaced: Callable[[SiteKey], AbstractSet[Subject]],
        env: Environment,
        now: Callable[[], datetime],
        log: Logger,
        *,
        workers: int,
    ) -> None:
        """`mailbox_of`: the name of the mailbox of a site, empty if it has none; `cluster_of`: the logical cluster of a
        mailbox; `target_of`: the SyncTarget that stands for a site; `unserved`: workspaces that have something at a
        site, and do not have the edge API; `displaced`: what is not brought there because of its name."""
        self._world = world
        self._configs = configs
        self._mailbox_of = mailbox_of
        self._cluster_of = cluster_of
        self._binder = binder
        self._recorder = recorder
        self._target_of = target_of
        self._unserved = unserved
        self._displaced = displaced
        self._monotonic = env.monotonic
        self._now = now
        self._sites: dict[str, set[SiteKey]] = {}  #: by their mailboxes
        self._troubled: dict[SiteKey, dict[Subject, Verdict]] = {}
        self._told: dict[Subject, Trouble] = {}
        self.controller: Controller[Subject] = Controller(
            NAME, self.reconcile, workers=workers, backoff=env.backoff, monotonic=env.monotonic, log=log
        )

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, subject: Subject, seen: Seen | None) -> None:
        """One that may have to say something else, if nobody is about to bind it."""
        if seen is None or not seen.unsettled or self._world.is_under_way(seen.uid):
            return
        if subject not in self._told:
            self.controller.queue.add(subject)

    def sites_of(self, mailbox: str) -> list[SiteKey]:
        return sorted(self._sites.get(mailbox, ()))

    def look_into(self, mailbox: str) -> None:
        """Something was said in it."""
        for site in self.sites_of(mailbox):
            self.look_at(site)

    def look_at(self, site: SiteKey) -> None:
        """Something came or went there, or other things are said of it."""
        target, before = self._target_of(site), self._troubled.get(site, {})
        if target is None and not before:
            return
        now, after = self._monotonic(), {} if target is None else self._troubles(site)
        for subject in before.keys() - after.keys():
            self._world.accept(subject, site)
            self._told.pop(subject, None)
            self.controller.queue.add(subject)
        refused = self._refused_at(site) if after else {}
        for subject, verdict in after.items():
            if verdict == NAME_TAKEN or (_part(subject.key) in refused and is_refusal(verdict)):
                self._world.refuse(subject, site, now)
            if self._told.get(subject) != Trouble(site, verdict):
                self._told[subject] = Trouble(site, verdict)
                self.controller.queue.add(subject)
        if after:
            self._troubled[site] = after
        else:
            self._troubled.pop(site, None)

    def _troubles(self, site: SiteKey) -> dict[Subject, Verdict]:
        refused, unserved = self._refused_at(site), self._unserved(site)
        found: dict[Subject, Verdict] = dict.fromkeys(sorted(self._displaced(site)), NAME_TAKEN)
        for subject in self._world.holders(site) if refused or unserved else ():
            if subject.kind != POD or subject in found:
                continue
            if subject.key.cluster in unserved:
                found[subject] = NO_EDGE_API
            elif (verdict := _verdict(refused, subject.key)) is not None:
                found[subject] = verdict
        return found

    def _refused_at(self, site: SiteKey) -> Refusals:
        name = self._mailbox_of(site)
        self._sites.setdefault(name, set()).add(site)
        return self._configs.cache.get(Key(self._cluster_of(name), "", CONFIG)) or {}

    # --- telling ----------------------------------------------------------------------------------

    async def reconcile(self, subject: Subject, worker: int) -> float | None:
        trouble = self._told.get(subject)
        if self._world.seen(subject) is None:
            return None
        try:
            found = await self._binder.fetch(subject)
        except NotFound:
            return None
        if statuses.is_half_bound(found) and not self._world.is_under_way(found["metadata"]["uid"]):
            await self._binder.unbind(subject, found)
            return None
        reason, message = ("", "") if trouble is None else (trouble.verdict.reason, _message(trouble))
        now = times.format_seconds(self._now())
        status = statuses.bound_status(found, reason, message, now)
        if status is None:
            return None
        metadata = found["metadata"]
        as_found = Seen(metadata["uid"], metadata["resourceVersion"])
        try:
            await self._binder.write_status(subject, as_found, status)
        except NotFound:
            return None
        if reason and reason != condition_of(found.get("status") or {}, statuses.DELIVERED).get("reason"):
            self._recorder.record(about(subject, as_found), "Warning", "FailedDelivery", message)
        return None


def _verdict(refused: Refusals, key: Key) -> Verdict | None:
    """Of one machine, or of all: then nothing is heard of them in the mailbox, and what is at the cluster stays."""
    return refused.get(_part(key)) or refused.get(Part(POD_KIND, "", ANY))


def is_refusal(verdict: Verdict) -> bool:
    """Whether the cluster does not take a machine, as far as can be told.  Kubernetes gives no reason, and 500, for
    fields that it does not know."""
    return verdict != NO_EDGE_API and (verdict.reason not in PASSING or UNDECLARED in verdict.message)


def _part(key: Key) -> Part:
    return Part(POD_KIND, key.namespace, key.name)


def _message(trouble: Trouble) -> str:
    if trouble.verdict in (NO_EDGE_API, NAME_TAKEN):
        return trouble.verdict.message
    said = trouble.verdict.message
    known = f"Pods are no virtual machines there: {said}" if UNDECLARED in said else said
    return f"its syncer cannot bring it to {trouble.site.name}{f': {known}' if known else ''}"
