"""How long a syncer waits before it corrects once more what somebody changes again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.placement.names import GroupResource, ObjectRef
from farflung.syncer.decide import PATIENT, QUIET_SECONDS, DriftBackoff

ONE, OTHER = (ObjectRef(GroupResource("", "configmaps"), "shop", name) for name in ("a", "b"))


def test_what_was_never_corrected_is_corrected_at_once() -> None:
    assert DriftBackoff().pause(ONE, 5.0) == 0.0


def test_the_first_corrections_are_done_at_once_and_then_each_waits_twice_as_long() -> None:
    contests, now, pauses = DriftBackoff(), 0.0, []
    for _ in range(PATIENT + 12):
        contests.record_correction(ONE, now)
        pauses.append(contests.pause(ONE, now))
        now += pauses[-1]
    assert pauses == [0.0] * PATIENT + [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0] + [QUIET_SECONDS] * 4
    assert contests.pause(OTHER, now) == 0.0


def test_drift_is_reported_from_the_first_pause_on() -> None:
    contests = DriftBackoff()
    told = [contests.record_correction(ONE, 0.0) for _ in range(PATIENT + 1)]
    assert told == [""] * PATIENT + ["another client at the edge changed it 4 times; the next correction is in 2 s"]


SECONDS = st.integers(0, 1000 * 64).map(lambda number: number / 64)  #: without rounding in sums and differences


@given(st.lists(SECONDS, max_size=20))
def test_after_a_long_rest_a_contest_is_forgotten(rests: list[float]) -> None:
    contests, now, rounds = DriftBackoff(), 0.0, 0
    for rest in rests:
        now += contests.pause(ONE, now) + rest
        rounds = 1 if contests.pause(ONE, now) == 0.0 and rest > QUIET_SECONDS else rounds + 1
        assert bool(contests.record_correction(ONE, now)) == (rounds > PATIENT)
        assert contests.pause(ONE, now) <= QUIET_SECONDS
