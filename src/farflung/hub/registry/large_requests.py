"""Requests with large bodies or for large objects, computed in a worker process, so that they do not hold the event
loop.

    hub: dispatch ─► LargeRequest ◄─ questions ─ worker: the same handler, with a store and a pipeline that ask the hub

The worker decodes, merges, validates and encodes.  The hub answers what only it knows: stored objects, permissions, and
the steps of the pipeline that need other objects.  It repeats the checks of a write right before the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from farflung.http.messages import Answer, Request, Response, Stream
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind, Shape, made
from farflung.hub.registry.bodies import media_type
from farflung.hub.registry.call import Call, CallDependencies, Handler, check_room
from farflung.hub.registry.pipeline import STEPS, Run, Stage, Write, check_not_terminating
from farflung.hub.registry.respond import PLAIN, presenter_of, row_weight
from farflung.hub.request import media_types
from farflung.hub.request.attributes import Attributes, Authorization, Decision
from farflung.hub.request.audit import AuditRecord
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import WriteOptions
from farflung.hub.request.target import Target
from farflung.hub.request.turns import in_turns
from farflung.hub.request.user import User
from farflung.lib.worker_pool import Ask, WorkerPool
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.turns import ALLOWANCE, TurnAllowance, TurnOver
from farflung.store.base import ABSENT, Amount, Entry, Revision, Store

if TYPE_CHECKING:
    from farflung.hub.catalog.served import Kinds
    from farflung.hub.registry.pipeline import Pipeline

LARGE: Final = 32 * 1024  #: bytes of a body or of a stored object
LARGE_YAML: Final = 16 * 1024  #: bytes; YAML takes ten times longer to decode
LARGE_READ: Final = 2 * 1024  #: bytes of an object that may take long to encode in another form
YAML: Final = frozenset({media_types.YAML, media_types.APPLY_PATCH})
#: headers that a handler reads
READ_HEADERS: Final = ("accept", "content-type", "user-agent")
#: steps that a worker runs itself; the others need the hub
COMPUTED: Final = {step.name: step for step in STEPS if step.name != "check_view"}
#: stages whose steps change the object
CHANGING: Final = frozenset({Stage.METADATA, Stage.INJECT, Stage.PREPARE, Stage.COMPLETE, Stage.ALLOCATE, Stage.FINISH})


def is_large(call: Call) -> bool:
    """Whether the request would hold the event loop."""
    body = len(call.request.body)
    if body > LARGE_YAML and (body > LARGE or media_type(call.request) in YAML):
        return True
    stored = call.store.get(call.key) if call.target.name else None
    size = max(body, 0 if stored is None else len(stored.value))
    return size > LARGE or (
        "as=Table" in call.request.headers.get("accept", "") and size * row_weight(call.kind) > LARGE
    )


def is_long_read(call: Call, representation: Representation, entry: Entry) -> bool:
    """Whether encoding an object would hold the event loop."""
    if len(entry.value) <= LARGE_READ or (representation is PLAIN and call.kind.is_plain(entry)):
        return False
    return presenter_of(call, representation).is_heavy([entry])


def compute(call: Call, handler: Handler) -> Awaitable[Answer]:
    """The answer of a handler of a write."""
    return compute_beside(call, handler) if is_large(call) else compute_here(call, handler)


async def compute_here(call: Call, handler: Handler) -> Answer:
    """In this turn of the event loop, as far as the allowance permits; otherwise again, in a worker."""
    token = ALLOWANCE.set(TurnAllowance())
    try:
        answer = handler(call)
        return answer if isinstance(answer, Response | Stream) else await answer
    except TurnOver:
        pass  # nothing is written yet
    finally:
        ALLOWANCE.reset(token)
    return await compute_beside(call, handler)


async def compute_beside(call: Call, handler: Handler) -> Answer:
    """In a worker."""
    request = LargeRequest(call)
    try:
        return await call.compute(answer_in_worker, handler, request.message(), answer=request.answer)
    finally:
        request.settle()


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request for a worker, without credentials."""

    request: Request
    target: Target
    user: User
    kind: Callable[[], Kind]  #: makes the kind
    now: datetime
    annotates: bool


@dataclass(frozen=True, slots=True)
class SentWrite:
    """The state of a write before a step that needs the hub."""

    attempt: int  #: a request that conflicts with another one is computed again
    new: bytes | None  #: None: unchanged since the last step, or the step needs only its name
    name: str
    old: Revision | None  #: None: the object is created
    options: WriteOptions
    warnings: list[str]
    manager: str | None
    replaces: bool
    delete_options: Obj | None


@dataclass(frozen=True, slots=True)
class SentStep:
    name: str
    finishes: bool
    changes: bool
    needs_name_only: bool  #: needs only the name of the object
    run: Run | None  #: None: it needs the hub, unless it is one of COMPUTED


@dataclass(frozen=True, slots=True)
class SentResult:
    error: ApiError | None
    new: bytes | None  #: None: unchanged
    warnings: list[str]
    prerequisites: list[tuple[str, bytes]]


@dataclass(slots=True)
class Notes:
    """What a handler adds to the audit record."""

    name: str = ""
    dry_run: bool = False


# --- in the hub -----------------------------------------------------------------------------------


class LargeRequest:
    """Answers the questions of the worker that computes a request.  Each question is one of the methods below."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._given: dict[str, Entry] = {}  #: the last state of objects that the worker has
        self._write: Write | None = None
        self._new: Obj = {}  #: the whole objects of `_write`, if a step needed them
        self._old: Obj | None = None
        self._attempt = 0
        self._stored = False

    def message(self) -> SentRequest:
        call = self._call
        headers = {name: call.request.headers[name] for name in READ_HEADERS if name in call.request.headers}
        request = replace(call.request, headers=headers, certificate=None)
        tools = call.tools
        return SentRequest(request, call.target, call.user, call.kind.made_anew, tools.clock(), tools.annotates)

    async def answer(self, question: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        function, args = question
        found = function(self, *args)
        return await found if asyncio.iscoroutine(found) else found

    def settle(self) -> None:
        """Keep or release what the steps of the last attempt reserved."""
        write, self._write = self._write, None
        if write is None:
            return
        if self._stored:
            write.clean_up()
        else:
            write.roll_back()

    def get(self, key: str) -> Entry | None:
        entry = self._call.store.get(key)
        if entry is not None:
            self._given[key] = entry
            return Entry(key, entry.value, entry.revision)
        return None

    def revision(self) -> Revision:
        return self._call.store.revision

    async def put(self, key: str, value: bytes, expect: Revision) -> Revision:
        call = self._call
        check_room(call, key, len(value), call.store.get(key))
        if key == call.key_of(objects.name_in(key)[1]):
            await in_turns(call.check_current)
            if expect == ABSENT:
                check_not_terminating(call, objects.name_in(key)[1])
            entry = await call.store.put(key, value, expect=expect)
            self._stored = True
        else:
            entry = await call.store.put(key, value, expect=expect)
        return entry.revision

    async def delete(self, key: str, expect: Revision) -> Revision:
        await in_turns(self._call.check_current)
        return await self._call.store.delete(key, expect=expect)

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision:
        return self._call.tools.authorizer.decide(cluster, user, attributes)

    def new_uid(self) -> str:
        return self._call.tools.new_uid()

    def random_suffix(self) -> str:
        return self._call.tools.random_suffix()

    async def check_current(self) -> None:
        await in_turns(self._call.check_current)

    async def kind_of_type(self, api_version: str, kind: str) -> Callable[[], Kind] | None:
        """Makes a kind, by its type; None if it is not served."""
        target = self._call.target
        kinds = self._call.tools.kinds.at(target.cluster, target.view)
        found = await in_turns(lambda: kinds.of_type(api_version, kind))
        return None if found is None else found.made_anew

    def steps(self, operation: str) -> list[SentStep]:
        call = self._call
        return [
            SentStep(
                step.name,
                step.stage >= Stage.FINISH,
                step.stage in CHANGING,
                step.needs_name_only is not None and step.needs_name_only(call.kind, operation),
                step.run if step.alone else None,
            )
            for step in call.tools.pipeline.steps_of(call.kind, operation)
            if step.concerns is None or step.concerns(call)
        ]

    def note(self, notes: Notes) -> None:
        audit_record = self._call.audit_record
        if audit_record is not None:
            audit_record.name, audit_record.dry_run = notes.name, notes.dry_run

    async def run_step(self, name: str, operation: str, sent: SentWrite) -> SentResult:
        step = self._call.tools.pipeline.step(name)
        write = await self._current(
            sent, needs_name_only=step.needs_name_only is not None and step.needs_name_only(self._call.kind, operation)
        )
        prerequisites = len(write.prerequisites)
        await asyncio.sleep(0)
        error = None
        try:
            waiting = step.run(write)
            if waiting is not None:
                await waiting
        except ApiError as refused:
            error = refused
        new = orjson.dumps(write.new) if step.stage in CHANGING and error is None else None
        return SentResult(error, new, write.warnings, write.prerequisites[prerequisites:])

    async def _current(self, sent: SentWrite, *, needs_name_only: bool) -> Write:
        """The write as the worker has it.  Each large document is decoded in a turn of its own."""
        call, write = self._call, self._write
        if write is None or sent.attempt != self._attempt:
            self.settle()
            write = self._write = Write(
                call, sent.options, {}, manager=sent.manager, replaces=sent.replaces, delete_options=sent.delete_options
            )
            self._attempt, self._new, self._old = sent.attempt, {}, None
        write.warnings = sent.warnings
        if needs_name_only:
            metadata = {"name": sent.name, "namespace": call.target.namespace}
            write.new = {"metadata": metadata}
            write.old = None if sent.old is None else {"metadata": metadata}
            return write
        if sent.new is not None:
            self._new = orjson.loads(sent.new)
        if sent.old is not None and self._old is None:
            await asyncio.sleep(0)
            write.entry = self._given[call.key]
            self._old = call.kind.presented(write.entry)
        write.new, write.old = self._new, self._old
        return write


# --- in a worker ----------------------------------------------------------------------------------


def answer_in_worker(ask: Ask, handler: Handler, message: SentRequest) -> Answer:
    """The answer of a handler, or what it raises."""

    def question(function: Callable[..., Any], *args: Any) -> Any:
        return ask((function, args))

    hub = HubProxy(question)
    call = Call(message.request, message.target, made(message.kind), message.user, hub.tools(message))
    notes = Notes()
    call.audit_record = cast(AuditRecord, notes)
    try:
        return asyncio.run(answered(handler, call))
    finally:
        if notes.name or notes.dry_run:
            question(LargeRequest.note, notes)


async def answered(handler: Handler, call: Call) -> Answer:
    answer = handler(call)
    return answer if isinstance(answer, Response | Stream) else await answer


class HubProxy:
    """The parts of the hub that handlers use, in a worker.  Implements Store, Kinds and Authorization as far as
    handlers of writes use them."""

    def __init__(self, question: Callable[..., Any]) -> None:
        self._question = question

    def tools(self, message: SentRequest) -> CallDependencies:
        return CallDependencies(
            cast(Store, self),
            cast("Kinds", KindsProxy(self._question, message)),
            lambda: message.now,
            lambda: cast(str, self._question(LargeRequest.new_uid)),
            lambda: cast(str, self._question(LargeRequest.random_suffix)),
            cast(Authorization, self),
            cast("Pipeline", PipelineProxy(self._question)),
            WorkerPool(),
            annotates=message.annotates,
        )

    def amount(self, cluster: str) -> Amount:
        return Amount(0, 0)  # the hub checks the limits

    @property
    def revision(self) -> Revision:
        return cast(Revision, self._question(LargeRequest.revision))

    def get(self, key: str) -> Entry | None:
        return cast("Entry | None", self._question(LargeRequest.get, key))

    async def put(self, key: str, value: bytes, *, expect: Revision) -> Entry:
        revision = self._question(LargeRequest.put, key, value, expect)
        return Entry(key, objects.stamp(value, revision), revision)

    async def delete(self, key: str, *, expect: Revision) -> Revision:
        return cast(Revision, self._question(LargeRequest.delete, key, expect))

    def decide(self, cluster: str, user: User, attributes: Attributes) -> Decision:
        return cast(Decision, self._question(LargeRequest.decide, cluster, user, attributes))


class KindsProxy:
    def __init__(self, question: Callable[..., Any], message: SentRequest) -> None:
        self._question = question
        self._kind = made(message.kind)

    def at(self, cluster: str, view: str) -> KindsProxy:
        return self

    def find(self, target: Target) -> Kind:
        """The kind of the request.  Raises Redefined if its definition changed."""
        self._question(LargeRequest.check_current)
        return self._kind

    def shape(self, api_version: str, kind: str) -> Shape | None:
        make = self._question(LargeRequest.kind_of_type, api_version, kind)
        return None if make is None else made(make).shape


class PipelineProxy:
    """Runs the steps of a pipeline in their order, here or in the hub."""

    def __init__(self, question: Callable[..., Any]) -> None:
        self._question = question
        self._attempt = 0
        self._sent: bytes | None = None  #: the object as the hub has it

    async def run(self, write: Write, operation: str) -> None:
        self._attempt += 1
        self._sent = None
        steps: Sequence[SentStep] = self._question(LargeRequest.steps, operation)
        for step in steps:
            if step.finishes and write.options.dry_run:
                break
            run = step.run
            if run is None and step.name in COMPUTED:
                run = COMPUTED[step.name].run
            if run is None:
                self._ask(step, write, operation)
            else:
                run(write)

    check = run

    def _ask(self, step: SentStep, write: Write, operation: str) -> None:
        new = None if step.needs_name_only else orjson.dumps(write.new)
        sent = SentWrite(
            self._attempt,
            new if new != self._sent else None,
            write.new.get("metadata", {}).get("name", "") if write.new else "",
            None if write.entry is None else write.entry.revision,
            write.options,
            write.warnings,
            write.manager,
            write.replaces,
            write.delete_options,
        )
        if new is not None:
            self._sent = new
        result: SentResult = self._question(LargeRequest.run_step, step.name, operation, sent)
        write.warnings[:] = result.warnings
        write.prerequisites += result.prerequisites
        if result.error is not None:
            raise result.error
        if result.new is not None:
            self._sent = result.new
            changed = orjson.loads(result.new)
            write.new.clear()
            write.new.update(changed)
