"""What is wrong with placements, and with copies."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.controllers.placement_translator.decide import PlacementProblem, condition
from farflung.inspect.fleet_health import placements, summaries
from farflung.inspect.results import as_document
from farflung.machinery.errors import Obj
from farflung.placement.guard import Withdrawal
from farflung.placement.names import REFUSED, WITHDRAWAL_HELD

GOOD = ({"type": "Ready", "status": "True", "reason": "Resolved"}, {"type": "WorkloadProjected", "status": "True"})


def placement(name: str, *conditions: Any, generation: Any = 3, seen: Any = 3, **metadata: Any) -> Obj:
    head = {"name": name, "generation": generation, "annotations": {"kcp.io/cluster": "c"}, **metadata}
    status = {"conditions": list(conditions), "specGeneration": seen, "matchingLocationCount": 2}
    return {"metadata": head, "status": status}


def reasons(document: Obj) -> list[tuple[str, str]]:
    [found] = placements([document])
    return [(one.severity, one.reason) for one in found.problems]


NO_DESTINATIONS = {
    "type": "Ready",
    "status": "False",
    "severity": "Warning",
    "reason": "NoDestinations",
    "message": "no Location matches",
}
FEW = {"type": "Ready", "status": "False", "severity": "Warning", "reason": "NotEnoughLocations"}
BROKEN = condition([PlacementProblem(REFUSED, "no")])


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        (placement("p", *GOOD), []),
        (placement("p", NO_DESTINATIONS, GOOD[1]), [("Warning", "NoDestinations")]),
        (placement("p", FEW, GOOD[1]), [("Warning", "NotEnoughLocations")]),
        (placement("p", GOOD[0], BROKEN), [("Error", "Refused")]),
        (placement("p", FEW, BROKEN), [("Warning", "NotEnoughLocations"), ("Error", "Refused")]),
        (placement("p"), [("Warning", "NotLookedAt")]),
        (placement("p", GOOD[0]), [("Warning", "NotLookedAt")]),
        (placement("p", *GOOD, generation=4), [("Warning", "NotLookedAt")]),
        (placement("p", generation=4, deletionTimestamp="2024-05-01T12:00:00Z"), []),
        (placement("p", 7, "x", None, {"status": "False"}), [("Error", ""), ("Warning", "NotLookedAt")]),
        ({"metadata": {"name": "p"}, "status": "fine"}, [("Warning", "NotLookedAt")]),
    ],
)
def test_what_controllers_say_is_a_problem_or_not(document: Obj, problems: list[tuple[str, str]]) -> None:
    assert reasons(document) == problems


def test_what_is_held_comes_first_with_what_confirms_it() -> None:
    message = Withdrawal(12, 14, {"a": {"x"}}).message(3)
    held = condition([PlacementProblem(WITHDRAWAL_HELD, message), PlacementProblem(REFUSED, "no")])
    found = placements([placement("a", *GOOD), placement("b", GOOD[0], BROKEN), placement("c", GOOD[0], held)])
    assert [(one.name, one.confirmation) for one in found] == [("c", "3/12"), ("b", ""), ("a", "")]


def test_a_confirmation_is_nothing_but_two_numbers() -> None:
    message = 'edge.kcp.io/confirm-withdrawal: "3/12; rm -rf /"'
    [found] = placements([placement("p", {"type": "X", "status": "False", "message": message})])
    assert found.confirmation == ""


# --- copies ---------------------------------------------------------------------------------------


def summary(name: str, *copies: Any, **destinations: Any) -> Obj:
    return {
        "metadata": {"name": f"p.{name}", "namespace": "shop", "labels": {"edge.kcp.io/summary-placement": "p"}},
        "subject": {"kind": "Deployment", "name": name},
        "destinations": destinations,
        "broken": list(copies),
    }


def test_the_most_broken_come_first() -> None:
    some = [
        summary("fine", expected=3, reporting=3),
        summary("late", expected=3, missing=1),
        summary("bad", expected=3, broken=2),
        summary("worse", expected=3, broken=2, missing=1),
        summary("old", expected=3, stale=3),
        summary("odd", expected="many", broken=[1], stale=-3),
    ]
    found = summaries(some)
    assert [(one.object, one.has_problems) for one in found] == [
        ("worse", True),
        ("bad", True),
        ("late", True),
        ("old", True),
        ("fine", False),
        ("odd", False),
    ]


def test_the_first_broken_copy_is_told() -> None:
    first = {"cluster": "c", "syncTargetName": "florin", "reason": "Unavailable", "message": 3, "since": "x"}
    [found] = summaries([summary("web", None, first, broken=1)])
    assert as_document(found.first) == {**first, "locationName": "", "message": ""}
    assert (found.kind, found.namespace, found.placement) == ("Deployment", "shop", "p")


def test_a_summary_is_of_the_placement_that_owns_it() -> None:
    document = summary("web")
    document["subject"]["namespace"] = "shop"
    long = "p" * 200
    document["metadata"]["ownerReferences"] = [
        None,
        {"kind": "Job", "name": "x"},
        {"kind": "EdgePlacement", "name": long},
    ]
    [found] = summaries([document])
    assert (found.placement, found.object) == (long, "shop/web")
