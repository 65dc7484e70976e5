"""The engine of the status summarizer: all desired StatusSummaries, and the events that change them.  Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from farflung.apis.edge.names import (
    EDGE_PLACEMENTS,
    STATUS_SUMMARIES,
    SUMMARIZE,
    SUMMARY_GROUP,
    SUMMARY_NAME,
    SUMMARY_PLACEMENT,
    SUMMARY_RESOURCE,
)
from farflung.apis.names import RBAC_GROUP
from farflung.controllers.status_summarizer.collector_results import CollectorResult
from farflung.controllers.status_summarizer.collectors import CollectorQuery
from farflung.controllers.status_summarizer.health import (
    NOTHING,
    CopyProblem,
    CopyReport,
    CopyStatus,
    DestinationRow,
    SummarySubject,
    SyncerReport,
    progress_of,
    read_copy_status,
)
from farflung.controllers.status_summarizer.tally import Tally
from farflung.lib.groups import discard_from
from farflung.machinery.errors import Obj
from farflung.machinery.names import DNS_SUBDOMAIN_LENGTH, LABEL_VALUE_LENGTH, dns_label, dns_subdomain, label_value
from farflung.placement.index import CopyKey
from farflung.placement.names import SUMMARY_NAMESPACE, Category, GroupResource, ObjectRef, PlacementKey, category
from farflung.placement.state import PlacementState
from farflung.placement.syncer_config import ANY
from farflung.placement.types import CopyDestination, ObservedObject
from farflung.runtime.cache import Key

NAMESPACE: Final = SUMMARY_NAMESPACE  #: of summaries of cluster-scoped objects
DIGITS: Final = 10  #: of the hash that is appended to a changed name
_UNFIT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_UNFIT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AROUND_DOTS: Final = re.compile(r"[.-]*\.[.-]*")


def summary_name(placement: str, ref: ObjectRef) -> str:
    """`<placement>.<resource>[.<group>].<object>`.

    Names are unique: a hash is appended if dots make the name ambiguous, if it is too long, or if it has characters
    that a summary's name may not have (a role may be called `system:node`).
    """
    words = [placement, ref.resource.resource, ref.resource.group, ref.name]
    plain = ".".join(word for word in words if word)
    if "." in placement or "." in ref.name:
        return _fitting_name(plain, "\0".join(words))
    return plain if not dns_subdomain(plain) else _fitting_name(plain, plain)


def summary_namespace(ref: ObjectRef) -> str:
    return ref.namespace or NAMESPACE


def summary_labels(placement: str, ref: ObjectRef) -> dict[str, str]:
    """Labels of a summary.  A text that is no valid label value is shortened, with a hash; `subject` has the whole
    text."""
    return {
        SUMMARY_PLACEMENT: _fitting_value(placement),
        SUMMARY_GROUP: _fitting_value(ref.resource.group),
        SUMMARY_RESOURCE: _fitting_value(ref.resource.resource),
        SUMMARY_NAME: _fitting_value(ref.name),
    }


def _fitting_name(plain: str, unique: str) -> str:
    clean = _AROUND_DOTS.sub(".", _UNFIT_IN_NAMES.sub("-", plain.lower()))
    return _hashed(clean, unique, DNS_SUBDOMAIN_LENGTH)


def _fitting_value(plain: str) -> str:
    return _hashed(_UNFIT_IN_LABELS.sub("-", plain), plain, LABEL_VALUE_LENGTH) if label_value(plain) else plain


def _hashed(clean: str, unique: str, limit: int) -> str:
    """The beginning of the text and the hash."""
    digits = hashlib.sha256(unique.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
    beginning = clean.strip("._-")[: limit - DIGITS - 1].rstrip("._-")
    return f"{beginning}-{digits}" if beginning else digits


# --- summarized kinds -----------------------------------------------------------------------------


class Summarized(Enum):
    """Whether objects of a kind have summaries."""

    NEVER = "never"
    ALWAYS = "always"
    IF_REPORTING = "if reporting"  #: if one of the copies has a status


_BY_DEFAULT: Final = frozenset(
    {
        GroupResource("", "persistentvolumeclaims"),
        GroupResource("", "pods"),
        GroupResource("", "replicationcontrollers"),
        GroupResource("", "services"),
        GroupResource("apps", "daemonsets"),
        GroupResource("apps", "deployments"),
        GroupResource("apps", "replicasets"),
        GroupResource("apps", "statefulsets"),
        GroupResource("batch", "cronjobs"),
        GroupResource("batch", "jobs"),
    }
)


_CORE_ON_REQUEST: Final = frozenset({"persistentvolumes", "resourcequotas"})
_CORE: Final = _CORE_ON_REQUEST | {resource.resource for resource in _BY_DEFAULT if not resource.group}
_GROUPS_WITHOUT: Final = frozenset({RBAC_GROUP})
_KINDS_WITHOUT: Final = frozenset(
    {
        GroupResource("", "configmaps"),
        GroupResource("", "namespaces"),
        GroupResource("", "secrets"),
        GroupResource("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)  #: without the status of a workload


def is_summarized(resource: GroupResource, annotation: str | None, *, builtin: bool) -> Summarized:
    """By the annotation of the EdgePlacement.

    `false`: no kind.  A list such as `deployments.apps,ingresses.networking.k8s.io,pods`: these kinds, if they can be
    summarized; entries need a group, except kinds of the core group with a status.  Anything else: workloads, Services,
    PersistentVolumeClaims, and custom resources with a status.
    """
    if resource in _KINDS_WITHOUT or resource.group in _GROUPS_WITHOUT or category(resource) is not Category.EDGE:
        return Summarized.NEVER
    listed = _listed_kinds(annotation) if annotation else None
    if listed is not None:
        return Summarized.ALWAYS if resource in listed else Summarized.NEVER
    if resource in _BY_DEFAULT:
        return Summarized.ALWAYS
    return Summarized.NEVER if builtin else Summarized.IF_REPORTING


@lru_cache(maxsize=256)
def _listed_kinds(annotation: str) -> frozenset[GroupResource] | None:
    """The listed kinds; None: the default."""
    if annotation.strip().lower() == "false":
        return frozenset()
    named = [word.strip().partition(".") for word in annotation.split(",")]
    resources = {GroupResource(group, resource) for resource, _, group in named if _is_kind(resource, group)}
    return frozenset(resources) or None


def _is_kind(resource: str, group: str) -> bool:
    return not dns_label(resource) and not dns_subdomain(group) if group else resource in _CORE


MAX_COLLECTORS: Final = 16  #: collectors per object; each costs time for each copy
MAX_REPORTED: Final = 64  #: collectors that are reported, also those above the limit
LARGEST: Final = 1 << 21  #: bytes of all results for an object: the hub refuses objects of more than 3 MiB
MISSING: Final = "there is no StatusCollector of this name"
INVALID: Final = "it is invalid; its status has the errors"
TOO_MANY: Final = f"an object has at most {MAX_COLLECTORS} StatusCollectors, the first ones by name"


TOO_LARGE: Final = f"all results for an object may have at most {LARGEST} bytes"


class CollectorKey(NamedTuple):
    cluster: str
    name: str


def summary_key(subject: SummarySubject) -> Key:
    """The key of the summary of an object."""
    placement, ref = subject
    return Key(placement.cluster, summary_namespace(ref), summary_name(placement.name, ref))


@dataclass(slots=True)
class _Summary:
    """`results`: the results of collectors, with a row for every copy."""

    tally: Tally = field(default_factory=Tally)
    results: dict[str, CollectorResult] = field(default_factory=dict)
    described: tuple[ObservedObject, Obj] | None = None  #: the source object, decoded once for all copies


_NONE: Final[Mapping[ObjectRef, _Summary]] = {}


class Summaries:
    def __init__(self, known: PlacementState) -> None:
        self._known = known
        self._builtin = frozenset(watched.resource for watched in known.served_kinds.builtin())
        self._of: dict[PlacementKey, dict[ObjectRef, _Summary]] = {}
        self._holders: dict[ObjectRef, set[PlacementKey]] = {}  #: placements with a summary of an object
        self._called: dict[Key, SummarySubject] = {}
        self._annotations: dict[PlacementKey, str | None] = {}  #: the annotation of each placement
        self._reports: dict[str, SyncerReport] = {}  #: by cluster of mailboxes
        self._stale: dict[str, CopyProblem] = {}
        self._queries: dict[CollectorKey, CollectorQuery | None] = {}  #: None: invalid

    # --- summaries --------------------------------------------------------------------------------

    def called(self, key: Key) -> SummarySubject | None:
        """The subject of the summary with this name."""
        return self._called.get(key)

    def summary(self, subject: SummarySubject) -> Obj | None:
        """The desired summary, or None."""
        found = self._of.get(subject.placement, {}).get(subject.ref)
        placement = self._known.placements.get(subject.placement)
        if found is None or placement is None:
            return None
        body = found.tally.body()
        how = self._how(subject.placement, subject.ref)
        if how is Summarized.IF_REPORTING and not body["destinations"]["reporting"]:
            return None
        collected = self._collected(subject, found)
        owner = {
            "apiVersion": EDGE_PLACEMENTS.api_version,
            "kind": EDGE_PLACEMENTS.kind,
            "name": subject.placement.name,
            "uid": placement.uid,
        }
        _, namespace, name = summary_key(subject)
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": summary_labels(subject.placement.name, subject.ref),
            "ownerReferences": [owner],
        }
        return {
            "apiVersion": STATUS_SUMMARIES.api_version,
            "kind": STATUS_SUMMARIES.kind,
            "metadata": metadata,
            "subject": self._subject(subject),
            **body,
            **({"collected": collected} if collected else {}),
        }

    def _subject(self, subject: SummarySubject) -> Obj:
        resource, namespace, name = subject.ref
        seen = self._known.objects.get(subject.placement.cluster, subject.ref)
        document = {} if seen is None else orjson.loads(seen.document)
        words = {
            "group": resource.group,
            "version": "" if seen is None else seen.api_version,
            "kind": str(document.get("kind") or ""),
            "resource": resource.resource,
            "namespace": namespace,
            "name": name,
            "uid": "" if seen is None else seen.uid,
        }
        return {word: value for word, value in words.items() if value or word in ("version", "kind")}

    def _collected(self, subject: SummarySubject, found: _Summary) -> list[Obj]:
        selected = self._known.selections.selected(subject.placement).get(subject.ref)
        collected, left = [], LARGEST
        for place, name in enumerate(selected.collectors[:MAX_REPORTED] if selected is not None else ()):
            result = found.results.get(name)
            if result is not None:
                body = result.body()
                size = len(orjson.dumps(body))
                body, left = (body, left - size) if size <= left else (_failed(name, TOO_LARGE), left)
            else:
                exists = CollectorKey(subject.placement.cluster, name) in self._queries
                why = INVALID if exists else MISSING
                body = _failed(name, why if place < MAX_COLLECTORS else TOO_MANY)
            collected.append(body)
        return collected

    # --- copies -----------------------------------------------------------------------------------

    def observe_copy(self, copy: CopyKey) -> set[SummarySubject]:
        """Read the status of a copy.  Returns the summaries that it affects."""
        mailbox, ref = copy
        wanted = {
            one.placement: one.destination
            for one in self._known.selections.requests(mailbox, ref)
            if one.selected is not None and self._how(one.placement, ref) is not Summarized.NEVER
        }
        touched: set[SummarySubject] = set()
        for key in self._holders.get(ref, set()) - wanted.keys():
            if self._remove(key, ref, mailbox):
                touched.add(SummarySubject(key, ref))
        if not wanted:
            return touched
        seen = self._seen(copy)
        copy_status = None if seen is None else read_copy_status(ref.resource, seen.document)
        for key, destination in wanted.items():
            is_ours = seen is not None and key in seen.placements
            self._put(key, ref, mailbox, destination, copy_status if is_ours else None, seen if is_ours else None)
            touched.add(SummarySubject(key, ref))
        return touched

    def _seen(self, copy: CopyKey) -> ObservedObject | None:
        cluster = self._known.mailboxes.get(copy.mailbox)
        seen = None if cluster is None else self._known.objects.get(cluster, copy.ref)
        return seen if seen is not None and seen.ours and not seen.is_terminating else None

    def _put(
        self,
        key: PlacementKey,
        ref: ObjectRef,
        mailbox: str,
        destination: CopyDestination,
        copy_status: CopyStatus | None,
        seen: ObservedObject | None,
    ) -> None:
        summary = self._of.get(key, _NONE).get(ref) or self._begin(SummarySubject(key, ref))
        cluster = self._known.mailboxes.get(mailbox, "")
        is_permitted = self._known.name_owners.permits(mailbox, ref, key)  # else the report is about another's object
        report = self._reports.get(cluster, NOTHING) if is_permitted else NOTHING
        stale = self._stale.get(cluster) or report.delay(ref)
        progress = None if copy_status is None else progress_of(copy_status, translates=report.translates)
        summary.tally.put(mailbox, CopyReport(destination, copy_status, report.refusal(ref), stale, progress))
        self._update_collectors(summary, key, ref)
        if summary.results:
            source = self._described(summary, SummarySubject(key, ref))
            row = self._row(source, destination, copy_status, seen, is_stale=stale is not None)
            for result in summary.results.values():
                result.put(mailbox, row)

    def _begin(self, subject: SummarySubject) -> _Summary:
        key, ref = subject
        self._holders.setdefault(ref, set()).add(key)
        self._called[summary_key(subject)] = subject
        summary = self._of.setdefault(key, {})[ref] = _Summary()
        return summary

    def _remove(self, key: PlacementKey, ref: ObjectRef, mailbox: str) -> bool:
        summary = self._of[key][ref]
        removed = summary.tally.remove(mailbox)
        for result in summary.results.values():
            result.remove(mailbox)
        if not len(summary.tally):
            self._end(SummarySubject(key, ref))
        return removed

    def _end(self, subject: SummarySubject) -> None:
        key, ref = subject
        del self._of[key][ref], self._called[summary_key(subject)]
        if not self._of[key]:
            del self._of[key]
        discard_from(self._holders, ref, key)

    # --- placements -------------------------------------------------------------------------------

    def _how(self, key: PlacementKey, ref: ObjectRef) -> Summarized:
        return is_summarized(ref.resource, self._annotations.get(key), builtin=ref.resource in self._builtin)

    def on_placement(self, key: PlacementKey) -> set[CopyKey]:
        """Its annotations may have changed, or it was deleted.  Returns the copies to observe, as all `on_…` do."""
        placement = self._known.placements.get(key)
        annotation = None if placement is None else placement.annotations.get(SUMMARIZE)
        if self._annotations.get(key) == annotation:
            return set()
        self._annotations[key] = annotation
        if annotation is None:
            del self._annotations[key]
        return self._all_of(key)

    def _all_of(self, key: PlacementKey) -> set[CopyKey]:
        selections = self._known.selections
        refs = {*selections.selected(key), *self._of.get(key, ())}
        return {CopyKey(mailbox, ref) for ref in refs for mailbox in selections.destinations(key)}

    # --- reports of syncers -----------------------------------------------------------------------

    def on_report(self, cluster: str, report: SyncerReport) -> set[CopyKey]:
        """The report of a syncer changed."""
        before = self._reports.get(cluster, NOTHING)
        if report == NOTHING:
            self._reports.pop(cluster, None)
        else:
            self._reports[cluster] = report
        mailbox = self._known.mailbox_of(cluster)
        if mailbox is None:
            return set()
        if report.translates != before.translates:
            return {CopyKey(mailbox, ref) for ref in self._known.selections.refs_at(mailbox)}
        others = report.differences(before)
        resources = {ref.resource for ref in others if ref.name == ANY}
        of_kinds = (
            {ref for ref in self._known.selections.refs_at(mailbox) if ref.resource in resources}
            if resources
            else set()
        )
        return {CopyKey(mailbox, ref) for ref in others | of_kinds}

    def report(self, cluster: str) -> SyncerReport:
        return self._reports.get(cluster, NOTHING)

    def reporting_clusters(self) -> list[str]:
        """The logical clusters of mailboxes with a report."""
        return list(self._reports)

    def set_stale(self, cluster: str, problem: CopyProblem | None) -> set[CopyKey]:
        """The report of a mailbox became stale, or current again."""
        if self._stale.get(cluster) == problem:
            return set()
        if problem is None:
            del self._stale[cluster]
        else:
            self._stale[cluster] = problem
        mailbox = self._known.mailbox_of(cluster)
        refs = set() if mailbox is None else self._known.selections.refs_at(mailbox)
        return {CopyKey(mailbox or "", ref) for ref in refs}

    # --- collectors -------------------------------------------------------------------------------

    def on_query(self, key: CollectorKey, query: CollectorQuery | None) -> set[CopyKey]:
        """`query`: None if it is invalid."""
        if key in self._queries and self._queries[key] == query:
            return set()
        self._queries[key] = query
        return self._queried_copies(key)

    def on_query_deleted(self, key: CollectorKey) -> set[CopyKey]:
        """The collector was deleted."""
        self._queries.pop(key, None)
        return self._queried_copies(key)

    def _queried_copies(self, key: CollectorKey) -> set[CopyKey]:
        copies: set[CopyKey] = set()
        for placement in [one for one in self._of if one.cluster == key.cluster]:
            for ref, selected in self._known.selections.selected(placement).items():
                if key.name in selected.collectors and ref in self._of[placement]:
                    copies |= {CopyKey(mailbox, ref) for mailbox in self._known.selections.destinations(placement)}
        return copies

    def on_location(self, cluster: str, name: str) -> set[CopyKey]:
        """Queries may use its labels."""
        copies: set[CopyKey] = set()
        for placement, mailbox in self._known.placements_through(cluster, name):
            selected = self._known.selections.selected(placement)
            copies |= {CopyKey(mailbox, ref) for ref, how in selected.items() if how.collectors}
        return copies

    def _update_collectors(self, summary: _Summary, key: PlacementKey, ref: ObjectRef) -> None:
        """Update the collectors of the summary to those of the placement."""
        selected = self._known.selections.selected(key).get(ref)
        names = () if selected is None else selected.collectors[:MAX_COLLECTORS]
        queries = {name: self._queries.get(CollectorKey(key.cluster, name)) for name in names}
        for name in [one for one, result in summary.results.items() if queries.get(one) != result.query]:
            del summary.results[name]
        for name, query in queries.items():
            if query is not None and name not in summary.results:
                summary.results[name] = CollectorResult(name, query)

    def _described(self, summary: _Summary, subject: SummarySubject) -> Obj:
        """The source object without its status; empty if it does not exist."""
        source = self._known.objects.get(subject.placement.cluster, subject.ref)
        if source is None:
            return {}
        if summary.described is None or summary.described[0] is not source:
            summary.described = source, _without_reports(source)
        return summary.described[1]

    def _row(
        self,
        source: Obj,
        destination: CopyDestination,
        copy_status: CopyStatus | None,
        seen: ObservedObject | None,
        *,
        is_stale: bool,
    ) -> DestinationRow:
        location = self._known.locations.get((destination.cluster, destination.location))
        returned = None if seen is None else orjson.loads(seen.document).get("status")
        propagation: Obj = {"stale": is_stale}
        if copy_status is not None and copy_status.observed:
            propagation["lastReturnedUpdateTimestamp"] = copy_status.observed
        given: dict[str, Any] = {
            "inventory": {
                "name": destination.target,
                "location": destination.location,
                "cluster": destination.cluster,
                "labels": {} if location is None else dict(location.labels),
                "annotations": {} if location is None else dict(location.annotations),
            },
            "obj": source,
            "returned": {} if returned is None else {"status": returned},
            "propagation": propagation,
        }
        return DestinationRow(destination, given)


def _without_reports(source: ObservedObject) -> Obj:
    obj: Obj = orjson.loads(source.document)
    obj.pop("status", None)
    obj["metadata"].pop("managedFields", None)
    return obj


def _failed(name: str, message: str) -> Obj:
    return {"name": name, "errors": [{"message": message}]}
