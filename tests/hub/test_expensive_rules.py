"""Validation rules of custom resources: the event loop evaluates what is cheap, and worker processes the rest."""

from __future__ import annotations

from typing import Any

import pytest
from definitions import DEFINITIONS, THINGS, definition, struct, thing, version
from hub_harness import MERGE_PATCH, Answer, LocalHub
from long_turns import no_long_turns

from farflung.machinery import turns

TEXTS = {"type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 3}}
LOOPS = "self.texts.all(x, self.texts.all(y, x != y || x == y || x != '%d'))"
MANY = {"texts": ["abc"] * 150}


def ruled(*rules: str) -> dict[str, Any]:
    """A definition with these rules of the spec."""
    spec = struct(texts=TEXTS, count={"type": "integer"}) | {
        "x-kubernetes-validations": [{"rule": one} for one in rules]
    }
    described = version()
    described["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    return definition(described)


def finished(hub: LocalHub) -> int:
    """Requests that were computed in worker processes."""
    return hub.assembly.workers.finished


async def test_twelve_expensive_rules_never_hold_the_event_loop(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, ruled(*(LOOPS % at for at in range(12))))
    async with no_long_turns():
        for name in ("a", "b"):
            assert (await hub.post(THINGS, thing(name, **MANY))).status == 201
        changed = await hub.patch(f"{THINGS}/a", {"spec": {"count": 1}}, MERGE_PATCH)
    assert changed.status == 200
    assert finished(hub) >= 3


async def test_a_worker_reports_the_errors_of_expensive_rules_as_the_event_loop_would(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hub.create(DEFINITIONS, ruled(LOOPS % 1, "self.count < 3", "self.texts.all(x, x.size() < self.count)"))

    async def answers() -> list[Answer]:
        return [
            await hub.post(THINGS, thing("a", **MANY, count=4)),
            await hub.post(THINGS, thing("a", **MANY, count=2)),
            await hub.post(THINGS, thing("a", **MANY)),
            await hub.post(THINGS, thing("a", texts=[], count=9), query={"dryRun": "All"}),
        ]

    computed = await answers()
    assert finished(hub) >= 3
    monkeypatch.setattr(turns.TurnAllowance, "take", lambda *taken: None)
    monkeypatch.setattr(turns.TurnAllowance.__init__, "__defaults__", (10**12, 10**12))
    before = finished(hub)
    assert await answers() == computed
    assert finished(hub) == before
    assert [answer.status for answer in computed] == [422] * 4


async def test_cheap_rules_are_evaluated_at_once(hub: LocalHub) -> None:
    await hub.create(DEFINITIONS, ruled("self.count < 3", "self.texts.all(x, x.size() < 4)"))
    assert (await hub.post(THINGS, thing("a", texts=["abc"], count=1))).status == 201
    assert (await hub.post(THINGS, thing("b", texts=["abc"], count=3))).status == 422
    assert finished(hub) == 0


async def test_long_rules_are_compiled_by_workers_until_the_event_loop_has_compiled_them_in_several_turns(
    hub: LocalHub,
) -> None:
    rules = [" && ".join(f"self.count != {10 * at + more}" for more in range(10)) for at in range(1, 30)]
    async with no_long_turns():
        await hub.create(DEFINITIONS, ruled(*rules))
        assert finished(hub) == 1  # it checks the rules
        for at in range(100):
            before = finished(hub)
            await hub.create(THINGS, thing(f"a{at}", count=1))
            if finished(hub) == before:
                break
    assert 3 < finished(hub) < 50


async def test_a_rule_that_no_turn_can_compile_is_left_to_workers(hub: LocalHub) -> None:
    long = " || ".join(["self.count == 1"] * 200)
    async with no_long_turns():
        await hub.create(DEFINITIONS, ruled(long))
        for at in range(3):
            await hub.create(THINGS, thing(f"a{at}", count=1))
        assert (await hub.post(THINGS, thing("b", count=2))).status == 422
    assert finished(hub) == 5
