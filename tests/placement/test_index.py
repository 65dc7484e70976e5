"""After any history the engine says what nested loops say, and every change names what it changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.placement.index import ConfigKey, CopyKey, ObjectIndex, PlacementIndex, SelectionKey, ServedKinds
from farflung.placement.names import DEFINITIONS, NAMESPACES, GroupResource, ObjectRef, PlacementKey
from farflung.placement.select import WorkloadSelector, parse_workload_selector
from farflung.placement.types import CopyDestination, ObservedObject

MAPS, WIDGETS, EVENTS = (
    GroupResource("", "configmaps"),
    GroupResource("acme.io", "widgets"),
    GroupResource("", "events"),
)
CLUSTERS = ["wmw-1", "wmw-2"]
MAILBOXES = ["florin", "guilder"]
REFS = [
    ObjectRef(NAMESPACES, "", "one"),
    ObjectRef(NAMESPACES, "", "two"),
    ObjectRef(MAPS, "one", "a"),
    ObjectRef(MAPS, "two", "a"),
    ObjectRef(WIDGETS, "one", "w"),
    ObjectRef(DEFINITIONS, "", "widgets.acme.io"),
    ObjectRef(EVENTS, "one", "e"),
]
WHATS = [
    {},
    {"namespaceSelector": {"matchLabels": {"env": "prod"}}},
    {"namespaceSelector": {"matchLabels": {"env": "dev"}}, "upsync": [{"apiGroup": "g", "resources": ["r"]}]},
    {"downsync": [{"apiGroup": "", "resources": ["configmaps"], "labelSelectors": [{"matchLabels": {"env": "prod"}}]}]},
    {"downsync": [{"apiGroup": "acme.io", "namespaceSelectors": [{"matchLabels": {"env": "prod"}}]}]},
    {
        "namespaceSelector": {"matchLabels": {"env": "none"}},
        "nonNamespacedObjects": [{"apiGroup": "", "resources": ["namespaces"], "resourceNames": ["one"]}],
    },
]
PLACES = [CopyDestination("imw", "l1", "t1"), CopyDestination("imw", "l2", "t1")]

keys = st.builds(PlacementKey, st.sampled_from(CLUSTERS), st.sampled_from(["p1", "p2"]))
seen = st.builds(
    ObservedObject,
    document=st.just(b"{}"),
    version=st.integers(1, 1000),
    api_version=st.just("v1"),
    labels=st.dictionaries(st.just("env"), st.sampled_from(["prod", "dev"])),
    is_terminating=st.booleans() | st.just(False),
    ours=st.sampled_from([False, False, True]),
    system=st.sampled_from([False, False, True]),
)
STEPS = st.one_of(
    st.tuples(st.just("object"), st.sampled_from(CLUSTERS), st.sampled_from(REFS), seen),
    st.tuples(st.just("no object"), st.sampled_from(CLUSTERS), st.sampled_from(REFS)),
    st.tuples(st.just("placement"), keys, st.sampled_from(WHATS)),
    st.tuples(st.just("no placement"), keys),
    st.tuples(st.just("places"), keys, st.dictionaries(st.sampled_from(MAILBOXES), st.sampled_from(PLACES))),
)


PLAIN = ObservedObject(b"{}", 1, "v1", labels={"env": "prod"})
#: something of everything, so that the steps after it have something to change
BEGINNING: list[Any] = [
    *(("object", cluster, ref, PLAIN) for cluster in CLUSTERS for ref in REFS),
    ("placement", PlacementKey("wmw-1", "p1"), WHATS[1]),
    ("placement", PlacementKey("wmw-1", "p2"), WHATS[3]),
    ("placement", PlacementKey("wmw-2", "p1"), WHATS[4]),
    ("placement", PlacementKey("wmw-2", "p2"), WHATS[5]),
    *(("places", PlacementKey(cluster, "p1"), {"florin": PLACES[0], "guilder": PLACES[1]}) for cluster in CLUSTERS),
    *(("places", PlacementKey(cluster, "p2"), {"florin": PLACES[0]}) for cluster in CLUSTERS),
]


class Twin:
    """The same by nested loops."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, ObjectRef], ObservedObject] = {}
        self.whats: dict[PlacementKey, WorkloadSelector] = {}
        self.places: dict[PlacementKey, dict[str, CopyDestination]] = {}

    def namespace(self, cluster: str, name: str) -> Any:
        found = self.objects.get((cluster, ObjectRef(NAMESPACES, "", name)))
        return found.labels if found is not None and not found.is_terminating and not found.system else None

    def selected(self, key: PlacementKey) -> dict[ObjectRef, Any]:
        what = self.whats.get(key)
        found = {
            ref: what.selects(ref, seen.labels, self.namespace(cluster, ref.namespace) if ref.namespace else None)
            for (cluster, ref), seen in self.objects.items()
            if what is not None
            and cluster == key.cluster
            and not seen.is_terminating
            and not seen.ours
            and not seen.system
            if ref.resource != EVENTS
        }
        return {ref: selected for ref, selected in found.items() if selected is not None}

    def singly(self, key: PlacementKey) -> dict[ObjectRef, Any]:
        return {ref: selected for ref, selected in self.selected(key).items() if not selected.whole_namespace}

    def definitions(self, key: PlacementKey) -> set[ObjectRef]:
        """Those that go along and are there."""
        definition = ObjectRef(DEFINITIONS, "", "widgets.acme.io")
        needed = any(ref.resource == WIDGETS for ref in self.selected(key))
        return {definition} if needed and (key.cluster, definition) in self.objects else set()

    def whole(self, key: PlacementKey) -> set[str]:
        what = self.whats.get(key)
        return {
            ref.name
            for (cluster, ref), seen in self.objects.items()
            if what is not None and cluster == key.cluster and ref.resource == NAMESPACES and not seen.is_terminating
            if not seen.system and what.selects_namespace(seen.labels)
        }

    def refs(self, key: PlacementKey) -> dict[ObjectRef, Any]:
        selected = self.selected(key)
        needed = {ObjectRef(NAMESPACES, "", ref.namespace) for ref in selected if ref.namespace}
        needed |= {ObjectRef(NAMESPACES, "", name) for name in self.whole(key)}
        needed |= {ObjectRef(DEFINITIONS, "", "widgets.acme.io") for ref in selected if ref.resource == WIDGETS}
        return {ref: selected.get(ref) for ref in {*selected, *needed}}

    def wanted(self, mailbox: str, ref: ObjectRef) -> list[Any]:
        return [
            (key, self.refs(key)[ref], self.places[key][mailbox])
            for key in sorted(self.whats)
            if mailbox in self.places.get(key, {}) and ref in self.refs(key)
        ]

    def counts(self) -> dict[PlacementKey, int]:
        return {key: len(self.selected(key)) for key in self.whats}

    def copies(self) -> dict[CopyKey, Any]:
        """All that decides about a copy."""
        found = {CopyKey(mailbox, ref): self.wanted(mailbox, ref) for mailbox in MAILBOXES for ref in REFS}
        return {
            copy: [(one, self.objects.get((one[0].cluster, copy.ref))) for one in wanted]
            for copy, wanted in found.items()
            if wanted
        }

    def configs(self) -> dict[ConfigKey, Any]:
        return {
            ConfigKey(mailbox): [
                (key, self.singly(key), self.definitions(key), self.whole(key), what.upsync)
                for key, what in sorted(self.whats.items())
                if mailbox in self.places.get(key, {})
            ]
            for mailbox in MAILBOXES
        }


@given(st.lists(STEPS, max_size=12))
def test_the_engine_agrees_with_nested_loops_and_misses_no_change(steps: list[Any]) -> None:
    world, twin = ObjectIndex(), Twin()
    selections = PlacementIndex(world, ServedKinds({}))
    copies, configs, counts = twin.copies(), twin.configs(), twin.counts()
    for what, *how in [*BEGINNING, *steps]:
        keys: set[Any]
        match what:
            case "object":
                cluster, ref, new = how
                twin.objects[cluster, ref] = new
                keys = selections.object_changed(cluster, ref, world.put(cluster, ref, new), new)
            case "no object":
                cluster, ref = how
                twin.objects.pop((cluster, ref), None)
                keys = selections.object_changed(cluster, ref, world.remove(cluster, ref), None)
            case "placement":
                key, spec = how
                twin.whats[key] = parse_workload_selector({"metadata": {"name": key.name}, "spec": spec})
                keys = selections.put_placement(key, twin.whats[key])
            case "no placement":
                twin.whats.pop(how[0], None)
                keys = selections.remove_placement(how[0])
            case _:
                twin.places[how[0]] = how[1]
                keys = selections.put_destinations(how[0], how[1])
        after, config = twin.copies(), twin.configs()
        assert {copy for copy in {*copies, *after} if copies.get(copy) != after.get(copy)} <= keys
        assert {one for one in {*configs, *config} if configs.get(one) != config.get(one)} <= keys
        count = twin.counts()
        recounted = {SelectionKey(key) for key in {*counts, *count} if counts.get(key, 0) != count.get(key, 0)}
        assert recounted <= keys
        copies, configs, counts = after, config, count
        for mailbox in MAILBOXES:
            for ref in REFS:
                assert [tuple(one) for one in selections.reasons(mailbox, ref)] == twin.wanted(mailbox, ref)
            assert selections.refs_at(mailbox) == {ref for ref in REFS if twin.wanted(mailbox, ref)}
        for key in twin.whats:
            assert selections.selected(key) == twin.selected(key)
            assert selections.whole_namespaces(key) == twin.whole(key)
        assert set(selections.source_workspaces()) == {key.cluster for key in twin.whats}
