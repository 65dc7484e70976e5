"""Events in their two shapes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.core.events import GROUP, RULES, to_core, to_events_v1
from farflung.machinery.errors import Obj

CORE: Obj = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "e1", "namespace": "n"},
    "involvedObject": {"kind": "ConfigMap", "namespace": "n", "name": "x", "uid": "u1", "apiVersion": "v1"},
    "reason": "R",
    "message": "hello",
    "source": {"component": "me"},
    "firstTimestamp": "2020-01-01T00:00:00Z",
    "lastTimestamp": "2020-01-01T00:00:00Z",
    "count": 1,
    "type": "Normal",
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
NEW: Obj = {
    "kind": "Event",
    "apiVersion": "events.k8s.io/v1",
    "metadata": {"name": "e1", "namespace": "n"},
    "eventTime": None,
    "reason": "R",
    "regarding": {"kind": "ConfigMap", "namespace": "n", "name": "x", "uid": "u1", "apiVersion": "v1"},
    "note": "hello",
    "type": "Normal",
    "deprecatedSource": {"component": "me"},
    "deprecatedFirstTimestamp": "2020-01-01T00:00:00Z",
    "deprecatedLastTimestamp": "2020-01-01T00:00:00Z",
    "deprecatedCount": 1,
}
REPORTED: Obj = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "n1", "namespace": "n"},
    "regarding": {"kind": "ConfigMap", "name": "x", "namespace": "n"},
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingController": "example.com/c",
    "reportingInstance": "i",
    "action": "Do",
    "reason": "Because",
    "type": "Normal",
    "note": "text",
}


def told(group: str, obj: Obj) -> list[str]:
    rules = RULES[group, "Event"]
    return [str(error) for error in rules.validate(obj) + rules.validate_create(obj)]


def test_both_groups_show_one_event_under_their_own_names() -> None:
    assert to_events_v1(CORE) == NEW
    assert to_core(NEW) == CORE


def test_a_new_event_shows_the_fields_go_always_writes() -> None:
    event = dict(REPORTED)
    RULES[GROUP, "Event"].default(event)
    assert event == {
        **REPORTED,
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }
    core: Obj = {"metadata": {"name": "e"}}
    RULES["", "Event"].default(core)
    assert core == {
        "metadata": {"name": "e"},
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }


TEXT = st.text(max_size=3)
PLACE = st.dictionaries(st.sampled_from(["name", "namespace", "uid"]), TEXT)
EVENTS = st.fixed_dictionaries(
    {"metadata": st.just({"name": "e"})},
    optional={
        "involvedObject": PLACE,
        "related": PLACE,
        "source": st.dictionaries(st.sampled_from(["component", "host"]), TEXT),
        "message": TEXT.filter(bool),
        "reason": TEXT.filter(bool),
        "count": st.integers(1, 9),
        "series": st.just({"count": 2}),
        "eventTime": st.none() | st.just("2020-01-01T00:00:00.000000Z"),
        "reportingComponent": TEXT,
        "reportingInstance": TEXT,
    },
)


@given(EVENTS)
def test_there_and_back_is_the_same_event(event: Obj) -> None:
    RULES["", "Event"].default(event)
    core = {**event, "apiVersion": "v1"}
    new = to_events_v1(core)
    assert to_core(new) == core
    assert to_events_v1(to_core(new)) == new


def test_an_event_lives_in_the_namespace_of_its_object() -> None:
    assert told("", CORE) == []
    mismatch = 'involvedObject.namespace: Invalid value: "{}": does not match event.namespace'
    assert told("", {**CORE, "involvedObject": {"namespace": "other"}}) == [mismatch.format("other")]
    assert told("", {**CORE, "involvedObject": {}}) == [mismatch.format("")]
    assert told("", {**CORE, "involvedObject": {}, "metadata": {"namespace": "default"}}) == []


def test_the_new_group_is_stricter() -> None:
    assert told(GROUP, REPORTED) == []
    bare: Obj = {"metadata": {"name": "n1", "namespace": "n"}, "regarding": {"namespace": "n"}}
    assert told(GROUP, bare) == ["eventTime: Required value", 'type: Invalid value: "": has invalid value: ']
    assert told(GROUP, {**REPORTED, "deprecatedCount": 3, "series": {"count": 1}}) == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
        'count: Invalid value: "": needs to be unset',
    ]


def test_an_event_with_a_time_names_its_reporter() -> None:
    event: Obj = {
        "metadata": {"namespace": "default"},
        "eventTime": "2020-01-01T00:00:00.000000Z",
        "message": "x" * 1025,
    }
    wrong = told("", event)
    assert wrong[0] == "reportingController: Required value"
    assert wrong[-4:] == [
        "reportingInstance: Required value",
        "action: Required value",
        "reason: Required value",
        'message: Invalid value: "": can have at most 1024 characters',
    ]


def test_through_the_new_group_only_the_series_changes() -> None:
    def changed(**members: Any) -> list[str]:
        return [str(error) for error in RULES[GROUP, "Event"].validate_update({**REPORTED, **members}, REPORTED)]

    assert changed(series={"count": 2, "lastObservedTime": "2020-01-01T00:00:01.000000Z"}) == []
    assert changed(note="other", reportingController="b") == [
        'message: Invalid value: "other": field is immutable',
        'reportingController: Invalid value: "b": field is immutable',
    ]
