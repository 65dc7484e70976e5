"""Problems of objects and kinds, as the report of a syncer lists them."""

from __future__ import annotations

from datetime import UTC, datetime

from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.report import Direction, Problems, all_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAPS, ROLES = GroupResource("", "configmaps"), GroupResource("rbac.authorization.k8s.io", "clusterroles")


def test_a_problem_of_a_kind_ends_when_the_kind_is_not_watched_any_more() -> None:
    troubles = Problems()
    for ref in (all_of(MAPS), all_of(ROLES), ObjectRef(ROLES, "", "picker")):
        troubles.put(ref, Direction.DOWN, "Forbidden", "may not list", NOON)
    troubles.put(all_of(ROLES), Direction.UP, "NotServed", "not served", NOON)
    troubles.keep_kinds({MAPS}, Direction.DOWN)
    left = [(one["resource"], one["name"], one["direction"]) for one in troubles.listed()]
    assert left == [("configmaps", "*", "down"), ("clusterroles", "*", "up"), ("clusterroles", "picker", "down")]
