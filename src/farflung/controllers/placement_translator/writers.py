"""What the translator writes: copies, SyncerConfigs, and the conditions of EdgePlacements."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from farflung.apis.edge.names import (
    CONFIRM_WITHDRAWAL,
    DOWNSYNC_OVERWRITE,
    EDGE_PLACEMENTS,
    SYNCER_CONFIGS,
)
from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, Invalid, NotFound, Refused
from farflung.client.rest import Client
from farflung.controllers.placement_translator.decide import (
    SHOWN_PROBLEMS,
    PlacementProblem,
    PlacementProblems,
    condition,
    with_condition,
    with_count,
)
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement import names, project
from farflung.placement.feeds import DiscoveryCache, FeedViews, ObjectFeeds
from farflung.placement.index import CopyKey, CopyReason
from farflung.placement.name_owners import SHARED_KINDS, owned_scope, refusal_message
from farflung.placement.names import NAMESPACES, THE_ONE, GroupResource, ObjectRef, PlacementKey, WatchedCollection
from farflung.placement.project import CopyState, Desired, Projector, ServedVersions, SourceObject, agree
from farflung.placement.state import CONTAINER_KINDS, PlacementState, StatusKey, WorkKey
from farflung.placement.syncer_config import SyncerSpecs
from farflung.placement.types import ObservedObject, Placement
from farflung.runtime.cache import Key
from farflung.runtime.informer import Informer
from farflung.runtime.recorder import InvolvedObject, Recorder


@dataclass(frozen=True, slots=True)
class TranslatorContext:
    """What the writers of the translator share."""

    known: PlacementState
    views: FeedViews
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    log: Logger
    failing_objects: Callable[[str | None], list[str]]  #: of a workspace, or of all; see `PlacementFeed`


class SourceReader:
    """Reads sources that were observed in several versions of their API in one of them."""

    def __init__(self, serving: DiscoveryCache, everywhere: Client, projector: Projector) -> None:
        self._serving = serving
        self._everywhere = everywhere
        self._projector = projector
        self._agreed: dict[tuple[str, GroupResource], str] = {}  #: versions, by mailbox

    async def read(self, copy: CopyKey, observed: list[tuple[str, ObservedObject]]) -> tuple[list[SourceObject], str]:
        """The objects, and why others are left out.  `observed`: by cluster.  Raises ClientError."""
        resource = copy.ref.resource
        offers: list[ServedVersions] = []
        for cluster, seen in observed:
            versions = await self._serving.versions(cluster, resource) or (seen.api_version,)
            offers.append(ServedVersions(cluster, versions, versions[0]))
        agreement = agree(offers, self._agreed.get((copy.mailbox, resource)))
        self._agreed[copy.mailbox, resource] = agreement.version
        found = [
            await self._read_one(agreement.version, cluster, copy.ref, seen)
            for cluster, seen in observed
            if cluster not in agreement.dropped
        ]
        return [one for one in found if one is not None], agreement.conflict

    async def _read_one(self, version: str, cluster: str, ref: ObjectRef, seen: ObservedObject) -> SourceObject | None:
        """None if the object was deleted."""
        if version == seen.api_version:
            return self._projector.strip(cluster, ref, seen)
        remembered = self._projector.remembered(cluster, ref, seen.version, version)
        if remembered is not None:
            return remembered
        collection = Collection(ref.resource.group, version, ref.resource.resource, "")
        try:
            obj = await self._everywhere.workspace(cluster).get(collection, ref.name, ref.namespace)
        except NotFound:
            return None
        return self._projector.remember(cluster, ref, seen.version, version, obj)


Report = Callable[[CopyKey, Mapping[PlacementKey, list[PlacementProblem]]], None]
NOT_FOUND: Final = 404
TRANSIENT: Final = (401, 409, 410, 429)  #: statuses that do not depend on the object
SECRETS: Final = GroupResource("", "secrets")


class Copier:
    def __init__(
        self,
        context: TranslatorContext,
        feeds: ObjectFeeds,
        serving: DiscoveryCache,
        report: Report,
        enqueue: Callable[[AbstractSet[WorkKey]], None],
    ) -> None:
        """`report` is called with all problems of a copy, by placement, whenever it is reconciled."""
        self._enqueue = enqueue
        self._known = context.known
        self._feeds = feeds
        self._everywhere = context.views.everywhere
        self._projector = Projector(context.known.customizers, context.known.locations)
        self._reader = SourceReader(serving, self._everywhere, self._projector)
        self._report_problems = report
        self._failing_objects = context.failing_objects
        self._now = context.now
        self._log = context.log
        self._ending: dict[CopyKey, asyncio.Event] = {}  #: namespaces with a deletion in flight

    async def copy(self, copy: CopyKey) -> float | None:
        """Seconds after which to reconcile again, or None.  Raises ClientError, without values of Secrets."""
        if copy.ref.namespace:  # the deletion of its namespace would delete a new copy too
            while ending := self._ending.get(CopyKey(copy.mailbox, ObjectRef(NAMESPACES, "", copy.ref.namespace))):
                await ending.wait()
        state = self._known.copy_state(copy)
        if state is None:
            return None
        try:
            return await self._copy(copy, state)
        except Refused as error:
            raise type(error)(error.status, error.reason, _message(copy, error), None, error.retry_after) from None

    async def _copy(self, copy: CopyKey, state: CopyState) -> float | None:
        sources, conflict = None, ""
        if state.has_several_versions:
            sources, conflict = await self._reader.read(copy, state.sources)
        want = self._projector.compute_copy(state, sources)
        observed = state.observed
        if want.problem:
            failed = PlacementProblem(names.CUSTOMIZATION_FAILED, f"{_at(copy)}{want.problem}")
            self._report(copy, state, [failed, *_ambiguities(copy, want)])
        elif want.obj is None:
            if observed is not None and (failing := self._failing(observed)):
                self._report_problems(copy, {key: [_failure(failing)] for key in failing})
                return None  # the next rebuild reconciles it again
            self._report(copy, state, [])
            await self._withdraw(copy, state)
        elif observed is not None and not observed.ours:
            self._report(copy, state, _not_a_copy(copy, state.reasons))
        elif state.served is None:
            return self._report_unserved(copy, state)
        else:
            found = _remarks(copy, want, conflict)
            try:
                await self._put(copy, state, state.served, want.obj)
            except Refused as error:
                if error.status < 500 and error.status not in TRANSIENT and not _is_about_namespace(error):
                    found.append(PlacementProblem(names.REFUSED, f"{_at(copy)}{_message(copy, error)}"))
                raise
            finally:
                self._report(copy, state, found)
        return None

    def _report(self, copy: CopyKey, state: CopyState, found: list[PlacementProblem]) -> None:
        """Of all placements of a copy, without names of workspaces of other tenants."""
        by_placement = {
            key: [one._replace(message=self._without_other_tenants(one.message, key, state)) for one in found]
            for key in state.placements
        }
        for key, reason in state.refused:
            destination = self._known.selections.destinations(key)[copy.mailbox]
            by_placement[key] = [PlacementProblem(reason, refusal_message(copy, reason, destination))]
        self._report_problems(copy, by_placement)

    def _without_other_tenants(self, message: str, key: PlacementKey, state: CopyState) -> str:
        if len(state.tenants) > 1:
            tenant = self._known.name_owners.tenant(key.cluster)
            for other in {one.cluster for one in state.placements}:
                if self._known.name_owners.tenant(other) != tenant:
                    message = re.sub(rf"\b{re.escape(other)}\b", "a workspace with another parent", message)
        return message

    def _report_unserved(self, copy: CopyKey, state: CopyState) -> float | None:
        """Report the kind, unless a binding or definition may still serve it."""
        resource, sources = copy.ref.resource, sorted({one.cluster for one in state.placements})
        left = self._known.dependencies.serving_delay(copy.mailbox, state.cluster, resource, sources, self._now())
        unknown = PlacementProblem(names.NOT_SERVED, f"{_at(copy)}the mailbox does not serve {resource}")
        self._report(copy, state, [] if left else [unknown])
        return left if 0 < left < math.inf else None

    # --- create and update ------------------------------------------------------------------------

    async def _put(self, copy: CopyKey, state: CopyState, served: WatchedCollection, wanted: Obj) -> None:
        observed, client = state.observed, self._everywhere.workspace(state.cluster)
        collection = served.collection_in(wanted["apiVersion"])
        try:
            if observed is None:
                await self._create(copy, state, served, wanted)
            elif (
                not observed.is_terminating
                and (changed := project.update_of(orjson.loads(observed.document), wanted)) is not None
            ):
                answer = await client.update(collection, changed)
                self._log_write("Updated", copy)
                self._feeds.assume(served, answer)
                if copy.ref.resource in SHARED_KINDS and self._known.name_owners.is_contested(copy.mailbox):
                    self._enqueue({copy})  # the sources of other tenants agree with it by now, or no longer
        except AlreadyExists:
            return  # an event follows
        except Invalid:
            if observed is None or not await self._can_be_replaced(copy, client, collection, wanted):
                raise
            await self._delete(copy, state.cluster, served, observed)  # the event of the deletion creates it again

    async def _create(self, copy: CopyKey, state: CopyState, served: WatchedCollection, wanted: Obj) -> None:
        """Nothing if its namespace, or the object that serves its kind, is terminating, or if another tenant owns its
        name by now: an event follows."""
        ref, name_owners, client = copy.ref, self._known.name_owners, self._everywhere.workspace(state.cluster)
        if self._known.dependencies.is_closing(state.cluster, ref):
            return
        if not name_owners.begin_creation(copy.mailbox, ref, state.placements):
            return
        try:
            namespace = ObjectRef(NAMESPACES, "", ref.namespace)
            if ref.namespace and self._known.objects.get(state.cluster, namespace) is None:
                await self.copy(CopyKey(copy.mailbox, namespace))
            answer = await client.create(served.collection_in(wanted["apiVersion"]), wanted, ref.namespace)
            self._log_write("Created", copy)
            self._feeds.assume(served, answer)
        finally:
            if name_owners.end_creation(copy.mailbox, ref):
                self._enqueue(self._known.owner_changed(copy.mailbox, owned_scope(ref)))

    async def _can_be_replaced(self, copy: CopyKey, client: Client, collection: Collection, wanted: Obj) -> bool:
        """Whether a copy with immutable fields can be deleted and created again.  A dry run of the creation
        validates the object before it answers AlreadyExists."""
        left_alone = wanted["metadata"]["annotations"].get(DOWNSYNC_OVERWRITE) == project.NEVER
        if copy.ref.resource in CONTAINER_KINDS or left_alone:
            return False
        try:
            await client.with_dry_run().create(collection, wanted, copy.ref.namespace)
        except AlreadyExists:
            return True
        return False

    # --- withdraw ---------------------------------------------------------------------------------

    async def _withdraw(self, copy: CopyKey, state: CopyState) -> None:
        observed, cluster, known = state.observed, state.cluster, self._known
        if observed is None or not observed.ours or observed.is_terminating:
            return
        if any(known.withdrawals.stays(*copy, key) for key in observed.placements):
            return
        if state.served is None:
            return  # deleted with its kind
        if copy.ref.resource not in CONTAINER_KINDS or not known.is_occupied(copy, cluster):
            await self._delete(copy, cluster, state.served, observed)
        elif observed.placements and not known.is_being_emptied(copy, cluster):
            # it is deleted later, when the objects in it are deleted by others
            client, collection = self._everywhere.workspace(cluster), state.served.collection_in(observed.api_version)
            answer = await client.update(collection, project.released(orjson.loads(observed.document)))
            self._log_write("Released", copy)
            self._feeds.assume(state.served, answer)

    def _failing(self, observed: ObservedObject) -> dict[PlacementKey, list[str]]:
        """The placements of a copy that may seem to be unwanted only because the engine fails with these objects."""
        if not observed.ours or observed.is_terminating:
            return {}
        return {key: found for key in observed.placements if (found := self._failing_objects(key.cluster))}

    async def _delete(self, copy: CopyKey, cluster: str, served: WatchedCollection, observed: ObservedObject) -> None:
        ref, client, collection = copy.ref, self._everywhere.workspace(cluster), served.collection_in(served.version)
        ending = self._ending[copy] = asyncio.Event()
        try:
            answer = await client.delete(
                collection, ref.name, ref.namespace, uid=observed.uid, version=str(observed.version)
            )
        except NotFound:
            return  # an event follows
        finally:
            self._ending.pop(copy, None)
            ending.set()
        self._log_write("Deleted", copy)
        if (answer.get("metadata") or {}).get("deletionTimestamp"):
            self._feeds.assume(served, answer)  # it has finalizers; an event follows
        else:
            self._feeds.forget(served, Key(cluster, ref.namespace, ref.name), observed.version)

    def _log_write(self, what: str, copy: CopyKey) -> None:
        self._log.info(f"{what} object in mailbox workspace", v=3, mbwsName=copy.mailbox, object=str(copy.ref))


# --- problems -------------------------------------------------------------------------------------


def _at(copy: CopyKey) -> str:
    return names.located(copy.ref, copy.mailbox)


def _message(copy: CopyKey, error: Refused) -> str:
    """The message of the server may quote values, so that of Secrets is left out."""
    return error.reason or str(error.status) if copy.ref.resource == SECRETS else str(error)


def _not_a_copy(copy: CopyKey, wanted: list[CopyReason]) -> list[PlacementProblem]:
    """No problem if the object is needed only as a dependency, like a namespace."""
    if all(one.selected is None for one in wanted):
        return []
    return [PlacementProblem(names.CONFLICT, f"{_at(copy)}{names.FOREIGN}")]


def _is_about_namespace(error: Refused) -> bool:
    """Whether the namespace is missing or terminating; its event follows."""
    causes = error.details.get("causes")
    is_terminating = isinstance(causes, list) and any(
        isinstance(one, dict) and one.get("reason") == "NamespaceTerminating" for one in causes
    )
    return is_terminating or (error.status == NOT_FOUND and error.details.get("kind") == "namespaces")


def _failure(failing: dict[PlacementKey, list[str]]) -> PlacementProblem:
    """The same for all copies of a placement, which reports it once.  Names no objects of other workspaces."""
    found = next(iter(failing.values())) if len({key.cluster for key in failing}) == 1 else ["some objects"]
    shown = ", ".join(found[:SHOWN_PROBLEMS]) + (
        f" and {len(found) - SHOWN_PROBLEMS} more" if len(found) > SHOWN_PROBLEMS else ""
    )
    message = (
        f"copies that seem to be unwanted stay, because the placement translator fails to process {shown}; "
        'change or delete that object, and report the translator\'s log line "engine failed and will be rebuilt"'
    )
    return PlacementProblem(names.TRANSLATOR_FAILED, message)


def _remarks(copy: CopyKey, want: Desired, conflict: str) -> list[PlacementProblem]:
    found = [PlacementProblem(names.CONFLICT, f"{_at(copy)}{one}") for one in want.conflicts]
    if conflict:
        found.append(PlacementProblem(names.CONFLICT, f"{_at(copy)}{conflict}"))
    found += _ambiguities(copy, want)
    return found + [PlacementProblem(names.CUSTOMIZATION_INCOMPLETE, f"{_at(copy)}{one}") for one in want.remarks]


def _ambiguities(copy: CopyKey, want: Desired) -> list[PlacementProblem]:
    return [PlacementProblem(names.AMBIGUOUS, f"{_at(copy)}{want.ambiguity}")] if want.ambiguity else []


# --- conditions of EdgePlacements -----------------------------------------------------------------


COUNT_PACE: Final = 2.0  #: seconds between writes of the number of selected objects of a placement


class StatusWriter:
    def __init__(
        self,
        context: TranslatorContext,
        placements: Informer[Placement],
        recorder: Recorder,
        changed: Callable[[StatusKey], None],
    ) -> None:
        """`changed` is called with the placements whose status has to be written."""
        self._known = context.known
        self._placements = placements
        self._view = context.views.edge_of
        self._recorder = recorder
        self._changed = changed
        self._now = context.now
        self._monotonic = context.monotonic
        self._failing_objects = context.failing_objects
        self._log = context.log
        self._problems = PlacementProblems()
        self._next_count: dict[PlacementKey, float] = {}  #: earliest time at which only the number is written again
        self._news: dict[PlacementKey, list[PlacementProblem]] = {}  #: problems without an Event

    def report(self, copy: CopyKey, problems: Mapping[PlacementKey, list[PlacementProblem]]) -> None:
        """Set all problems of a copy, by placement."""
        for key, found in problems.items():
            if found:
                self._put(key, copy, found)
        for key in self._problems.about(copy):
            if not problems.get(key):
                self._put(key, copy, [])

    def forget(self, key: PlacementKey) -> None:
        self._problems.forget(key)
        self._news.pop(key, None)
        self._next_count.pop(key, None)

    def _put(self, key: PlacementKey, about: object, found: list[PlacementProblem]) -> None:
        if found and self._seen(key) is None:
            return
        new = self._problems.put(key, about, found)
        if new is None:
            return
        self._news.setdefault(key, []).extend(new)
        self._changed(StatusKey(key))

    def _seen(self, key: PlacementKey) -> Placement | None:
        """From the cache: the state lacks a placement with which the engine fails."""
        seen = self._placements.cache.get(Key(key.cluster, "", key.name))
        return seen if seen is not None and not seen.is_terminating else None

    async def write(self, key: PlacementKey) -> float | None:
        """Seconds after which to write it again, or None: a change of the number of objects alone is paced."""
        seen = self._seen(key)
        if seen is None:
            return None
        self._check(key, seen)
        obj = orjson.loads(seen.document)
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = with_condition(obj.get("status"), condition(self._problems.of(key)), now)
        counted = with_count(status or obj.get("status"), self._selected_count(key))
        if counted is not None:
            wait = self._next_count.get(key, 0.0) - self._monotonic()
            if status is None and wait > 0:
                return wait
            self._next_count[key] = self._monotonic() + COUNT_PACE
            status = counted
        if status is not None:
            answer = await self._view(key.cluster).update(EDGE_PLACEMENTS, obj | {"status": status}, "status")
            self._record(key, seen)
            self._placements.assume(answer)
        self._news.pop(key, None)  # problems that the condition had already got their Event before
        if status is None and self._known.withdrawals.is_confirmation_used_up(key):
            await self._remove_confirmation(key, seen)
        return None

    def _selected_count(self, key: PlacementKey) -> int | None:
        """None also if the engine fails with objects that may be selected."""
        return None if self._failing_objects(key.cluster) else self._known.selected_count(key)

    def _check(self, key: PlacementKey, seen: Placement) -> None:
        """Set the problems of the placement itself."""
        self._put(
            key, "spec", [PlacementProblem(names.INVALID_SPEC, seen.workload.problem)] if seen.workload.problem else []
        )
        verdict = self._known.withdrawals.withdrawal(key)
        message = verdict.message(seen.generation)
        self._put(key, "withdrawal", [PlacementProblem(names.WITHDRAWAL_HELD, message)] if message else [])

    def _record(self, key: PlacementKey, seen: Placement) -> None:
        involved = InvolvedObject(
            key.cluster, EDGE_PLACEMENTS.api_version, EDGE_PLACEMENTS.kind, key.name, "", seen.uid
        )
        for problem in dict.fromkeys(self._news.get(key, ())):
            self._log.info("Problem with EdgePlacement", v=1, edgePlacement=str(key), reason=problem.reason)
            self._recorder.record(involved, "Warning", problem.reason, problem.message)

    async def _remove_confirmation(self, key: PlacementKey, seen: Placement) -> None:
        """Remove the confirmation, so that later withdrawals need a new one."""
        version = orjson.loads(seen.document)["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": {CONFIRM_WITHDRAWAL: None}}}
        self._placements.assume(await self._view(key.cluster).patch(EDGE_PLACEMENTS, key.name, patch))
        self._log.info("Withdrawal is complete, and its confirmation is used up", v=1, edgePlacement=str(key))


# --- SyncerConfigs --------------------------------------------------------------------------------

RETRY_SECONDS: Final = 10.0  #: seconds until a mailbox without the edge API is tried again


class SyncerConfigWriter:
    def __init__(self, context: TranslatorContext, serving: DiscoveryCache, configs: Informer[bytes]) -> None:
        self._mailboxes = context.known.mailboxes
        self._specs = SyncerSpecs(context.known, serving.namespaced)
        self._configs = configs
        self._failing_objects = context.failing_objects
        self._view = context.views.edge_of
        self._log = context.log
        self.forget = self._specs.forget

    async def configure(self, mailbox: str) -> float | None:
        """Seconds after which to reconcile again, or None."""
        cluster = self._mailboxes.get(mailbox)
        if cluster is None:
            return None
        document = self._configs.cache.get(Key(cluster, "", THE_ONE))
        before: Obj = {} if document is None else orjson.loads(document)
        there = before.get("spec") or {}
        spec = self._specs.desired(mailbox, cluster, there, is_failing=bool(self._failing_objects(None)))
        if spec is None:
            return None  # the end of the discovery enqueues the mailbox again
        if document is None:
            return await self._create(mailbox, cluster, spec)
        if {"namespaceScope": {}, **there} != spec:
            await self._update(mailbox, cluster, before | {"spec": spec})
        return None

    async def _create(self, mailbox: str, cluster: str, spec: Obj) -> float | None:
        head = {"apiVersion": SYNCER_CONFIGS.api_version, "kind": SYNCER_CONFIGS.kind, "metadata": {"name": THE_ONE}}
        try:
            answer = await self._view(cluster).create(SYNCER_CONFIGS, head | {"spec": spec})
        except AlreadyExists:
            return None  # an event follows
        except NotFound:
            return RETRY_SECONDS
        self._log.info("Created SyncerConfig", v=2, mbwsName=mailbox, syncerConfig=THE_ONE)
        self._configs.assume(answer)
        return None

    async def _update(self, mailbox: str, cluster: str, wanted: Obj) -> None:
        answer = await self._view(cluster).update(SYNCER_CONFIGS, wanted)
        self._log.info(
            "Updated SyncerConfig",
            v=2,
            mbwsName=mailbox,
            syncerConfig=THE_ONE,
            resourceVersionOld=wanted["metadata"]["resourceVersion"],
            resourceVersionNew=answer["metadata"]["resourceVersion"],
        )
        self._configs.assume(answer)
