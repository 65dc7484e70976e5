"""What the garbage collector decides, and the graph it decides by."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.catalog.objects import may_be_collected, uid_of
from farflung.hub.controllers.owner_graph import (
    DeleteDependent,
    DependentsSummary,
    NoAction,
    OwnerEdge,
    OwnerGraph,
    OwnerNode,
    OwnerReference,
    OwnershipMetadata,
    OwnerState,
    RemoveFinalizer,
    RemoveOwners,
    Unblock,
    decide,
    ownership_of,
)
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Entry

FINALIZERS = ("example.com/hold", ORPHAN, FOREGROUND)

identities = st.builds(
    OwnershipMetadata,
    uid=st.just("own"),
    deletionTimestamp=st.sampled_from([None, "2026-01-01T00:00:00Z"]),
    finalizers=st.lists(st.sampled_from(FINALIZERS), unique=True).map(tuple),
    ownerReferences=st.lists(
        st.builds(
            OwnerReference,
            st.just("v1"),
            st.just("ConfigMap"),
            st.just("n"),
            st.sampled_from("abcd"),
            st.sampled_from([None, True]),
        ),
        max_size=4,
    ).map(tuple),
)
summaries = st.builds(DependentsSummary, st.booleans(), st.booleans(), st.booleans())


@st.composite
def situations(draw: st.DrawFn) -> tuple[OwnershipMetadata, list[OwnerState], DependentsSummary]:
    metadata = draw(identities)
    owners = [draw(st.sampled_from(OwnerState)) for _ in metadata.references]
    return metadata, owners, draw(summaries)


@given(situations())
def test_nothing_with_a_present_owner_is_deleted(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    if OwnerState.PRESENT in owners:
        assert not isinstance(decide(metadata, owners, dependents), DeleteDependent)


@given(situations())
def test_nothing_without_owners_is_deleted(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    if not owners:
        assert isinstance(decide(metadata, owners, dependents), NoAction | RemoveFinalizer | Unblock)


@given(situations())
def test_where_an_owner_is_unclear_only_orphans_lose_a_reference(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    if OwnerState.UNCLEAR in owners and metadata.deletionTimestamp is None:
        action = decide(metadata, owners, dependents)
        assert isinstance(action, NoAction) or (isinstance(action, RemoveOwners) and OwnerState.ORPHANING in owners)


@given(situations())
def test_only_references_that_lead_nowhere_are_removed_and_some_always_are(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    action = decide(metadata, owners, dependents)
    if isinstance(action, RemoveOwners):
        states = list(zip((one.uid for one in metadata.references), owners, strict=True))
        assert action.uids
        for uid in action.uids:
            assert {state for one, state in states if one == uid} & {
                OwnerState.ABSENT,
                OwnerState.WAITING,
                OwnerState.ORPHANING,
            }
        if OwnerState.ORPHANING not in owners:
            assert action.uids.isdisjoint(uid for uid, state in states if state is OwnerState.PRESENT)


@given(situations())
def test_what_is_being_deleted_is_not_deleted_again(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    if metadata.deletionTimestamp is not None:
        assert not isinstance(decide(metadata, owners, dependents), DeleteDependent)


@given(situations())
def test_a_finalizer_is_removed_only_from_what_is_being_deleted_and_free(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    action = decide(metadata, owners, dependents)
    if isinstance(action, RemoveFinalizer):
        assert metadata.deletionTimestamp is not None
        assert action.finalizer in (metadata.finalizers or ())
        assert not (dependents.any if action.finalizer == ORPHAN else dependents.blocking)


@given(situations())
def test_a_circle_is_opened_only_where_there_is_one(
    situation: tuple[OwnershipMetadata, list[OwnerState], DependentsSummary],
) -> None:
    metadata, owners, dependents = situation
    if isinstance(decide(metadata, owners, dependents), Unblock):
        assert dependents.circular


def test_an_object_is_deleted_with_the_policy_of_its_own_finalizer() -> None:
    reference = (OwnerReference("v1", "ConfigMap", "n", "a"),)
    for finalizer, policy in ((ORPHAN, "Orphan"), (FOREGROUND, "Foreground"), ("example.com/hold", "Background")):
        metadata = OwnershipMetadata("own", ownerReferences=reference, finalizers=(finalizer,))
        assert decide(metadata, [OwnerState.ABSENT], DependentsSummary()) == DeleteDependent(policy)


def test_a_dependent_of_a_waiting_owner_is_deleted_after_its_own_dependents() -> None:
    metadata = OwnershipMetadata("own", ownerReferences=(OwnerReference("v1", "ConfigMap", "n", "a"),))
    assert decide(metadata, [OwnerState.WAITING], DependentsSummary(any=True)) == DeleteDependent("Foreground")
    assert decide(metadata, [OwnerState.WAITING], DependentsSummary()) == DeleteDependent("Background")


# --- reading objects ------------------------------------------------------------------------------


def stored(**metadata: object) -> Entry:
    first = {"name": "n", "namespace": "uid", "uid": "1-2-3", "resourceVersion": "5", "labels": {"managedFields": "x"}}
    rest = {"data": {"a": '"ownerReferences":[],"deletionTimestamp":""'}}
    return Entry("/k", orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": first | metadata} | rest), 5)


def test_a_uid_is_read_without_parsing() -> None:
    assert uid_of(stored()) == "1-2-3"


def test_an_object_without_owners_and_deletion_is_not_collected() -> None:
    fields = [{"manager": "m", "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}]
    assert not may_be_collected(stored())
    assert not may_be_collected(stored(managedFields=fields))
    assert may_be_collected(stored(ownerReferences=[], managedFields=fields))
    assert may_be_collected(stored(deletionTimestamp="2026-01-01T00:00:00Z", managedFields=fields))


def test_nulls_are_nothing() -> None:
    metadata = ownership_of(stored(ownerReferences=None, finalizers=None, deletionTimestamp=None))
    assert metadata.references == ()
    assert metadata.mark == ""


# --- the graph ------------------------------------------------------------------------------------

edges = st.lists(
    st.builds(OwnerEdge, st.builds(OwnerNode, st.sampled_from("xy"), st.sampled_from("12")), st.booleans()), max_size=4
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), edges), max_size=12))
def test_the_index_knows_what_brute_force_finds(steps: list[tuple[str, list[OwnerEdge]]]) -> None:
    graph = OwnerGraph()
    model: dict[str, dict[OwnerNode, bool]] = {}
    for key, wanted in steps:
        new = {hold.owner: (hold.owner, True) in wanted for hold in wanted}
        assert graph.set(key, wanted) == (model.get(key, {}) != new)
        model[key] = new
        for owner in (OwnerNode(key, uid) for key in "xy" for uid in "12"):
            held = {name: owners[owner] for name, owners in model.items() if owner in owners}
            assert set(graph.dependents(owner)) == held.keys()
            assert graph.is_blocked(owner) == any(held.values())
        for name in "abcd":
            owners = model.get(name, {})
            assert (name in graph) == bool(owners)
            assert set(graph.owners(name)) == owners.keys()
            assert set(graph.blocked_by(name)) == {owner.key for owner, blocks in owners.items() if blocks}
