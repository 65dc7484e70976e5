"""What Prometheus is told of decisions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from farflung.machines.metrics import SchedulerMetrics, most_frequent_reason


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        ({}, "other"),
        ({"wrong region": 7, "out of c6.large.2": 5}, "wrong region"),
        ({"out of c6.large.2": 3, "out of m6.xlarge.4": 2, "wrong region": 4}, "out of"),
        ({"out of memory": 1}, "out of memory"),
        ({"out of public addresses": 1}, "out of public addresses"),
        ({"out of spot c6.large.2": 1}, "out of spot"),
        ({"no flavor a\nb": 1}, "no flavor"),
        ({"no storage type sas": 1}, "no storage type"),
        ({"dearer than 2.5": 1}, "dearer than"),
        ({"taint example.com/maintenance not tolerated": 1}, "taint"),
        ({"wrong zone": 1, "wrong region": 1}, "wrong region"),
    ],
)
def test_a_refusal_is_counted_by_what_most_sites_lack_without_names(reasons: Mapping[str, int], told: str) -> None:
    assert most_frequent_reason(reasons) == told


def test_each_stage_has_its_own_times() -> None:
    registry, figures = CollectorRegistry(), SchedulerMetrics()
    registry.register(figures)
    figures.decided(0.002)
    figures.decided(0.003)
    figures.waited(4.0)
    figures.bound(0.25, 4.5)
    figures.refused({"wrong region": 1})
    figures.failed()
    said = generate_latest(registry).decode()
    sums = {
        stage: float(said.split(f'_seconds_sum{{stage="{stage}"}} ')[1].split()[0]) for stage in ("waiting", "total")
    }
    assert sums == {"waiting": 4.0, "total": 4.5}
    assert 'farflung_placement_seconds_count{stage="deciding"} 2.0' in said
    assert 'farflung_placement_seconds_bucket{le="0.1",stage="binding"} 0.0' in said
    assert 'farflung_placement_seconds_bucket{le="0.5",stage="binding"} 1.0' in said
    for result in ("bound", "refused", "failed"):
        assert f'farflung_placements_total{{result="{result}"}} 1.0' in said
