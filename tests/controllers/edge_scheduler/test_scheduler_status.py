"""The status of a placement: written when it differs, and its times kept when it does not."""

from __future__ import annotations

from typing import Any

import msgspec

from farflung.apis.edge.authors import Author
from farflung.controllers.edge_scheduler.decide import desired, plan, plan_status, status
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolution
from farflung.placement.select import parse_workload_selector
from farflung.placement.types import Destination, Placement
from farflung.runtime.plan import Create, UpdateStatus

ALICE = Author("alice")
PLACEMENT = Placement(ObjectKey("wmw", "all2all"), "uid", 2, author=ALICE)
SOMEWHERE = (Destination("imw", "l", "t", "u"),)
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def written(placement: Placement, resolution: Resolution, before: Any, now: str = NOW) -> Any:
    after = status(placement, resolution, before, now)
    assert after is not None
    assert status(placement, resolution, after, LATER) is None
    return after


def test_a_placement_that_is_understood_is_ready() -> None:
    assert written(PLACEMENT, Resolution(SOMEWHERE, matching=3), None) == {
        "specGeneration": 2,
        "matchingLocationCount": 3,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Resolved", "lastTransitionTime": NOW}],
    }


def test_a_placement_without_destinations_is_not_ready() -> None:
    (condition,) = written(PLACEMENT, Resolution(matching=3), None)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoDestinations")
    assert condition["message"] == "3 Locations match, and none of them has a SyncTarget that can be used"
    (condition,) = written(PLACEMENT, Resolution(matching=1), None)["conditions"]
    assert condition["message"] == "1 Location matches, and has no SyncTarget that can be used"
    (condition,) = written(PLACEMENT, Resolution(), None)["conditions"]
    assert condition["message"] == "no Location matches"


def test_a_placement_that_selects_no_object_is_not_ready_unless_it_upsyncs() -> None:
    (condition,) = written(PLACEMENT, Resolution(SOMEWHERE, matching=1), {"selectedObjectCount": 0})["conditions"]
    assert (condition["status"], condition["severity"], condition["reason"]) == ("False", "Warning", "NothingSelected")
    assert condition["message"].startswith("no object of the workspace matches spec.namespaceSelector")
    counted = written(PLACEMENT, Resolution(SOMEWHERE, matching=1), {"selectedObjectCount": 1})
    assert (counted["selectedObjectCount"], counted["conditions"][0]["reason"]) == (1, "Resolved")
    (condition,) = written(PLACEMENT, Resolution(), {"selectedObjectCount": 0})["conditions"]
    assert condition["reason"] == "NoDestinations"
    upsyncing = parse_workload_selector({"spec": {"downsync": [], "upsync": [{"resources": ["pods"]}]}})
    placement = msgspec.structs.replace(PLACEMENT, workload=upsyncing)
    (condition,) = written(placement, Resolution(SOMEWHERE, matching=1), {"selectedObjectCount": 0})["conditions"]
    assert condition["reason"] == "Resolved"


def test_a_problem_is_reported_and_the_last_count_is_kept() -> None:
    before = written(PLACEMENT, Resolution(matching=3), None)
    after = written(PLACEMENT, Resolution(problem="spec.where: bad"), before, LATER)
    assert after["matchingLocationCount"] == 3
    assert after["conditions"] == [
        {
            "type": "Ready",
            "status": "False",
            "severity": "Error",
            "reason": "InvalidSpec",
            "message": "spec.where: bad",
            "lastTransitionTime": LATER,
        }
    ]


def test_fewer_locations_than_wanted_are_a_warning() -> None:
    few = Placement(PLACEMENT.key, number=5, author=ALICE)
    (condition,) = written(few, Resolution(matching=4, chosen=3), None)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NotEnoughLocations")
    assert condition["message"] == "3 of 5 Locations can be used; 4 match"
    (condition,) = written(few, Resolution(SOMEWHERE, matching=9, chosen=5), None)["conditions"]
    assert condition["status"] == "True"


def test_the_time_of_a_condition_stays_when_only_the_count_changes_and_conditions_of_others_stay() -> None:
    other = {"type": "Other", "status": "True", "lastTransitionTime": NOW}
    before = written(PLACEMENT, Resolution(SOMEWHERE, matching=3), {"conditions": [other]})
    after = written(PLACEMENT, Resolution(SOMEWHERE, matching=4), before, LATER)
    assert after == {**before, "matchingLocationCount": 4}
    assert after["conditions"][0] == other


def test_a_status_is_written_for_the_object_that_was_read() -> None:
    obj = {"metadata": {"name": "all2all", "resourceVersion": "7"}, "spec": {}}
    (write,) = plan_status(PLACEMENT, obj, Resolution(), NOW)
    assert isinstance(write, UpdateStatus)
    assert (write.cluster, write.name, write.object["metadata"]) == ("wmw", "all2all", obj["metadata"])
    assert plan_status(PLACEMENT, write.object, Resolution(), LATER) == []


def test_a_problem_leaves_the_slices_alone() -> None:
    problem = Resolution(problem="spec.where: bad")
    assert desired(PLACEMENT, problem) is None
    assert plan(PLACEMENT, desired(PLACEMENT, problem), []) == []
    assert [type(write) for write in plan(PLACEMENT, desired(PLACEMENT, Resolution()), [])] == [Create]
