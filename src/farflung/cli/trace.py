"""`farflung trace`: one object on its way through placement, slice, mailbox and edge, and its status on the way back.

The engines of the scheduler and of the translator say what should be where; what is there is read, a few mailboxes at a
time.  Nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import click
import orjson

from farflung.apis.edge.names import EDGE_PLACEMENTS, SYNC_TARGET_NAME, SYNCER_CONFIGS
from farflung.apis.kcp.names import WORKSPACES
from farflung.apis.names import Collection
from farflung.cli import fields, inventory, placement_model, trace_steps
from farflung.cli.connection import Hub, find_resource, placement_of, workspace_name
from farflung.cli.explain import Seen as Scheduled
from farflung.cli.inventory import HiddenError, Inventory
from farflung.cli.output import shown
from farflung.cli.trace_source import Sources, machine_conclusion
from farflung.cli.trace_steps import Facts, Finding, Hidden, State, Subject
from farflung.client.discovery import Resource, discover
from farflung.client.errors import ClientError, Forbidden, NotFound
from farflung.client.rest import Client
from farflung.controllers.status_summarizer.health import digest_of
from farflung.machinery.errors import Obj
from farflung.placement.names import CONFIG, Category, Kind, Part, category, cluster_of, is_mailbox_name
from farflung.placement.types import Route, parse_placement
from farflung.syncer import types as syncing
from farflung.syncer.conversion import takes_status

T = TypeVar("T")

AT_ONCE: Final = 16  #: mailboxes that are read at the same time
LEFT_OVER: Final = 1_000  #: mailboxes beside the destinations that are asked for what is still there
MANY: Final = 100  #: mailboxes whose reading is shown to whoever waits


@dataclass(frozen=True, slots=True)
class Question:
    kind: str  #: as kubectl takes it
    name: str
    namespace: str = "default"  #: of objects that have one
    destination: str = ""  #: only Locations and SyncTargets of this name
    limit: int = 20  #: destinations that are told of; 0: all


def named(words: Sequence[str]) -> tuple[str, str]:
    """Kind and name of `TYPE/NAME` or `TYPE NAME`.  Raises click.UsageError."""
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if len(parts) != 2 or not all(parts) or "/" in "".join(parts):
        raise click.UsageError("say which object, as TYPE/NAME or TYPE NAME")
    return parts[0], parts[1]


async def trace(hub: Hub, question: Question, now: datetime) -> Obj:
    """All that can be said, as it is printed for programs."""
    served = await discover(hub.workspace)
    resource = find_resource(served, question.kind)
    has_placements = served.find_kind(EDGE_PLACEMENTS.group, EDGE_PLACEMENTS.version, EDGE_PLACEMENTS.kind) is not None
    tracer = None if resource is None else Tracer(hub, question, resource, now)
    if tracer is not None and not has_placements and (answer := await tracer.machine()) is not None:
        return answer
    await placement_of(hub, "-")  # is there such an API at all
    if tracer is None:
        raise click.ClickException(f"the workspace {workspace_name(hub)} does not serve {question.kind}")
    return await tracer.traced()


class Tracer:
    def __init__(self, hub: Hub, question: Question, resource: Resource, now: datetime) -> None:
        self._hub = hub
        self._question = question
        self._collection = resource.collection
        self._now = now
        kind = Kind(resource.collection.group, resource.collection.plural)
        namespace = question.namespace if resource.namespaced else ""
        self._part = Part(kind, namespace, question.name)
        has_status = "status" in resource.subresources and takes_status(syncing.Resource(*kind))
        self._subject = Subject(self._part, category(kind) is Category.EDGE, has_status)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._remarks: list[str] = []

    async def traced(self) -> Obj:
        known = await self._inventory()
        locations = placement_model.locations_of(known.locations) if known else {}
        sources = Sources(self._part, self._collection, locations)
        cluster = await sources.read(self._hub.workspace)
        facts = await self._facts(sources, cluster, known)
        if sources.object(cluster) is None and not facts:
            raise click.ClickException(f"there is no {self._part} in the workspace {workspace_name(self._hub)}")
        findings = sorted((trace_steps.find(self._subject, one, self._now) for one in facts), key=lambda one: one.rank)
        placements = sources.placements(cluster)
        return {
            "object": self._object(sources.object(cluster)),
            "placements": placements,
            **self._told(findings),
            "remarks": sorted(set(self._remarks)),
            **_conclusion(sources.object(cluster), sources.going(cluster), placements, findings),
        }

    async def machine(self) -> Obj | None:
        """What can be said where there are no placements; None: nothing."""
        obj = await _read(self._hub.workspace, self._collection, self._part.name, self._part.namespace)
        about = machine_conclusion(obj) if isinstance(obj, dict) else None
        if not isinstance(obj, dict) or about is None:
            return None
        conclusion = _concluded(*about)
        return {"object": self._object(obj), "placements": [], **self._told([]), "remarks": [], **conclusion}

    async def _inventory(self) -> Inventory | None:
        try:
            return await inventory.read(self._hub.root)
        except HiddenError as error:
            self._remarks.append(f"what the scheduler has still to do is not known: {error}")
            return None

    # --- what is known of each destination --------------------------------------------------------

    async def _facts(self, sources: Sources, cluster: str, known: Inventory | None) -> list[Facts]:
        facts = {one.mailbox: one for one in sources.destinations(cluster)}
        if known is not None:
            self._add_undecided(facts, sources, cluster, known)
        workspaces = await self._workspaces()
        left = self._left_over(facts, workspaces)
        if self._question.destination and not any(self._is_meant(one.place) for one in [*facts.values(), *left]):
            raise click.ClickException(f"there is no destination {self._question.destination}")
        asked = [one for one in [*facts.values(), *left] if self._is_meant(one.place)]
        conditions = _conditions(known)
        with _shown(len(asked)):
            reports = await self._reports() if len(asked) >= MANY else None
            found = await asyncio.gather(*(self._look(one, workspaces, reports) for one in asked))
        kept = [one for one in found if one.placements or _is_of(one.copy, cluster, self._part.kind)]
        await self._read_others(sources, kept, cluster)
        return [
            replace(
                sources.judged(one, cluster),
                conditions=None if known is None else conditions.get(_target_of(one.mailbox), ()),
                digest=digest_of(self._part.kind, orjson.dumps(one.copy)) if isinstance(one.copy, dict) else None,
            )
            for one in kept
        ]

    def _is_meant(self, place: Route) -> bool:
        return self._question.destination in ("", place.target, *place.locations)

    def _add_undecided(self, facts: dict[str, Facts], sources: Sources, cluster: str, known: Inventory) -> None:
        """Destinations that the scheduler has still to write down."""
        for key, document, slices in sources.selecting(cluster):
            resolved = Scheduled(document, parse_placement(document), known, slices).resolution
            for mailbox, place in placement_model.places_of(resolved.destinations).items():
                if mailbox not in facts:
                    facts[mailbox] = Facts(place, mailbox, (key.name,), changed=sources.changed(cluster))

    async def _workspaces(self) -> dict[str, Obj] | Hidden:
        """Below the provider's, by their names."""
        try:
            found = await self._hub.root.workspace(self._hub.provider).list(WORKSPACES)
        except (Forbidden, NotFound) as error:
            return Hidden(str(error))
        return {one["metadata"]["name"]: one for one in found}

    def _left_over(self, facts: dict[str, Facts], workspaces: dict[str, Obj] | Hidden) -> list[Facts]:
        """Mailboxes in which there may be a copy that should not be there any more."""
        if isinstance(workspaces, Hidden):
            return []
        names = sorted(name for name in workspaces if is_mailbox_name(name) and name not in facts)
        if more := names[LEFT_OVER:]:
            some = "1 mailbox was" if len(more) == 1 else f"{len(more)} mailboxes were"
            self._remarks.append(f"{some} not asked what is left there")
        targets = {name: workspaces[name]["metadata"].get("annotations") or {} for name in names}
        return [
            Facts(Route(cluster_of(name), "", targets[name].get(SYNC_TARGET_NAME, "")), name)
            for name in names[:LEFT_OVER]
        ]

    async def _reports(self) -> dict[str, Obj] | None:
        """Of all syncers at once, by the clusters of their mailboxes; None if they have to be read one by one."""
        try:
            found = await inventory.everywhere(
                self._hub.root.workspace(self._hub.provider), SYNCER_CONFIGS, orjson.loads
            )
        except HiddenError:
            return None
        return {fields.cluster_of(one): one for one in found if fields.name_of(one) == CONFIG}

    async def _look(self, facts: Facts, workspaces: dict[str, Obj] | Hidden, reports: dict[str, Obj] | None) -> Facts:
        workspace = workspaces if isinstance(workspaces, Hidden) else workspaces.get(facts.mailbox)
        if workspace is None or (facts.placements and facts.slices is None):
            return replace(facts, workspace=workspace)
        client = self._hub.root.workspace(f"{self._hub.provider}:{facts.mailbox}")
        part = self._part
        async with self._turns:
            copy = await _read(client, self._collection, part.name, part.namespace)
            if copy is None and not facts.placements:
                return facts
            config = (
                await _read(client, SYNCER_CONFIGS, CONFIG)
                if reports is None
                else reports.get(fields.text(workspace, "spec", "cluster"))
            )
        served = copy is not NOT_SERVED
        there = copy if served else None
        return replace(facts, workspace=workspace, copy=there, served=served, config=config)

    async def _read_others(self, sources: Sources, facts: Iterable[Facts], cluster: str) -> None:
        """Workspaces from which the same object comes."""
        for other in sorted({one for some in facts for one in _origins(some.copy, self._part.kind)} - {cluster}):
            try:
                await sources.read(self._hub.root.workspace(other), other)
            except ClientError as error:
                sources.hide(other)
                self._remarks.append(f"the workspace {other} brings it, too, and cannot be seen: {error}")

    # --- what is told -----------------------------------------------------------------------------

    def _object(self, obj: Obj | None) -> Obj:
        kind, namespace, name = self._part
        metadata = (obj or {}).get("metadata") or {}
        return {
            "workspace": workspace_name(self._hub),
            "group": kind.group,
            "version": self._collection.version,
            "resource": kind.resource,
            "kind": self._collection.kind,
            "namespace": namespace,
            "name": name,
            "exists": obj is not None,
            "generation": metadata.get("generation") or 0,
            "changed": trace_steps.written_to(obj) if obj else None,
            **({"deleted": metadata["deletionTimestamp"]} if metadata.get("deletionTimestamp") else {}),
        }

    def _told(self, findings: Sequence[Finding]) -> Obj:
        shown = findings[: self._question.limit] if self._question.limit else findings
        return {
            "destinations": [_destination(one) for one in shown],
            "leftOut": _counted(findings[len(shown) :]),
            "summary": _counted(findings),
        }


def _destination(one: Finding) -> Obj:
    names = {"cluster": one.place.cluster, "locationName": one.place.location, "syncTargetName": one.place.target}
    return {
        **names,
        "syncTargetUID": _target_of(one.mailbox),
        **({"furtherLocationNames": list(one.place.others)} if one.place.others else {}),
        "mailbox": one.mailbox,
        "placements": list(one.placements),
        "state": one.state.value,
        "steps": [_step(step) for step in one.steps],
    }


def _step(step: trace_steps.Step) -> Obj:
    said = {"step": step.name, "state": step.state.value, "time": step.time or None, "message": step.message}
    return {**said, **({"advice": step.advice} if step.advice and step.state is State.STUCK else {})}


def _counted(findings: Sequence[Finding]) -> Obj:
    states = {state.value: sum(one.state is state for one in findings) for state in State}
    return {"destinations": len(findings), **states}


def _conclusion(obj: Obj | None, going: str, placements: Sequence[Obj], findings: Sequence[Finding]) -> Obj:
    """`going`: why the object goes nowhere by placements; empty: it does."""
    if findings:
        at = {"destination": findings[0].name, "step": findings[0].culprit.name}
        return _concluded(*trace_steps.conclude(findings), at)
    if not going:
        names = ", ".join(one["name"] for one in placements if one["selects"])
        advice = f"`farflung explain placement {names.partition(',')[0]}` says why"
        return _concluded(State.STUCK, f"It goes nowhere: EdgePlacement {names} leads to no destination.", advice)
    nowhere = State.STUCK, f"It goes nowhere: {going}.", ""
    return _concluded(*((machine_conclusion(obj) if obj else None) or nowhere))


def _concluded(state: State, message: str, advice: str, at: Mapping[str, str] | None = None) -> Obj:
    """`at`: where it is stuck, if it is."""
    where = at if at and state is not State.DONE else {}
    return {"conclusion": {"state": state.value, **where, "message": message, "advice": advice}}


@contextlib.contextmanager
def _shown(number: int) -> Iterator[None]:
    """To whoever sits at a terminal, if it takes long."""
    if number < MANY or not sys.stderr.isatty():
        yield
        return
    with shown(sys.stderr) as steps, steps.step(f"reading {number} mailboxes"):
        yield


def is_stuck(answer: Obj) -> bool:
    return bool(answer["conclusion"]["state"] == State.STUCK)


# --- reading --------------------------------------------------------------------------------------

NOT_SERVED: Final[Obj] = {}  #: in the place of an object of a kind that is not there


async def _read(client: Client, collection: Collection, name: str, namespace: str = "") -> Obj | Hidden | None:
    """None if there is none."""
    try:
        return await client.get(collection, name, namespace)
    except NotFound as error:
        return None if error.names(name) or error.details.get("kind") == "namespaces" else NOT_SERVED
    except Forbidden as error:
        return Hidden(str(error))


def _origins(copy: Obj | Hidden | None, kind: Kind) -> set[str]:
    """The clusters from which a copy is."""
    return {key.cluster for key in placement_model.seen(kind, copy).placements} if isinstance(copy, dict) else set()


def _is_of(copy: Obj | Hidden | None, cluster: str, kind: Kind) -> bool:
    return cluster in _origins(copy, kind)


def _target_of(mailbox: str) -> str:
    return mailbox.rpartition("-mb-")[2]


def _conditions(known: Inventory | None) -> dict[str, Sequence[Any]]:
    """Of SyncTargets, by their uids."""
    targets = known.targets if known else ()
    return {one.uid: list(fields.objects(orjson.loads(one.document), "status", "conditions")) for one in targets}
