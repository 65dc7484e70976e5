"""What is done at the edge about one object, in every situation that there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from farflung.apis.edge.names import CREATE_ONLY, DOWNSYNCED, SYNCER_MANAGER
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.conversion import (
    encoded,
    for_edge,
    hash_of,
    identical,
    is_create_only,
    is_downsynced,
    owned_fields,
)
from farflung.syncer.decide import (
    Action,
    Adopt,
    ApplyObject,
    ApplyReason,
    AwaitDeletion,
    DeleteObject,
    LeaveObject,
    LeaveReason,
    NoChange,
    ReleaseCopy,
    decide,
)
from farflung.syncer.journal import JournalEntry

CONFIGMAPS = GroupResource("", "configmaps")
NAMESPACES = GroupResource("", "namespaces")
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
KINDS = {CONFIGMAPS: "ConfigMap", NAMESPACES: "Namespace", DEFINITIONS: "CustomResourceDefinition"}
FIELDS: Obj = {"f:data": {"f:a": {}}}


def copy_of(resource: GroupResource = CONFIGMAPS, *, create_only: bool = False, value: str = "1") -> Obj:
    metadata: Obj = {"name": "x"}
    if resource == CONFIGMAPS:
        metadata["namespace"] = "shop"
    if create_only:
        metadata["annotations"] = {CREATE_ONLY: "false"}
    return {"apiVersion": "v1", "kind": KINDS[resource], "metadata": metadata, "data": {"a": value}}


def live_of(desired: Obj, *, fields: Obj | None = FIELDS, **metadata: Any) -> Obj:
    """As the edge has it after we applied it."""
    entries = [] if fields is None else [{"manager": SYNCER_MANAGER, "operation": "Apply", "fieldsV1": fields}]
    server = {"uid": "edge", "resourceVersion": "5", "managedFields": entries}
    return {**desired, "metadata": {**desired["metadata"], **server, **metadata}}


def unmarked(live: Obj) -> Obj:
    annotations = {key: text for key, text in live["metadata"]["annotations"].items() if key != DOWNSYNCED}
    return {**live, "metadata": {**live["metadata"], "annotations": annotations}}


def deleting(live: Obj) -> Obj:
    return {**live, "metadata": {**live["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def entry_of(
    resource: GroupResource = CONFIGMAPS, *, create_only: bool = False, value: str = "1", **more: Any
) -> JournalEntry:
    """Applied, and found as it was."""
    desired = encoded(for_edge(copy_of(resource, create_only=create_only, value=value)))
    entry = JournalEntry(
        ref=ObjectRef(resource, "shop" if resource == CONFIGMAPS else "", "x"),
        version="v1",
        kind=KINDS[resource],
        namespaced=resource == CONFIGMAPS,
        uid="u",
        revision=7,
        incarnation="m",
        desired=desired,
        create_only=create_only,
        has_finalizer=True,
        applied=hash_of(desired),
        owned=owned_fields(live_of(copy_of()), SYNCER_MANAGER),
        edge_uid="edge",
    )
    return replace(entry, **more)


DESIRED = for_edge(copy_of())
ONCE = for_edge(copy_of(create_only=True))
OURS = live_of(DESIRED)
NOT_MANAGED = unmarked(OURS)
OTHER = unmarked(live_of(for_edge(copy_of(value="2"))))

SITUATIONS: list[tuple[str, JournalEntry | None, Obj | None, Adopt, Action]] = [
    ("in order", entry_of(), OURS, Adopt.NEVER, NoChange()),
    ("new", entry_of(applied="", owned="", edge_uid=""), None, Adopt.NEVER, ApplyObject(ApplyReason.NEW)),
    ("deleted at the edge", entry_of(), None, Adopt.NEVER, ApplyObject(ApplyReason.DRIFT)),
    (
        "changed at the hub",
        entry_of(value="2", applied="before"),
        OURS,
        Adopt.NEVER,
        ApplyObject(ApplyReason.CHANGED, "edge"),
    ),
    (
        "applied, but not noted",
        entry_of(applied="", owned=""),
        OURS,
        Adopt.NEVER,
        ApplyObject(ApplyReason.CHANGED, "edge"),
    ),
    (
        "changed at the edge",
        entry_of(),
        live_of(DESIRED, fields={"f:data": {}}),
        Adopt.NEVER,
        ApplyObject(ApplyReason.DRIFT, "edge"),
    ),
    (
        "taken from us at the edge",
        entry_of(),
        live_of(DESIRED, fields=None),
        Adopt.NEVER,
        ApplyObject(ApplyReason.DRIFT, "edge"),
    ),
    (
        "made anew at the edge",
        entry_of(),
        live_of(DESIRED, uid="e2"),
        Adopt.NEVER,
        ApplyObject(ApplyReason.DRIFT, "e2"),
    ),
    ("a server without owners", entry_of(owned=""), live_of(DESIRED, fields=None), Adopt.NEVER, NoChange()),
    (
        "drift at a server without owners",
        entry_of(owned=""),
        {**live_of(DESIRED, fields=None), "data": {"a": "3"}},
        Adopt.NEVER,
        ApplyObject(ApplyReason.DRIFT, "edge"),
    ),
    ("going, but wanted", entry_of(), deleting(OURS), Adopt.NEVER, AwaitDeletion()),
    ("unmanaged, being deleted", entry_of(), deleting(OTHER), Adopt.ALWAYS, AwaitDeletion()),
    # withdrawn
    ("withdrawn", entry_of(withdrawn=True), OURS, Adopt.NEVER, DeleteObject("edge")),
    ("withdrawn and changed", entry_of(value="2", withdrawn=True), OURS, Adopt.NEVER, DeleteObject("edge")),
    ("withdrawn and going", entry_of(withdrawn=True), deleting(OURS), Adopt.NEVER, AwaitDeletion()),
    ("withdrawn and gone", entry_of(withdrawn=True), None, Adopt.NEVER, ReleaseCopy()),
    ("withdrawn, never ours", entry_of(withdrawn=True), OTHER, Adopt.ALWAYS, ReleaseCopy()),
    ("withdrawn, not ours any more", entry_of(withdrawn=True), NOT_MANAGED, Adopt.ALWAYS, ReleaseCopy()),
    (
        "a withdrawn namespace",
        entry_of(NAMESPACES, withdrawn=True),
        live_of(for_edge(copy_of(NAMESPACES))),
        Adopt.NEVER,
        DeleteObject("edge", container=True),
    ),
    (
        "a withdrawn definition",
        entry_of(DEFINITIONS, withdrawn=True),
        live_of(for_edge(copy_of(DEFINITIONS))),
        Adopt.NEVER,
        DeleteObject("edge", container=True),
    ),
    # not ours
    (
        "identical, adopted",
        entry_of(applied=""),
        NOT_MANAGED,
        Adopt.IF_IDENTICAL,
        ApplyObject(ApplyReason.ADOPTED, "edge", "5"),
    ),
    ("different, adopted", entry_of(applied=""), OTHER, Adopt.ALWAYS, ApplyObject(ApplyReason.ADOPTED, "edge", "5")),
    (
        "somebody else's namespace",
        entry_of(NAMESPACES),
        unmarked(live_of(for_edge(copy_of(NAMESPACES)))),
        Adopt.ALWAYS,
        NoChange(),
    ),
    # made only once
    ("to be made once", entry_of(create_only=True, applied=""), None, Adopt.NEVER, ApplyObject(ApplyReason.NEW)),
    ("made once, deleted at the edge", entry_of(create_only=True), None, Adopt.NEVER, ApplyObject(ApplyReason.DRIFT)),
    (
        "made once, changed on both sides",
        entry_of(create_only=True, value="2", applied="before"),
        {**live_of(ONCE, fields={}), "data": {"a": "3"}},
        Adopt.NEVER,
        LeaveObject(LeaveReason.CREATE_ONLY),
    ),
    (
        "left alone from now on",
        entry_of(create_only=True, applied="b"),
        OURS,
        Adopt.NEVER,
        ApplyObject(ApplyReason.PROTECTED, "edge"),
    ),
    ("mark removed at the edge", entry_of(create_only=True), OURS, Adopt.NEVER, LeaveObject(LeaveReason.CREATE_ONLY)),
    (
        "not left alone any more",
        entry_of(applied="before"),
        live_of(ONCE),
        Adopt.NEVER,
        ApplyObject(ApplyReason.CHANGED, "edge"),
    ),
    (
        "made once, somebody else's",
        entry_of(create_only=True),
        OTHER,
        Adopt.ALWAYS,
        LeaveObject(LeaveReason.CREATE_ONLY),
    ),
    ("made once, withdrawn", entry_of(create_only=True, withdrawn=True), live_of(ONCE), Adopt.NEVER, ReleaseCopy()),
    ("the edge knows it as made once", entry_of(withdrawn=True), live_of(ONCE), Adopt.NEVER, ReleaseCopy()),
    ("the edge does not yet", entry_of(create_only=True, withdrawn=True), OURS, Adopt.NEVER, ReleaseCopy()),
    # orphans
    ("an orphan in order", entry_of(orphaned=True), OURS, Adopt.NEVER, LeaveObject(LeaveReason.ORPHANED)),
    ("an orphan deleted at the edge", entry_of(orphaned=True), None, Adopt.NEVER, ApplyObject(ApplyReason.DRIFT)),
    (
        "an orphan changed at the edge",
        entry_of(orphaned=True),
        live_of(DESIRED, fields={}),
        Adopt.NEVER,
        ApplyObject(ApplyReason.DRIFT, "edge"),
    ),
    (
        "an orphan that was withdrawn",
        entry_of(orphaned=True, withdrawn=True),
        OURS,
        Adopt.NEVER,
        LeaveObject(LeaveReason.ORPHANED),
    ),
    (
        "an orphan that is somebody else's",
        entry_of(orphaned=True),
        OTHER,
        Adopt.ALWAYS,
        LeaveObject(LeaveReason.ORPHANED),
    ),
    ("marked, and nobody knows of it", None, OURS, Adopt.ALWAYS, LeaveObject(LeaveReason.ORPHANED)),
    ("made once, and forgotten", None, live_of(ONCE), Adopt.ALWAYS, LeaveObject(LeaveReason.CREATE_ONLY)),
    ("nobody knows of it", None, OTHER, Adopt.ALWAYS, NoChange()),
    ("nothing anywhere", None, None, Adopt.ALWAYS, NoChange()),
]


@pytest.mark.parametrize(
    ("entry", "live", "adopt", "step"), [one[1:] for one in SITUATIONS], ids=[one[0] for one in SITUATIONS]
)
def test_the_situation(entry: JournalEntry | None, live: Obj | None, adopt: Adopt, step: Action) -> None:
    assert decide(entry, live, adopt) == step


@pytest.mark.parametrize(
    ("live", "adopt"), [(NOT_MANAGED, Adopt.NEVER), (OTHER, Adopt.NEVER), (OTHER, Adopt.IF_IDENTICAL)]
)
def test_an_unmanaged_object_stays_with_a_message_that_tells_what_to_do(live: Obj, adopt: Adopt) -> None:
    step = decide(entry_of(), live, adopt)
    assert isinstance(step, LeaveObject) and step.reason is LeaveReason.NOT_MANAGED
    assert step.sentence.startswith("configmaps shop/x already exists at the edge")
    assert ("differs" in step.sentence) == (adopt is Adopt.IF_IDENTICAL)
    assert "--adopt always" in step.sentence


# --- all of them ----------------------------------------------------------------------------------


class Case(NamedTuple):
    entry: JournalEntry | None
    live: Obj | None
    adopt: Adopt
    step: Action


def entries() -> Iterator[JournalEntry | None]:
    yield None
    for resource, *flags in itertools.product(KINDS, *[[False, True]] * 6):
        create_only, withdrawn, orphaned, applied, changed, owned = flags
        made = entry_of(resource, create_only=create_only, withdrawn=withdrawn, orphaned=orphaned)
        made = made if owned else replace(made, owned="")
        made = made if applied else replace(made, applied="", owned="", edge_uid="")
        yield replace(made, applied="before") if applied and changed else made


def lives(resource: GroupResource) -> Iterator[Obj | None]:
    yield None
    marks = [None, "true", "Deployment/shop/x", DESIRED["metadata"]["annotations"][DOWNSYNCED]]
    if resource != CONFIGMAPS:
        marks[-1] = f"{KINDS[resource]}/x"
    for marked, once, drifted, uid, going in itertools.product(marks, *[[False, True]] * 4):
        live = live_of(for_edge(copy_of(resource, create_only=once)), uid="edge" if uid else "other")
        live = unmarked(live)
        if marked:
            live["metadata"]["annotations"][DOWNSYNCED] = marked
        if drifted:
            live = {**live, "data": {"a": "9"}, "metadata": {**live["metadata"], "managedFields": []}}
        yield deleting(live) if going else live


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    objects = {resource: list(lives(resource)) for resource in KINDS}
    return [
        Case(entry, live, adopt, decide(entry, live, adopt))
        for entry in entries()
        for live in objects[entry.ref.resource if entry else CONFIGMAPS]
        for adopt in Adopt
    ]


def desired_of(entry: JournalEntry) -> Obj:
    resource = entry.ref.resource
    return for_edge(copy_of(resource, create_only=entry.create_only))


def test_the_cases_are_many(cases: list[Case]) -> None:
    assert len(cases) > 30_000
    assert {type(case.step) for case in cases} == {
        ApplyObject,
        DeleteObject,
        ReleaseCopy,
        LeaveObject,
        NoChange,
        AwaitDeletion,
    }


def test_nothing_is_deleted_that_is_not_marked_or_was_not_withdrawn(cases: list[Case]) -> None:
    for entry, live, _, step in cases:
        if isinstance(step, DeleteObject):
            assert entry is not None and entry.withdrawn and not entry.orphaned and not entry.create_only
            assert live is not None and is_downsynced(live) and not is_create_only(live)
            assert step.uid == live["metadata"]["uid"]
            assert step.container is (entry.ref.resource != CONFIGMAPS)


def test_nothing_is_written_to_what_is_not_marked_unless_it_is_adopted(cases: list[Case]) -> None:
    for entry, live, adopt, step in cases:
        if not isinstance(step, ApplyObject):
            continue
        assert entry is not None and (not entry.withdrawn or entry.orphaned)
        if live is None:
            assert step.uid == "" and step.why in (ApplyReason.NEW, ApplyReason.DRIFT)
            continue
        assert step.uid == live["metadata"]["uid"]
        assert (step.why is ApplyReason.ADOPTED) is not is_downsynced(live)
        if step.why is ApplyReason.ADOPTED:
            assert step.version == live["metadata"]["resourceVersion"]
            assert not entry.orphaned and not entry.create_only and entry.ref.resource != NAMESPACES
            assert adopt is Adopt.ALWAYS or (adopt is Adopt.IF_IDENTICAL and identical(desired_of(entry), live))


def test_what_is_being_deleted_is_not_touched(cases: list[Case]) -> None:
    for _, live, _, step in cases:
        if live is not None and "deletionTimestamp" in live["metadata"]:
            assert not isinstance(step, ApplyObject | DeleteObject)


def test_what_is_made_only_once_is_never_written_again_once_the_edge_knows(cases: list[Case]) -> None:
    for entry, live, _, step in cases:
        if entry is not None and entry.create_only and live is not None and is_create_only(live):
            assert not isinstance(step, ApplyObject | DeleteObject)


def test_an_orphan_is_never_deleted_or_forgotten_and_is_healed(cases: list[Case]) -> None:
    for entry, live, _, step in cases:
        if entry is None or not entry.orphaned:
            continue
        assert not isinstance(step, DeleteObject | ReleaseCopy)
        if live is None:
            assert isinstance(step, ApplyObject)


def test_every_withdrawal_ends(cases: list[Case]) -> None:
    for entry, live, adopt, step in cases:
        if entry is None or not entry.withdrawn or entry.orphaned:
            continue
        assert isinstance(step, DeleteObject | ReleaseCopy | AwaitDeletion)
        if not isinstance(step, ReleaseCopy):
            assert live is not None
            assert decide(entry, None, adopt) == ReleaseCopy()


def test_what_was_applied_and_noted_is_in_order(cases: list[Case]) -> None:
    for entry, _, adopt, step in cases:
        if not isinstance(step, ApplyObject):
            continue
        assert entry is not None
        after = live_of(desired_of(entry), uid=step.uid or "new")
        noted = replace(
            entry,
            applied=hash_of(entry.desired),
            owned=owned_fields(after, SYNCER_MANAGER),
            edge_uid=after["metadata"]["uid"],
        )
        then = decide(noted, after, adopt)
        expected: Action = NoChange()
        if entry.orphaned:
            expected = LeaveObject(LeaveReason.ORPHANED)
        if entry.create_only:
            expected = LeaveObject(LeaveReason.CREATE_ONLY)
        assert then == expected


def test_only_what_is_not_ours_is_a_problem(cases: list[Case]) -> None:
    for entry, live, _, step in cases:
        if isinstance(step, LeaveObject):
            assert bool(step.sentence) is (step.reason is LeaveReason.NOT_MANAGED)
            if step.reason is LeaveReason.NOT_MANAGED:
                assert entry is not None and entry.ref.resource != NAMESPACES
                assert live is not None and not is_downsynced(live)
