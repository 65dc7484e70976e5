"""One object of one mailbox, when several Locations lead there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import Obj
from farflung.placement.index import CopyReason, by_mailbox
from farflung.placement.names import GroupResource, ObjectRef, PlacementKey
from farflung.placement.project import Desired, SourceObject, compute_copy
from farflung.placement.select import Selected
from farflung.placement.types import CopyDestination, Location

REF = ObjectRef(GroupResource("", "configmaps"), "shop", "prices")
EXPANDED = {"edge.kcp.io/expand-parameters": "true"}


def made(text: str, annotations: dict[str, str], tones: dict[str, str], *places: CopyDestination) -> Desired:
    """`tones`: of the Locations."""
    metadata: Obj = {"name": "prices", "namespace": "shop", "annotations": annotations}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}
    wanted = [
        CopyReason(PlacementKey("wmw", f"p{at}"), Selected(), destination) for at, destination in enumerate(places)
    ]
    locations = {("imw", name): Location(PlacementKey("imw", name), {"tone": tone}) for name, tone in tones.items()}
    return compute_copy(REF, wanted, [SourceObject("wmw", 1, obj)], {}, locations)


def text_of(want: Desired) -> str:
    assert want.obj is not None
    text: str = want.obj["data"]["text"]
    return text


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xy")), min_size=1, unique=True),
    st.fixed_dictionaries({name: st.sampled_from(["red", "blue"]) for name in "abcd"}),
    st.sampled_from(["%(tone)", "%(location.name)", "%(cluster.name)", "plain"]),
    st.sampled_from([EXPANDED, {}]),
)
def test_the_smallest_name_counts_and_another_is_named_if_it_would_make_something_else(
    ways: list[tuple[str, str]], tones: dict[str, str], text: str, annotations: dict[str, str]
) -> None:
    """`ways`: Locations, and placements that use them."""
    places = [
        by_mailbox(("box", CopyDestination("imw", location, "t")) for location, other in ways if other == placement)
        for placement in sorted({placement for _, placement in ways})
    ]
    want = made(text, annotations, tones, *(one["box"] for one in places))
    names = sorted({location for location, _ in ways})
    alone = {name: text_of(made(text, annotations, tones, CopyDestination("imw", name, "t"))) for name in names}
    assert text_of(want) == alone[names[0]]
    different = [name for name in names if alone[name] != alone[names[0]]]
    assert bool(want.ambiguity) == bool(different)
    if different:
        assert f"the Locations {names[0]} and {different[0]} both select the cluster" in want.ambiguity
