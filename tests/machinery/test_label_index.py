"""The indexes say what selectors say, one by one."""

from __future__ import annotations

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import EVERYTHING, LabelSelector, Requirement, parse_labels

KEYS = st.sampled_from(["env", "region", "size", "example.org/tier"])
VALUES = st.sampled_from(["", "prod", "dev", "1", "5", "-3", "+7", "05", "a1"])
NUMBERS = st.sampled_from(["-4", "0", "1", "5", "6"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUES, min_size=1, max_size=3, unique=True).map(tuple),
    ),
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(Requirement, KEYS, st.sampled_from(["gt", "lt"]), NUMBERS.map(lambda number: (number,))),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(lambda found: LabelSelector(tuple(found)))
IDS = st.integers(0, 15)


class Histories(RuleBasedStateMachine):
    """Both indexes after any history, beside plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.label_index, self.labels = LabelIndex(), dict[int, dict[str, str]]()
        self.selector_index, self.selectors = SelectorIndex(), dict[int, LabelSelector]()

    @rule(id=IDS, labels=LABELS)
    def put_labels(self, id: int, labels: dict[str, str]) -> None:
        self.label_index.put(id, labels)
        self.labels[id] = labels

    @rule(count=st.integers(8, 16), labels=st.lists(LABELS, min_size=16, max_size=16))
    def put_many_labels(self, count: int, labels: list[dict[str, str]]) -> None:
        for id in range(count):
            self.put_labels(id, labels[id])

    @rule(id=IDS)
    def remove_labels(self, id: int) -> None:
        self.label_index.remove(id)
        self.labels.pop(id, None)

    @rule(id=IDS, selector=SELECTORS)
    def put_selector(self, id: int, selector: LabelSelector) -> None:
        self.selector_index.put(id, selector)
        self.selectors[id] = selector

    @rule(id=IDS)
    def remove_selector(self, id: int) -> None:
        self.selector_index.remove(id)
        self.selectors.pop(id, None)

    @rule(selector=SELECTORS)
    def select(self, selector: LabelSelector) -> None:
        expected = {id for id, labels in self.labels.items() if selector.matches(labels)}
        assert set(self.label_index.select(selector)) == expected

    @rule(labels=LABELS)
    def match(self, labels: dict[str, str]) -> None:
        expected = {id for id, selector in self.selectors.items() if selector.matches(labels)}
        assert set(self.selector_index.matching(labels)) == expected

    @invariant()
    def they_know_how_many_they_have(self) -> None:
        assert (len(self.label_index), len(self.selector_index)) == (len(self.labels), len(self.selectors))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(40))


@given(st.lists(LABELS, max_size=40), SELECTORS)
def test_an_index_selects_what_its_selector_matches(labels: list[dict[str, str]], selector: LabelSelector) -> None:
    index = LabelIndex()
    for id, one in enumerate(labels):
        index.put(id, one)
    assert list(index.select(selector)) == [id for id, one in enumerate(labels) if selector.matches(one)]


@given(st.lists(SELECTORS, max_size=40), LABELS)
def test_an_index_finds_the_selectors_that_match(selectors: list[LabelSelector], labels: dict[str, str]) -> None:
    index = SelectorIndex()
    for id, one in enumerate(selectors):
        index.put(id, one)
    assert list(index.matching(labels)) == [id for id, one in enumerate(selectors) if one.matches(labels)]


def test_answers_belong_to_the_caller() -> None:
    labels, selectors = LabelIndex(), SelectorIndex()
    for id in range(20):
        labels.put(id, {"env": "prod"})
        selectors.put(id, parse_labels("env=prod"))
    for selector in (EVERYTHING, parse_labels("env"), parse_labels("env=prod"), parse_labels("env in (prod,dev)")):
        labels.select(selector).clear()
        assert len(labels.select(selector)) == 20
    selectors.matching({"env": "prod"}).clear()
    assert len(selectors.matching({"env": "prod"})) == 20


def test_what_is_removed_leaves_nothing_behind() -> None:
    labels, selectors = LabelIndex(), SelectorIndex()
    for id in range(20):
        labels.put(id, {"number": str(id)})
        selectors.put(id, parse_labels(f"number in ({id}),env,size>{id}"))
    for id in range(20):
        labels.remove(id)
        selectors.remove(id)
    assert not labels.select(EVERYTHING)
    assert not any(getattr(labels, slot) for slot in LabelIndex.__slots__)
    assert not any(getattr(selectors, slot) for slot in SelectorIndex.__slots__)
