"""Never too much in a cluster, nothing bound twice, and everything placed or with a reason: whatever happens."""

from __future__ import annotations

from typing import Any

from examples import examples
from fleet import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_history import FLAVORS, STACKS, History

from machines import machines

PLACES = ["az1", "az2", "az3"]
NAMES = ["a", "b", "c", "d", "e"]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("cluster"), st.tuples(st.sampled_from(PLACES), st.integers(0, 3), st.integers(0, 2))),
        st.tuples(st.just("machine"), st.tuples(st.sampled_from(NAMES), st.sampled_from(FLAVORS), st.integers(1, 2))),
        st.tuples(st.just("machine"), st.tuples(st.sampled_from(NAMES), st.sampled_from(FLAVORS), st.integers(1, 2))),
        st.tuples(st.just("stack"), st.tuples(st.sampled_from(STACKS), st.sampled_from(FLAVORS), st.integers(1, 3))),
        st.tuples(st.just("delete"), st.sampled_from([*NAMES, *STACKS])),
        st.tuples(st.just("end"), st.sampled_from(NAMES)),
        FAULTS,
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=examples(6))
@given(steps=STEPS)
async def test_whatever_happens_nothing_is_overcommitted_and_everything_is_placed_or_told_why(steps: list[Any]) -> None:
    async with machines() as one:
        history = History(one)
        for what, how in steps:
            await history.do(what, how)
            await history.check()
        for _ in range(2):  # a restart makes no difference
            await one.fleet.eventually(history.is_at_rest, "rest")
            await one.fleet.eventually(history.is_known, "the same in the mind of the scheduler")
            await one.restart()
            await one.at_rest()
        assert await history.is_at_rest()
