"""What the garbage collector decides, and the index it decides by."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from farflung.hub.controllers.owner_graph import (
    Delete,
    Dependents,
    Disown,
    Following,
    Hold,
    Identity,
    Leave,
    Owner,
    Place,
    Reference,
    Release,
    Unblock,
    decide,
    identity_of,
    is_concerned,
)
from farflung.hub.objects import uid_of
from farflung.machinery.names import FOREGROUND, ORPHAN
from farflung.store.base import Entry

FINALIZERS = ("example.com/hold", ORPHAN, FOREGROUND)

identities = st.builds(
    Identity,
    uid=st.just("own"),
    deletionTimestamp=st.sampled_from([None, "2026-01-01T00:00:00Z"]),
    finalizers=st.lists(st.sampled_from(FINALIZERS), unique=True).map(tuple),
    ownerReferences=st.lists(
        st.builds(
            Reference,
            st.just("v1"),
            st.just("ConfigMap"),
            st.just("n"),
            st.sampled_from("abcd"),
            st.sampled_from([None, True]),
        ),
        max_size=4,
    ).map(tuple),
)
followings = st.builds(Following, st.booleans(), st.booleans(), st.booleans())


@st.composite
def situations(draw: st.DrawFn) -> tuple[Identity, list[Owner], Following]:
    identity = draw(identities)
    owners = [draw(st.sampled_from(Owner)) for _ in identity.references]
    return identity, owners, draw(followings)


@given(situations())
def test_nothing_with_a_present_owner_is_deleted(situation: tuple[Identity, list[Owner], Following]) -> None:
    identity, owners, following = situation
    if Owner.PRESENT in owners:
        assert not isinstance(decide(identity, owners, following), Delete)


@given(situations())
def test_nothing_without_owners_is_deleted(situation: tuple[Identity, list[Owner], Following]) -> None:
    identity, owners, following = situation
    if not owners:
        assert isinstance(decide(identity, owners, following), Leave | Release | Unblock)


@given(situations())
def test_where_an_owner_is_unclear_only_orphans_lose_a_reference(
    situation: tuple[Identity, list[Owner], Following],
) -> None:
    identity, owners, following = situation
    if Owner.UNCLEAR in owners and identity.deletionTimestamp is None:
        action = decide(identity, owners, following)
        assert isinstance(action, Leave) or (isinstance(action, Disown) and Owner.ORPHANING in owners)


@given(situations())
def test_only_references_that_lead_nowhere_are_removed_and_some_always_are(
    situation: tuple[Identity, list[Owner], Following],
) -> None:
    identity, owners, following = situation
    action = decide(identity, owners, following)
    if isinstance(action, Disown):
        states = list(zip((one.uid for one in identity.references), owners, strict=True))
        assert action.uids
        for uid in action.uids:
            assert {state for one, state in states if one == uid} & {Owner.ABSENT, Owner.WAITING, Owner.ORPHANING}
        if Owner.ORPHANING not in owners:
            assert action.uids.isdisjoint(uid for uid, state in states if state is Owner.PRESENT)


@given(situations())
def test_what_is_being_deleted_is_not_deleted_again(situation: tuple[Identity, list[Owner], Following]) -> None:
    identity, owners, following = situation
    if identity.deletionTimestamp is not None:
        assert not isinstance(decide(identity, owners, following), Delete)


@given(situations())
def test_a_finalizer_is_removed_only_from_what_is_being_deleted_and_free(
    situation: tuple[Identity, list[Owner], Following],
) -> None:
    identity, owners, following = situation
    action = decide(identity, owners, following)
    if isinstance(action, Release):
        assert identity.deletionTimestamp is not None
        assert action.finalizer in (identity.finalizers or ())
        assert not (following.any if action.finalizer == ORPHAN else following.blocking)


@given(situations())
def test_a_circle_is_opened_only_where_there_is_one(situation: tuple[Identity, list[Owner], Following]) -> None:
    identity, owners, following = situation
    if isinstance(decide(identity, owners, following), Unblock):
        assert following.circular


def test_an_object_goes_the_way_its_own_finalizer_says() -> None:
    reference = (Reference("v1", "ConfigMap", "n", "a"),)
    for finalizer, policy in ((ORPHAN, "Orphan"), (FOREGROUND, "Foreground"), ("example.com/hold", "Background")):
        identity = Identity("own", ownerReferences=reference, finalizers=(finalizer,))
        assert decide(identity, [Owner.ABSENT], Following()) == Delete(policy)


def test_an_object_whose_owner_waits_goes_after_its_own_dependents() -> None:
    identity = Identity("own", ownerReferences=(Reference("v1", "ConfigMap", "n", "a"),))
    assert decide(identity, [Owner.WAITING], Following(any=True)) == Delete("Foreground")
    assert decide(identity, [Owner.WAITING], Following()) == Delete("Background")


# --- reading objects ------------------------------------------------------------------------------


def stored(**metadata: object) -> bytes:
    first = {"name": "n", "namespace": "uid", "uid": "1-2-3", "resourceVersion": "5", "labels": {"managedFields": "x"}}
    rest = {"data": {"a": '"ownerReferences":[],"deletionTimestamp":""'}}
    return orjson.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": first | metadata} | rest)


def test_a_uid_is_read_without_parsing() -> None:
    assert uid_of(Entry("/k", stored(), 5)) == "1-2-3"


def test_whoever_has_neither_owners_nor_a_deletion_is_of_no_concern() -> None:
    fields = [{"manager": "m", "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}]
    assert not is_concerned(stored())
    assert not is_concerned(stored(managedFields=fields))
    assert is_concerned(stored(ownerReferences=[], managedFields=fields))
    assert is_concerned(stored(deletionTimestamp="2026-01-01T00:00:00Z", managedFields=fields))


def test_nulls_are_nothing() -> None:
    identity = identity_of(Entry("/k", stored(ownerReferences=None, finalizers=None, deletionTimestamp=None), 5))
    assert identity.references == ()
    assert identity.mark == ""


# --- the index ------------------------------------------------------------------------------------

holds = st.lists(
    st.builds(Hold, st.builds(Place, st.sampled_from("xy"), st.sampled_from("12")), st.booleans()), max_size=4
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), holds), max_size=12))
def test_the_index_knows_what_brute_force_finds(steps: list[tuple[str, list[Hold]]]) -> None:
    index = Dependents()
    model: dict[str, dict[Place, bool]] = {}
    for key, wanted in steps:
        new = {hold.owner: (hold.owner, True) in wanted for hold in wanted}
        assert index.set(key, wanted) == (model.get(key, {}) != new)
        model[key] = new
        for owner in (Place(key, uid) for key in "xy" for uid in "12"):
            held = {name: owners[owner] for name, owners in model.items() if owner in owners}
            assert set(index.of(owner)) == held.keys()
            assert index.block(owner) == any(held.values())
        for name in "abcd":
            owners = model.get(name, {})
            assert (name in index) == bool(owners)
            assert set(index.owners(name)) == owners.keys()
            assert set(index.held_by(name)) == {owner.key for owner, blocks in owners.items() if blocks}
