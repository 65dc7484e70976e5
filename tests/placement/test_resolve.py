"""After any history the engine says what a nested loop says, and every change names the placements that it changes."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from examples import examples
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from farflung.apis.edge.authors import Author
from farflung.machinery.selectors import EVERYTHING, LabelSelector, Requirement, parse_labels
from farflung.machinery.turns import ALLOWANCE, TurnAllowance, TurnOver
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import (
    COST_EXCEEDED,
    LOOKED_UP_ONE_BY_ONE,
    Resolution,
    Resolver,
    prefers_no_schedule,
    refusal,
)
from farflung.placement.select import WhereFilter, most_cost
from farflung.placement.types import (
    UNSCHEDULABLE,
    Destination,
    Effect,
    Location,
    Placement,
    PlacingRight,
    Taint,
    TargetForScheduling,
    Toleration,
    parse_location,
    parse_target,
)

CLUSTERS = st.sampled_from(["imw-1", "imw-1", "imw-1", "imw-2"])
LABELS = st.dictionaries(st.sampled_from(["env", "region"]), st.sampled_from(["a", "b", "c"]))
SELECTORS = st.sampled_from(
    [EVERYTHING, *map(parse_labels, ("env=a", "env in (a,b)", "env!=a", "region", "!region", "env=a,region=b"))]
)
TAINTS = st.lists(
    st.one_of(
        st.just(UNSCHEDULABLE),
        st.builds(Taint, st.sampled_from(["gpu", "old"]), st.sampled_from(["", "x"]), st.sampled_from(Effect)),
    ),
    max_size=2,
).map(tuple)
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(["", "gpu", "old"]),
        st.sampled_from([None, "", "x"]),
        st.sampled_from([None, *Effect]),
    ),
    max_size=2,
).map(tuple)
WHERE = st.sampled_from(
    [
        WhereFilter("target.metadata.labels['env'] == 'a'"),
        WhereFilter("location.metadata.name != 'l1' || target.metadata.name == 't2'"),
        WhereFilter("has(location.metadata.labels.region)"),
    ]
)
LOCATION_KEYS = st.builds(ObjectKey, CLUSTERS, st.sampled_from(["l1", "l2", "l3", "l4"]))
TARGET_KEYS = st.builds(ObjectKey, CLUSTERS, st.sampled_from(["t1", "t2", "t3"]))
PLACEMENT_KEYS = st.builds(ObjectKey, st.just("wmw"), st.sampled_from(["p1", "p2", "p3"]))
ALICE, BOB = Author("alice"), Author("bob")
AUTHORS = st.sampled_from([ALICE, BOB])
EVERYWHERE = PlacingRight(everywhere=True)
RIGHTS = st.one_of(
    st.just(EVERYWHERE),
    st.builds(PlacingRight, names=st.frozensets(st.sampled_from(["l1", "l2", "l3", "elsewhere"]))),
)


def location(
    key: ObjectKey, labels: dict[str, str], instances: LabelSelector | None, taints: tuple[Taint, ...]
) -> Location:
    found = parse_location({"metadata": {"name": key.name, "labels": labels}}, key.cluster)
    problem = "" if instances is not None else "spec.instanceSelector: makes no sense"
    return Location(key, labels, instances, problem, taints, found.document)


def target(key: ObjectKey, uid: str, labels: dict[str, str], taints: tuple[Taint, ...]) -> TargetForScheduling:
    found = parse_target({"metadata": {"name": key.name, "labels": labels}}, key.cluster)
    return TargetForScheduling(key, uid, labels, taints, found.document)


PLAIN = {
    "selectors": st.lists(SELECTORS, max_size=3).map(tuple),
    "author": st.one_of(AUTHORS, AUTHORS, AUTHORS, st.none()),
}
PLACEMENTS = st.one_of(
    st.builds(Placement, PLACEMENT_KEYS, st.just("uid"), st.integers(1, 9), **PLAIN),
    st.builds(
        Placement,
        PLACEMENT_KEYS,
        st.just("uid"),
        st.integers(1, 9),
        **PLAIN,
        number=st.none() | st.integers(0, 4),
        spread_by=st.sampled_from([(), ("region",), ("region", "env")]),
        tolerations=TOLERATIONS,
        where=st.none() | WHERE,
    ),
    st.builds(
        Placement,
        PLACEMENT_KEYS,
        author=PLAIN["author"],
        problem=st.just("spec.locationSelectors[0]: makes no sense"),
    ),
)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Resolver()
        self.locations: dict[ObjectKey, Location] = {}
        self.targets: dict[ObjectKey, TargetForScheduling] = {}
        self.placements: dict[ObjectKey, Placement] = {}
        self.previous: dict[ObjectKey, frozenset[Destination]] = {}
        self.resolved: dict[ObjectKey, Resolution] = {}
        self.rights: dict[tuple[Author, str], PlacingRight] = {}  #: of authors with placements
        self.doubted: set[tuple[Author, str]] = set()

    @initialize()
    def begin(self) -> None:
        """With something of everything, so that most changes mean something."""
        for name, instances in (("l1", "env=a"), ("l2", "region"), ("l3", "")):
            self.put_location(ObjectKey("imw-1", name), {"env": "a", "region": name}, parse_labels(instances), ())
        for name in ("t1", "t2"):
            self.put_target(ObjectKey("imw-1", name), "u1", {"env": "a", "region": "a"}, ())
        self.put_location(ObjectKey("imw-2", "l4"), {"env": "a"}, EVERYTHING, ())
        where = WhereFilter("target.metadata.labels['env'] == 'a'")
        for name, further in (("p1", {}), ("p2", {"number": 2, "spread_by": ("region",)}), ("p3", {"where": where})):
            author = BOB if name == "p3" else ALICE
            self.put_placement(Placement(ObjectKey("wmw", name), selectors=(EVERYTHING,), author=author, **further))
        self.put_right(ALICE, "imw-1", EVERYWHERE)
        self.put_right(BOB, "imw-1", PlacingRight(names=frozenset({"l1"})))

    def resolve(self, key: ObjectKey) -> Resolution:
        return self.engine.resolve(key, self.previous.get(key, frozenset()))

    def expect(self, dirty: frozenset[ObjectKey]) -> None:
        """Whatever was not named is as before."""
        for key in self.placements:
            if key not in dirty:
                assert self.resolve(key) == self.resolved[key]
        self.resolved = {key: self.resolve(key) for key in self.placements}

    @rule(
        key=LOCATION_KEYS,
        labels=LABELS,
        instances=st.one_of(SELECTORS, SELECTORS, st.none()),
        taints=st.one_of(st.just(()), TAINTS),
    )
    def put_location(self, key: ObjectKey, labels: dict[str, str], instances: Any, taints: Any) -> None:
        returning = self.keeping(key) if key not in self.locations else frozenset()
        self.locations[key] = location(key, labels, instances, taints)
        self.expect(self.engine.put_location(self.locations[key]) | returning)

    def keeping(self, key: ObjectKey) -> frozenset[ObjectKey]:
        """Placements with a problem and with destinations at the Location."""
        return frozenset(
            one
            for one, placement in self.placements.items()
            if placement.problem and any(ObjectKey(to.cluster, to.location) == key for to in self.kept(one))
        )

    def kept(self, key: ObjectKey) -> frozenset[Destination]:
        return self.previous.get(key, frozenset()) if self.placements[key].problem else frozenset()

    def waiting(self, cluster: str) -> frozenset[ObjectKey]:
        return frozenset(key for key in self.placements if cluster in self.engine.undecided(key, self.kept(key)))

    @rule(
        key=TARGET_KEYS,
        uid=st.sampled_from(["u1", "u2"]),
        labels=LABELS,
        taints=st.one_of(st.just(()), TAINTS),
    )
    def put_target(self, key: ObjectKey, uid: str, labels: dict[str, str], taints: Any) -> None:
        self.targets[key] = target(key, uid, labels, taints)
        self.expect(self.engine.put_target(self.targets[key]))

    @rule(data=st.data(), labels=LABELS)
    def relabel_target(self, data: st.DataObject, labels: dict[str, str]) -> None:
        if self.targets:
            before = self.targets[data.draw(st.sampled_from(sorted(self.targets)))]
            self.put_target(before.key, before.uid, labels, before.taints)

    @rule(data=st.data(), labels=LABELS)
    def relabel_location(self, data: st.DataObject, labels: dict[str, str]) -> None:
        if self.locations:
            before = self.locations[data.draw(st.sampled_from(sorted(self.locations)))]
            self.put_location(before.key, labels, before.instances, before.taints)

    @rule(data=st.data(), taints=TAINTS)
    def taint_location(self, data: st.DataObject, taints: tuple[Taint, ...]) -> None:
        if self.locations:
            before = self.locations[data.draw(st.sampled_from(sorted(self.locations)))]
            self.put_location(before.key, dict(before.labels), before.instances, taints)

    @rule(placement=PLACEMENTS)
    def put_placement(self, placement: Placement) -> None:
        self.placements[placement.key] = placement
        self.forget_rights()
        self.expect(self.engine.put_placement(placement))

    @rule(key=PLACEMENT_KEYS)
    def break_placement(self, key: ObjectKey) -> None:
        """Its spec becomes invalid after its destinations were stored."""
        if key in self.placements:
            self.store()
            author = self.placements[key].author
            self.put_placement(Placement(key, author=author, problem="spec.locationSelectors[0]: makes no sense"))

    def forget_rights(self) -> None:
        """The engine forgets those of authors without placements."""
        authors = {placement.author for placement in self.placements.values()}
        self.rights = {key: right for key, right in self.rights.items() if key[0] in authors}
        self.doubted = {key for key in self.doubted if key[0] in authors}

    @rule(author=AUTHORS, cluster=CLUSTERS, right=RIGHTS)
    def put_right(self, author: Author, cluster: str, right: PlacingRight) -> None:
        """Who waited for it is known to those who ask."""
        waiting = self.waiting(cluster)
        self.rights[author, cluster] = right
        self.doubted.discard((author, cluster))
        self.forget_rights()
        self.expect(self.engine.put_right(author, cluster, right) | waiting)

    @rule(author=AUTHORS, cluster=CLUSTERS)
    def doubt_right(self, author: Author, cluster: str) -> None:
        self.doubted.add((author, cluster))
        self.forget_rights()
        self.engine.doubt_right(author, cluster)
        self.expect(self.waiting(cluster))

    @rule(key=LOCATION_KEYS)
    def remove_location(self, key: ObjectKey) -> None:
        self.locations.pop(key, None)
        self.expect(self.engine.remove_location(key))

    @rule(key=TARGET_KEYS)
    def remove_target(self, key: ObjectKey) -> None:
        self.targets.pop(key, None)
        self.expect(self.engine.remove_target(key))

    @rule(key=PLACEMENT_KEYS)
    def remove_placement(self, key: ObjectKey) -> None:
        self.placements.pop(key, None)
        self.previous.pop(key, None)
        self.forget_rights()
        self.expect(self.engine.remove_placement(key))

    @rule()
    def store(self) -> None:
        """What was resolved is stored, and is where placements lead from now on."""
        found = {key: self.resolve(key) for key in self.placements}
        self.previous = {
            key: self.kept(key) if one.problem and not one.lost else frozenset(one.destinations)
            for key, one in found.items()
        }
        self.resolved = {key: self.resolve(key) for key in self.placements}

    @invariant()
    def placements_lead_where_a_nested_loop_says(self) -> None:
        for key, placement in self.placements.items():
            found = self.resolve(key)
            if placement.problem:
                lost = frozenset(one for one in self.kept(key) if self.is_lost(placement, one))
                left = tuple(sorted(self.kept(key) - lost)) if lost else ()
                assert found == Resolution(left, problem=placement.problem, lost=lost)
                continue
            matching = [
                one for one in self.locations.values() if any(s.matches(one.labels) for s in placement.selectors)
            ]
            usable = {one.key: self.usable(placement, one) for one in matching}
            expected = sorted(pair for pairs in usable.values() for pair in pairs)
            rights = [self.may_place(placement, one) for one in matching]
            assert found.left_out == rights.count(False)
            assert found.undecided == rights.count(None)
            assert found.matching == len(matching) - rights.count(False)
            assert self.engine.undecided(key) == {
                one.key.cluster for one in matching if placement.author and self.may_place(placement, one) is None
            }
            if placement.number is None:
                assert list(found.destinations) == expected
                assert found.chosen == sum(map(bool, usable.values()))
            else:
                chosen = {ObjectKey(one.cluster, one.location) for one in found.destinations}
                assert list(found.destinations) == sorted(pair for key in chosen for pair in usable[key])
                assert len(chosen) == found.chosen == min(placement.number, sum(map(bool, usable.values())))

    def may_place(self, placement: Placement, one: Location) -> bool | None:
        """None: nobody knows."""
        key = placement.author, one.key.cluster
        right = None if placement.author is None or key in self.doubted else self.rights.get(key)
        return None if right is None else right.everywhere or one.key.name in right.names

    def is_lost(self, placement: Placement, one: Destination) -> bool:
        there = self.locations.get(ObjectKey(one.cluster, one.location))
        return there is None or self.may_place(placement, there) is False

    def usable(self, placement: Placement, one: Location) -> list[Destination]:
        found = []
        may = self.may_place(placement, one)
        if may is False:
            return []
        for other in self.targets.values():
            if other.key.cluster != one.key.cluster or one.instances is None or not one.instances.matches(other.labels):
                continue
            pair = Destination(one.key.cluster, one.key.name, other.key.name, other.uid)
            is_current = pair in self.previous.get(placement.key, ())
            if may is None and not is_current:
                continue
            if refusal(one, other, placement.tolerations, is_current=is_current):
                continue
            if placement.where is None or self.holds(placement.where.text, one, other):
                found.append(pair)
        return found

    @staticmethod
    def holds(text: str, one: Location, other: TargetForScheduling) -> bool:
        """The three expressions, in Python."""
        if text.startswith("target"):
            return other.labels.get("env") == "a"
        return "region" in one.labels if text.startswith("has") else one.key.name != "l1" or other.key.name == "t2"

    def repeat_rights(self, other: Resolver) -> None:
        for key, right in self.rights.items():
            other.put_right(*key, right)
        for key in self.doubted:
            other.doubt_right(*key)

    @invariant()
    def every_location_is_explained(self) -> None:
        for key, placement in self.placements.items():
            found = list(self.engine.explain(key, self.previous.get(key, frozenset())))
            if placement.problem:
                assert not found
                continue
            assert [one.location for one in found] == sorted(self.locations)
            assert tuple(pair for one in found for pair in one.destinations) == self.resolve(key).destinations
            assert all(bool(one.destinations) != bool(one.reason) for one in found)
            assert sum(one.left_out for one in found) == self.resolve(key).left_out
            assert all(refused.reason for one in found for refused in one.refused)

    @invariant()
    def what_is_stored_stays(self) -> None:
        for key in self.placements:
            found = self.resolve(key)
            after = self.engine.resolve(key, frozenset(found.destinations))
            assert after == (Resolution(problem=found.problem) if found.problem else found)

    @invariant()
    def history_does_not_matter(self) -> None:
        other = Resolver()
        for placement in reversed(self.placements.values()):
            other.put_placement(placement)
        for one in reversed(self.targets.values()):
            other.put_target(one)
        for key in self.doubted:
            other.doubt_right(*key)
        for number, place in enumerate(reversed(self.locations.values())):
            if number == 2:
                self.repeat_rights(other)
            other.put_location(place)
        self.repeat_rights(other)
        for key in self.placements:
            assert in_turns(other, key, self.previous.get(key, frozenset()))[0] == self.resolve(key)


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=examples(100),
    stateful_step_count=30,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def in_turns(engine: Resolver, key: ObjectKey, previous: frozenset[Destination]) -> tuple[Resolution, int]:
    """The resolution, and the number of turns that it took, each with little work."""
    for turn in count(1):
        token = ALLOWANCE.set(TurnAllowance(work=6_000))
        try:
            return engine.resolve(key, previous), turn
        except TurnOver:
            pass
        finally:
            ALLOWANCE.reset(token)
    raise AssertionError


# --- one by one -----------------------------------------------------------------------------------

PLACE = ObjectKey("wmw", "p")


def engine(*values: Location | TargetForScheduling | Placement) -> Resolver:
    made = Resolver()
    for value in values:
        match value:
            case Location():
                made.put_location(value)
            case TargetForScheduling():
                made.put_target(value)
            case Placement():
                made.put_placement(value)
    made.put_right(ALICE, "imw", EVERYWHERE)
    return made


def place(key: ObjectKey = PLACE, **further: Any) -> Placement:
    return Placement(key, author=ALICE, **{"selectors": (EVERYTHING,), **further})


def at(name: str, **further: Any) -> Location:
    return Location(ObjectKey("imw", name), **further)


def run(name: str, **further: Any) -> TargetForScheduling:
    return TargetForScheduling(ObjectKey("imw", name), f"uid-{name}", **further)


def test_an_unknown_placement_leads_nowhere() -> None:
    with pytest.raises(KeyError):
        Resolver().resolve(PLACE)
    with pytest.raises(KeyError):
        Resolver().explain(PLACE)


def test_a_change_without_meaning_affects_no_placement() -> None:
    made = engine(at("l"), run("t"), place())
    assert not made.put_location(at("l"))
    assert not made.put_target(run("t"))
    assert not made.put_placement(place())
    assert not made.remove_location(ObjectKey("imw", "nowhere"))
    assert not made.put_target(run("t", document=b'{"status":{"x":1}}'))
    assert not made.put_location(at("l", document=b'{"status":{"x":1}}'))


def test_the_last_location_that_selects_nothing_is_removed() -> None:
    made = engine(at("nothing", instances=None), at("everything"), place())
    assert made.remove_location(ObjectKey("imw", "everything")) == {PLACE}
    assert made.remove_location(ObjectKey("imw", "nothing")) == {PLACE}
    assert not made.resolve(PLACE).destinations


def test_a_relabelled_location_concerns_those_that_it_leaves_and_those_that_it_joins() -> None:
    keys = {env: ObjectKey("wmw", env) for env in ("prod", "dev", "other")}
    made = engine(*(place(key, selectors=(parse_labels(f"env={env}"),)) for env, key in keys.items()))
    assert made.put_location(at("l", labels={"env": "prod"})) == {keys["prod"]}
    assert made.put_location(at("l", labels={"env": "dev"})) == {keys["prod"], keys["dev"]}
    assert made.put_location(at("l", labels={"env": "dev", "colour": "red"})) == frozenset()


def test_a_target_that_many_locations_select_concerns_the_placements_of_all() -> None:
    count = LOOKED_UP_ONE_BY_ONE + 5
    locations = [at(f"l{number:03}", labels={"number": str(number)}) for number in range(count)]
    placements = [
        place(
            ObjectKey("wmw", f"p{number}"), selectors=(LabelSelector((Requirement("number", "in", (str(number),)),)),)
        )
        for number in range(count + 5)
    ]
    made = engine(*locations, *placements)
    assert made.put_target(run("t")) == {one.key for one in placements[:count]}


def test_taints_keep_new_work_away_and_drive_out_only_with_no_execute() -> None:
    made = engine(at("l"), run("t"), place())
    there = frozenset(made.resolve(PLACE).destinations)
    for taints, stays in (((UNSCHEDULABLE,), True), ((Taint("gpu", "x", Effect.NO_EXECUTE),), False)):
        made.put_target(run("t", taints=taints))
        assert not made.resolve(PLACE).destinations
        assert bool(made.resolve(PLACE, there).destinations) is stays
    (explained,) = made.explain(PLACE, there)
    assert explained.reason == "the SyncTarget has the taint gpu=x:NoExecute, which is not tolerated"
    made.put_placement(place(tolerations=(Toleration("gpu", "x"),)))
    assert made.resolve(PLACE).destinations == tuple(there)


def test_a_location_with_a_reluctant_target_is_chosen_last() -> None:
    soft = (Taint("old", "", Effect.PREFER_NO_SCHEDULE),)
    placement = place(number=1)
    made = engine(at("a", taints=soft), at("b"), run("t"), placement)
    assert prefers_no_schedule(at("a", taints=soft), run("t"), ())
    assert [one.location for one in made.resolve(PLACE).destinations] == ["b"]
    assert made.resolve(PLACE, frozenset({Destination("imw", "a", "t", "uid-t")})).destinations[0].location == "a"
    reasons = [one.reason for one in made.explain(PLACE)]
    assert reasons == ["spec.numberOfLocations is 1, and other Locations come first", ""]


def test_reasons_say_which_label_is_wrong() -> None:
    selectors = tuple(map(parse_labels, ("env=prod", "env in (prod,test)", "!env", "region")))
    placement = place(selectors=selectors)
    (explained,) = engine(at("l", labels={"env": "dev"}), placement).explain(PLACE)
    assert explained.reason == (
        'spec.locationSelectors[0]: the label env of the Location is "dev", not "prod"; '
        'spec.locationSelectors[1]: the label env of the Location is "dev", none of "prod", "test"; '
        'spec.locationSelectors[2]: the label env of the Location is "dev", and should not be there; and so for 1 more'
    )


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (at("l", instances=None, problem="spec.instanceSelector.x: bad"), "spec.instanceSelector.x: bad"),
        (at("l", instances=parse_labels("a=b")), "its instanceSelector selects no SyncTarget"),
        (at("l", taints=(Taint("x", "", Effect.NO_EXECUTE),)), "none of its 2 SyncTargets can be used"),
    ],
)
def test_a_location_without_a_target_says_why(location: Location, reason: str) -> None:
    made = engine(location, run("t"), run("u"), place())
    assert [one.reason for one in made.explain(PLACE)] == [reason]
    assert made.resolve(PLACE).matching == 1


def test_an_expression_that_fails_refuses_the_pair_and_says_why() -> None:
    where = WhereFilter("target.metadata.labels['gpu'] == 'yes'")
    document = b'{"metadata":{"labels":{}}}'
    made = engine(at("l"), run("t", document=document), place(where=where))
    (explained,) = made.explain(PLACE)
    assert explained.reason == "spec.where fails: no such key: gpu"
    assert made.put_target(run("t", document=b'{"metadata":{"labels":{"gpu":"yes"}}}')) == {PLACE}
    assert len(made.resolve(PLACE).destinations) == 1


def test_expressions_may_cost_as_much_as_there_are_pairs_within_bounds() -> None:
    assert [most_cost(pairs) for pairs in (0, 10_000, 20_000, 10**6)] == [10**6, 10**6, 2 * 10**6, 10**7]


def test_an_expression_that_costs_too_much_is_a_problem_of_its_placement() -> None:
    numbers = "[0,1,2,3,4,5,6,7,8,9]"
    where = WhereFilter(f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= 0))))")
    made = engine(at("l"), place(where=where))
    for number in range(3):
        made.put_target(run(f"t{number}"))
    assert not made.resolve(PLACE).problem
    for number in range(3, 40):
        made.put_target(run(f"t{number}"))
    assert made.resolve(PLACE) == Resolution(problem=COST_EXCEEDED)
    assert made.resolve(PLACE) == Resolution(problem=COST_EXCEEDED)
    assert [one.reason for one in made.explain(PLACE)] == [COST_EXCEEDED]


def test_a_long_resolution_takes_several_turns_and_evaluates_each_pair_once() -> None:
    where = WhereFilter("location == location")
    made = engine(*(at(f"l{number}") for number in range(3)), place(where=where))
    for number in range(5):
        made.put_target(run(f"t{number}"))
    resolution, turns = in_turns(made, PLACE, frozenset())
    assert len(resolution.destinations) == 15
    assert turns == 4
    assert in_turns(made, PLACE, frozenset()) == (resolution, 1)


def test_an_invalid_expression_is_a_problem_of_its_placement() -> None:
    made = engine(at("l"), run("t"), place(where=WhereFilter("1")))
    why = 'spec.where: Invalid value: "1": compilation failed: ERROR: <input>:-1:0: must evaluate to bool'
    assert made.resolve(PLACE).problem.startswith(why)
    assert list(made.explain(PLACE)) == []


def test_a_placement_with_a_problem_keeps_only_what_its_author_may_still_use() -> None:
    made = engine(at("gone"), at("lost"), at("kept"), run("t"), place())
    made.put_right(ALICE, "imw", EVERYWHERE)
    before = frozenset(made.resolve(PLACE).destinations)
    made.put_placement(place(where=WhereFilter("1")))
    assert made.resolve(PLACE, before).lost == frozenset()
    assert made.put_right(ALICE, "imw", PlacingRight(names=frozenset({"gone", "kept"}))) == {PLACE}
    assert made.remove_location(ObjectKey("imw", "gone")) == {PLACE}
    found = made.resolve(PLACE, before)
    assert found.problem.startswith("spec.where")
    assert [one.location for one in found.destinations] == ["kept"]
    assert {one.location for one in found.lost} == {"gone", "lost"}
    made.doubt_right(ALICE, "imw")
    assert {one.location for one in made.resolve(PLACE, before).lost} == {"gone"}
    assert made.undecided(PLACE, before) == {"imw"}
