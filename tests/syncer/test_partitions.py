"""Whatever happens to a mailbox, an edge, a syncer and the lines between them: nothing is lost at the edge that nobody
withdrew, nothing of others is touched, and in the end both sides agree."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lying_line import LIES
from partition_end import agreed
from partition_menu import BORN, REFS, SPECS
from partition_world import LONGER, World, separated

from farflung.apis.edge.names import CREATE_ONLY
from farflung.placement.names import GroupResource, ObjectRef

Step = tuple[Any, ...]

WEB = ObjectRef(GroupResource("apps", "deployments"), "shop", "web")
FARM = ObjectRef(GroupResource("", "configmaps"), "farm", "a")
MAP = ObjectRef(GroupResource("", "configmaps"), "shop", "a")
SIDES = st.sampled_from(["hub", "edge"])
REF = st.sampled_from(REFS)
USERS = st.one_of(
    st.tuples(st.just("put"), REF),
    st.tuples(st.just("put"), REF),
    st.tuples(st.just("put once"), REF),
    st.tuples(st.just("withdraw"), REF),
    st.tuples(st.just("configure"), st.integers(0, len(SPECS) - 1)),
    st.tuples(st.just("release")),
)
LOCALS = st.one_of(
    st.tuples(
        st.just("at edge"),
        st.sampled_from(["edit", "add", "delete", "unmark", "say", "stranger", "twin", "end"]),
        REF,
    ),
    st.tuples(st.just("born"), st.sampled_from(["put", "put", "end"]), st.sampled_from(BORN)),
)
FAULTS = st.one_of(
    st.tuples(st.just("away"), SIDES),
    st.tuples(st.just("back"), SIDES),
    st.tuples(st.just("lose requests"), SIDES, st.integers(1, 5)),
    st.tuples(st.just("lose answers"), SIDES, st.integers(1, 5)),
    st.tuples(st.just("cut"), SIDES),
    st.tuples(st.just("forget"), SIDES),
    st.tuples(st.just("lie"), SIDES, st.sampled_from(LIES), st.integers(1, 20)),
    st.tuples(st.just("clock"), st.integers(-100, 100)),
    st.tuples(st.just("rest")),
)
RESTARTS = st.one_of(
    st.tuples(st.just("restart"), st.booleans(), st.sampled_from(["", "", "", "lost", "damaged"])),
    st.tuples(st.just("restart hub")),
    st.tuples(st.just("save hub")),
    st.tuples(st.just("restore hub")),
    st.tuples(st.just("restart edge"), st.sampled_from([False, False, True])),
    st.tuples(st.just("renew mailbox")),
)
#: each with how many turns of the loop pass after it
STEPS = st.tuples(st.one_of(USERS, USERS, LOCALS, FAULTS, RESTARTS), st.sampled_from([0, 3, 20, 100]))


async def perform(world: World, step: Step) -> None:
    match step:
        case "put", ref:
            await world.put(ref)
        case "put once", ref:
            await world.put(ref, **{CREATE_ONLY: "false"})
        case "withdraw", ref:
            await world.withdraw(ref)
        case "configure", number:
            await world.configure(number)
        case ("release",):
            await world.release()
        case "at edge", what, ref:
            await world.at_edge(what, ref)
        case "born", what, ref:
            await world.born(what, ref)
        case "away", side:
            world.line(side).go_down()
        case "back", side:
            world.line(side).up = True
        case "lose requests", side, number:
            world.line(side).before = number
        case "lose answers", side, number:
            world.line(side).after = number
        case "cut", side:
            world.line(side).cut()
        case "forget", side:
            await world.forget_history(side)
        case "lie", side, how, times:
            await world.lie(side, how, times)
        case "clock", hours:
            world.jump(hours)
        case ("rest",):
            await asyncio.sleep(1)
        case "restart", forgetting, journal:
            await world.restart(forgetting=forgetting, journal=journal)
        case ("restart hub",):
            await world.restart_hub()
        case ("save hub",):
            world.save_hub()
        case ("restore hub",):
            if world.saved is not None:
                await world.restart_hub(world.saved)
        case "restart edge", empty:
            await world.restart_edge(empty=empty)
        case ("renew mailbox",):
            await world.renew_mailbox()
        case _:
            raise ValueError(step)


async def check(steps: list[tuple[Step, int]], *, at_rest: bool) -> None:
    """`at_rest`: both sides agree before it begins."""
    with tempfile.TemporaryDirectory() as directory:
        async with separated(Path(directory)) as world:
            await world.furnish()
            await world.link.start()
            if at_rest:
                await agree(world, [])
            for step, turns in steps:
                await perform(world, step)
                await world.turns(turns)
                assert not world.laws.broken, (step, world.laws.broken, steps)
            await world.heal()
            await agree(world, steps)
            await be_quiet(world)
            await be_the_same_after_a_restart(world, steps)


async def agree(world: World, steps: list[tuple[Step, int]]) -> None:
    try:
        await agreed(world)
    except AssertionError as error:
        raise AssertionError(f"after {steps}: {error}") from None
    assert not world.laws.broken, (world.laws.broken, steps)


async def be_quiet(world: World) -> None:
    """Until the syncer writes nothing for longer than it pauses anywhere.  It may notice late that a mailbox serves a
    kind, because no event says so; but neither side corrects the other, or sends a request, again and again."""

    async def is_quiet() -> bool:
        await world.link.settled()
        before = len(world.asked())
        await asyncio.sleep(LONGER)
        return world.asked()[before:] == []

    await world.link.eventually(is_quiet, "rest")


async def be_the_same_after_a_restart(world: World, steps: list[tuple[Step, int]]) -> None:
    before = world.essence()
    await world.restart()
    await agree(world, steps)
    await world.link.settled()
    assert world.essence() == before, steps


@settings(max_examples=examples(30))
@example([(("at edge", "unmark", WEB), 0)], True)  # a change of annotations counts in a Deployment's generation
@example(  # the journal is lost before the first report, and the configuration does not name the kinds any more
    [
        (("put", ObjectRef(GroupResource("", "namespaces"), "", "shop")), 20),
        (("configure", 1), 0),
        (("restart", False, "lost"), 0),
    ],
    False,
)
@example(  # an operator releases as many objects as there are orphans, and the edge lacks one of them
    [
        (("restart hub",), 0),
        (("rest",), 20),
        (("put once", FARM), 20),
        (("lose requests", "hub", 5), 0),
        (("renew mailbox",), 20),
        (("cut", "hub"), 20),
        (("configure", 0), 0),
        (("lose answers", "hub", 5), 100),
        (("away", "edge"), 0),
        (("clock", 50), 20),
        (("restart", True, ""), 3),
        (("withdraw", ObjectRef(GroupResource("rbac.authorization.k8s.io", "clusterroles"), "", "picker")), 0),
        (("renew mailbox",), 0),
        (("release",), 100),
        (("lose answers", "edge", 5), 3),
    ],
    False,
)
@example(  # a namespace that never reached the edge loses its copy while objects wait for it
    [
        (("put", FARM), 20),
        (("cut", "hub"), 100),
        (("at edge", "end", MAP), 20),
        (("lose answers", "hub", 2), 20),
        (("cut", "hub"), 20),
        (("born", "put", BORN[1]), 3),
        (("at edge", "end", MAP), 20),
        (("cut", "hub"), 100),
        (("lose requests", "edge", 3), 0),
        (("renew mailbox",), 100),
        (("born", "put", BORN[1]), 0),
        (("at edge", "end", MAP), 0),
        (
            (
                "put",
                ObjectRef(
                    GroupResource("apiextensions.k8s.io", "customresourcedefinitions"), "", "widgets.example.org"
                ),
            ),
            100,
        ),
    ],
    False,
)
@given(st.lists(STEPS, max_size=60), st.booleans())
async def test_after_any_history_both_sides_agree_and_nothing_was_lost(
    steps: list[tuple[Step, int]], at_rest: bool
) -> None:
    await check(steps, at_rest=at_rest)
