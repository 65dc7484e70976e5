"""A tally says after any history what a count from scratch says, and in the words of the API."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import orjson
import pytest
from examples import examples
from hub_harness import LocalHub
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farflung.apis.edge.summaries import STATUS_SUMMARY
from farflung.controllers.status_summarizer.health import CopyProblem, CopyReport, CopyStatus
from farflung.controllers.status_summarizer.tally import Tally
from farflung.machinery.errors import Obj
from farflung.placement.types import CopyDestination

NEWER, OLDER = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
AWAY = CopyProblem("Stale", "its syncer was not heard of", OLDER)
REFUSED = CopyProblem("Refused", "denied by a webhook")
UNREADY = CopyProblem("MinimumReplicasUnavailable", "Deployment does not have minimum availability.", OLDER)


def destination(number: int) -> CopyDestination:
    return CopyDestination(f"cluster-{number % 3}", f"location-{number % 2}", f"target-{number:03}")


def tally_of(reports: Mapping[str, CopyReport]) -> Tally:
    tally = Tally()
    for mailbox, report in reports.items():
        tally.put(mailbox, report)
    return tally


# --- the twin -------------------------------------------------------------------------------------


def from_scratch(reports: Mapping[str, CopyReport]) -> Obj:
    """The body, slowly."""
    copy_statuses = [one.copy_status for one in reports.values() if one.copy_status is not None]
    broken = sorted(
        (one.destination[:3], mailbox, one.refused or one.copy_status.problem or one.stale)
        for mailbox, one in reports.items()
        if one.copy_status is not None and (one.refused or one.copy_status.problem or one.stale)
    )
    body: Obj = {
        "destinations": {
            "expected": len(reports),
            "reporting": len([one for one in copy_statuses if one.reporting]),
            "missing": len(reports) - len(copy_statuses),
            "stale": len([one for one in reports.values() if one.stale]),
            "broken": len(broken),
        },
        "observedAt": max((one.observed for one in copy_statuses), default=""),
        "aggregates": dict(sorted(numbers_from_scratch(copy_statuses).items())[:64]),
        "conditions": counts_from_scratch([one.conditions for one in copy_statuses], 32),
        "values": counts_from_scratch([one.texts for one in copy_statuses], 16),
        "broken": [entry_from_scratch(where, what) for where, _, what in broken[:20] if what],
        "brokenTruncated": max(0, len(broken) - 20),
    }
    return {name: section for name, section in body.items() if section}


def numbers_from_scratch(copy_statuses: Iterable[CopyStatus]) -> Obj:
    found: dict[str, list[int | float]] = {}
    for copy_status in copy_statuses:
        for path, number in copy_status.numbers.items():
            found.setdefault(path, []).append(number)
    return {
        path: {
            "count": len(numbers),
            "sum": written(sum((Fraction(one) for one in numbers), Fraction(0))),
            "min": written(min(Fraction(one) for one in numbers)),
            "max": written(max(Fraction(one) for one in numbers)),
        }
        for path, numbers in found.items()
    }


def written(number: Fraction) -> int | float:
    exact = number.denominator == 1 and -(2**63) <= number < 2**63
    nearest = float(max(min(number, Fraction(sys.float_info.max)), Fraction(-sys.float_info.max)))
    return int(number) if exact else int(nearest) if nearest.is_integer() and abs(nearest) < 2**63 else nearest


def counts_from_scratch(found: Iterable[Mapping[str, str]], limit: int) -> Obj:
    pairs = Counter(pair for one in found for pair in one.items())
    names = sorted({name for name, _ in pairs})[:limit]
    counted = {name: sorted((text, count) for (of, text), count in pairs.items() if of == name) for name in names}
    return {name: dict(counts[:16]) for name, counts in counted.items()}


def entry_from_scratch(where: tuple[Any, ...], what: CopyProblem) -> Obj:
    words = ("cluster", "locationName", "syncTargetName", "reason", "message", "since")
    return {word: text for word, text in zip(words, (*where, *what), strict=True) if text}


# --- histories ------------------------------------------------------------------------------------

numbers = (
    st.integers(-3, 3)
    | st.sampled_from([0.1, 0.2, 0.5, 1.0, -0.0, 2**63, 2**63 - 1, 2**64 - 1, -(2**63), 1e300, 1.7e308, 5e-324])
    | st.floats(allow_nan=False, allow_infinity=False)
)
verdicts = st.none() | st.sampled_from([UNREADY, REFUSED, CopyProblem("Failed")])
copy_statuses = st.builds(
    CopyStatus,
    reporting=st.booleans(),
    observed=st.sampled_from(["", OLDER, NEWER]),
    numbers=st.dictionaries(st.sampled_from(["readyReplicas", "replicas", "a.b"]), numbers),
    conditions=st.dictionaries(st.sampled_from(["Available", "Ready"]), st.sampled_from(["True", "False", "Unknown"])),
    texts=st.dictionaries(st.sampled_from(["phase", "reason"]), st.sampled_from(["Running", "Pending"])),
    problem=verdicts,
)
places = st.builds(CopyDestination, *[st.sampled_from(["a", "b"])] * 3)
reports = st.builds(
    CopyReport,
    destination=places,
    copy_status=st.none() | copy_statuses,
    refused=st.none() | st.just(REFUSED),
    stale=st.none() | st.just(AWAY),
)
mailboxes = st.sampled_from(["m1", "m2", "m3", "m4"])
histories = st.lists(st.tuples(mailboxes, st.none() | reports), max_size=15)


def replicas(number: int) -> CopyReport:
    return CopyReport(CopyDestination("a", "a", "a"), CopyStatus(numbers={"replicas": number}))


@settings(max_examples=examples(100))
@given(histories)
@example([("m1", replicas(-(2**63))), ("m2", replicas(2**64 - 1))])  # the second has no exact form on the wire
def test_after_any_history_it_says_what_a_count_from_scratch_says(history: list[tuple[str, CopyReport | None]]) -> None:
    tally = Tally()
    known: dict[str, CopyReport] = {}
    for mailbox, report in history:
        if report is None:
            assert tally.remove(mailbox) == (known.pop(mailbox, None) is not None)
        else:
            assert tally.put(mailbox, report) == (known.get(mailbox) != report)
            known[mailbox] = report
        assert orjson.dumps(tally.body(), option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            from_scratch(known), option=orjson.OPT_SORT_KEYS
        )
        assert len(tally) == len(known)
        assert (mailbox in tally) == (report is not None)


@settings(max_examples=examples(50))
@given(st.dictionaries(mailboxes, reports), st.randoms(use_true_random=False))
def test_the_order_of_reports_is_of_no_influence(known: dict[str, CopyReport], random: Any) -> None:
    other = list(known.items())
    random.shuffle(other)
    assert orjson.dumps(tally_of(known).body()) == orjson.dumps(tally_of(dict(other)).body())


@pytest.mark.parametrize("count", [0, 1, 20, 21, 200])
def test_many_destinations_with_much_to_say_are_counted_as_few_are(count: int) -> None:
    known = {
        f"m{number}": CopyReport(
            destination(number),
            CopyStatus(
                True,
                numbers={f"n{number + more:03}": number / 10 for more in range(64)},
                conditions={f"C{number + more:03}": "True" for more in range(32)},
                texts={f"t{more}": f"V{number}" for more in range(16)} | {f"u{number}": "V"},
                problem=UNREADY,
            ),
        )
        for number in range(count)
    }
    tally = tally_of(known)
    assert tally.body() == from_scratch(known)
    for mailbox in known:
        tally.remove(mailbox)
    assert tally.body() == from_scratch({})


# --- words ----------------------------------------------------------------------------------------


def test_two_copies_that_are_well() -> None:
    one = CopyStatus(True, OLDER, {"readyReplicas": 1}, {"Available": "True"}, {"phase": "Running"})
    other = CopyStatus(True, NEWER, {"readyReplicas": 3}, {"Available": "True"}, {"phase": "Pending"})
    assert tally_of({"f": CopyReport(destination(1), one), "g": CopyReport(destination(2), other)}).body() == {
        "destinations": {"expected": 2, "reporting": 2, "missing": 0, "stale": 0, "broken": 0},
        "observedAt": NEWER,
        "aggregates": {"readyReplicas": {"count": 2, "sum": 4, "min": 1, "max": 3}},
        "conditions": {"Available": {"True": 2}},
        "values": {"phase": {"Pending": 1, "Running": 1}},
    }


def test_a_summary_without_copies_has_only_the_numbers_of_destinations() -> None:
    assert Tally().body() == {"destinations": dict.fromkeys(("expected", "reporting", "missing", "stale", "broken"), 0)}


def broken(report: CopyReport) -> list[str]:
    return [one["reason"] for one in tally_of({"m": report}).body().get("broken", [])]


def test_a_copy_is_broken_by_a_refusal_then_by_its_problem_then_by_staleness() -> None:
    unready = CopyStatus(True, problem=UNREADY)
    assert broken(CopyReport(destination(1), unready, REFUSED, AWAY)) == ["Refused"]
    assert broken(CopyReport(destination(1), unready, None, AWAY)) == ["MinimumReplicasUnavailable"]
    assert broken(CopyReport(destination(1), CopyStatus(True), None, AWAY)) == ["Stale"]
    assert broken(CopyReport(destination(1), CopyStatus(True))) == []


def test_a_copy_that_is_missing_is_not_broken() -> None:
    body = tally_of({"m": CopyReport(destination(1), None, REFUSED, AWAY)}).body()
    assert body == {"destinations": {"expected": 1, "reporting": 0, "missing": 1, "stale": 1, "broken": 0}}


def test_the_broken_ones_are_sorted_and_the_rest_is_counted() -> None:
    body = tally_of(
        {f"m{one}": CopyReport(destination(one), CopyStatus(True, problem=UNREADY)) for one in range(50)}
    ).body()
    told = [(one["cluster"], one["locationName"], one["syncTargetName"]) for one in body["broken"]]
    assert told == sorted(destination(one)[:3] for one in range(50))[:20]
    assert body["brokenTruncated"] == 30
    assert body["broken"][0] == {
        "cluster": "cluster-0",
        "locationName": "location-0",
        "syncTargetName": "target-000",
        "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
        "since": OLDER,
    }


def test_a_renamed_destination_is_listed_once() -> None:
    tally = tally_of({"m": CopyReport(destination(1), CopyStatus(True, problem=UNREADY))})
    assert tally.put("m", CopyReport(destination(2), CopyStatus(True, problem=UNREADY)))
    assert [one["syncTargetName"] for one in tally.body()["broken"]] == ["target-002"]


def test_sums_do_not_drift() -> None:
    tally = tally_of(
        {f"m{one}": CopyReport(destination(one), CopyStatus(True, numbers={"load": 0.1})) for one in range(10)}
    )
    assert tally.body()["aggregates"]["load"] == {"count": 10, "sum": 1, "min": 0.1, "max": 0.1}
    tally.put("huge", CopyReport(destination(11), CopyStatus(True, numbers={"load": 1e300})))
    tally.remove("huge")
    assert tally.body()["aggregates"]["load"]["sum"] == 1


# --- the wire -------------------------------------------------------------------------------------


def summary(name: str, body: Obj) -> Obj:
    subject = {"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments", "name": name}
    head = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "StatusSummary", "metadata": {"name": name}}
    return {**head, "subject": subject, **body}


async def test_a_server_with_strict_validation_accepts_every_summary() -> None:
    hub = await LocalHub.in_memory().furnish()
    definition = STATUS_SUMMARY.definition()
    made = await hub.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert made.status == 201, made.body
    some = [1, 0.5, -3, 2**64 - 1, 1.7e308, 1.7e308, 5e-324, -(2**63)]
    wild = {
        f"m{one}": CopyReport(
            CopyDestination(f"cluster-{one}", "", "target"),
            CopyStatus(
                True, NEWER, {"n": number, f"a.b-{one}": number}, {"Ready": "False"}, {"phase": "Lost"}, UNREADY
            ),
        )
        for one, number in enumerate(some * 4)
    }
    bodies = {
        "empty": Tally().body(),
        "missing": tally_of({"m": CopyReport(destination(1), None, REFUSED, AWAY)}).body(),
        "wild": tally_of(wild).body(),
    }
    for name, body in bodies.items():
        path = "/apis/edge.kcp.io/v1alpha1/namespaces/default/statussummaries"
        answer = await hub.request("POST", path, summary(name, body), query={"fieldValidation": "Strict"})
        assert answer.status == 201, answer.body
        assert {key: answer.json[key] for key in body} == body
